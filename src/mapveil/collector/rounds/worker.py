"""The worker: the heavy steps of collections and maps, each leased from the store, so that any process may take them.

A worker decides nothing: what it comes to is written to the store, and the conductor goes on from there.
"""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from mapveil.collector.refusals import StoreUnavailable, where_raised
from mapveil.collector.rounds.collection import Collection, find
from mapveil.collector.rounds.life_cycle import State
from mapveil.collector.rounds.results import StoredMap, make_map, store_map
from mapveil.collector.rounds.shard_ends import ShardEnd, close_shard
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.store.database import Store
from mapveil.collector.store.work_queue import LEASE_SECONDS, Leases, Task, Work, finish, keep_result
from mapveil_client.errors import MapveilError
from mapveil_client.secure_sum.states import ServerState

_LOG: Final = logging.getLogger(__name__)
_REST_SECONDS: Final = 5.0  # after work that failed for no reason of the collection's own
_SHARDS: Final = 64  # leased at once where a store has one worker, to save commits
_TURN_SECONDS: Final = 1.0  # of one collection's shards, before another's turn


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
    """

    def __init__(
        self,
        store: Store,
        machines: ShardMachines,
        end: Callable[[Collection, str], bool],
        ended: Callable[[str], None],
        lease_seconds: int = LEASE_SECONDS,
    ) -> None:
        self._store, self._machines, self._end, self._ended = store, machines, end, ended
        self._leases = {
            task: Leases(store, secrets.token_hex(8), task, lease_seconds) for task in (Task.SHARD, Task.MAP)
        }

    def close_shards(self) -> bool:
        """Close every shard that is ordered; whether there was any that this worker could do."""
        return self._work(Task.SHARD, 1 if self._store.shareable else _SHARDS, self._close_some)

    def make_maps(self) -> bool:
        """Make every map that is ordered; as :meth:`close_shards`."""
        return self._work(Task.MAP, 1, self._make_map)

    def _work(self, task: Task, most: int, do: Callable[[Sequence[Work]], Sequence[Work]]) -> bool:
        leases, did = self._leases[task], False
        with self._store.only_worker(task.value) as mine:
            while mine and (taken := leases.take(most)):
                try:
                    with leases.renewed():
                        left = do(taken)
                    if left:
                        leases.rest(left)
                    did = True
                except StoreUnavailable:
                    raise
                except MapveilError as error:
                    self._fail(taken[0].collection, error)
                except Exception as error:
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
        self._ended(wanted.collection)
        with self._store.write() as connection:
            finish(connection, wanted)
        return ()

    def _fail(self, identifier: str, error: MapveilError) -> None:
        """End a collection whose work is impossible, unless it has ended."""
        _LOG.warning("collection %s cannot go on: %s", identifier, error)
        with self._store.read() as connection:
            collection = find(connection, identifier)
        self._end(collection, str(error))
        self._ended(identifier)
