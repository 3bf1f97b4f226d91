"""The states of both parties and every step between them, and the failures of a round by whose fault they are.

The parties look their steps up here while they run, and the diagram of the documentation is drawn from the same rows.

::

    PromiseError
    └── ProtocolError
        ├── PeerFault   the other side broke the protocol; its message was refused, nothing changed
        ├── OwnFault    this side was driven wrongly: a call that its state does not allow
        └── Abort       nobody need be at fault, but the round cannot be finished safely

After a :class:`PeerFault` a party is exactly where it was before the message. After an
:class:`Abort` it is at its end and reveals nothing more.
"""

from __future__ import annotations

import functools
from enum import Enum, IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from mapveil_client.errors import PromiseError


class ProtocolError(PromiseError):
    """A secure sum cannot go on: ``text`` is one line without a secret, ``client`` the client concerned, if any."""

    def __init__(self, text: str, client: int | None = None) -> None:
        super().__init__(text)
        self.client = client

    def __reduce__(self) -> tuple[type[ProtocolError], tuple[str, int | None]]:
        return type(self), (str(self), self.client)


class PeerFault(ProtocolError):
    """The other side broke the protocol: at the server ``client`` did, at a client the server did."""


class OwnFault(ProtocolError):
    """The caller asked for a step that this party's state does not allow."""


class Abort(ProtocolError):
    """Too few are left, or the rest cannot be unmasked: the round ends and nothing is revealed."""


class Message(IntEnum):
    """The messages, by the number that stands on the wire."""

    ADVERTISE = 1  # client: its public keys
    ROSTER = 2  # server: the graph, and the neighbours' keys
    SHARES = 3  # client: shares of both its secrets, sealed to each neighbour
    INBOX = 4  # server: the shares sealed to this client
    MASKED_INPUT = 5  # client: its masked vector
    SURVIVORS = 6  # server: whose vectors arrived
    CONSENT = 7  # client: its signature over the survivors
    CONFIRMATIONS = 8  # server: the neighbours' signatures over the survivors
    ANSWER = 9  # client: one share per neighbour


class Signal(Enum):
    """Events that the caller makes happen, not the other party."""

    START = "start"
    CLOSE = "phase over"
    ABORT = "abort"


class ClientState(Enum):
    """The states of a client; the value is its number in a saved state."""

    FRESH = 0
    ADVERTISED = 1
    SHARED = 2
    MASKED = 3
    CONSENTED = 4
    DONE = 5
    ABORTED = 6


class ServerState(Enum):
    """The states of the server: the messages that it collects, or its end."""

    KEYS = 0
    SHARES = 1
    INPUTS = 2
    CONSENTS = 3
    ANSWERS = 4
    DONE = 5
    ABORTED = 6


State = TypeVar("State", ClientState, ServerState)
Event = Message | Signal


class Step(NamedTuple, Generic[State]):
    """One row: in ``state``, on ``event``, send ``sends`` and go to ``after``.

    ``active`` is None where the step is the same with and without the consistency check.
    """

    state: State
    event: Event
    after: State
    sends: Message | None = None
    active: bool | None = None


_C, _S, _M = ClientState, ServerState, Message

CLIENT_STEPS: tuple[Step[ClientState], ...] = (
    Step(_C.FRESH, Signal.START, _C.ADVERTISED, _M.ADVERTISE),
    Step(_C.ADVERTISED, _M.ROSTER, _C.SHARED, _M.SHARES),
    Step(_C.SHARED, _M.INBOX, _C.MASKED, _M.MASKED_INPUT),
    Step(_C.MASKED, _M.SURVIVORS, _C.DONE, _M.ANSWER, active=False),
    Step(_C.MASKED, _M.SURVIVORS, _C.CONSENTED, _M.CONSENT, active=True),
    Step(_C.CONSENTED, _M.CONFIRMATIONS, _C.DONE, _M.ANSWER, active=True),
    *(Step(state, Signal.ABORT, _C.ABORTED) for state in (_C.FRESH, _C.ADVERTISED, _C.SHARED, _C.MASKED)),
    Step(_C.CONSENTED, Signal.ABORT, _C.ABORTED, active=True),
)

SERVER_STEPS: tuple[Step[ServerState], ...] = (
    Step(_S.KEYS, _M.ADVERTISE, _S.KEYS),
    Step(_S.KEYS, Signal.CLOSE, _S.SHARES, _M.ROSTER),
    Step(_S.SHARES, _M.SHARES, _S.SHARES),
    Step(_S.SHARES, Signal.CLOSE, _S.INPUTS, _M.INBOX),
    Step(_S.INPUTS, _M.MASKED_INPUT, _S.INPUTS),
    Step(_S.INPUTS, Signal.CLOSE, _S.ANSWERS, _M.SURVIVORS, active=False),
    Step(_S.INPUTS, Signal.CLOSE, _S.CONSENTS, _M.SURVIVORS, active=True),
    Step(_S.CONSENTS, _M.CONSENT, _S.CONSENTS, active=True),
    Step(_S.CONSENTS, Signal.CLOSE, _S.ANSWERS, _M.CONFIRMATIONS, active=True),
    Step(_S.ANSWERS, _M.ANSWER, _S.ANSWERS),
    Step(_S.ANSWERS, Signal.CLOSE, _S.DONE),
    *(Step(state, Signal.ABORT, _S.ABORTED) for state in (_S.KEYS, _S.SHARES, _S.INPUTS, _S.ANSWERS)),
    Step(_S.CONSENTS, Signal.ABORT, _S.ABORTED, active=True),
)


@functools.cache
def _table(party: type[Enum], active: bool) -> dict[tuple[Enum, Event], Step[Any]]:
    steps: tuple[Step[Any], ...] = CLIENT_STEPS if party is ClientState else SERVER_STEPS
    return {(step.state, step.event): step for step in steps if step.active in (None, active)}


def find_step(state: State, event: Event, active: bool) -> Step[State] | None:
    """The step that ``event`` makes in a party's state; None where it is not allowed."""
    return _table(type(state), active).get((state, event))


@functools.cache
def expected_messages(state: ClientState | ServerState, active: bool) -> tuple[Message, ...]:
    """The messages that a state accepts; none at the end."""
    steps = _table(type(state), active)
    return tuple(event for at, event in steps if at is state and isinstance(event, Message))


@functools.cache
def server_phases(active: bool) -> tuple[ServerState, ...]:
    """The phases of a round in order: the states in which the server collects messages."""
    steps = _table(ServerState, active).values()
    return tuple(step.state for step in steps if step.event is Signal.CLOSE)


def sent_messages(active: bool) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The messages that a client sends in a round, and those that it is sent, each in order."""
    client, server = (
        tuple(step.sends for step in _table(party, active).values() if step.sends is not None)
        for party in (ClientState, ServerState)
    )
    return client, server


def phase_name(phase: ServerState) -> str:
    """The name of a phase on the wire."""
    return phase.name.lower()


def phase_named(name: str) -> ServerState | None:
    """The phase of a name; None where there is none."""
    return _NAMED.get(name)


_NAMED = {phase_name(phase): phase for phase in server_phases(True)}
