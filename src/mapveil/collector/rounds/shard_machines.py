"""The secure-sum machines of a round's shards: kept while the round lasts, and rebuilt from the store at any moment.

A machine takes a phase's messages from the store only, and only once no more of them are accepted; so whichever
process builds it, and however often, it comes to the same state.
"""

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Select, select
from sqlalchemy.engine import Row

from mapveil.collector.refusals import TooLate
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import assignments, collections, devices, messages, rounds, shards
from mapveil.secure_sum.outbox import Outbox
from mapveil.secure_sum.server import Server
from mapveil.secure_sum.server_unmask import Fault, FaultKind
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.connection import Assignment
from mapveil_client.secure_sum.certificate import Authority
from mapveil_client.secure_sum.keys import Enrolled
from mapveil_client.secure_sum.states import Abort, OwnFault, PeerFault, ServerState, phase_name
from mapveil_client.terms import CollectionTerms

_KEY_BYTES: Final = 32  # of an identity
_ROWS_AT_ONCE: Final = 5000
_ROWS: Final = 256  # messages held at once while a machine takes them
_LOCK_SECONDS: Final = 0.01  # that an event loop waits for a lock at most. Chosen: a check takes 0.2 ms
_ROUNDS: Final = 64  # kept at once, one of every collection that runs: the keys and shares of its devices


class _Place(NamedTuple):
    """One shard of one round in the store."""

    store: Store
    collection: str
    number: int
    shard: int

    def phase(self) -> int:
        """The phase that the round is in; raises TooLate where it is over."""
        with self.store.read() as connection:
            row = connection.execute(_under_way(self.collection, self.number)).first()
        if row is None:
            raise TooLate("the round is over")
        return int(row.phase)


class _MovedOnError(Exception):
    """The round's phase ended while its messages were read: some of them may have been deleted with it."""


def _under_way(collection: str, number: int) -> Select[Any]:
    """The announcement and the phase of a round, unless it is over."""
    return (
        select(rounds.c.announcement, rounds.c.phase)
        .join(collections, collections.c.id == rounds.c.collection)
        .where(
            rounds.c.collection == collection,
            rounds.c.number == number,
            rounds.c.phase < ServerState.DONE.value,
            collections.c.state == State.RUNNING.value,
        )
    )


class ShardFailure(NamedTuple):
    """The end of a shard without a sum."""

    shard: int
    phase: ServerState  # at whose end
    reason: str
    client: int | None = None  # concerned


class ShardMachine:
    """The machine of one shard. Hold :attr:`lock` while using it; closing a phase holds it for long."""

    def __init__(
        self,
        place: _Place,
        announcement: RoundAnnouncement,
        seed: bytes,
        enrolled: Enrolled,
        authority: Authority | None,
    ) -> None:
        self.lock = threading.Lock()
        self.shard = place.shard
        self._place = place
        self._parameters = announcement.parameters(place.shard)
        self._seed, self._enrolled, self._authority = seed, enrolled, authority
        self.failure: ShardFailure | None = None
        self._held_long = False
        self._wait_from = -math.inf
        self._reset()

    def _reset(self) -> None:
        self._server: Server | None = None
        self._outboxes: dict[ServerState, Outbox] = {}
        self._named: list[tuple[ServerState, Fault]] = []

    @property
    def server(self) -> Server:
        """The protocol's server, made when it is first used. A process that closes few shards makes few."""
        if self._server is None:
            self._server = Server(
                self._parameters,
                self._seed,
                enrolled=self._enrolled,
                authority=self._authority,
                reread=self._masked_input,
            )
        return self._server

    def bring_up(self, phase: ServerState) -> None:
        """Close phases until it stands in ``phase``; those before it must be closed to messages.

        Messages were checked one by one before they were stored. Of two that contradict each other, as those of two
        devices with one listed identity do, the one of the first client counts. Raises TooLate where the round is over.
        """
        if self.failure is not None:
            raise Abort(self.failure.reason)
        if self.server.state.value < phase.value:
            self._held_long = True
            try:
                for _ in ServerState:  # a round moves on no more often
                    with contextlib.suppress(_MovedOnError):
                        self._close_until(phase)
                        return
                raise AssertionError("a message is gone, and no phase ended")
            finally:
                self._held_long = False

    def _close_until(self, phase: ServerState) -> None:
        stood = self._place.phase()
        while (collected := self.server.state).value < phase.value:
            known = len(self.server.faults)
            try:
                for page in self._messages(collected):
                    for row in page:
                        try:
                            self.server.receive(row.client, row.body)
                        except PeerFault:
                            self._named.append((collected, Fault(row.client, FaultKind.MESSAGE, 1)))
                # What was read may be a part only: another set of survivors than was told.
                if self._place.phase() != stood:
                    raise _MovedOnError
                try:
                    outbox = self.server.close_phase()
                finally:
                    self._named += [(collected, fault) for fault in self.server.faults[known:]]
                # Of the phase before too: until the next one is open, no device is sent anything of it.
                self._outboxes = {**dict(list(self._outboxes.items())[-1:]), self.server.state: outbox}
            except Abort as error:
                reason = f"shard {self.shard + 1}: {error}"
                self.failure = ShardFailure(self.shard, collected, reason, error.client)
                raise Abort(reason) from error
            except BaseException:
                self._reset()  # half a phase cannot be taken once more
                raise

    @contextlib.contextmanager
    def locked_for_long(self) -> Iterator[None]:
        """Hold the lock for work that no event loop is to wait for."""
        with self.lock:
            self._held_long = True
            try:
                yield
            finally:
                self._held_long = False

    @contextlib.contextmanager
    def at_hand(self, phase: ServerState) -> Iterator[bool]:
        """Hold the lock where the machine stands in a phase, else say False. Run by: an event loop.

        It waits for a thread that checks a small message or answers, not for work that takes long, and for a tenth of
        the time at most.
        """
        there, now = self._server, time.monotonic()  # a server is made under the lock only
        stands = there is not None and there.state is phase and not self._held_long
        here = stands and self.lock.acquire(timeout=_LOCK_SECONDS if now >= self._wait_from else 0)
        if stands and not here:
            self._wait_from = now + 10 * _LOCK_SECONDS
        try:
            yield here and self.server.state is phase
        finally:
            if here:
                self.lock.release()

    def let_go(self) -> None:
        """Keep nothing of what came in; the machine is rebuilt when it is used again, and fails again where it did."""
        self._reset()
        self.failure = None

    def fail(self, phase: ServerState, reason: str) -> None:
        """Give the shard's sum up at the end of a phase."""
        self.failure = ShardFailure(self.shard, phase, f"shard {self.shard + 1}: {reason}")

    def faults(self, phase: ServerState) -> list[Fault]:
        """Clients that the end of a phase names."""
        return [fault for at, fault in self._named if at is phase]

    def _messages(self, phase: ServerState) -> Iterator[Sequence[Row[Any]]]:
        """The client and the body of every message of a phase, a page at a time."""
        place = self._place
        query = select(messages.c.client, messages.c.body).where(
            messages.c.collection == place.collection,
            messages.c.round == place.number,
            messages.c.phase == phase.value,
            messages.c.shard == place.shard,
        )
        return place.store.pages(query, _ROWS, messages.c.client)

    def _masked_input(self, client: int) -> bytes:
        """The masked input of a client."""
        place = self._place
        query = select(messages.c.body).where(
            messages.c.collection == place.collection,
            messages.c.round == place.number,
            messages.c.phase == ServerState.INPUTS.value,
            messages.c.shard == place.shard,
            messages.c.client == client,
        )
        with place.store.read() as connection:
            body: bytes | None = connection.execute(query).scalar_one_or_none()
        if body is None:
            raise _MovedOnError
        return body

    def server_message(self, phase: ServerState, client: int) -> bytes:
        """The message to a client at the beginning of this phase or the one before; empty where there is none."""
        outbox = self._outboxes.get(phase)
        return b"" if outbox is None or client not in outbox else outbox[client]

    def __repr__(self) -> str:
        return (
            f"ShardMachine({self.shard}, {'no server' if self._server is None else self._server.state.name})"
        )


class RoundMachines:
    """Everything about a round that messages are checked with: its announcement, its assignments, its machines.

    Attributes
    ----------
    answers : bool
        Whether this process answers the round's devices, for which it keeps every machine where it stands: 10 MB or
        more of a shard of 1,000. One that only closes shards lets each go.
    """

    def __init__(self, store: Store, collection: str, number: int, announcement: RoundAnnouncement) -> None:
        self.announcement = announcement
        self.answers = False
        sizes = announcement.sizes
        placed = (
            select(assignments.c.device, assignments.c.shard, assignments.c.client, devices.c.public_key)
            .join_from(assignments, devices, assignments.c.device == devices.c.id)
            .where(assignments.c.collection == collection, assignments.c.round == number)
            .order_by(assignments.c.device)
        )
        drawn = (
            select(shards.c.shard, shards.c.graph_seed)
            .where(shards.c.collection == collection, shards.c.round == number)
            .order_by(shards.c.shard)
        )
        agreed = select(collections.c.terms).where(collections.c.id == collection)
        starts = np.cumsum((0, *sizes))
        keys = np.zeros((starts[-1], _KEY_BYTES), dtype=np.uint8)  # by shard, and by client in it
        parts = [np.zeros((0, 3), dtype=np.int64)]
        with store.read() as connection:
            authority = CollectionTerms.decode(connection.execute(agreed).scalar_one()).authority
            seeds = [row.graph_seed for row in connection.execute(drawn)]
            for rows in connection.execute(
                placed, execution_options={"yield_per": _ROWS_AT_ONCE}
            ).partitions():
                part = np.array([row[:3] for row in rows], dtype=np.int64)
                written = np.frombuffer(b"".join(row.public_key for row in rows), dtype=np.uint8)
                keys[starts[part[:, 1]] + part[:, 2]] = written.reshape(-1, _KEY_BYTES)
                parts.append(part)
        self._devices, self._shards, self._clients = np.concatenate(parts).T.copy()
        self.machines = [
            ShardMachine(
                _Place(store, collection, number, shard),
                announcement,
                seed,
                _enrolled(keys[starts[shard] : starts[shard + 1]]),
                authority,
            )
            for shard, seed in enumerate(seeds)
        ]

    def assignment(self, device: int) -> Assignment | None:
        """The assignment of a device; None where it takes no part."""
        at = int(self._devices.searchsorted(device))
        if at == self._devices.size or self._devices[at] != device:
            return None
        return Assignment(int(self._shards[at]), int(self._clients[at]))

    def described(self, failure: ShardFailure) -> dict[str, Any]:
        """The failure of a shard, with the device concerned, for the audit log."""
        who = {} if failure.client is None else {"device": self._device(failure.shard, failure.client)}
        size = self.announcement.sizes[failure.shard]
        what = {"devices": size, "phase": phase_name(failure.phase), "reason": failure.reason}
        return {"round": self.announcement.number, "shard": failure.shard + 1, **what, **who}

    def fault(self, machine: ShardMachine, fault: Fault) -> dict[str, Any]:
        """A device whose messages contradict others', for the audit log."""
        return {
            "round": self.announcement.number,
            "shard": machine.shard + 1,
            "device": self._device(machine.shard, fault.client),
            "kind": fault.kind,
            "against": fault.against,
            "proven": fault.proven,
        }

    def _device(self, shard: int, client: int) -> int:
        return int(self._devices[(self._shards == shard) & (self._clients == client)][0])


class ShardMachines:
    """The machines of the rounds that are under way in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._rounds: dict[tuple[str, int], RoundMachines] = {}

    def held(self, collection: str, number: int) -> RoundMachines | None:
        """A round's machines if this process has them."""
        return self._rounds.get((collection, number))

    def of(self, collection: str, number: int) -> RoundMachines | None:
        """A round's machines; None where there is no such round, or it is over."""
        held = self.held(collection, number)
        if held is not None:
            return held
        with self._lock:
            held = self.held(collection, number)
            if held is None:
                held = self._load(collection, number)
                if held is not None:
                    self._drop(collection)  # rounds follow each other: the one before is done
                    self._rounds[collection, number] = held
                    while len(self._rounds) > _ROUNDS:
                        del self._rounds[next(iter(self._rounds))]
            return held

    def _load(self, collection: str, number: int) -> RoundMachines | None:
        with self._store.read() as connection:
            data = connection.execute(_under_way(collection, number)).scalar_one_or_none()
        if data is None:
            return None
        return RoundMachines(self._store, collection, number, RoundAnnouncement.decode(data))

    @property
    def collections(self) -> set[str]:
        """The collections of which this process has machines."""
        return {collection for collection, _ in list(self._rounds)}

    def forget(self, collection: str) -> None:
        """Drop the machines of a collection: its round is done, or it ended."""
        with self._lock:
            self._drop(collection)

    def _drop(self, collection: str) -> None:
        for key in [key for key in self._rounds if key[0] == collection]:
            del self._rounds[key]


def _enrolled(keys: npt.NDArray[np.uint8]) -> Enrolled:
    """Whether an identity is that of the device enrolled under a client's number."""

    def check(client: int, identity: bytes) -> bool:
        if not 0 <= client < len(keys):
            raise OwnFault(f"client must be 0 to {len(keys) - 1}, got {client}")
        return bool(keys[client].tobytes() == identity)

    return check
