"""The life of a collection: the only place that says which state may follow which.

The phases of its rounds are those of :mod:`mapveil_client.secure_sum.states`.
The service looks its steps up here while it runs, and the diagram of the documentation is drawn from the same rows.
"""

import functools
from enum import StrEnum
from typing import Final, NamedTuple


class State(StrEnum):
    """State of a collection; the store holds the value."""

    PENDING = "pending"  # its terms can be read by operators
    OPEN = "open"  # devices join, or report
    RUNNING = "running"  # rounds of secure sums
    FINISHING = "finishing"  # everything is in, the map is being made
    DONE = "done"
    ABORTED = "aborted"


class Happening(StrEnum):
    """Event that moves a collection to its next state."""

    OPENED = "opened"  # by an operator
    JOINED = "joined"  # enough devices, or the deadline, or an operator who begins
    REPORTED = "reported"  # likewise, of reports
    SUMMED = "summed"  # the last round is done
    MAPPED = "mapped"  # the map is stored
    FAILED = "failed"  # by an operator, or a promise that could not be kept


class Step(NamedTuple):
    """One row: in ``state``, when this happens, go to ``after``."""

    state: State
    happening: Happening
    after: State


_S, _H = State, Happening

STEPS: Final[tuple[Step, ...]] = (
    Step(_S.PENDING, _H.OPENED, _S.OPEN),
    Step(_S.OPEN, _H.JOINED, _S.RUNNING),
    Step(_S.OPEN, _H.REPORTED, _S.FINISHING),
    Step(_S.RUNNING, _H.SUMMED, _S.FINISHING),
    Step(_S.FINISHING, _H.MAPPED, _S.DONE),
    Step(_S.PENDING, _H.FAILED, _S.ABORTED),
    Step(_S.OPEN, _H.FAILED, _S.ABORTED),
    Step(_S.RUNNING, _H.FAILED, _S.ABORTED),
    Step(_S.FINISHING, _H.FAILED, _S.ABORTED),
)

ACTIVE: Final = (State.OPEN, State.RUNNING, State.FINISHING)
"""The states in which the service has something to do."""


@functools.cache
def _table() -> dict[tuple[State, Happening], State]:
    return {(step.state, step.happening): step.after for step in STEPS}


def step_of(state: State, happening: Happening) -> State | None:
    """The state after it happened; None where it cannot.

    Examples
    --------
    >>> step_of(State.PENDING, Happening.OPENED)
    <State.OPEN: 'open'>
    """
    return _table().get((state, happening))
