"""Group commit: many small works share one transaction, so that one flush of the disk makes all of them durable.

A thread takes whatever waits, runs it in one transaction, and answers each only after the commit. A work that fails
fails alone: the batch is rolled back and run again with every work behind a savepoint of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy.engine import Connection

from mapveil.collector.faults import StoreUnavailable
from mapveil.collector.store.audit import waiting_lines
from mapveil.collector.store.backends import Repeatable, failure_of

T = TypeVar("T")

_MOST_WORKS: Final = 512
_MOST_SECONDS: Final = (
    0.05  # of one batch's works, so that the first of them does not wait for a thousand others
)
_TRIES: Final = 6


class Batch(NamedTuple):
    """What one commit took."""

    works: int
    seconds: float


class FairLock:
    """A lock that is given to whoever has waited longest, so that a busy thread cannot keep the others out."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._owner: int | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises
        ------
        RuntimeError
            This thread holds it already.
        """
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


class _Work(NamedTuple):
    run: Callable[[Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Outcome(NamedTuple):
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None


class GroupCommit:
    """The thread that commits. Run by: the server.

    Parameters
    ----------
    transaction : callable
        Opens a transaction for writing; a failing database is a :class:`StoreUnavailable`.
    observe : callable
        Told of every batch that was committed.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[Connection]],
        observe: Callable[[Batch], None],
    ) -> None:
        self._transaction = transaction
        self._observe = observe
        self._waiting: deque[_Work] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    async def commit(self, work: Callable[[Connection], T]) -> T:
        """Run a work in the next transaction; returns once it is durable.

        Raises
        ------
        StoreUnavailable
            The database cannot be written, or the store is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._wake:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="mapveil-commit", daemon=True)
                self._thread.start()
            self._waiting.append(_Work(work, loop, future))
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

    def _commit_some(self) -> None:
        taken: list[_Work] = []
        values: list[Any] = []
        started = time.perf_counter()
        try:
            with self._transaction() as connection:
                started = time.perf_counter()  # the wait for the lock is the other writer's time
                while self._waiting and len(taken) < _MOST_WORKS:
                    work = self._waiting.popleft()
                    if work.future.cancelled():
                        continue
                    taken.append(work)
                    values.append(work.run(connection))
                    if time.perf_counter() - started > _MOST_SECONDS:
                        break
        except Repeatable:
            outcomes = [outcome for work in taken for outcome in self._alone(work)]
        except (
            BaseException
        ) as error:  # a work's own failure, whatever it is, belongs to whoever asked for it
            if not taken:  # the transaction could not even begin
                taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if len(taken) == 1 or isinstance(error, StoreUnavailable):
                outcomes = _all_failed(taken, error)
            else:
                outcomes = self._apart(taken)
        else:
            if taken:  # else all had left
                self._observe(Batch(len(taken), time.perf_counter() - started))
            outcomes = [_Outcome(work.future, value, None) for work, value in zip(taken, values, strict=True)]
        _answer(taken, outcomes)

    def _apart(self, works: list[_Work]) -> list[_Outcome]:
        """Run every work behind a savepoint, all in one transaction."""
        outcomes: list[_Outcome] = []
        started = time.perf_counter()
        try:
            with self._transaction() as connection:
                started = time.perf_counter()
                lines = waiting_lines(connection)
                for work in works:
                    recorded = len(lines)
                    try:
                        with connection.begin_nested():
                            value = work.run(connection)
                        outcomes.append(_Outcome(work.future, value, None))
                    except BaseException as error:
                        if failure_of(error):
                            raise
                        del lines[recorded:]
                        outcomes.append(_Outcome(work.future, None, error))
        except Repeatable:
            return [outcome for work in works for outcome in self._alone(work)]
        except StoreUnavailable as error:
            return _all_failed(works, error)
        self._observe(Batch(len(works), time.perf_counter() - started))
        return outcomes

    def _alone(self, work: _Work) -> list[_Outcome]:
        """Run one work in a transaction of its own, again while it is another's turn."""
        for attempt in range(_TRIES):
            started = time.perf_counter()
            try:
                with self._transaction() as connection:
                    value = work.run(connection)
            except BaseException as error:
                if not isinstance(error, Repeatable) or attempt == _TRIES - 1:
                    return [_Outcome(work.future, None, error)]
                time.sleep(0.01 * 2**attempt * (1 + secrets.randbelow(1000) / 1000))
            else:
                self._observe(Batch(1, time.perf_counter() - started))
                return [_Outcome(work.future, value, None)]
        raise AssertionError("every attempt returns or repeats")


def _all_failed(works: list[_Work], error: BaseException) -> list[_Outcome]:
    """An error of its own for each: one that many raise at once grows the traces of all of them."""
    if not isinstance(error, StoreUnavailable):
        return [_Outcome(work.future, None, error) for work in works]
    outcomes = []
    for work in works:
        own = type(error)(error.message)
        own.__cause__ = error.__cause__
        outcomes.append(_Outcome(work.future, None, own))
    return outcomes


def _answer(works: list[_Work], outcomes: list[_Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for work, outcome in zip(works, outcomes, strict=True):
        by_loop.setdefault(work.loop, []).append(outcome)
    for loop, mine in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(outcomes: list[_Outcome]) -> None:
    for future, value, error in outcomes:
        if future.done():  # cancelled by whoever waited
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
