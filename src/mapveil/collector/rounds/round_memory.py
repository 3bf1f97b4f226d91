"""The rounds of a collection as the store remembers them: whom they ask, what they learnt, what they cost."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.server_half import DoneRound, mechanism_of, replay, shard_sizes
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import assignments, charges, devices, members, rounds
from mapveil.distributed.query import Query
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Estimate
from mapveil.privacy.claim import Share
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.terms import CollectionTerms

TOTAL: Final = np.dtype("<i8")
"""The units of a round's sums, as stored."""


def done_rounds(connection: Connection, identifier: str) -> list[DoneRound]:
    """The rounds of a collection whose sums are known, in order."""
    query = (
        select(rounds.c.announcement, rounds.c.total, rounds.c.included)
        .where(rounds.c.collection == identifier, rounds.c.total.is_not(None))
        .order_by(rounds.c.number)
    )
    return [
        DoneRound(
            RoundAnnouncement.decode(row.announcement),
            np.frombuffer(row.total, dtype=TOTAL).astype(np.int64),
            row.included,
        )
        for row in connection.execute(query)
    ]


def costs_of(connection: Connection, identifier: str) -> tuple[RoundCost, ...]:
    """What each round that is done cost a device."""
    query = (
        select(rounds.c.announcement, rounds.c.bytes, rounds.c.included)
        .where(rounds.c.collection == identifier, rounds.c.total.is_not(None))
        .order_by(rounds.c.number)
    )
    made = []
    for row in connection.execute(query):
        announced, sent = RoundAnnouncement.decode(row.announcement), json.loads(row.bytes)
        made.append(
            RoundCost(
                announced.purpose,
                announced.length,
                announced.bits,
                sum(announced.sizes),
                row.included,
                len(announced.sizes),
                sent["up"],
                sent["down"],
            )
        )
    return tuple(made)


def next_step(store: Store, terms: CollectionTerms, asked: int) -> Query | Estimate:
    """What the server half wants after the rounds that are done. CPU-heavy: not within a transaction.

    Parameters
    ----------
    store : Store
        Holds the rounds.
    terms : CollectionTerms
        Of the collection.
    asked : int
        How many devices the first round asks, if there was none yet.

    Raises
    ------
    PromiseError, ParameterError
        The collection cannot go on.
    """
    with store.read() as connection:
        done = done_rounds(connection, terms.identifier)
    sizes = (
        np.array(done[0].announcement.sizes, dtype=np.int64)
        if done
        else shard_sizes(asked, mechanism_of(terms))
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
    """What the rounds of a collection were charged."""
    query = (
        select(charges.c.purpose, charges.c.epsilon)
        .where(charges.c.collection == identifier)
        .order_by(charges.c.number)
    )
    return tuple(Share(row.purpose, Fraction(row.epsilon)) for row in connection.execute(query))
