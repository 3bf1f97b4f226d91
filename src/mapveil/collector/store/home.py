"""The database in which a store serves, recorded in the store: a restored backup, or a copy, is told from the original.

A restored store has forgotten what was charged and answered since the backup, so it serves only once an operator has
said what becomes of its collections. A copy over the very file, of a backup that :mod:`.backup` did not make, and a
snapshot of the whole disk or machine are not recognised: there the published head of the audit log is.

A deleted file's number is given to another file, so a store in a file also has a random token in a file beside it, of
which no backup has a copy.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from sqlalchemy import delete, insert, inspect, select, text
from sqlalchemy.engine import Connection

from mapveil.collector.store.schema import generation, home
from mapveil_client.errors import InputError
from mapveil_client.private_file import create_private, sync_folder

GENERATION_BYTES: Final = 8
"""Random bytes of a generation: with a counter, two restorations of one backup would begin the same one."""

RESTORED: Final = (
    "the store was restored from a backup, copied or moved, and may lack what was charged and answered since; say what "
    "becomes of its collections: mapveil serve --restored abort, or --restored continue"
)

_SQLITE: Final = "SELECT file FROM pragma_database_list WHERE name = 'main'"
_POSTGRESQL: Final = (
    "SELECT system_identifier, timeline_id, 'audit'::regclass::oid, oid "
    "FROM pg_control_system(), pg_control_checkpoint(), pg_database WHERE datname = current_database()"
)
"""A restored dump has new tables, a copy by ``createdb --template`` is a new database, and a server that is restored to
a moment begins a new timeline."""

_POSTGRESQL_MAY: Final = (
    "SELECT has_function_privilege('pg_control_system()', 'execute') "
    "AND has_function_privilege('pg_control_checkpoint()', 'execute')"
)
_POSTGRESQL_LESS: Final = (
    "SELECT oid, 'audit'::regclass::oid FROM pg_database WHERE datname = current_database()"
)
"""Where the host of the database keeps its server's identity from users."""


def settle(connection: Connection) -> None:
    """Record that the store serves from the database that it is in."""
    if connection.dialect.name == "sqlite":
        _draw_token(_token_file(connection))
    connection.execute(delete(home))
    connection.execute(insert(home).values(place=_place(connection)))


def elsewhere(connection: Connection) -> bool:
    """Whether the store last served from another database: it was restored, copied or moved."""
    if not inspect(connection).has_table(home.name):  # of a Mapveil before stores had homes
        return False
    known = connection.execute(select(home.c.place)).scalar()
    place = _place(connection)
    return known not in (None, place, _without_last(place))


def renew_generation(connection: Connection) -> None:
    """Begin a generation that no store was in before. Run by: a new store, and whoever accepts a restored one."""
    connection.execute(delete(generation))
    connection.execute(insert(generation).values(drawn=secrets.token_hex(GENERATION_BYTES)))


def generation_of(connection: Connection) -> str:
    """Hexadecimal digits drawn when the store first served, and again when it was restored."""
    return connection.execute(select(generation.c.drawn)).scalar() or ""


def check_home(connection: Connection) -> None:
    """Refuse a store that was restored or copied, by an :class:`InputError`; a new one is at home where it is."""
    if elsewhere(connection):
        raise InputError(RESTORED)
    if connection.execute(select(home.c.place)).scalar() != _place(connection):
        settle(connection)
    # Also of a new store: it may follow a lost one whose keys were kept, and knows nothing of what that one answered.
    if not generation_of(connection):
        renew_generation(connection)


def _place(connection: Connection) -> str:
    if connection.dialect.name == "sqlite":
        token, file = _token_file(connection), connection.execute(text(_SQLITE)).scalar_one()
        return f"{os.stat(file).st_ino}:{token.read_text() if token.exists() else 'none'}"
    query = _POSTGRESQL if connection.execute(text(_POSTGRESQL_MAY)).scalar_one() else _POSTGRESQL_LESS
    return ":".join(map(str, connection.execute(text(query)).one()))


def _without_last(place: str) -> str:
    """The place as an earlier Mapveil wrote it: without the token, and without the number of the database."""
    return place.rpartition(":")[0]


def _token_file(connection: Connection) -> Path:
    return Path(connection.execute(text(_SQLITE)).scalar_one() + "-home")


def _draw_token(path: Path) -> None:
    path.unlink(missing_ok=True)
    create_private(path)
    with path.open("w") as file:
        file.write(secrets.token_hex(GENERATION_BYTES))
        file.flush()
        os.fsync(file.fileno())  # the store, which names the token, lasts from its commit on
    sync_folder(path.parent)
