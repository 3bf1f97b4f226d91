"""Heartbeats of long ago: their times are the database's, which no test can move."""

from datetime import timedelta

from sqlalchemy import update

from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import heartbeats


def age_heartbeats(store: Store, seconds: float) -> None:
    """Move every heartbeat of a store into the past; into the future where the seconds are negative."""
    with store.write() as connection:
        connection.execute(update(heartbeats).values(at=heartbeats.c.at - timedelta(seconds=seconds)))
