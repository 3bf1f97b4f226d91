"""The rounds of a collection as the store remembers them: whom they ask, what they learnt, what they cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.server_half import DoneRound, model_of, replay, shard_sizes
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import assignments, charges, devices, members, rounds
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Estimate
from mapveil.mechanisms.plan import Query
from mapveil.privacy.claim import Share
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.terms import CollectionTerms

TOTAL: Final = np.dtype("<i8")
"""The units of a round's sums, as stored."""


def _done(connection: Connection, identifier: str) -> Iterator[tuple[RoundAnnouncement, Any]]:
    """Announcement and row of each round whose sums are known, in order."""
    query = (
        select(rounds.c.announcement, rounds.c.total, rounds.c.included, rounds.c.bytes)
        .where(rounds.c.collection == identifier, rounds.c.total.is_not(None))
        .order_by(rounds.c.number)
    )
    for row in connection.execute(query):
        yield RoundAnnouncement.decode(row.announcement), row


def done_rounds(connection: Connection, identifier: str) -> list[DoneRound]:
    """Rounds of a collection whose sums are known, in order."""
    return [
        DoneRound(announced, np.frombuffer(row.total, dtype=TOTAL).astype(np.int64), row.included)
        for announced, row in _done(connection, identifier)
    ]


def costs_of(connection: Connection, identifier: str) -> tuple[RoundCost, ...]:
    """Communication cost of each round that is done, per device."""
    made = []
    for announced, row in _done(connection, identifier):
        sizes, sent = announced.sizes, json.loads(row.bytes)
        fixed = (announced.purpose, announced.length, announced.bits, sum(sizes), row.included, len(sizes))
        made.append(RoundCost(*fixed, sent["up"], sent["down"]))
    return tuple(made)


def next_step(store: Store, terms: CollectionTerms, asked: int) -> Query | Estimate:
    """Next query of the server half after the rounds that are done, or its estimate. CPU-heavy.

    Parameters
    ----------
    store : Store
        Holds the rounds.
    terms : CollectionTerms
        Of the collection.
    asked : int
        How many devices the first round asks, if there was none yet.
    """
    with store.read() as connection:
        done = done_rounds(connection, terms.identifier)
    sizes = (
        np.array(done[0].announcement.sizes, dtype=np.int64) if done else shard_sizes(asked, model_of(terms))
    )
    return replay(terms, sizes, done)


def asked_devices(connection: Connection, identifier: str, number: int) -> IntArray:
    """Whom round ``number`` asks: all members, later those whose input the round before included."""
    if number == 1:
        query = select(members.c.device).where(members.c.collection == identifier)
        who = members.c.device
    else:
        query = select(assignments.c.device).where(
            assignments.c.collection == identifier, assignments.c.round == number - 1
        )
        who = assignments.c.device
    kept = query.join(devices, devices.c.id == who).where(devices.c.revoked_at.is_(None)).order_by(who)
    return np.array(connection.execute(kept).scalars().all(), dtype=np.int64)


def shares_of(connection: Connection, identifier: str) -> tuple[Share, ...]:
    """Shares of the budget that the rounds of a collection were charged."""
    query = (
        select(charges.c.purpose, charges.c.epsilon)
        .where(charges.c.collection == identifier)
        .order_by(charges.c.number)
    )
    return tuple(Share(row.purpose, Fraction(row.epsilon)) for row in connection.execute(query))
