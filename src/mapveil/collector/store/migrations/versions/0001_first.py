"""The first version of the store; audit lines and charges are append-only, which the database itself enforces."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_APPEND_ONLY: Final = ("audit", "charges")


def upgrade() -> None:
    """Make the tables, and the triggers that keep spending and the audit log."""
    time, identifier = sa.String(32), sa.String(32)
    op.create_table(
        "operators",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.Column("revoked_at", time),
        sa.PrimaryKeyConstraint("id", name="pk_operators"),
        sa.UniqueConstraint("token_hash", name="uq_operators_token_hash"),
    )
    op.create_table(
        "enrolments",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("uses_left", sa.Integer, nullable=False),
        sa.Column("created_by", sa.Integer),
        sa.Column("created_at", time, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.Column("revoked_at", time),
        sa.PrimaryKeyConstraint("id", name="pk_enrolments"),
        sa.UniqueConstraint("token_hash", name="uq_enrolments_token_hash"),
        sa.ForeignKeyConstraint(["created_by"], ["operators.id"], name="fk_enrolments_created_by_operators"),
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("public_key", sa.LargeBinary(32), nullable=False),
        sa.Column("enrolment", sa.Integer, nullable=False),
        sa.Column("enrolled_at", time, nullable=False),
        sa.Column("revoked_at", time),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("public_key", name="uq_devices_public_key"),
        sa.ForeignKeyConstraint(["enrolment"], ["enrolments.id"], name="fk_devices_enrolment_enrolments"),
    )
    op.create_table(
        "collections",
        sa.Column("id", identifier, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("terms", sa.LargeBinary, nullable=False),
        sa.Column("join_seconds", sa.Integer, nullable=False),
        sa.Column("phase_seconds", sa.Integer, nullable=False),
        sa.Column("created_by", sa.Integer, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("opened_at", time),
        sa.Column("ended_at", time),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_collections"),
        sa.ForeignKeyConstraint(["created_by"], ["operators.id"], name="fk_collections_created_by_operators"),
    )
    op.create_index("ix_collections_state", "collections", ["state"])
    _of_collection("members", ["device"], sa.Column("joined_at", time, nullable=False))
    _of_collection("reports", ["device"], sa.Column("body", sa.LargeBinary, nullable=False))
    _of_collection(
        "rounds",
        ["number"],
        sa.Column("announcement", sa.LargeBinary, nullable=False),
        sa.Column("phase", sa.Integer, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("phase_at", time, nullable=False),
        sa.Column("included", sa.Integer),
        sa.Column("total", sa.LargeBinary),
        sa.Column("bytes", sa.Text),
    )
    _of_collection(
        "shards",
        ["round", "shard"],
        sa.Column("graph_seed", sa.LargeBinary(32), nullable=False),
        foreign=False,
    )
    _of_collection(
        "seats",
        ["round", "device"],
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("client", sa.Integer, nullable=False),
        sa.UniqueConstraint(
            "collection", "round", "shard", "client", name="uq_seats_collection_round_shard_client"
        ),
        foreign=False,
    )
    _of_collection(
        "messages",
        ["round", "phase", "shard", "client"],
        sa.Column("body", sa.LargeBinary, nullable=False),
        foreign=False,
    )
    _of_collection(
        "charges",
        ["number"],
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("epsilon", sa.String(200), nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("at", time, nullable=False),
    )
    _of_collection(
        "results",
        [],
        sa.Column("geoparquet", sa.LargeBinary, nullable=False),
        sa.Column("guarantee", sa.Text, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("at", time, nullable=False),
        sa.Column("actor", sa.String(120), nullable=False),
        sa.Column("action", sa.String(60), nullable=False),
        sa.Column("collection", identifier),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("chain", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    for statement in _triggers(op.get_bind().dialect.name):
        op.execute(statement)


def _of_collection(name: str, keys: list[str], *columns: sa.schema.SchemaItem, foreign: bool = True) -> None:
    """A table whose primary key begins with the collection; a key called device is one where there are foreign keys."""
    links = [(["collection"], ["collections.id"], "collections")] if foreign else []
    if foreign and "device" in keys:
        links.append((["device"], ["devices.id"], "devices"))
    op.create_table(
        name,
        sa.Column("collection", sa.String(32), nullable=False),
        *(sa.Column(key, sa.Integer, nullable=False) for key in keys),
        *columns,
        sa.PrimaryKeyConstraint("collection", *keys, name=f"pk_{name}"),
        *(
            sa.ForeignKeyConstraint(here, there, name=f"fk_{name}_{here[0]}_{table}")
            for here, there, table in links
        ),
    )


def _triggers(dialect: str) -> list[str]:
    if dialect == "sqlite":
        return [
            f"CREATE TRIGGER {table}_stays_{what.lower()} BEFORE {what} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'a line of {table} is never changed'); END"
            for table in _APPEND_ONLY
            for what in ("UPDATE", "DELETE")
        ] + [
            # INSERT OR REPLACE deletes without asking the trigger above.
            "CREATE TRIGGER audit_goes_on BEFORE INSERT ON audit "
            "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM audit) "
            "BEGIN SELECT RAISE(ABORT, 'a line of audit follows the last one'); END"
        ]
    return [
        "CREATE FUNCTION mapveil_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'a line of % is never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation'; "
        "END $$",
        *(
            f"CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION mapveil_append_only()"
            for table in _APPEND_ONLY
        ),
    ]
