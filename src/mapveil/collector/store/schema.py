"""The tables of the store: everything that the collector remembers; no column can hold a location.

Whatever the service holds in memory is rebuilt from these rows. Times are UTC, ISO 8601 text; epsilons are exact
fractions as text; binary columns hold messages as they came. Lines of the audit log and charges stay as they
are, by :mod:`.triggers`.
"""

from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import Connection
from sqlalchemy.schema import SchemaItem

from mapveil.collector.store.triggers import TRIGGERS
from mapveil_client.errors import InputError

VERSION: Final = 5
"""Version of these tables; a store of another version is refused until it is upgraded (:mod:`.upgrade`)."""

OLDEST: Final = 3
"""First version that can be upgraded."""

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

MOST_NUMBER: Final = (1 << 31) - 1
"""Maximum of an integer column, on every database."""

_TIME = String(32)
_ID = String(32)
_EPSILON = String(200)


def _tokens(name: str, *columns: Column[Any]) -> Table:
    """A table of tokens, each kept as the SHA-256 of 32 random bytes."""
    return Table(
        name,
        METADATA,
        Column("id", Integer, primary_key=True),
        Column("name", String(100), nullable=False),
        *columns,
        Column("token_hash", LargeBinary(32), nullable=False, unique=True),
        Column("created_at", _TIME, nullable=False),
        Column("expires_at", _TIME, nullable=False),
        Column("revoked_at", _TIME),
    )


def _of_collection(name: str, *columns: SchemaItem) -> Table:
    """A table of rows of a collection."""
    key = Column("collection", _ID, ForeignKey("collections.id"), primary_key=True)
    return Table(name, METADATA, key, *columns)


def _of_round(name: str, keys: tuple[str, ...], *columns: SchemaItem) -> Table:
    """A table of rows of a round, with further keys."""
    numbers = (Column(key, Integer, primary_key=True) for key in ("round", *keys))
    return Table(name, METADATA, Column("collection", _ID, primary_key=True), *numbers, *columns)


operators: Final = _tokens(
    "operators",
    Column("role", String(16), nullable=False),  # viewer | operator | admin
)

enrolments: Final = _tokens(
    "enrolments",
    Column("uses_left", Integer, nullable=False),
    Column("created_by", Integer, ForeignKey("operators.id")),  # none: the command line
)

devices: Final = Table(
    "devices",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("public_key", LargeBinary(32), nullable=False, unique=True),  # Ed25519
    Column("enrolment", Integer, ForeignKey("enrolments.id"), nullable=False),
    Column("enrolled_at", _TIME, nullable=False),
    Column("revoked_at", _TIME),
    Index(None, "enrolment", "enrolled_at"),
    Column("quarantined_at", _TIME),  # until it is released
    # of a fleet: one process holds the locations of all
    Column("simulated", Boolean, nullable=False, default=False),
)

ADMITTED: Final = devices.c.revoked_at.is_(None) & devices.c.quarantined_at.is_(None)
"""Condition on the devices: neither revoked nor in quarantine."""

BARRED: Final = devices.c.revoked_at.is_not(None) | devices.c.quarantined_at.is_not(None)
"""The others: every process reads them again and again, from an index of them alone."""

Index("ix_devices_barred", devices.c.id, postgresql_where=BARRED, sqlite_where=BARRED)

collections: Final = Table(
    "collections",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("state", String(16), nullable=False),  # pending | open | running | finishing | done | aborted
    Column("terms", LargeBinary, nullable=False),  # CollectionTerms.encode()
    Column("join_seconds", Integer, nullable=False),
    Column("phase_seconds", Integer, nullable=False),
    Column("created_by", Integer, ForeignKey("operators.id")),  # none: the leader, at the helper
    Column("created_at", _TIME, nullable=False),
    Column("opened_at", _TIME),
    Column("ended_at", _TIME),
    Column("reason", Text),  # why it was aborted
    # number of members
    Column("joined", Integer, nullable=False, default=0, server_default="0"),
    Index(None, "state"),
)

members: Final = _of_collection(
    "members",
    Column("device", Integer, ForeignKey("devices.id"), primary_key=True),
    Column("joined_at", _TIME, nullable=False),
)

reports: Final = _of_collection(
    "reports",
    Column("device", Integer, ForeignKey("devices.id"), primary_key=True),
    Column("body", LargeBinary, nullable=False),  # a message of mapveil.local or mapveil.random_features
)

rounds: Final = _of_collection(
    "rounds",
    Column("number", Integer, primary_key=True),  # from 1
    Column("announcement", LargeBinary, nullable=False),  # RoundAnnouncement.encode()
    # a ServerState: which messages are collected; ABORTED: run again
    Column("phase", Integer, nullable=False),
    Column("open", Boolean, nullable=False),  # False: the phase is over and is being closed
    Column("phase_at", _TIME, nullable=False),  # when the phase was opened
    Column("included", Integer),  # devices in the sums, once the masked inputs are in
    Column("total", LargeBinary),  # int64, little-endian: the units of all shards together, once done
    Column("bytes", Text),  # JSON {"up": {phase: most of one device}, "down": {...}}
)

shards: Final = _of_round(
    "shards",
    ("shard",),
    Column("graph_seed", LargeBinary(32), nullable=False),
    Column("failed", Integer),  # a ServerState: the phase at whose end it was left out
)

assignments: Final = _of_round(
    "assignments",
    ("device",),
    Column("shard", Integer, nullable=False),
    Column("client", Integer, nullable=False),
    UniqueConstraint("collection", "round", "shard", "client"),
)

messages: Final = _of_round(
    "messages",
    ("phase", "shard", "client"),
    Column("body", LargeBinary, nullable=False),  # of mapveil.secure_sum; deleted once the round is over
)

tasks: Final = _of_collection(  # collections of sums by two operators
    "tasks",
    Column("operator", Integer, nullable=False),  # 0: this service leads; 1: it helps
    # this operator's share of the sites' sums; empty before the first job
    Column("sums", LargeBinary, nullable=False),
    Column("accepted", Integer, nullable=False),  # reports in them
    Column("refused", Text, nullable=False),  # JSON: reports by reason
    # At the leader: whether the helper may have been told the terms, and has not confirmed the end.
    Column("at_helper", Boolean, nullable=False),
)

ended_tasks: Final = (
    Table(  # at the helper: ends of collections whose terms it does not know, and will refuse
        "ended_tasks",
        METADATA,
        Column("collection", _ID, primary_key=True),
        Column("at", _TIME, nullable=False),
    )
)

report_ids: Final = _of_collection(
    "report_ids",
    Column("report", LargeBinary(16), primary_key=True),  # a report is verified once
    Column("device", Integer),  # at the leader
    Column("job", Integer),  # that it was verified in; 0: the leader could not read it, and sent it to nobody
    Index(None, "collection", "job"),
)

jobs: Final = _of_collection(
    "jobs",
    Column("number", Integer, primary_key=True),  # from 1
    Column("request", LargeBinary, nullable=False),  # empty once it is done
    Column("reply", LargeBinary, nullable=False),  # at the leader: empty before the helper answered
    Column("closing", LargeBinary, nullable=False),
    Column("done", Boolean, nullable=False),
)

answers: Final = _of_collection(
    "answers",
    Column("number", Integer, primary_key=True),  # from 1
    Column("query", LargeBinary, nullable=False),  # AskedQuery.encode()
    Column("share", LargeBinary, nullable=False),  # this operator's noisy share
    Column("total", LargeBinary),  # at the leader: int64, little-endian, the units of both shares together
)

charges: Final = _of_collection(
    "charges",
    Column("number", Integer, primary_key=True),  # the round's; 0 for reports
    Column("purpose", Text, nullable=False),
    Column("epsilon", _EPSILON, nullable=False),  # of each device
    Column("devices", Integer, nullable=False),
    Column("at", _TIME, nullable=False),
)

salts: Final = _of_collection(  # of the digests of charges; none of a charge by an earlier Mapveil
    "salts",
    Column("number", Integer, primary_key=True),  # the charge's
    Column("salt", LargeBinary(16), nullable=False),  # deleted with the rows of who took part
)

work: Final = Table(
    "work",
    METADATA,
    Column("task", String(16), primary_key=True),  # shard | map | export | prune | erase | forget
    Column("collection", _ID, primary_key=True),
    Column("round", Integer, primary_key=True),  # of a shard, or of messages to delete; 0 otherwise
    Column("shard", Integer, primary_key=True),  # of a shard; 0 otherwise
    Column("name", String(32), primary_key=True),  # of an export: its format
    Column("place", String(500), primary_key=True),  # of an export: where its file is wanted
    Column("phase", Integer, nullable=False),  # of a shard: the ServerState that ends
    Column("served_at", _TIME, nullable=False),  # when it was last taken, at first when it was ordered
    Column("worker", String(32)),  # who has it, or had it last
    Column("lease_until", _TIME),
    Column("attempts", Integer, nullable=False),
    Column("result", LargeBinary),  # of a shard: ShardEnd.encode()
)

heartbeats: Final = Table(  # of the roles that one process plays alone, see store.heartbeats
    "heartbeats",
    METADATA,
    Column("role", String(16), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),  # by the clock of the database
)

results: Final = _of_collection(
    "results",
    Column("geoparquet", LargeBinary, nullable=False),  # the map, whole, with its guarantee
    Column("measurements", LargeBinary, nullable=False),  # npz: what the map's bounds are made of
    Column("guarantee", Text, nullable=False),  # JSON of Guarantee.to_dict()
)

retired: Final = _of_collection(  # ended collections whose members, reports and assignments are deleted
    "retired",
    Column("devices", Integer, nullable=False),  # that took part
    Column("at", _TIME, nullable=False),
)

audit: Final = Table(
    "audit",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1, without gaps
    Column("at", _TIME, nullable=False),
    Column("actor", String(120), nullable=False),  # "operator 3", "device 12", "service", "command line"
    Column("action", String(60), nullable=False),  # "collection.open", "collection.charge", ...
    Column("collection", _ID),
    Column("detail", Text, nullable=False),  # JSON; never a secret, a key or a place
    Column("chain", LargeBinary(32), nullable=False),  # SHA-256 of the line before and this one
)

schema_version: Final = Table("schema_version", METADATA, Column("version", Integer, primary_key=True))

home: Final = Table(  # one row: the database that the store serves from, see store.home
    "home", METADATA, Column("place", String(100), primary_key=True)
)

generation: Final = Table(  # one row, see store.home
    "generation", METADATA, Column("drawn", String(16), primary_key=True)
)

operator_keys: Final = Table(  # one row: the keys that an operator serves with, see operators.served_keys
    "operator_keys",
    METADATA,
    Column("own", String(64), primary_key=True),
    Column("shared", String(64), nullable=False),
)


def found_version(connection: Connection) -> int | None:
    """The version of a store's tables, None for an empty database; an InputError for another program's tables."""
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if not {"schema_version", "audit", "collections"} <= names:
        raise InputError(
            "the store holds another program's tables; use an empty database or a store of Mapveil"
        )
    found = connection.execute(select(schema_version.c.version)).scalar_one_or_none()
    if found is None:
        raise InputError("the store does not say its schema version: it is no whole store; restore a backup")
    return int(found)


def check_version(connection: Connection) -> int | None:
    """Return the version of a store's tables, None for an empty database.

    Raises
    ------
    InputError
        The tables are another program's, or of another version of Mapveil.
    """
    found = found_version(connection)
    if found is not None and found != VERSION:
        hint = "use the Mapveil that made it"
        if found < OLDEST:
            hint = "finish its collections with the Mapveil that made it, and begin a new store"
        elif found < VERSION:
            hint = "stop every process on it, back it up, and run mapveil serve --upgrade"
        raise InputError(
            f"the store has schema version {found}, this Mapveil reads version {VERSION}; {hint}"
        )
    return found


def create_missing(connection: Connection) -> None:
    """Create the tables that a store of an earlier Mapveil of the same version lacks."""
    for table in (ended_tasks, salts, work, heartbeats, home, generation, operator_keys, retired):
        table.create(connection, checkfirst=True)


def create_tables(connection: Connection) -> None:
    """Create the tables and triggers in an empty database, in the transaction of the connection.

    A store that an earlier Mapveil of the same version made gets the tables that it lacks.

    Raises
    ------
    InputError
        As :func:`check_version`.
    """
    if check_version(connection) is not None:
        create_missing(connection)
        return
    METADATA.create_all(connection)
    for statement in TRIGGERS[connection.dialect.name]:
        connection.execute(text(statement))
    connection.execute(insert(schema_version).values(version=VERSION))
