"""The store: the only truth of the collector. Whatever is acknowledged was committed here first.

SQLite by default, PostgreSQL by URL; both are spoken to in SQLAlchemy Core, alike. A database that is full, lost or
busy is a :class:`~mapveil.collector.refusals.StoreUnavailable` for the requests concerned, and the next ones find out
for themselves whether it is back.
"""

import contextlib
import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Select, select, text, tuple_
from sqlalchemy.engine import Connection, Engine, Row
from sqlalchemy.exc import SQLAlchemyError

from mapveil.collector.clock import Clock
from mapveil.collector.store import backends
from mapveil.collector.store.audit_log import recording
from mapveil.collector.store.backends import CLOCK, failure_of, open_database
from mapveil.collector.store.group_commit import Batch, GroupCommit, Writer
from mapveil.collector.store.home import check_home
from mapveil.collector.store.schema import collections, create_tables
from mapveil.collector.store.store_report import StoreReport, examine

T = TypeVar("T")

_MOST_AHEAD: Final = 10.0  # seconds between clocks of processes that share a store; a lease has 30
_LOCK_SECONDS: Final = 0.1
"""Each wait for a lock of a transaction that many collections share: a tenth of the time after which PostgreSQL looks
for deadlocks."""
_RECORDED_LOCK_SECONDS: Final = 5.0
"""Each wait for a lock of a transaction that records audit lines: for a row, for the lines, and before it another has
waited as long; a phone waits 30 s."""


class FairLock:
    """A lock that is given to the thread that has waited longest, so that a busy thread cannot keep the others out."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._queue: deque[int] = deque()  # threads; the first one holds the lock

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock."""
        me = threading.get_ident()
        with self._turn:
            if me in self._queue:
                raise RuntimeError("a transaction for writing within another of the same thread")
            self._queue.append(me)
        try:
            with self._turn:
                self._turn.wait_for(lambda: self._queue[0] == me)
            yield
        finally:
            with self._turn:
                self._queue.remove(me)
                self._turn.notify_all()


class Store:
    """The database of a collector: a path, ``sqlite:///path`` or ``postgresql://user:password@host/name``.

    Every method may be called from any thread, and raises :class:`StoreUnavailable` where the database fails.

    Attributes
    ----------
    shown : str
        Where the store is, without a password.
    path : Path, optional
        Of the file; None on PostgreSQL.
    on_commit : callable, optional
        Called with every :class:`~mapveil.collector.store.group_commit.Batch` that :meth:`put` made durable, in
        the committing thread.

    Raises
    ------
    InputError
        The URL names no store.

    Examples
    --------
    >>> import tempfile
    >>> from mapveil.collector.clock import SystemClock
    >>> store = Store(tempfile.mkdtemp() + "/store.sqlite", clock=SystemClock())
    >>> store.create_tables()
    >>> with store.read() as connection:
    ...     connection.execute(select(collections)).all()
    []
    >>> store.close()
    """

    def __init__(self, url: str, *, clock: Clock) -> None:
        self.clock = clock
        self.on_commit: Callable[[Batch], None] | None = None
        self._database = open_database(backends.read_store_url(url), {CLOCK: clock})
        self.shown, self.path = self._database.shown, self._database.path
        self._writers = FairLock()
        self._alone: dict[str, Connection] = {}  # on PostgreSQL: of each role that this process is alone in
        # On PostgreSQL what devices send waits neither for a long transaction of this process nor for one that waits
        # until another process has numbered its audit lines, and for the lock of another collection's row a moment.
        if self.shareable:
            self._commits, self._recorded = (
                GroupCommit(partial(self._begin, seconds), self._observe, row_locks=True)
                for seconds in (_LOCK_SECONDS, _RECORDED_LOCK_SECONDS)
            )
        else:
            self._commits = self._recorded = GroupCommit(self.write, self._observe, row_locks=False)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._database.writing.dialect.name

    @property
    def shareable(self) -> bool:
        """Whether several processes may serve from this store."""
        return self.dialect == "postgresql"

    def create_tables(self) -> None:
        """Create the tables where there are none; safe when several processes do it at once.

        Raises
        ------
        InputError
            The store is another program's, or of another version, or was restored, or no file can be made there.
        """
        if self._database.path is not None:
            backends.create_file(self._database.path)
        with self.alone() as connection:
            create_tables(connection)
            check_home(connection)

    @contextlib.contextmanager
    def alone(self) -> Iterator[Connection]:
        """A transaction for writing in which no other process creates, upgrades or settles the store."""
        with self.write() as connection:
            if self.shareable:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key("create tables")})
            yield connection

    def check(self) -> StoreReport:
        """Whether the store can be reached and written, is of this version, and its audit log is whole."""
        return examine(self.read, self.write, self.path)

    def clock_fault(self) -> str | None:
        """A fault of this machine's clock beside the database's, which all processes of a store keep to, if any."""
        if not self.shareable:
            return None
        with self.read() as connection:
            there = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
            ahead = (self.clock.now() - there).total_seconds()
        if abs(ahead) <= _MOST_AHEAD:
            return None
        return (
            f"this machine's clock is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} the database's, and "
            f"leases and the ends of phases follow it; expected at most {_MOST_AHEAD:.0f} s: synchronize both (NTP)"
        )

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction for reading: it sees the store as it was at its first statement, to the end."""
        return _transaction(self._database.reading)

    def pages(self, query: Select[Any], rows: int, *key: ColumnElement[Any]) -> Iterator[Sequence[Row[Any]]]:
        """Rows of a query in the order of a key, a page at a time, each in a transaction of its own."""
        last: tuple[Any, ...] | None = None
        while True:
            page = (query if last is None else query.where(tuple_(*key) > last)).order_by(*key).limit(rows)
            with self.read() as connection:
                found = connection.execute(page).all()
            if found:
                yield found
            if len(found) < rows:
                return
            last = tuple(found[-1]._mapping[column] for column in key)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction for writing, durable when the block is left; rolled back if the block raises.

        One at a time in a process, on PostgreSQL beside :meth:`put`. Never open one inside another, nor hold one over
        anything slow.
        """
        with self._writers.held(), self._begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _begin(self, lock_seconds: float | None = None) -> Iterator[Connection]:
        """A transaction; on PostgreSQL one that waits no longer than this for a lock."""
        with _transaction(self._database.writing) as connection, recording(connection):
            if lock_seconds is not None:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {lock_seconds * 1000:.0f}")
            yield connection

    async def put(self, writer: Writer[T], value: Any, *, records: bool = False) -> T:
        """Write an item together with whatever else waits; returns its result once it is durable.

        Parameters
        ----------
        writer : callable
            Hashable; items of equal writers are written as one batch. What it raises is raised here for the items
            concerned, and nothing of theirs is kept.
        value : object
            The item.
        records : bool
            Whether the writer records lines of the audit log.

        Raises
        ------
        StoreUnavailable
            The database cannot be written. The item may have been committed all the same, if the database was
            lost in that moment; so writing an item again must be harmless.
        """
        return await (self._recorded if records else self._commits).put(writer, value)

    @contextlib.contextmanager
    def sole(self, role: str) -> Iterator[bool]:
        """Try to be the only one of all processes on this store in a role, such as ``conductor``.

        Yields
        ------
        bool
            Whether no other process was in it; if so none will be until the block is left, unless the
            connection to the database is lost, or silent for :data:`~.backends.HOLDER_SECONDS` as that of a frozen
            process is: see :meth:`remain`. So what is written meanwhile is guarded by the rows' own state too.
        """
        if self._database.path is not None:
            with backends.file_lock(self._database.path, role) as mine:
                yield mine
            return
        key = {"key": _key(role)}
        with _failures(), self._database.alone.connect() as connection:
            mine = bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar_one())
            limited = mine and (connection.dialect.server_version_info or ()) >= backends.LIMITS_SILENCE
            try:
                if limited:
                    connection.execute(text(f"SET idle_session_timeout = '{backends.HOLDER_SECONDS}s'"))
                if mine:
                    self._alone[role] = connection
                yield mine
            finally:
                if mine:
                    self._alone.pop(role, None)
                if mine and not connection.invalidated:
                    try:
                        connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
                        if limited:
                            connection.execute(text("RESET idle_session_timeout"))
                    except SQLAlchemyError:
                        connection.invalidate()  # the lock is released with its connection

    def remain(self, role: str) -> bool:
        """Tell the database, within :meth:`sole`, that this process goes on; whether it is still the only one."""
        connection = self._alone.get(role)
        try:
            if connection is not None:
                connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return True

    def only_worker(self, role: str) -> AbstractContextManager[bool]:
        """Whether a process may work in a role: on SQLite one at a time, on PostgreSQL any number."""
        return contextlib.nullcontext(True) if self.shareable else self.sole(role)

    def close(self) -> None:
        """Commit what waits and close every connection; nothing can be committed afterwards."""
        self._commits.close()
        self._recorded.close()
        self._database.dispose()

    def _observe(self, batch: Batch) -> None:
        if self.on_commit is not None:
            self.on_commit(batch)

    def __repr__(self) -> str:
        return f"Store({self.shown!r})"


def lock_collection(connection: Connection, collection: str) -> str | None:
    """Keep others from changing a collection until the transaction ends; its state, None where there is none.

    SQLite has one writer in any case, and nothing is locked. On PostgreSQL the row of the collection is or, where there
    is none, its identifier: nobody else makes the row meanwhile.
    """
    row = select(collections.c.state).where(collections.c.id == collection).with_for_update()
    state = connection.execute(row).scalar()
    if state is None and connection.dialect.name == "postgresql":
        lock = {"key": _key(f"collection {collection}")}
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), lock)
        state = connection.execute(row).scalar()  # made by whom this waited for
    return state


def join_in_bulk(connection: Connection) -> None:
    """Have PostgreSQL join whole tables by hashing or sorting, until the transaction ends.

    Until it has analysed a table again it takes the rows of a new collection for one, and would compare each of its
    devices with each of their messages: a time quadratic in them.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL enable_nestloop = off"))


@contextlib.contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    with _failures(), engine.begin() as connection:
        yield connection


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Tell what the database failed in from what it was asked."""
    try:
        yield
    except Exception as error:
        failure = failure_of(error)
        if failure is None or failure is error:
            raise
        raise failure from error


def _key(role: str) -> int:
    """Key of an advisory lock of PostgreSQL, 64 bits."""
    return int.from_bytes(hashlib.sha256(f"mapveil {role}".encode()).digest()[:8], "big", signed=True)
