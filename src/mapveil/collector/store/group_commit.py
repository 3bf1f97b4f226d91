"""Group commit: many small writes share one transaction, so that one flush of the disk makes all of them durable.

A thread takes whatever waits, writes it in one transaction, and answers each only after the commit. Items with equal
writers are handed to the writer together, as one batch of rows. An item that fails fails alone: the transaction is
rolled back, and its items are written once more in another, each in a savepoint of its own. A writer that finds a row
locked backs off, and the others go on without it: so two processes that each hold what the other waits for both go on.
Trying such writers again takes half of the time at most.
"""

import asyncio
import contextlib
import logging
import math
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from mapveil.collector.refusals import StoreUnavailable
from mapveil.collector.store.audit_log import part
from mapveil.collector.store.backends import Locked, Repeatable, failure_of

T = TypeVar("T")

_LOG: Final = logging.getLogger("mapveil.collector")
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
_GIVE_UP_SECONDS: Final = 10.0
"""Wait of an item for a locked row, at most: a phone waits 30 s for an answer, and then sends it all again."""
_BACKOFF_SECONDS: Final = 0.1
"""Back-off of a writer that found a row locked, and then as long as it has lasted: at random, half of that to all."""
_MOST_BACKOFF_SECONDS: Final = 2.0


class Exclusive:
    """A writer that locks a row exclusively: the last of its transaction, so that no transaction locks two.

    What others lock before it, shared, must be rows that no writer of this kind locks.
    """


class Batch(NamedTuple):
    """Size and duration of one commit."""

    items: int
    seconds: float


@dataclass(slots=True, eq=False)
class _Item:
    writer: Writer[Any]
    value: Any
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    since: float  # by the monotonic clock


class _Outcome(NamedTuple):
    item: _Item
    result: Any
    error: BaseException | None


class _Tried(NamedTuple):
    """Items that were tried one after another, as long as there was time."""

    outcomes: list[_Outcome]
    locked: dict[Writer[Any], list[_Item]]
    left: list[_Item]


class GroupCommit:
    """The thread that commits; ``observe`` is called with every batch, ``row_locks`` is whether rows are locked.

    Run by: the server.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[Connection]],
        observe: Callable[[Batch], None],
        *,
        row_locks: bool,
    ) -> None:
        self._transaction = transaction
        self._observe = observe
        self._row_locks = row_locks
        self._waiting: OrderedDict[Writer[Any], deque[_Item]] = OrderedDict()
        self._backoffs: dict[Writer[Any], float] = {}  # the ends; used by the thread alone, as is the next
        self._others_until = 0.0  # no writer that backs off is tried before
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
            self._waiting.setdefault(writer, deque()).append(
                _Item(writer, value, loop, future, time.monotonic())
            )
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
                self._give_up()
                while (self._waiting or not self._closed) and self._first() is None:
                    ends = (
                        min(self._end(each), items[0].since + _GIVE_UP_SECONDS)
                        for each, items in self._waiting.items()
                    )
                    end = min(ends, default=None)
                    self._wake.wait(None if end is None else max(0.0, end - time.monotonic()))
                    self._give_up()
                if not self._waiting:
                    return
            if pause and not self._closed:
                time.sleep(pause)
            started = time.monotonic()
            several = self._commit_some() > 1
            pause = min(time.monotonic() - started, _GATHER_SECONDS) if several else 0.0

    def _first(self) -> Writer[Any] | None:
        """The first waiting writer that does not back off."""
        now = time.monotonic()
        return next((each for each in self._waiting if not self._backs_off(each, now)), None)

    def _backs_off(self, writer: Writer[Any], now: float) -> bool:
        return writer in self._backoffs and self._end(writer) > now and not self._closed

    def _end(self, writer: Writer[Any]) -> float:
        return max(self._backoffs[writer], self._others_until)

    def _give_up(self) -> None:
        """Refuse what has waited too long for a locked row; forget rows that were not tried for as long."""
        old, outcomes = time.monotonic() - _GIVE_UP_SECONDS, list[_Outcome]()
        for writer, end in list(self._backoffs.items()):
            if end <= old:
                del self._backoffs[writer]
                continue
            items = self._waiting.get(writer, deque())
            while items and items[0].since <= old:
                outcomes.append(_Outcome(items.popleft(), None, Locked()))
            if not items:
                self._waiting.pop(writer, None)
        _answer(outcomes)

    def _next(self, room: int, served: Collection[Writer[Any]]) -> list[_Item]:
        """At most ``room`` waiting items of the first writer that does not back off; none where it was served."""
        with self._wake:
            while room > 0 and (writer := self._first()) is not None and writer not in served:
                items = self._waiting[writer]
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
        began = time.monotonic()
        try:
            with self._transaction() as connection:
                started = time.monotonic()  # the wait for the lock is the other writer's time
                served: set[Writer[Any]] = set()  # what comes in meanwhile is the next transaction's
                while batch := self._next(_MAX_ITEMS - len(taken), served):
                    served.add(batch[0].writer)
                    taken += batch
                    written = batch[0].writer(connection, [item.value for item in batch])
                    results += (result for _, result in zip(batch, written, strict=True))
                    last = self._row_locks and isinstance(batch[0].writer, Exclusive)
                    if last or time.monotonic() - started > _MAX_SECONDS:
                        break
        except BaseException as error:  # an item's own failure, whatever it is, belongs to its sender
            if not taken:  # the transaction could not even begin
                while batch := self._next(_MAX_ITEMS, ()):
                    taken += batch
            others = len(taken) > 1 and not isinstance(error, StoreUnavailable)
            if isinstance(error, Locked) and len(results) < len(taken):
                outcomes = self._apart(taken[: len(results)]) if results else []
                outcomes += self._back_off(taken[len(results) :], began)
            elif others or isinstance(error, Repeatable | IntegrityError):  # another process took a key first
                outcomes = self._apart(taken)
            else:
                outcomes = [_Outcome(item, None, _own(error)) for item in taken]
        else:
            if taken:  # else all had left
                self._tell(len(taken), started)
            outcomes = [_Outcome(item, result, None) for item, result in zip(taken, results, strict=True)]
        if self._backoffs:
            now = time.monotonic()
            for writer in {outcome.item.writer for outcome in outcomes if outcome.error is None}:
                if self._backoffs.get(writer, math.inf) <= now:
                    del self._backoffs[writer]
        _answer(outcomes)
        return len(taken)

    def _back_off(self, items: list[_Item], began: float) -> list[_Outcome]:
        """Have a writer back off whose items were tried and found a row locked; they fail where the store closes."""
        writer, now = items[0].writer, time.monotonic()
        if self._closed:
            with self._wake:
                items = [*items, *self._waiting.pop(writer, ())]
            return [_Outcome(item, None, Locked()) for item in items]
        pause = min(max(_BACKOFF_SECONDS, now - items[0].since), _MOST_BACKOFF_SECONDS)
        pause *= (1000 + secrets.randbelow(1000)) / 2000  # else two processes would meet again
        self._backoffs[writer] = now + pause  # kept once refused, for whoever was comes again
        self._others_until = max(self._others_until, now + min(now - began, _MOST_BACKOFF_SECONDS))
        self._give_back(items)
        return []

    def _tell(self, items: int, started: float) -> None:
        """Tell of a commit; what fails to hear of it fails no item of it."""
        try:
            self._observe(Batch(items, time.monotonic() - started))
        except Exception as error:
            _LOG.error("a commit could not be observed", exc_info=error)

    def _give_back(self, items: list[_Item]) -> None:
        """Have items wait again, before what came after them."""
        with self._wake:
            for item in reversed(items):
                self._waiting.setdefault(item.writer, deque()).appendleft(item)

    def _apart(self, taken: list[_Item]) -> list[_Outcome]:
        """Write items in one transaction, each in a savepoint; in a transaction each where that one is lost."""
        began = time.monotonic()
        try:
            with self._transaction() as connection:
                started = time.monotonic()
                tried = _try_each(taken, lambda item: _in_savepoint(connection, item))
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, Repeatable):
                # And not each after a wait of its own.
                return [_Outcome(item, None, _own(error)) for item in taken]
            began = time.monotonic()
            tried = _try_each(taken, self._alone)
        else:
            written = sum(outcome.error is None for outcome in tried.outcomes)
            self._tell(written, started)
        self._give_back(tried.left)
        for items in tried.locked.values():
            tried.outcomes.extend(self._back_off(items, began))
        return tried.outcomes

    def _alone(self, item: _Item) -> _Outcome:
        """Write one item in a transaction of its own, again where it conflicts with another's."""
        for attempt in range(_TRIES):
            started = time.monotonic()
            try:
                with self._transaction() as connection:
                    (result,) = item.writer(connection, (item.value,))
            except Locked:
                raise
            except BaseException as error:
                if not isinstance(error, Repeatable) or attempt == _TRIES - 1:
                    return _Outcome(item, None, error)
                time.sleep(0.01 * 2**attempt * (1 + secrets.randbelow(1000) / 1000))
            else:
                self._tell(1, started)
                return _Outcome(item, result, None)
        raise AssertionError("every attempt returns or repeats")


def _in_savepoint(connection: Connection, item: _Item) -> _Outcome:
    try:
        with part(connection):
            (result,) = item.writer(connection, (item.value,))
    except Exception as error:
        if failure_of(error) is not None:
            raise
        return _Outcome(item, None, error)
    return _Outcome(item, result, None)


def _try_each(items: list[_Item], write: Callable[[_Item], _Outcome]) -> _Tried:
    """Write items one after another, as long as a transaction may take; the others of a locked writer are not tried."""
    outcomes: list[_Outcome] = []
    locked: dict[Writer[Any], list[_Item]] = {}
    end = time.monotonic() + _MAX_SECONDS
    for number, item in enumerate(items):
        if item.writer in locked:
            locked[item.writer].append(item)
            continue
        try:
            outcomes.append(write(item))
        except Exception as error:
            if not isinstance(failure_of(error), Locked):
                raise
            locked[item.writer] = [item]
        if time.monotonic() > end:
            return _Tried(outcomes, locked, items[number + 1 :])
    return _Tried(outcomes, locked, [])


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
            continue
        if isinstance(error, StopIteration):  # which no future takes
            error, stopped = RuntimeError("a writer raised StopIteration"), error
            error.__cause__ = stopped
        future.set_exception(error)
