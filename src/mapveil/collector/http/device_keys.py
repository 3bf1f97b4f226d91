"""The keys that devices enrolled, read from the store once, and the devices that are barred, looked up again and again.

A device's key never changes, so it is kept; whether the device is admitted does. The audit log has a line for every
device that is barred or released: the list of barred devices is read again once a new line says so.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import func, select

from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import ADMITTED, MOST_NUMBER, audit, devices
from mapveil_client.arrays import IntArray

_SLOTS: Final = 1 << 20  # keys that are kept, 40 bytes each; memory is taken as they come
_KEY_BYTES: Final = 32
_BARRED_SECONDS: Final = 30.0  # after which a device that is barred is found out
_PAGE: Final = 128  # devices of neighbouring numbers, whose keys are read together
_CHANGES: Final = ("device.revoke", "device.quarantine", "device.release")


class DeviceKeys:
    """The keys of admitted devices, for one event loop; the store is read in the threads of ``pool``."""

    def __init__(self, store: Store, pool: Executor) -> None:
        self._store, self._pool = store, pool
        self._devices = np.zeros(_SLOTS, dtype=np.int64)  # whose key a slot holds
        self._keys = np.zeros((_SLOTS, _KEY_BYTES), dtype=np.uint8)
        self._asked: dict[int, asyncio.Future[None]] = {}  # by page
        self._reading: asyncio.Task[None] | None = None
        self._barred: frozenset[int] = frozenset()
        self._line = -1  # the last of the audit log that they follow from
        self._looked = self._forgot = -math.inf  # when they were looked up, and when that became void
        self._looking: asyncio.Task[None] | None = None

    async def of(self, device: int) -> bytes | None:
        """The key of a device; None where there is no such device, or it is barred."""
        if not 0 < device <= MOST_NUMBER:
            return None
        for _ in range(2):  # a look that began before :meth:`forget` may be under way: the next one counts
            age = self._age
            if age > _BARRED_SECONDS / 2 and self._looking is None:
                self._looking = asyncio.create_task(self._look())
                self._looking.add_done_callback(lambda task: task.cancelled() or task.exception())
            if age <= _BARRED_SECONDS or self._looking is None:
                break
            # Several requests may wait for it; one that leaves takes nothing from the others.
            await asyncio.shield(self._looking)
        if device in self._barred:
            return None
        key = self._kept(device)
        if key is None:
            page = device // _PAGE
            asked = self._asked.get(page)
            if asked is None:
                asked = self._asked[page] = asyncio.get_running_loop().create_future()
                if self._reading is None:
                    self._reading = asyncio.create_task(self._read_asked())
            await asyncio.shield(asked)
            key = self._kept(device)
        return key

    def _kept(self, device: int) -> bytes | None:
        slot = device % _SLOTS
        return bytes(self._keys[slot]) if self._devices[slot] == device else None

    def forget(self) -> None:
        """Look again who is barred, before the next request. Run by: any thread."""
        self._forgot = time.monotonic()

    @property
    def _age(self) -> float:
        """Seconds since the barred devices were looked up; endless where that is void."""
        return math.inf if self._looked <= self._forgot else time.monotonic() - self._looked

    async def _look(self) -> None:
        """Look up who is barred."""
        loop = asyncio.get_running_loop()
        begun = time.monotonic()
        try:
            changed = await loop.run_in_executor(self._pool, self._read_barred)
            if changed is not None:
                self._barred, self._line = changed
            self._looked = begun
        finally:
            self._looking = None

    def _read_barred(self) -> tuple[frozenset[int], int] | None:
        """The barred devices, and the last line of the audit log; None where no line since the last tells of any."""
        of_lines = select(func.max(audit.c.number)).where(audit.c.number > self._line)
        with self._store.read() as connection:
            last = connection.execute(of_lines).scalar()
            changed = connection.execute(of_lines.where(audit.c.action.in_(_CHANGES))).scalar()
            if self._line >= 0 and changed is None:
                return None if last is None else (self._barred, last)
            barred = frozenset(connection.execute(select(devices.c.id).where(~ADMITTED)).scalars())
        return barred, 0 if last is None else last

    async def _read_asked(self) -> None:
        """Read the pages that are asked for; whoever asks meanwhile is in the next reading."""
        loop = asyncio.get_running_loop()
        try:
            while self._asked:
                wanted, self._asked = self._asked, {}
                try:
                    numbers, keys = await loop.run_in_executor(self._pool, self._read, list(wanted))
                except BaseException as error:  # whatever it is, it belongs to those who wait
                    for asked in wanted.values():
                        asked.set_exception(error)
                        asked.exception()  # a request may have been cancelled
                    if not isinstance(error, Exception):
                        raise
                    continue
                slots = numbers % _SLOTS
                self._devices[slots], self._keys[slots] = numbers, keys
                for asked in wanted.values():
                    asked.set_result(None)
        finally:
            self._reading = None

    def _read(self, pages: Sequence[int]) -> tuple[IntArray, npt.NDArray[np.uint8]]:
        """The numbers and the keys of the admitted devices of some pages."""
        found: list[tuple[int, bytes]] = []
        query = select(devices.c.id, devices.c.public_key).where(ADMITTED)
        with self._store.read() as connection:
            for page in pages:
                here = query.where(devices.c.id.between(page * _PAGE, page * _PAGE + _PAGE - 1))
                found += (tuple(row) for row in connection.execute(here))
        keys = np.frombuffer(b"".join(key for _, key in found), dtype=np.uint8).reshape(-1, _KEY_BYTES)
        return np.array([number for number, _ in found], dtype=np.int64), keys
