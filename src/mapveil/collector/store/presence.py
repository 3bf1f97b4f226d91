"""Roles that one process plays alone, such as the conductor's: when it last said so, by which the others know of it.

On SQLite a store has one process, which knows it without the store.
"""

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from mapveil.collector.clock import time_text
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import presence


def say_present(store: Store, role: str) -> None:
    """Record that this process plays a role now."""
    if not store.shareable:
        return
    said = insert(presence).values(role=role, at=time_text(store.clock.now()))
    with store.write() as connection:
        connection.execute(said.on_conflict_do_update(index_elements=["role"], set_={"at": said.excluded.at}))


def was_present(store: Store, role: str, seconds: float) -> bool:
    """Whether a process said within so many seconds that it plays a role; on SQLite that is not known, and True."""
    if not store.shareable:
        return True
    since = time_text(store.clock.now() - timedelta(seconds=seconds))
    with store.read() as connection:
        at = connection.execute(select(presence.c.at).where(presence.c.role == role)).scalar()
    return at is not None and at >= since
