"""Public progress of a collection: devices expected and present, and the time left."""

import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from mapveil.collector.clock import Clock
from mapveil.collector.rounds.charged_devices import shard_counts
from mapveil.collector.rounds.collection import (
    Collection,
    Round,
    counted,
    find,
    log_text,
    newest_round,
    present,
)
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import assignments, messages
from mapveil_client.secure_sum.states import phase_name, server_phases

_FRESH_SECONDS: Final = 0.1
_STALE_SECONDS: Final = 1.0  # for which old progress serves others while one thread reads it again
_LOCKS: Final = 64
COUNTED_PART: Final = 20
"""Counting messages takes at most this part of the time."""


class Deadlines:
    """Ends of the phases that this process waits for, whatever the machine's clock does.

    Within a process the time left is counted on the monotonic clock, from when the process first saw the phase. What
    was left then follows from the stored time, held between nothing and the whole: a clock that jumps ends a phase
    early at worst, and never makes it last longer than twice.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: dict[tuple[str, Hashable], float] = {}

    def left(self, collection: str, what: Hashable, began: datetime, seconds: float) -> float:
        """Seconds left of something that lasts ``seconds`` from its stored beginning; 0 once it is over.

        ``what`` tells it from everything else that the collection waits for.
        """
        now = self._clock.monotonic()
        key = (collection, what)
        with self._lock:
            if key not in self._ends:
                passed = (self._clock.now() - began).total_seconds()
                self._ends[key] = now + min(max(seconds - passed, 0.0), seconds)
            return min(max(self._ends[key] - now, 0.0), seconds)  # (now + x) - now may round above x

    def forget(self, collection: str) -> None:
        """Drop what a collection that ended waited for."""
        with self._lock:
            for key in [key for key in self._ends if key[0] == collection]:
                del self._ends[key]


@dataclass(frozen=True)
class Progress:
    """Progress of a collection."""

    state: State
    round: int | None
    phase: str | None  # None between rounds, and where there are none
    open: bool  # whether what is waited for is still accepted
    closes_in_s: float | None
    wanted: int
    present: int  # members, reports, or messages of this phase
    reason: str | None = None  # of an abort, for everybody to read

    @property
    def due(self) -> bool:
        """Whether nothing more is waited for: all are there, or the time is over."""
        return self.present >= self.wanted or (self.closes_in_s is not None and self.closes_in_s <= 0)


def progress_of(connection: Connection, collection: Collection, deadlines: Deadlines) -> Progress:
    """Read where a collection stands."""
    distributed, state = collection.terms.trust == "distributed", collection.state
    newest = newest_round(connection, collection.id) if distributed else None
    number = None if newest is None else newest.number
    left = None
    if state is State.RUNNING and newest is not None:
        if newest.over:
            return Progress(state, number, None, False, None, 0, 0)
        phase = (newest.number, newest.phase)
        left = deadlines.left(collection.id, phase, newest.phase_at, collection.phase_seconds)
        wanted, there = _messages(connection, collection, newest)
        return Progress(state, number, phase_name(newest.phase), newest.open, left, wanted, there)
    if state is State.OPEN and collection.opened_at is not None:
        left = deadlines.left(collection.id, "open", collection.opened_at, collection.join_seconds)
    there = present(connection, collection)
    wanted, opened = collection.terms.devices, state is State.OPEN
    reason = None if collection.reason is None else log_text(collection.reason)
    return Progress(state, number, None, opened, left, wanted, there, reason)


def _messages(connection: Connection, collection: Collection, newest: Round) -> tuple[int, int]:
    """Messages of the phase that can come, and that are there.

    Only devices that answered the phase before, in shards that go on, can answer this one.
    """
    order = server_phases(collection.terms.active)
    at = order.index(newest.phase)
    of_phase = (
        select(messages.c.phase, func.count())
        .where(messages.c.collection == collection.id, messages.c.round == newest.number)
        .where(shard_counts(messages, collection.id, newest.number))
        .where(messages.c.phase.in_([phase.value for phase in order[max(0, at - 1) : at + 1]]))
        .group_by(messages.c.phase)
    )
    found: dict[int, int] = {row[0]: row[1] for row in connection.execute(of_phase)}
    if at == 0:
        wanted = counted(connection, collection.id, assignments, round=newest.number)
    else:
        wanted = found.get(order[at - 1].value, 0)
    return wanted, found.get(newest.phase.value, 0)


class Standing(NamedTuple):
    """The state and the phase of a collection, without the number of its messages."""

    state: State
    round: int | None
    phase: str | None


class ProgressBoard:
    """Progress, read at most ten times a second for each collection.

    Attributes
    ----------
    changes : int
        Changes of collections so far that this process made or saw.
    """

    def __init__(self, store: Store, deadlines: Deadlines) -> None:
        self._store, self._deadlines = store, deadlines
        # A collection has one of them; so few that nobody can fill the memory with the names of none.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._known: dict[str, tuple[float, Progress]] = {}
        self._count_at: dict[str, float] = {}  # before which messages are not counted again
        self._reading: set[str] = set()
        self.changes = 0

    def fresh(self, identifier: str) -> Progress | None:
        """Known progress, where it is fresh enough or another thread is reading it again."""
        known = self._known.get(identifier)
        if known is None:
            return None
        until = known[0] + (_STALE_SECONDS if identifier in self._reading else 0.0)
        return known[1] if time.monotonic() < until else None

    def of(self, identifier: str) -> Progress:
        """Progress of a collection."""
        found = self.fresh(identifier)
        if found is not None:
            return found
        with self._locks[hash(identifier) % _LOCKS]:
            found = self.fresh(identifier)
            if found is not None:
                return found
            self._reading.add(identifier)
            try:
                return self._as_counted(identifier) or self.read(identifier)
            finally:
                self._reading.discard(identifier)

    def _as_counted(self, identifier: str) -> Progress | None:
        """Progress with the last count, where counting again would take too much time and the phase is the same."""
        known = self._known.get(identifier)
        if known is None or time.monotonic() >= self._count_at.get(identifier, 0.0):
            return None
        self.standing(identifier)  # forgets what is known where it stands elsewhere
        if identifier not in self._known:
            return None
        until, made = known
        now = time.monotonic()
        if made.closes_in_s is not None:
            made = replace(made, closes_in_s=max(0.0, made.closes_in_s - (now - until + _FRESH_SECONDS)))
        self._known[identifier] = now + _FRESH_SECONDS, made
        return made

    @property
    def collections(self) -> set[str]:
        """The collections whose progress is known."""
        return set(self._known.copy())

    def standing(self, identifier: str) -> Standing:
        """The state and the phase of a collection, read now: two rows, however many messages there are."""
        with self._store.read() as connection:
            state = find(connection, identifier).state
            newest = newest_round(connection, identifier)
        collects = state is State.RUNNING and newest is not None and not newest.over
        number, phase = (None, None) if newest is None else (newest.number, newest.phase)
        made = Standing(state, number, phase_name(phase) if collects and phase is not None else None)
        known = self._known.get(identifier)
        if known is not None and made != (known[1].state, known[1].round, known[1].phase):
            self.forget(identifier)
        return made

    def read(self, identifier: str) -> Progress:
        """Progress of a collection, read now."""
        started, changes = time.monotonic(), self.changes
        with self._store.read() as connection:
            made = progress_of(connection, find(connection, identifier), self._deadlines)
        ended = time.monotonic()
        if self.changes == changes:  # else it may be what was before the change
            self._known[identifier] = ended + _FRESH_SECONDS, made
            self._count_at[identifier] = ended + COUNTED_PART * (ended - started)
        return made

    def forget(self, identifier: str) -> None:
        """Read it again when it is asked for next: it changed."""
        self.changes += 1
        self._known.pop(identifier, None)
        self._count_at.pop(identifier, None)
