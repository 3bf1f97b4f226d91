"""The keys that devices enrolled, read from the store and kept, and the devices that are barred, read again and again.

A device's key never changes, so it is kept. Whether the device is admitted changes: the barred ones are read anew when
they are older than half of the time within which a device must be refused.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

import numpy as np
from sqlalchemy import or_, select

from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import ADMITTED, BARRED, MOST_NUMBER, devices

_SLOTS: Final = 1 << 20  # keys that are kept, 40 bytes each; memory is taken as they come
_KEY_BYTES: Final = 32
_BARRED_SECONDS: Final = 30.0  # within which a barred device is refused
_PAGE: Final = 128  # devices of neighbouring numbers, whose keys are read together
_PAGES: Final = 16  # of one statement

_Keys = dict[int, bytes]


class DeviceKeys:
    """The keys of admitted devices, for one event loop; the store is read in the threads of ``pool``."""

    def __init__(self, store: Store, pool: Executor) -> None:
        self._store, self._pool = store, pool
        # A cache: two devices whose numbers differ by a multiple of the slots put each other out.
        self._devices = np.zeros(_SLOTS, dtype=np.int64)
        self._keys = np.zeros((_SLOTS, _KEY_BYTES), dtype=np.uint8)
        self._queries: dict[int, asyncio.Future[_Keys]] = {}  # by page
        self._reading: asyncio.Task[None] | None = None
        self._barred: frozenset[int] = frozenset()
        self._barred_at = self._void_at = -math.inf  # when they were read, and when that became void
        self._reading_barred: asyncio.Task[None] | None = None

    async def of(self, device: int) -> bytes | None:
        """The key of a device; None where there is no such device, or it is barred."""
        if not 0 < device <= MOST_NUMBER:
            return None
        for _ in range(2):  # a reading that began before :meth:`forget` may be under way: the next one counts
            age = self._barred_age
            if age > _BARRED_SECONDS / 2 and self._reading_barred is None:
                self._reading_barred = asyncio.create_task(self._read_barred())
                # Of a reading that nobody waits for, a failure is no news: the next one tells.
                self._reading_barred.add_done_callback(lambda task: task.cancelled() or task.exception())
            if age <= _BARRED_SECONDS or self._reading_barred is None:
                break
            # Several requests may wait for it; one that leaves takes nothing from the others.
            await asyncio.shield(self._reading_barred)
        if device in self._barred:
            return None
        slot = device % _SLOTS
        if self._devices[slot] == device:
            return bytes(self._keys[slot])
        page = device // _PAGE
        query = self._queries.get(page)
        if query is None:
            query = self._queries[page] = asyncio.get_running_loop().create_future()
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_queries())
        return (await asyncio.shield(query)).get(device)

    def forget(self) -> None:
        """Read the barred devices anew before the next request. Run by: any thread."""
        self._void_at = time.monotonic()

    @property
    def _barred_age(self) -> float:
        """Seconds since the barred devices were read; infinite where that is void."""
        return math.inf if self._barred_at <= self._void_at else time.monotonic() - self._barred_at

    async def _read_barred(self) -> None:
        begun = time.monotonic()
        try:
            self._barred = await asyncio.get_running_loop().run_in_executor(self._pool, self._barred_devices)
            self._barred_at = begun
        finally:
            self._reading_barred = None

    def _barred_devices(self) -> frozenset[int]:
        with self._store.read() as connection:
            return frozenset(connection.execute(select(devices.c.id).where(BARRED)).scalars())

    async def _read_queries(self) -> None:
        """Read the pages that requests wait for; those that come meanwhile are in the next reading."""
        loop = asyncio.get_running_loop()
        try:
            while self._queries:
                queries, self._queries = self._queries, {}
                try:
                    found = await loop.run_in_executor(self._pool, self._read, list(queries))
                except BaseException as error:  # whatever it is, it belongs to those who wait
                    for query in queries.values():
                        query.set_exception(error)
                        query.exception()  # a request may have been cancelled
                    if not isinstance(error, Exception):
                        raise
                    continue
                for device, key in found.items():
                    slot = device % _SLOTS
                    self._devices[slot], self._keys[slot] = device, np.frombuffer(key, dtype=np.uint8)
                for query in queries.values():
                    query.set_result(found)
        finally:
            self._reading = None

    def _read(self, pages: Sequence[int]) -> _Keys:
        """The keys of the admitted devices of some pages."""
        found: _Keys = {}
        with self._store.read() as connection:
            for first in range(0, len(pages), _PAGES):
                starts = (page * _PAGE for page in pages[first : first + _PAGES])
                here = or_(*(devices.c.id.between(start, start + _PAGE - 1) for start in starts))
                query = select(devices.c.id, devices.c.public_key).where(here, ADMITTED)
                found.update((row.id, bytes(row.public_key)) for row in connection.execute(query))
        return found
