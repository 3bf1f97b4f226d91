"""Group commit: many small writes share one transaction, so that one flush of the disk makes all of them durable.

A thread takes whatever waits, writes it in one transaction, and answers each only after the commit. Items with equal
writers are handed to the writer together, as one batch of rows. An item that fails fails alone: the transaction is
rolled back, and its items are written once more in another, each in a savepoint of its own.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.audit_log import part
from mapveil.collector.store.backends import Repeatable, failure_of

T = TypeVar("T")

Writer = Callable[[Connection, Sequence[Any]], Sequence[T]]
"""Writes a batch of items and returns one result for each; items of equal (``==``) writers share a batch.

May be run more than once, always against the store as it is then, so it changes nothing but through the connection.
"""


class OwnTransaction:
    """A writer that locks a row for itself alone, and therefore shares its transaction with no other writer.

    Two processes that each held a row and waited for that of the other would be in a deadlock; and whoever waits in
    vain fails alone.
    """


_MAX_ITEMS: Final = 512  # of one transaction
_MAX_SECONDS: Final = 0.05  # of one transaction's writes, so that the first item does not wait for all others
_GATHER_SECONDS: Final = 0.004
"""Wait of a busy store for more items of one transaction, at most: a client that was just answered sends its next item.

It waits no longer than the last transaction took, for then waiting costs more than another transaction.
"""

_TRIES: Final = 6


class Batch(NamedTuple):
    """Size and duration of one commit."""

    items: int
    seconds: float


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


@dataclass(slots=True, eq=False)
class _Item:
    writer: Writer[Any]
    value: Any
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Outcome(NamedTuple):
    item: _Item
    result: Any
    error: BaseException | None


class GroupCommit:
    """The thread that commits; ``observe`` is called with every batch. Run by: the server."""

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
        try:
            return await future
        finally:
            del future  # its error holds this frame, and this frame it: a circle that would keep the value

    def close(self) -> None:
        """Commit what waits, then end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _serve(self) -> None:
        pause = 0.0
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    return
            if pause and not self._closed:
                time.sleep(pause)
            started = time.perf_counter()
            several = self._commit_some() > 1
            pause = min(time.perf_counter() - started, _GATHER_SECONDS) if several else 0.0

    def _next(self, room: int, served: Collection[Writer[Any]]) -> list[_Item]:
        """At most ``room`` waiting items of the first writer; none where the transaction is not for it."""
        with self._wake:
            while self._waiting and room > 0:
                writer, items = next(iter(self._waiting.items()))
                if writer in served or (served and isinstance(writer, OwnTransaction)):
                    break
                taken = [items.popleft() for _ in range(min(room, len(items)))]
                if items:
                    self._waiting.move_to_end(writer)  # many items of one writer must not starve the others
                else:
                    del self._waiting[writer]
                live = [item for item in taken if not item.future.cancelled()]
                if live:
                    return live
        return []

    def _commit_some(self) -> int:
        """Commit what waits; return how many items that were."""
        taken: list[_Item] = []
        results: list[Any] = []
        try:
            with self._transaction() as connection:
                started = time.perf_counter()  # the wait for the lock is the other writer's time
                served: set[Writer[Any]] = set()  # what comes in meanwhile is the next transaction's
                while batch := self._next(_MAX_ITEMS - len(taken), served):
                    served.add(batch[0].writer)
                    taken += batch
                    written = batch[0].writer(connection, [item.value for item in batch])
                    results += (result for _, result in zip(batch, written, strict=True))
                    own = isinstance(batch[0].writer, OwnTransaction)
                    if own or time.perf_counter() - started > _MAX_SECONDS:
                        break
        except BaseException as error:  # an item's own failure, whatever it is, belongs to its sender
            if not taken:  # the transaction could not even begin
                while batch := self._next(_MAX_ITEMS, ()):
                    taken += batch
            others = len(taken) > 1 and not isinstance(error, StoreUnavailable)
            if others or isinstance(error, Repeatable | IntegrityError):  # another process took a key first
                outcomes = self._apart(taken)
            else:
                outcomes = [_Outcome(item, None, _own(error)) for item in taken]
        else:
            if taken:  # else all had left
                self._observe(Batch(len(taken), time.perf_counter() - started))
            outcomes = [_Outcome(item, result, None) for item, result in zip(taken, results, strict=True)]
        _answer(outcomes)
        return len(taken)

    def _apart(self, taken: list[_Item]) -> list[_Outcome]:
        """Write items in one transaction, each in a savepoint; in a transaction each where that one is lost."""
        outcomes: list[_Outcome] = []
        try:
            with self._transaction() as connection:
                started = time.perf_counter()
                for item in taken:
                    try:
                        with part(connection):
                            (result,) = item.writer(connection, (item.value,))
                    except Exception as error:
                        if failure_of(error) is not None:
                            raise
                        outcomes.append(_Outcome(item, None, error))
                    else:
                        outcomes.append(_Outcome(item, result, None))
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, Repeatable):
                # And not each after a wait of its own.
                return [_Outcome(item, None, _own(error)) for item in taken]
            return [self._alone(item) for item in taken]
        self._observe(Batch(sum(each.error is None for each in outcomes), time.perf_counter() - started))
        return outcomes

    def _alone(self, item: _Item) -> _Outcome:
        """Write one item in a transaction of its own, again while it conflicts with another's."""
        for attempt in range(_TRIES):
            started = time.perf_counter()
            try:
                with self._transaction() as connection:
                    (result,) = item.writer(connection, (item.value,))
            except BaseException as error:
                if not isinstance(error, Repeatable) or attempt == _TRIES - 1:
                    return _Outcome(item, None, error)
                time.sleep(0.01 * 2**attempt * (1 + secrets.randbelow(1000) / 1000))
            else:
                self._observe(Batch(1, time.perf_counter() - started))
                return _Outcome(item, result, None)
        raise AssertionError("every attempt returns or repeats")


def _own(error: BaseException) -> BaseException:
    """An unavailable store as an error of its own: one that many raise at once grows the traces of all of them."""
    if not isinstance(error, StoreUnavailable):
        return error
    own = type(error)(error.message)
    own.__cause__ = error.__cause__
    return own


def _answer(outcomes: list[_Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.item.loop, []).append(outcome)
    outcomes.clear()  # an error holds them by the frames of its trace, as it does its item
    for loop, own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: its waiting tasks are gone
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(outcomes: list[_Outcome]) -> None:
    for item, result, error in outcomes:
        future = item.future
        del item.future  # which would close a circle that keeps the item's value
        if future.done():  # cancelled meanwhile
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
