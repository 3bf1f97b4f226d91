"""Group commit: many small writes share one transaction, so that one flush of the disk makes all of them durable.

A thread takes whatever waits, writes it in one transaction, and answers each only after the commit. Items with equal
writers are handed to the writer together, as one batch of rows. An item that fails fails alone: the transaction is
rolled back and run again with every item behind a savepoint of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy.engine import Connection

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.audit_log import waiting_lines
from mapveil.collector.store.backends import Repeatable, failure_of

T = TypeVar("T")

Writer = Callable[[Connection, Sequence[Any]], Sequence[T]]
"""Writes a batch of items and returns one result for each; items of equal (``==``) writers share a batch.

May be run more than once, always against the store as it is then, so it changes nothing but through the connection.
"""

_MAX_ITEMS: Final = 512  # of one transaction
_MAX_SECONDS: Final = (
    0.05  # of one transaction's writes, so that the first item does not wait for a thousand others
)
_TRIES: Final = 6


class Batch(NamedTuple):
    """Size and duration of one commit."""

    items: int
    seconds: float


class FairLock:
    """A lock that is given to the thread that has waited longest, so that a busy thread cannot keep the others out."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._owner: int | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock."""
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def _acquire(self) -> None:
        me = threading.get_ident()
        with self._guard:
            if self._owner is None:
                self._owner = me
                return
            if self._owner == me:
                raise RuntimeError("a transaction for writing within another of the same thread")
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append(gate)
        try:
            gate.acquire()  # the lock is handed over, never up for grabs
        except BaseException:
            with self._guard:
                if gate in self._waiting:
                    self._waiting.remove(gate)
                    raise
            self._release()
            raise
        self._owner = me

    def _release(self) -> None:
        with self._guard:
            if self._waiting:
                self._owner = -1  # nobody's thread: the next in line names itself
                self._waiting.popleft().release()
            else:
                self._owner = None


class _Item(NamedTuple):
    writer: Writer[Any]
    value: Any
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    def write_alone(self, connection: Connection) -> Any:
        return self.writer(connection, (self.value,))[0]


class _Outcome(NamedTuple):
    item: _Item
    result: Any
    error: BaseException | None


class GroupCommit:
    """The thread that commits. Run by: the server.

    Parameters
    ----------
    transaction : callable
        Opens a transaction for writing; a failing database is a :class:`StoreUnavailable`.
    observe : callable
        Called with every batch that was committed.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[Connection]],
        observe: Callable[[Batch], None],
    ) -> None:
        self._transaction = transaction
        self._observe = observe
        self._waiting: OrderedDict[Writer[Any], deque[_Item]] = OrderedDict()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    async def put(self, writer: Writer[T], value: Any) -> T:
        """Write an item in the next transaction; returns its result once it is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._wake:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="mapveil-commit", daemon=True)
                self._thread.start()
            self._waiting.setdefault(writer, deque()).append(_Item(writer, value, loop, future))
            self._wake.notify()
        return await future

    def close(self) -> None:
        """Commit what waits, then end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    return
            self._commit_some()

    def _next(self, room: int) -> list[_Item]:
        """At most ``room`` waiting items of the first writer; none where nothing waits."""
        with self._wake:
            while self._waiting and room > 0:
                writer, items = next(iter(self._waiting.items()))
                taken = [items.popleft() for _ in range(min(room, len(items)))]
                if not items:
                    del self._waiting[writer]
                live = [item for item in taken if not item.future.cancelled()]
                if live:
                    return live
        return []

    def _commit_some(self) -> None:
        taken: list[_Item] = []
        results: list[Any] = []
        try:
            with self._transaction() as connection:
                started = time.perf_counter()  # the wait for the lock is the other writer's time
                while batch := self._next(_MAX_ITEMS - len(taken)):
                    taken += batch
                    results += batch[0].writer(connection, [item.value for item in batch])
                    if time.perf_counter() - started > _MAX_SECONDS:
                        break
        except Repeatable:
            outcomes = [self._alone(item) for item in taken]
        except BaseException as error:  # an item's own failure, whatever it is, belongs to its sender
            if not taken:  # the transaction could not even begin
                while batch := self._next(_MAX_ITEMS):
                    taken += batch
            if len(taken) == 1 or isinstance(error, StoreUnavailable):
                outcomes = _all_failed(taken, error)
            else:
                outcomes = self._apart(taken)
        else:
            if taken:  # else all had left
                self._observe(Batch(len(taken), time.perf_counter() - started))
            outcomes = [_Outcome(item, result, None) for item, result in zip(taken, results, strict=True)]
        _answer(outcomes)

    def _apart(self, items: list[_Item]) -> list[_Outcome]:
        """Write every item behind a savepoint, all in one transaction."""
        outcomes: list[_Outcome] = []
        started = time.perf_counter()
        try:
            with self._transaction() as connection:
                lines = waiting_lines(connection)
                for item in items:
                    recorded = len(lines)
                    try:
                        with connection.begin_nested():
                            result = item.write_alone(connection)
                        outcomes.append(_Outcome(item, result, None))
                    except BaseException as error:
                        if failure_of(error):
                            raise
                        del lines[recorded:]
                        outcomes.append(_Outcome(item, None, error))
        except Repeatable:
            return [self._alone(item) for item in items]
        except StoreUnavailable as error:
            return _all_failed(items, error)
        self._observe(Batch(len(items), time.perf_counter() - started))
        return outcomes

    def _alone(self, item: _Item) -> _Outcome:
        """Write one item in a transaction of its own, again while it conflicts with another's."""
        for attempt in range(_TRIES):
            started = time.perf_counter()
            try:
                with self._transaction() as connection:
                    result = item.write_alone(connection)
            except BaseException as error:
                if not isinstance(error, Repeatable) or attempt == _TRIES - 1:
                    return _Outcome(item, None, error)
                time.sleep(0.01 * 2**attempt * (1 + secrets.randbelow(1000) / 1000))
            else:
                self._observe(Batch(1, time.perf_counter() - started))
                return _Outcome(item, result, None)
        raise AssertionError("every attempt returns or repeats")


def _all_failed(items: list[_Item], error: BaseException) -> list[_Outcome]:
    """An error of its own for each: one that many raise at once grows the traces of all of them."""
    if not isinstance(error, StoreUnavailable):
        return [_Outcome(item, None, error) for item in items]
    outcomes = []
    for item in items:
        own = type(error)(error.message)
        own.__cause__ = error.__cause__
        outcomes.append(_Outcome(item, None, own))
    return outcomes


def _answer(outcomes: list[_Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.item.loop, []).append(outcome)
    for loop, own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: its waiting tasks are gone
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(outcomes: list[_Outcome]) -> None:
    for item, result, error in outcomes:
        if item.future.done():  # cancelled meanwhile
            continue
        if error is None:
            item.future.set_result(result)
        else:
            item.future.set_exception(error)
