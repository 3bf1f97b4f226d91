"""Work in the store: ordered by the conductor or a request, leased by one worker at a time, done, and taken off.

A worker that was killed renews its lease no more; then another takes the work. Two workers may do the same work all
the same, such as one whose machine was asleep: the results are the same bytes, and the first one counts. On SQLite a
store has one worker, so what a worker before it had leased is free at once.
"""

import contextlib
import enum
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from mapveil.collector.clock import Clock, read_time, time_text
from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.backends import CLOCK
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import work

LEASE_SECONDS: Final = 30
"""A lease, which its worker renews three times within: work of a worker that was killed waits so long. Machines whose
clocks differ by more do some work twice, and nothing else comes of it."""

MOST_SECONDS: Final = 1800
"""Time after which a worker that does not come to the end of a task renews its lease no more."""


class Task(enum.StrEnum):
    """Kind of work."""

    SHARD = "shard"  # a shard's part of the end of a phase
    MAP = "map"  # of a collection whose rounds or reports are all in
    EXPORT = "export"  # a finished map as a file
    PRUNE = "prune"  # the messages of a round that is over
    ERASE = "erase"  # the bodies of the reports of a collection that has ended
    FORGET = "forget"  # who took part in a collection that ended long ago


class Work(NamedTuple):
    """One piece of work."""

    task: Task
    collection: str
    round: int = 0
    shard: int = 0
    name: str = ""  # of an export: its format
    place: str = ""  # of an export: where its file is wanted
    phase: int = 0  # of a shard: the ServerState that ends

    @property
    def _row(self) -> ColumnElement[bool]:
        key = self._asdict()
        del key["phase"]
        return and_(*(work.c[name] == value for name, value in key.items()))


def order(connection: Connection, wanted: Sequence[Work]) -> None:
    """Order work that is not there yet; the same shard of a later phase is ordered anew."""
    if not wanted:
        return
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    added = dialect.insert(work)
    later = added.on_conflict_do_update(
        index_elements=list(work.primary_key),
        set_={name: added.excluded[name] for name in ("phase", "served_at", "result", "lease_until")},
        where=work.c.phase != added.excluded.phase,
    )
    fresh = {"served_at": _time(connection), "attempts": 0, "result": None, "lease_until": None}
    connection.execute(later, [{**each._asdict(), **fresh} for each in wanted])


def forget_work(connection: Connection, collection: str, *tasks: Task) -> None:
    """Take the work of a collection off, done or not."""
    connection.execute(delete(work).where(work.c.collection == collection, work.c.task.in_(tasks)))


def forget_exports(store: Store, seconds: float) -> float:
    """Take off files that were ordered so long ago and that nobody makes; one asked for is ordered again.

    Returns the seconds for which none can be old enough, unless a lease keeps one.
    """
    waiting = work.c.task == Task.EXPORT.value, work.c.result.is_(None)
    with store.read() as connection:
        now, before = _time(connection), _time(connection, -seconds)
        old = *waiting, work.c.served_at < before, _free(now)
        there = bool(connection.execute(select(exists().where(*old))).scalar_one())
    if there:
        with store.write() as connection:
            connection.execute(delete(work).where(*old))
    with store.read() as connection:
        oldest = connection.execute(select(func.min(work.c.served_at)).where(*waiting)).scalar()
    age = 0.0 if oldest is None else (read_time(now) - read_time(oldest)).total_seconds()
    return max(LEASE_SECONDS, seconds - age)


def finish(connection: Connection, done: Work) -> bool:
    """Take a piece of work off; False where another worker was faster."""
    return connection.execute(delete(work).where(done._row)).rowcount == 1


def keep_result(connection: Connection, done: Work, result: bytes) -> bool:
    """Keep the result of a shard; False where there is one, or the phase is over."""
    open_still = done._row, work.c.phase == done.phase, work.c.result.is_(None)
    return connection.execute(update(work).where(*open_still).values(result=result)).rowcount == 1


def unfinished(connection: Connection, collection: str, number: int, phase: int) -> int | None:
    """Shards of a phase without a result; None where none was ordered."""
    query = select(func.count(), func.count(work.c.result)).where(*_of_phase(collection, number, phase))
    ordered, done = connection.execute(query).one()
    return ordered - done if ordered else None


def results(connection: Connection, collection: str, number: int, phase: int) -> Iterator[bytes]:
    """Results of a phase's shards, in their order."""
    query = select(work.c.result).where(*_of_phase(collection, number, phase)).order_by(work.c.shard)
    return map(bytes, connection.execute(query, execution_options={"yield_per": 100}).scalars())


def is_ordered(connection: Connection, wanted: Work) -> bool:
    """Whether a piece of work is there, leased or not."""
    return bool(connection.execute(select(exists().where(wanted._row))).scalar_one())


def failure(connection: Connection, wanted: Work) -> bytes | None:
    """The result of a piece of work that failed; None where it has none, or is not there."""
    found = connection.execute(select(work.c.result).where(wanted._row)).scalar()
    return None if found is None else bytes(found)


def waits_in_vain(store: Store, seconds: float) -> bool:
    """Whether work waits for longer than this while no worker has a lease: there is none, or none that works.

    On SQLite the process that asks is the worker.
    """
    with store.read() as connection:
        leased = exists().where(work.c.result.is_(None), work.c.lease_until >= _time(connection))
        waiting = exists().where(work.c.result.is_(None), work.c.served_at < _time(connection, -seconds))
        found = bool(connection.execute(select(and_(waiting, ~leased))).scalar_one())
    return found and store.shareable


def waiting(store: Store) -> dict[str, int]:
    """Number of pieces of work that are not done, by kind."""
    counted = select(work.c.task, func.count()).where(work.c.result.is_(None)).group_by(work.c.task)
    with store.read() as connection:
        return {row.task: row[1] for row in connection.execute(counted)}


class Leases:
    """One worker's leases of one kind of work.

    Parameters
    ----------
    store : Store
        With its tables created.
    worker : str
        Name that no other worker has.
    task : Task
        Kind of work.
    seconds : int
        Length of a lease.
    place : str
        Of exports: those whose files are wanted there.
    """

    def __init__(
        self, store: Store, worker: str, task: Task, seconds: int = LEASE_SECONDS, place: str = ""
    ) -> None:
        self._store, self._worker, self._seconds = store, worker, seconds
        self._mine = work.c.task == task.value, work.c.place == place
        self._served: dict[str, str] = {}
        self._resting: dict[Work, float] = {}

    def take(self, most: int) -> list[Work]:
        """Lease at most so many pieces of one collection: of all that have free work, the one served longest ago.

        Of its shards the ones come first that this worker had in the phase before: where its process answers devices
        too, it holds their machines.
        """
        query = select(work.c.collection, func.max(work.c.served_at)).where(*self._mine)
        with self._store.read() as connection:
            now = _time(connection)
            waiting = func.sum(case((_free(now), 1), else_=0)) > 0
            found = connection.execute(query.group_by(work.c.collection).having(waiting)).all()
        served = {collection: max(at, self._served.get(collection, "")) for collection, at in found}
        self._served = {collection: at for collection, at in self._served.items() if collection in served}
        for collection in sorted(served, key=lambda each: (served[each], each)):
            if taken := self._take(collection, most):  # another worker may be taking all of the first one's
                self._served[collection] = now
                return taken
        return []

    def _take(self, collection: str, most: int) -> list[Work]:
        nobodys = case((work.c.worker == self._worker, 0), (work.c.worker.is_(None), 1), else_=2)
        with self._store.write() if self._store.shareable else self._store.read() as connection:
            now, resting = _time(connection), self._still_resting()
            query = select(*(work.c[name] for name in Work._fields)).where(
                *self._mine, work.c.collection == collection, _free(now)
            )
            in_turn = nobodys, work.c.served_at, work.c.round, work.c.shard, work.c.name
            some = query.order_by(*in_turn).limit(most + len(resting))
            rows = connection.execute(some.with_for_update(skip_locked=True)).all()
            found = (Work(*row)._replace(task=Task(row.task)) for row in rows)
            taken = [each for each in found if each not in resting][:most]
            if self._store.shareable:
                lease = {
                    "worker": self._worker,
                    "lease_until": _time(connection, self._seconds),
                    "served_at": now,
                }
                for each in taken:
                    values = {**lease, "attempts": work.c.attempts + 1}
                    connection.execute(update(work).where(each._row).values(**values))
        return taken

    def _still_resting(self) -> set[Work]:
        now = self._store.clock.monotonic()
        self._resting = {each: until for each, until in self._resting.items() if until > now}
        return set(self._resting)

    def rest(self, given_back: Sequence[Work], seconds: float = 0) -> None:
        """Give work back; this worker takes it again after a time at the earliest."""
        if seconds:
            self._resting |= dict.fromkeys(given_back, self._store.clock.monotonic() + seconds)
        if self._store.shareable:
            with self._store.write() as connection:
                for each in given_back:
                    own = each._row, work.c.worker == self._worker, work.c.result.is_(None)
                    connection.execute(update(work).where(*own).values(lease_until=None, worker=None))

    @contextlib.contextmanager
    def renewed(self, taken: Sequence[Work]) -> Iterator[None]:
        """Renew leases until the block is left, or the most time is over; what was given up before is not renewed."""
        if not self._store.shareable:
            yield
            return
        over = threading.Event()
        renewing = threading.Thread(
            target=self._keep_renewing, args=(taken, over), name="mapveil-lease", daemon=True
        )
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()

    def _keep_renewing(self, taken: Sequence[Work], over: threading.Event) -> None:
        last = self._store.clock.monotonic() + MOST_SECONDS
        while not over.wait(self._seconds / 3) and self._store.clock.monotonic() < last:
            with contextlib.suppress(StoreUnavailable):
                self.renew(taken)

    def renew(self, taken: Sequence[Work]) -> None:
        """Lease anew what this worker still has."""
        with self._store.write() as connection:
            until = _time(connection, self._seconds)
            for each in taken:
                held = each._row, work.c.worker == self._worker, work.c.result.is_(None)
                connection.execute(update(work).where(*held).values(lease_until=until))


def _free(now: str) -> ColumnElement[bool]:
    return and_(work.c.result.is_(None), or_(work.c.lease_until.is_(None), work.c.lease_until < now))


def _of_phase(collection: str, number: int, phase: int) -> tuple[ColumnElement[bool], ...]:
    of_round = work.c.collection == collection, work.c.round == number
    return work.c.task == Task.SHARD.value, *of_round, work.c.phase == phase


def _time(connection: Connection, later: float = 0) -> str:
    clock: Clock = connection.get_execution_options()[CLOCK]
    return time_text(clock.now() + timedelta(seconds=later))
