"""Group commit: many small writes share one transaction, so that one flush of the disk makes all of them durable.

A thread takes whatever waits, writes it in one transaction, and answers each only after the commit. Items with equal
writers are handed to the writer together, as one batch of rows. An item that fails fails alone: the transaction is
rolled back, and its items are written once more in another, each in a savepoint of its own. A writer that finds a row
locked rests, and the others go on without it: so two processes that each hold what the other waits for both go on.
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
from mapveil.collector.store.backends import Locked, Repeatable, failure_of

T = TypeVar("T")

Writer = Callable[[Connection, Sequence[Any]], Sequence[T]]
"""Writes a batch of items and returns one result for each; items of equal (``==``) writers share a batch.

May be run more than once, always against the store as it is then, so it changes nothing but through the connection.
"""


_MAX_ITEMS: Final = 512  # of one transaction
_MAX_SECONDS: Final = 0.05  # of one transaction's writes, so that the first item does not wait for all others
_GATHER_SECONDS: Final = 0.004
"""Wait of a busy store for more items of one transaction, at most: a client that was just answered sends its next item.

It waits no longer than the last transaction took, for then waiting costs more than another transaction.
"""

_TRIES: Final = 6
_REST_SECONDS: Final = 0.1
"""Rest of a writer that found a row locked, and then its age doubled: at random, half of that to all."""
_MOST_REST_SECONDS: Final = 2.0
_REST_OF_EACH_SECONDS: Final = 0.4
"""Rest of a writer, at least, for each that rests: trying them takes half of the time at most."""
_GIVE_UP_SECONDS: Final = 30.0  # after a writer first found the row locked


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


class _Rest(NamedTuple):
    """The wait of a writer for a row that another transaction has locked, by the monotonic clock."""

    since: float
    until: float


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
        self._resting: dict[Writer[Any], _Rest] = {}  # used by the thread alone
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
                while (self._waiting or not self._closed) and self._first() is None:
                    ends = (self._resting[writer].until for writer in self._waiting)
                    end = min(ends, default=None)
                    self._wake.wait(None if end is None else max(0.0, end - time.monotonic()))
                if not self._waiting:
                    return
            if pause and not self._closed:
                time.sleep(pause)
            started = time.perf_counter()
            several = self._commit_some() > 1
            pause = min(time.perf_counter() - started, _GATHER_SECONDS) if several else 0.0

    def _first(self) -> Writer[Any] | None:
        """The first waiting writer that does not rest."""
        now = time.monotonic()
        return next((each for each in self._waiting if not self._rests(each, now)), None)

    def _rests(self, writer: Writer[Any], now: float) -> bool:
        rest = self._resting.get(writer)
        return rest is not None and rest.until > now and not self._closed

    def _next(self, room: int, served: Collection[Writer[Any]]) -> list[_Item]:
        """At most ``room`` waiting items of the first writer that does not rest; none where it was served.

        One that rested is tried alone: others would have to be written again where its row is still locked.
        """
        with self._wake:
            while room > 0 and (writer := self._first()) is not None and writer not in served:
                if served and writer in self._resting:
                    break
                items = self._waiting[writer]
                taken = [items.popleft() for _ in range(min(room, len(items)))]
                if items:
                    self._waiting.move_to_end(writer)  # many items of one writer must not starve the others
                else:
                    del self._waiting[writer]
                live = [item for item in taken if not item.future.cancelled()]
                if live:
                    return live
                self._resting.pop(writer, None)  # else whoever comes later would be as old as these
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
                    if batch[0].writer in self._resting or time.perf_counter() - started > _MAX_SECONDS:
                        break
        except BaseException as error:  # an item's own failure, whatever it is, belongs to its sender
            if not taken:  # the transaction could not even begin
                while batch := self._next(_MAX_ITEMS, ()):
                    taken += batch
            others = len(taken) > 1 and not isinstance(error, StoreUnavailable)
            if isinstance(error, Locked) and len(results) < len(taken):
                outcomes = self._apart(taken[: len(results)]) if results else []
                outcomes += self._let_rest(taken[len(results) :], error)
            elif others or isinstance(error, Repeatable | IntegrityError):  # another process took a key first
                outcomes = self._apart(taken)
            else:
                outcomes = [_Outcome(item, None, _own(error)) for item in taken]
        else:
            if taken:  # else all had left
                self._observe(Batch(len(taken), time.perf_counter() - started))
            outcomes = [_Outcome(item, result, None) for item, result in zip(taken, results, strict=True)]
        if self._resting:
            now = time.monotonic()
            for writer in {outcome.item.writer for outcome in outcomes}:
                if not self._rests(writer, now):
                    self._resting.pop(writer, None)
        _answer(outcomes)
        return len(taken)

    def _let_rest(self, items: list[_Item], error: Locked) -> list[_Outcome]:
        """Have a writer rest whose row is locked; all of its items fail where that has lasted for long."""
        writer, now = items[0].writer, time.monotonic()
        since = self._resting.get(writer, _Rest(now, now)).since
        if now - since > _GIVE_UP_SECONDS or self._closed:
            with self._wake:
                items = [*items, *self._waiting.pop(writer, ())]
            return [_Outcome(item, None, _own(error)) for item in items]
        pause = min(max(_REST_SECONDS, now - since), _MOST_REST_SECONDS)
        pause = max(pause, _REST_OF_EACH_SECONDS * len(self._resting))
        pause *= (1000 + secrets.randbelow(1000)) / 2000  # else two processes would meet again
        self._resting[writer] = _Rest(since, now + pause)
        self._give_back(items)
        return []

    def _give_back(self, items: list[_Item]) -> None:
        """Have items wait again, before what came after them."""
        with self._wake:
            for item in reversed(items):
                self._waiting.setdefault(item.writer, deque()).appendleft(item)

    def _apart(self, taken: list[_Item]) -> list[_Outcome]:
        """Write items in one transaction, each in a savepoint; in a transaction each where that one is lost."""
        outcomes: list[_Outcome] = []
        locked: dict[Writer[Any], tuple[Locked, list[_Item]]] = {}
        try:
            with self._transaction() as connection:
                started = time.perf_counter()
                for item in taken:
                    if item.writer in locked:
                        locked[item.writer][1].append(item)
                        continue
                    try:
                        with part(connection):
                            (result,) = item.writer(connection, (item.value,))
                    except Exception as error:
                        failure = failure_of(error)
                        if isinstance(failure, Locked):
                            locked[item.writer] = failure, [item]
                            continue
                        if failure is not None:
                            raise
                        outcomes.append(_Outcome(item, None, error))
                    else:
                        outcomes.append(_Outcome(item, result, None))
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, Repeatable):
                # And not each after a wait of its own.
                return [_Outcome(item, None, _own(error)) for item in taken]
            return [outcome for item in taken for outcome in self._alone(item)]
        self._observe(Batch(sum(each.error is None for each in outcomes), time.perf_counter() - started))
        for failure, items in locked.values():
            outcomes += self._let_rest(items, failure)
        return outcomes

    def _alone(self, item: _Item) -> list[_Outcome]:
        """Write one item in a transaction of its own, again where it conflicts with another's; none if it rests."""
        if self._rests(item.writer, time.monotonic()):
            self._give_back([item])
            return []
        for attempt in range(_TRIES):
            started = time.perf_counter()
            try:
                with self._transaction() as connection:
                    (result,) = item.writer(connection, (item.value,))
            except Locked as error:
                return self._let_rest([item], error)
            except BaseException as error:
                if not isinstance(error, Repeatable) or attempt == _TRIES - 1:
                    return [_Outcome(item, None, error)]
                time.sleep(0.01 * 2**attempt * (1 + secrets.randbelow(1000) / 1000))
            else:
                self._observe(Batch(1, time.perf_counter() - started))
                return [_Outcome(item, result, None)]
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
