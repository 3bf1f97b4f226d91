"""Heartbeats of the roles that one process plays alone, such as the conductor's; the other processes read them.

On SQLite a store has one process, which knows of itself without the store. All times are the database's own: clocks of
machines may differ.
"""

from typing import Final

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import heartbeats

STUCK_SECONDS: Final = 600.0
"""Longest step of a healthy process. Chosen, not measured: one step of a large collection takes minutes."""

BEAT_SECONDS: Final = 15.0
"""Time between two heartbeats, but none is sent in a step. Chosen: four rows a minute cost a database nothing."""

ABSENT_SECONDS: Final = STUCK_SECONDS + 4 * BEAT_SECONDS
"""Age from which a heartbeat counts no more: that of the longest step, and of some heartbeats that were not sent."""


def send_heartbeat(store: Store, role: str) -> None:
    """Record that this process plays a role now."""
    if not store.shareable:
        return
    sent = insert(heartbeats).values(role=role, at=func.clock_timestamp())
    with store.write() as connection:
        connection.execute(sent.on_conflict_do_update(index_elements=["role"], set_={"at": sent.excluded.at}))


def has_heartbeat(store: Store, role: str) -> bool:
    """Whether the last heartbeat of a role is recent; True on SQLite, where nobody else could send one."""
    if not store.shareable:
        return True
    # One from the future is of before the database's clock was set back.
    age = func.abs(func.extract("epoch", func.clock_timestamp() - heartbeats.c.at))
    with store.read() as connection:
        found = connection.execute(select(age <= ABSENT_SECONDS).where(heartbeats.c.role == role))
        return bool(found.scalar())
