"""The public keys of the devices, at hand: every request of a device is checked against one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from sqlalchemy import bindparam, select

from mapveil.collector.faults import Unauthorized
from mapveil.collector.schema import MOST_NUMBER, devices
from mapveil.collector.store import Store

__all__ = ["DeviceKeys"]

_MOST: Final = 1 << 17
_SECONDS: Final = 60.0

_ROW: Final = select(devices.c.public_key, devices.c.revoked_at).where(devices.c.id == bindparam("device"))


class DeviceKeys:
    """Public keys by device, the latest used kept for a minute.

    Parameters
    ----------
    store : Store
        Where they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[bytes, float]] = OrderedDict()
        self._revocations = 0

    def of(self, device: int) -> bytes:
        """The public key of a device, 32 bytes.

        Raises
        ------
        Unauthorized
            There is no such device, or it was revoked.
        """
        now = self._store.clock.monotonic()
        with self._lock:
            kept = self._kept.get(device)
            if kept is not None and now - kept[1] < _SECONDS:
                self._kept.move_to_end(device)
                return kept[0]
            revocations = self._revocations
        key = self._read(device)
        with self._lock:
            if revocations == self._revocations:  # else it may just have been revoked
                self._kept[device] = (key, now)
                self._kept.move_to_end(device)
                if len(self._kept) > _MOST:
                    self._kept.popitem(last=False)
        return key

    def forget(self, device: int) -> None:
        """Look the device up again next time: it was revoked."""
        with self._lock:
            self._revocations += 1
            self._kept.pop(device, None)

    def _read(self, device: int) -> bytes:
        row = None
        if 0 < device <= MOST_NUMBER:
            with self._store.read() as connection:
                row = connection.execute(_ROW, {"device": device}).one_or_none()
        if row is None:
            raise Unauthorized("the device is unknown")
        if row.revoked_at is not None:
            raise Unauthorized("the device was revoked")
        return bytes(row.public_key)
