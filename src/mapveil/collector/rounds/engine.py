"""The engine: the collector without HTTP, as operators use it; devices use its :class:`DeviceService`.

Every method may be called from any thread. Whatever is acknowledged was committed; whatever is held in memory can be
dropped at any moment.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from mapveil.collector.clock import Clock
from mapveil.collector.refusals import Conflict, StoreUnavailable
from mapveil.collector.rounds import collection as records
from mapveil.collector.rounds.collection import find, listed, move
from mapveil.collector.rounds.conductor import Conductor
from mapveil.collector.rounds.device_service import DeviceService
from mapveil.collector.rounds.life_cycle import Happening
from mapveil.collector.rounds.progress import Deadlines, ProgressBoard, progress_of
from mapveil.collector.rounds.records import ledger_lines, record_of
from mapveil.collector.rounds.results import stored_guarantee, stored_map
from mapveil.collector.rounds.shard_machines import ShardMachines
from mapveil.collector.rounds.specification import CollectionSpec, read_specification
from mapveil.collector.store import audit_log
from mapveil.collector.store.audit_log import AuditLine
from mapveil.collector.store.database import Store
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.randomness.random import Randomness

_TICK_SECONDS: Final = 0.1


class Engine:
    """The collector behind its API.

    Parameters
    ----------
    store : Store
        With its tables created.
    clock : Clock
        For deadlines.
    rng : Randomness, optional
        Draws shards and graphs; the operating system's by default, and in every release.

    Attributes
    ----------
    devices : DeviceService
        Answers devices.
    """

    def __init__(self, store: Store, clock: Clock, rng: Randomness | None = None) -> None:
        self._store = store
        self._deadlines = Deadlines(clock)
        self._machines = ShardMachines(store)
        self._board = ProgressBoard(store, self._deadlines)
        self.devices = DeviceService(store, self._machines, self._board)
        self._conductor = Conductor(store, self._deadlines, self._machines, self._board, rng or Randomness())
        self._stopping = False
        self._ticked = float("-inf")

    # Operators

    def create(self, spec: CollectionSpec | Mapping[str, Any], actor: str) -> dict[str, Any]:
        """Create a pending collection: no device is asked yet."""
        made = read_specification(spec, secrets.token_hex(16))
        with self._store.write() as connection:
            records.create(connection, made, actor)
        return self.collection(made.terms.identifier)

    def open(self, id: str, actor: str) -> dict[str, Any]:
        """Offer a pending collection to devices."""
        with self._store.write() as connection:
            if move(connection, id, Happening.OPENED, actor) is None:
                raise Conflict(f"the collection is {find(connection, id).state.value}", "a pending one")
        self._board.forget(id)
        return self.collection(id)

    def begin(self, id: str, actor: str) -> dict[str, Any]:
        """Stop waiting for more devices, now that the minimum is there."""
        self._conductor.begin(id, actor)
        return self.collection(id)

    def abort(self, id: str, actor: str, reason: str) -> dict[str, Any]:
        """End a collection without a map; what was charged stays charged."""
        with self._store.write() as connection:
            records.abort(connection, id, actor, reason)
        self._conductor.forget(id)
        return self.collection(id)

    def collections(self) -> list[dict[str, Any]]:
        """The record of every collection, the newest first."""
        with self._store.read() as connection:
            return [
                record_of(connection, each, progress_of(connection, each, self._deadlines))
                for each in listed(connection)
            ]

    def collection(self, id: str) -> dict[str, Any]:
        """The record of a collection."""
        with self._store.read() as connection:
            found = find(connection, id)
            return record_of(connection, found, progress_of(connection, found, self._deadlines))

    def ledger(self) -> list[dict[str, Any]]:
        """Lines of the ledger, the newest first."""
        with self._store.read() as connection:
            return ledger_lines(connection)

    def audit(self, after: int, limit: int, collection: str | None = None) -> list[AuditLine]:
        """Lines of the audit log with numbers above ``after``, in order."""
        with self._store.read() as connection:
            return audit_log.lines(connection, after=after, limit=limit, collection=collection)

    # Results

    def map(self, id: str) -> DensityMap:
        """Read the finished map of a collection from the store."""
        with self._store.read() as connection:
            found = stored_map(connection, id)
        return found.decode()

    def guarantee(self, id: str) -> Guarantee:
        """The guarantee of a finished map."""
        with self._store.read() as connection:
            return stored_guarantee(connection, id)

    # The conductor

    def observe_phases(self, observer: Callable[[str, float], None]) -> None:
        """Call ``observer`` with every phase that this process closes: its name, and its seconds."""
        self._conductor.on_phase = observer

    async def run(self) -> None:
        """Take whatever steps are due, until :meth:`stop`. A store that fails is asked again."""
        self._stopping = False
        while not self._stopping:
            await asyncio.to_thread(self.tick)
            await asyncio.sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """Let :meth:`run` end after the step it is taking."""
        self._stopping = True

    def tick(self) -> None:
        """Take every step that is due now."""
        try:
            self._conductor.tick()
        except StoreUnavailable:
            return
        self._ticked = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds since steps were last looked for with success; infinite before."""
        return time.monotonic() - self._ticked
