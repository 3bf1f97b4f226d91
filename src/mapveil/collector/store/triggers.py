"""Triggers that keep lines of the audit log and charges from being changed or deleted, on both databases."""

from typing import Final

from sqlalchemy import text
from sqlalchemy.engine import Connection

APPEND_ONLY: Final = ("audit", "charges")
"""Tables whose lines are never changed or deleted."""

TRIGGERS: Final = {
    "sqlite": (
        *(
            f"CREATE TRIGGER {table}_stays_{what.lower()} BEFORE {what} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'a line of {table} is never changed'); END"
            for table in APPEND_ONLY
            for what in ("UPDATE", "DELETE")
        ),
        # INSERT OR REPLACE deletes without firing the triggers above.
        "CREATE TRIGGER audit_goes_on BEFORE INSERT ON audit "
        "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM audit) "
        "BEGIN SELECT RAISE(ABORT, 'a line of audit follows the last one'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION mapveil_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'a line of % is never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation'; "
        "END $$",
        *(
            f"CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION mapveil_append_only()"
            for table in APPEND_ONLY
        ),
    ),
}
"""The statements that make them, by database."""


def missing_triggers(connection: Connection) -> list[str]:
    """Names of the triggers that keep lines from being changed, and are not as they were made."""
    if connection.dialect.name == "sqlite":
        held = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    else:
        held = "SELECT tgname, tgname FROM pg_trigger WHERE tgenabled = 'O' AND NOT tgisinternal"
    found = {row[0]: row[1] for row in connection.execute(text(held))}
    made = {
        words[2]: statement
        for statement in TRIGGERS[connection.dialect.name]
        if (words := statement.split())[1] == "TRIGGER"
    }
    exact = connection.dialect.name == "sqlite"
    return [name for name, sql in made.items() if found.get(name) != (sql if exact else name)]
