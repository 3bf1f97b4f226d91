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

from mapveil.collector.refusals import Refusal, StoreUnavailable, where_raised
from mapveil.collector.rounds.collection import Collection, find
from mapveil.collector.rounds.export_process import SUFFIXES, ExportProcess, Made
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.rounds.results import StoredMap, make_map, store_map, stored_map
from mapveil.collector.rounds.retention import (
    Part,
    delete_parts,
    parts_of_messages,
    parts_of_participants,
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
_TURN_SECONDS: Final = 1.0  # of one collection's shards, before another's turn


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
        """Make every map that is ordered, and erase what is no longer needed; as :meth:`close_shards`.

        Of the collections whose participants are to be deleted it takes one, so that maps wait for no more of them.
        """
        made = self._work(Task.MAP, 1, self._make_map)
        erased = self._work(Task.ERASE, 1, self._erase)
        return self._work(Task.FORGET, 1, self._forget, once=True) or erased or made

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
                    with leases.renewed():
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
        begun = time.monotonic()
        for each in taken:
            ends.append((each, close_shard(held, each.shard, ServerState(each.phase))))
            if time.monotonic() - begun > _TURN_SECONDS:
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
            with self._store.write() as connection:
                finish(connection, wanted)
        self._ended(wanted.collection)
        return ()

    def _erase(self, taken: Sequence[Work]) -> Sequence[Work]:
        """Delete a round's messages, or erase the bodies of a collection's reports, a part at a time.

        Who sent a report stays known, for the charge.
        """
        (wanted,) = taken
        if wanted.round:
            return self._delete(wanted, parts_of_messages(self._store, wanted.collection, wanted.round))
        # Not those that were erased before a stop: a restart goes on from there.
        here = and_(reports.c.collection == wanted.collection, reports.c.body != b"")
        for page in self._store.pages(select(reports.c.device).where(here), reports.c.device, _ERASED):
            part = reports.c.device.between(page[0].device, page[-1].device)
            with self._store.write() as connection:
                connection.execute(update(reports).where(here, part).values(body=b""))
            if self.stopping:
                return taken
        return self._finished(wanted)

    def _forget(self, taken: Sequence[Work]) -> Sequence[Work]:
        (wanted,) = taken
        return self._delete(wanted, parts_of_participants(self._store, wanted.collection))

    def _delete(self, wanted: Work, parts: Iterable[Part]) -> Sequence[Work]:
        """Delete rows, so many in a transaction; the work again where it is stopped."""
        if not delete_parts(self._store, parts, _ERASED, lambda: self.stopping):
            return [wanted]
        return self._finished(wanted)

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
        """End a collection whose work is impossible, unless it has ended."""
        _LOG.warning("collection %s cannot go on: %s", identifier, error)
        with self._store.read() as connection:
            collection = find(connection, identifier)
        self._end(collection, str(error))
        self._ended(identifier)
