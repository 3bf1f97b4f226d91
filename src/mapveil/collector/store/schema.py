"""The tables of the store: what the collector remembers, and nothing that could be a place.

Whatever the service holds in memory is rebuilt from these rows. Times are UTC, ISO 8601 text; epsilons exact
fractions as text; binary columns hold messages as they came.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

MOST_NUMBER: Final = (1 << 31) - 1
"""What an integer column holds at most, on every database."""

_TIME = String(32)
_ID = String(32)
_EPSILON = String(200)

operators: Final = Table(
    "operators",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False),
    Column("role", String(16), nullable=False),  # viewer | operator | admin
    Column("token_hash", LargeBinary(32), nullable=False, unique=True),  # SHA-256 of 32 random bytes
    Column("created_at", _TIME, nullable=False),
    Column("expires_at", _TIME, nullable=False),
    Column("revoked_at", _TIME),
)

enrolments: Final = Table(
    "enrolments",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False),
    Column("token_hash", LargeBinary(32), nullable=False, unique=True),
    Column("uses_left", Integer, nullable=False),
    Column("created_by", Integer, ForeignKey("operators.id")),  # none: the command line
    Column("created_at", _TIME, nullable=False),
    Column("expires_at", _TIME, nullable=False),
    Column("revoked_at", _TIME),
)

devices: Final = Table(
    "devices",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("public_key", LargeBinary(32), nullable=False, unique=True),  # Ed25519
    Column("enrolment", Integer, ForeignKey("enrolments.id"), nullable=False),
    Column("enrolled_at", _TIME, nullable=False),
    Column("revoked_at", _TIME),
)

collections: Final = Table(
    "collections",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("state", String(16), nullable=False),  # draft | open | running | finishing | done | aborted
    Column("terms", LargeBinary, nullable=False),  # CollectionTerms.encode()
    Column("join_seconds", Integer, nullable=False),
    Column("phase_seconds", Integer, nullable=False),
    Column("created_by", Integer, ForeignKey("operators.id"), nullable=False),
    Column("created_at", _TIME, nullable=False),
    Column("opened_at", _TIME),
    Column("ended_at", _TIME),
    Column("reason", Text),  # why it was aborted
    Index(None, "state"),
)

members: Final = Table(
    "members",
    METADATA,
    Column("collection", _ID, ForeignKey("collections.id"), primary_key=True),
    Column("device", Integer, ForeignKey("devices.id"), primary_key=True),
    Column("joined_at", _TIME, nullable=False),
)

reports: Final = Table(
    "reports",
    METADATA,
    Column("collection", _ID, ForeignKey("collections.id"), primary_key=True),
    Column("device", Integer, ForeignKey("devices.id"), primary_key=True),
    Column("body", LargeBinary, nullable=False),  # a message of mapveil.local or mapveil.random_features
)

rounds: Final = Table(
    "rounds",
    METADATA,
    Column("collection", _ID, ForeignKey("collections.id"), primary_key=True),
    Column("number", Integer, primary_key=True),  # from 1
    Column("announcement", LargeBinary, nullable=False),  # RoundAnnouncement.encode()
    Column("phase", Integer, nullable=False),  # a ServerState: which messages are collected
    Column("open", Boolean, nullable=False),  # False: the phase is over and is being closed
    Column("phase_at", _TIME, nullable=False),  # when the phase was opened
    Column("included", Integer),  # devices in the sums, once the masked inputs are in
    Column("total", LargeBinary),  # int64, little-endian: the units of all shards together, once done
    Column("bytes", Text),  # JSON {"up": {phase: most of one device}, "down": {...}}
)

shards: Final = Table(
    "shards",
    METADATA,
    Column("collection", _ID, primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("graph_seed", LargeBinary(32), nullable=False),
)

seats: Final = Table(
    "seats",
    METADATA,
    Column("collection", _ID, primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("device", Integer, primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("client", Integer, nullable=False),
    UniqueConstraint("collection", "round", "shard", "client"),
)

messages: Final = Table(
    "messages",
    METADATA,
    Column("collection", _ID, primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("phase", Integer, primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("body", LargeBinary, nullable=False),  # of mapveil.secure_sum; gone once the round is done
)

charges: Final = Table(
    "charges",
    METADATA,
    Column("collection", _ID, ForeignKey("collections.id"), primary_key=True),
    Column("number", Integer, primary_key=True),  # the round's; 0 for reports
    Column("purpose", Text, nullable=False),
    Column("epsilon", _EPSILON, nullable=False),  # of each device
    Column("devices", Integer, nullable=False),
    Column("at", _TIME, nullable=False),
)

results: Final = Table(
    "results",
    METADATA,
    Column("collection", _ID, ForeignKey("collections.id"), primary_key=True),
    Column("geoparquet", LargeBinary, nullable=False),  # the map, whole, with its guarantee
    Column("guarantee", Text, nullable=False),  # JSON of Guarantee.to_dict()
)

audit: Final = Table(
    "audit",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 1, without gaps
    Column("at", _TIME, nullable=False),
    Column("actor", String(120), nullable=False),  # "operator 3", "device 12", "service", "command line"
    Column("action", String(60), nullable=False),  # "collection.open", "round.charge", ...
    Column("collection", _ID),
    Column("detail", Text, nullable=False),  # JSON; never a secret, a key or a place
    Column("chain", LargeBinary(32), nullable=False),  # SHA-256 of the line before and this one
)
