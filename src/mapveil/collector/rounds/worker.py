"""The worker: the heavy steps of collections and maps, each leased from the store, so that any process may take them.

A worker decides nothing: what it comes to is written to the store, and the conductor goes on from there.
"""

import logging
import math
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import and_, select, update

from mapveil.collector.refusals import Refusal, StoreUnavailable, TooLate, where_raised
from mapveil.collector.rounds.collection import Collection, find
from mapveil.collector.rounds.export_process import SUFFIXES, ExportProcess, Made
from mapveil.collector.rounds.life_cycle import ACTIVE, State
from mapveil.collector.rounds.results import StoredMap, make_map, store_map, stored_map
from mapveil.collector.rounds.retention import (
    RowRange,
    delete_rows,
    messages_of,
    participants_of,
)
from mapveil.collector.rounds.shard_ends import ShardEnd, close_shard
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store.database import Store
from mapveil.collector.store.export_files import ExportFiles
from mapveil.collector.store.schema import reports
from mapveil.collector.store.work_queue import Leases, Task, Work, finish, forget_exports, keep_result
from mapveil_client.errors import MapveilError
from mapveil_client.secure_sum.states import ServerState

_LOG: Final = logging.getLogger(__name__)
_REST_SECONDS: Final = 5.0  # after work that failed for no reason of the collection's own
_SHARDS: Final = 64  # leased at once where a store has one worker, to save commits
_ERASED: Final = 2_000  # rows in one transaction, so that others' writes need not wait for a million
_OLD_SECONDS: Final = (
    3600.0  # after which nobody waits for a file, perhaps of a place that no worker has any more
)
_TURN_SECONDS: Final = 1.0  # of one collection's shards or rows, before another's turn


def export_file(wanted: Work) -> str:
    """Name of the file of an export."""
    return wanted.collection + SUFFIXES[wanted.name]


class Worker:
    """Does what is ordered in the store.

    Parameters
    ----------
    store : Store
        With its tables created.
    machines : ShardMachines
        Of the rounds that this process serves or closes.
    end : callable
        Aborts a collection that cannot go on, with a reason.
    ended : callable
        Called with every collection whose map was made.
    lease_seconds : int
        Time after which another worker may take work whose worker was killed.
    exports : ExportFiles
        Takes the files of maps.

    Attributes
    ----------
    stopping : bool
        Whether no more work is taken.
    on_work : callable, optional
        Called whenever the next piece of a kind of work begins.
    """

    def __init__(
        self,
        store: Store,
        machines: ShardMachines,
        end: Callable[[Collection, str], bool],
        ended: Callable[[str], None],
        lease_seconds: int,
        exports: ExportFiles,
    ) -> None:
        self._store, self._machines, self._end, self._ended = store, machines, end, ended
        self._seconds, self._exports = lease_seconds, exports
        self._process = ExportProcess()
        self._leases: dict[Task, Leases] = {}
        self._forget_at = -math.inf  # seconds of the store's clock
        self.stopping = False
        self.on_work: Callable[[Task], None] | None = None

    @property
    def shares_work(self) -> bool:
        """Whether other processes may order its work."""
        return self._store.shareable

    def close_shards(self) -> bool:
        """Close every shard that is ordered; whether there was any that this worker could do."""
        return self._work(Task.SHARD, 1 if self._store.shareable else _SHARDS, self._close_some)

    def make_maps(self) -> bool:
        """Make every map that is ordered, and delete what is no longer needed; as :meth:`close_shards`.

        Of each kind of deletion a turn follows, of one collection: a map waits for one turn of each at most.
        """
        did = False
        while not self.stopping:
            done = [
                self._work(Task.MAP, 1, self._make_map),
                self._work(Task.PRUNE, 1, self._prune, once=True),
                self._work(Task.ERASE, 1, self._erase, once=True),
                self._work(Task.FORGET, 1, self._forget, once=True),
            ]
            if not any(done):
                break
            did = True
        return did

    def make_exports(self) -> bool:
        """Make every file that is ordered, in a process of their own; as :meth:`close_shards`."""
        if (now := self._store.clock.monotonic()) >= self._forget_at:
            self._forget_at = now + forget_exports(self._store, _OLD_SECONDS)
        try:
            return self._work(Task.EXPORT, 1, self._make_export)
        finally:
            self._process.close()

    def stop(self) -> None:
        """Take no more work; a file that is being made is given up."""
        self.stopping = True
        self._process.stop()

    def _work(
        self, task: Task, most: int, do: Callable[[Sequence[Work]], Sequence[Work]], *, once: bool = False
    ) -> bool:
        if task not in self._leases:
            place = self._exports.place if task is Task.EXPORT else ""
            self._leases[task] = Leases(self._store, secrets.token_hex(8), task, self._seconds, place)
        leases, did = self._leases[task], False
        with self._store.only_worker(task.value) as mine:
            while mine and not self.stopping and not (once and did) and (taken := leases.take(most)):
                if self.on_work is not None:
                    self.on_work(task)
                try:
                    with leases.renewed(taken):
                        left = do(taken)
                    if left:
                        leases.rest(left)
                    did = True
                except StoreUnavailable:
                    raise
                except Exception as error:
                    if isinstance(error, MapveilError) and not isinstance(error, Refusal):
                        self._fail(taken[0].collection, error)
                        continue
                    # An internal fault: logged without its text, which could quote what was worked on, and tried again.
                    _LOG.error("collection %s: %s", taken[0].collection, where_raised(error))
                    leases.rest(taken, _REST_SECONDS)
        return did

    def _close_some(self, taken: Sequence[Work]) -> Sequence[Work]:
        """Close shards of one collection until its turn is over; those that are left."""
        held = self._machines.of(taken[0].collection, taken[0].round)
        if held is None:  # the round is over: this work was taken off
            return ()
        ends: list[tuple[Work, ShardEnd]] = []
        over = self._turn()
        for each in taken:
            try:
                ends.append((each, close_shard(held, each.shard, ServerState(each.phase))))
            except TooLate:  # likewise
                return ()
            if over():
                break
        with self._store.write() as connection:
            for each, end in ends:
                keep_result(connection, each, end.encode())
        return taken[len(ends) :]

    def _make_map(self, taken: Sequence[Work]) -> Sequence[Work]:
        (wanted,) = taken
        with self._store.read() as connection:
            collection = find(connection, wanted.collection)
        if collection.state is State.FINISHING:
            heat = make_map(self._store, collection)
            stored = StoredMap.encode(heat)
            with self._store.write() as connection:
                store_map(connection, collection.id, heat, stored)
        else:
            self._finished(wanted)
        self._ended(wanted.collection)
        return ()

    def _erase(self, taken: Sequence[Work]) -> Sequence[Work]:
        """Erase the bodies of a collection's reports; who sent one stays known, for the charge."""
        (wanted,) = taken
        over = self._turn()
        # Not those that were erased in an earlier turn: this one goes on from there.
        here = and_(reports.c.collection == wanted.collection, reports.c.body != b"")
        for page in self._store.pages(select(reports.c.device).where(here), _ERASED, reports.c.device):
            of_page = reports.c.device.between(page[0].device, page[-1].device)
            with self._store.write() as connection:
                connection.execute(update(reports).where(here, of_page).values(body=b""))
            if over():
                return taken
        return self._finished(wanted)

    def _prune(self, taken: Sequence[Work]) -> Sequence[Work]:
        (wanted,) = taken
        return self._delete(wanted, messages_of(wanted.collection, wanted.round))

    def _forget(self, taken: Sequence[Work]) -> Sequence[Work]:
        (wanted,) = taken
        return self._delete(wanted, participants_of(self._store, wanted.collection))

    def _delete(self, wanted: Work, ranges: Iterable[RowRange]) -> Sequence[Work]:
        """Delete rows for a turn; the work again where some are left."""
        if not delete_rows(self._store, ranges, _ERASED, self._turn()):
            return [wanted]
        return self._finished(wanted)

    def _turn(self) -> Callable[[], bool]:
        """Whether a turn that begins now is over."""
        until = time.monotonic() + _TURN_SECONDS
        return lambda: self.stopping or time.monotonic() > until

    def _finished(self, wanted: Work) -> Sequence[Work]:
        with self._store.write() as connection:
            finish(connection, wanted)
        return ()

    def _make_export(self, taken: Sequence[Work]) -> Sequence[Work]:
        (wanted,) = taken
        with self._store.read() as connection:
            stored = stored_map(connection, wanted.collection)
        with tempfile.TemporaryDirectory(prefix="mapveil-export-") as folder:
            path = Path(folder) / f"map{SUFFIXES[wanted.name]}"
            made = self._process.make(stored, path)
            if self.stopping:
                return taken
            if not made.status:
                try:
                    self._exports.keep(export_file(wanted), path)
                except StoreUnavailable as error:
                    _LOG.warning("%s as %s: %s (%s)", wanted.collection, wanted.name, error, error.__cause__)
                    made = Made(503, error.message)  # whoever asked is told, and the next one orders it again
        if made.where:
            _LOG.error("collection %s as %s: %s", wanted.collection, wanted.name, made.where)
        with self._store.write() as connection:
            if made.status:
                keep_result(connection, wanted, made.encode())
            else:
                finish(connection, wanted)
        return ()

    def _fail(self, identifier: str, error: MapveilError) -> None:
        """End a collection whose work is impossible, unless it has ended: then another worker was faster."""
        with self._store.read() as connection:
            collection = find(connection, identifier)
        if collection.state in ACTIVE:
            _LOG.warning("collection %s cannot go on: %s", identifier, error)
            self._end(collection, str(error))
        self._ended(identifier)
