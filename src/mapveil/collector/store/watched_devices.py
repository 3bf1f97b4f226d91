"""The devices that operators look at: those that the audit log names, and those that take part in nothing."""

import json
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import BARRED, audit, devices

FAULT: Final = "device.fault"
"""Action of the audit line that names a device."""
_MOST_BARRED: Final = 1000
_MOST_NAMED: Final = 100


@dataclass(frozen=True)
class BarredDevice:
    """A device that takes part in nothing."""

    id: int
    quarantined_at: str | None
    revoked_at: str | None


@dataclass(frozen=True)
class DeviceFault:
    """A device whose messages in a secure sum were wrong, or contradicted the others'."""

    at: str
    collection: str
    device: int
    kind: str  # of its messages, of secure_sum.server_unmask.FaultKind
    against: int  # neighbours whose messages show it
    proven: bool


def barred_devices(store: Store) -> list[BarredDevice]:
    """The newest devices that are revoked or in quarantine, at most 1000."""
    columns = devices.c.id, devices.c.quarantined_at, devices.c.revoked_at
    query = select(*columns).where(BARRED).order_by(devices.c.id.desc()).limit(_MOST_BARRED)
    with store.read() as connection:
        return [BarredDevice(*row) for row in connection.execute(query)]


def device_faults(store: Store) -> list[DeviceFault]:
    """The newest devices that the audit log names, at most 100 lines of it."""
    query = select(audit).where(audit.c.action == FAULT).order_by(audit.c.number.desc()).limit(_MOST_NAMED)
    with store.read() as connection:
        rows = connection.execute(query).all()
    lines = [(row, json.loads(row.detail)) for row in rows]
    names = ("device", "kind", "against", "proven")
    return [DeviceFault(row.at, row.collection, *(detail[name] for name in names)) for row, detail in lines]
