"""Upgrades of a store from the tables of earlier versions of Mapveil, one version at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import text, update
from sqlalchemy.engine import Connection

from mapveil.collector.store import audit_log
from mapveil.collector.store.schema import (
    OLDEST,
    VERSION,
    check_version,
    create_missing,
    found_version,
    schema_version,
)
from mapveil_client.errors import InputError

_STEPS: Final[Mapping[int, tuple[str, ...]]] = {
    3: (
        "ALTER TABLE tasks ADD COLUMN at_helper BOOLEAN NOT NULL DEFAULT FALSE",
        # The leader tells the helper an end until it confirms; once more does no harm.
        "UPDATE tasks SET at_helper = (operator = 0)",
    ),
    4: (
        "ALTER TABLE collections ADD COLUMN joined INTEGER NOT NULL DEFAULT 0",
        "UPDATE collections SET joined = (SELECT count(*) FROM members WHERE members.collection = collections.id)",
        "CREATE INDEX ix_devices_barred ON devices (id) WHERE revoked_at IS NOT NULL OR quarantined_at IS NOT NULL",
    ),
}
"""Statements that make the tables of the next version from those of a version, on every database."""


def upgrade(connection: Connection) -> tuple[int, int]:
    """Bring the tables to this version, in the transaction of the connection; the versions before and after.

    Raises
    ------
    InputError
        There are no tables, or they are another program's, of a later version, or of one before the first that can be
        upgraded.
    """
    found = found_version(connection)
    if found is None:
        raise InputError("the store has no tables yet; mapveil serve creates them")
    if not OLDEST <= found <= VERSION:
        check_version(connection)  # says so
    for version in range(found, VERSION):
        for statement in _STEPS[version]:
            connection.execute(text(statement))
    create_missing(connection)
    if found != VERSION:
        connection.execute(update(schema_version).values(version=VERSION))
        audit_log.record(connection, "command line", "store.upgrade", before=found, after=VERSION)
    return found, VERSION
