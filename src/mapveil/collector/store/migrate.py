"""Bringing a store to the schema of this Mapveil, one numbered migration after the other.

The migrations are files of ``collector/migrations/versions``, in alembic's form; they run in one transaction, so a
store is at the old revision or at the new one and never between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.engine import Connection

from mapveil.collector.store.schema import METADATA
from mapveil_client.errors import InputError

_FOLDER: Final = Path(__file__).with_name("migrations")
_VERSION_TABLE: Final = "alembic_version"


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_FOLDER))


def newest_revision() -> str:
    """The revision this Mapveil brings a store to."""
    return str(_scripts().get_current_head())


def revision_of(connection: Connection) -> str | None:
    """The revision a store is at; none where nothing was made yet.

    Raises
    ------
    InputError
        There are tables in it that are not Mapveil's.
    """
    names = set(inspect(connection).get_table_names())
    if names and not {_VERSION_TABLE, "audit", "collections"} <= names:
        raise InputError(
            "the store holds another program's tables; an empty database, or a store of Mapveil, is accepted"
        )
    return MigrationContext.configure(connection).get_current_revision() if names else None


def refuse_newer(revision: str | None) -> None:
    """Refuse a revision that this Mapveil does not know.

    Raises
    ------
    InputError
        A newer Mapveil made the store.
    """
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision is not None and revision not in known:
        raise InputError(
            f"the store is at revision {revision}, this Mapveil knows {newest_revision()} at most; "
            "a newer Mapveil is needed"
        )


def upgrade(connection: Connection) -> list[str]:
    """Run the migrations that a store lacks, in the transaction of the connection.

    Returns
    -------
    list of str
        The revisions that were run, in order.

    Raises
    ------
    InputError
        The store is another program's, or a newer Mapveil's.
    """
    current = revision_of(connection)
    refuse_newer(current)
    scripts = _scripts()
    context = MigrationContext.configure(connection, opts={"target_metadata": METADATA})
    missing = list(scripts.iterate_revisions("head", current or "base"))[::-1]
    for script in missing:
        with Operations.context(context):
            script.module.upgrade()
        context.stamp(scripts, script.revision)
    return [script.revision for script in missing]
