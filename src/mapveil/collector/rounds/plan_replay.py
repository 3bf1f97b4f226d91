"""The plan of a distributed collection, replayed on the sums of the rounds that are done, and their costs.

A plan depends on its public setting and on the sums only, so sending it the stored sums again brings it to where it
was: nothing of it needs to be kept.
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.engine import Connection

from mapveil.collector.rounds.offer import Offer
from mapveil.collector.store.database import Store
from mapveil.collector.store.schema import charges, rounds
from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.claim import Share
from mapveil.trust.queries import Estimate, Query, Raster, Setting
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.secure_aggregation.round_terms import RoundTerms
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Rounding
from mapveil_client.errors import InputError, PromiseError
from mapveil_client.method_parameters import shard_boundaries
from mapveil_client.randomness.noise_shares import check_round, exact_fraction
from mapveil_client.secure_sum.messages import usual_size
from mapveil_client.secure_sum.states import Message, sent_messages
from mapveil_client.terms import CollectionTerms

_LEAST_SHARD: Final = 3  # devices, below which a secure sum reveals its inputs

TOTAL: Final = np.dtype("<i8")
"""Number format of the units of a round's sums in the store."""


class DoneRound(NamedTuple):
    """A round whose sums are known."""

    announcement: RoundAnnouncement
    units: IntArray  # of all shards together
    included: int  # devices in them
    sent: dict[str, Any]  # bytes of one device at most, by direction and phase


def shard_sizes(asked: int, model: SecureAggregation) -> IntArray:
    """Devices of each shard, shape (shards,).

    Raises
    ------
    PromiseError
        A shard would have fewer than three devices.
    """
    sizes = np.diff(shard_boundaries(asked, model.shard_size))
    if int(sizes.min()) < _LEAST_SHARD:
        raise PromiseError(
            f"{asked} devices in shards of at most {model.shard_size} leave one with {int(sizes.min())}; at least "
            f"{_LEAST_SHARD} are needed for a secure sum"
        )
    return np.asarray(sizes, dtype=np.int64)


def announce(
    terms: CollectionTerms, query: Query, number: int, run: str, sizes: IntArray
) -> RoundAnnouncement:
    """Announcement of a round that puts ``query`` to shards of these sizes.

    Raises
    ------
    ParameterError
        The modulus that was set is too small, no graph keeps the promises for such shards, or a round has too many
        coordinates for its delta.
    """
    model = Offer(terms).model
    alpha = model.alpha(int(sizes.min()))
    fixed = RoundTerms.of(query, sizes, alpha, model.units, model.rounding, bits=model.bits)
    check_round(number, query.encoding.length, fixed.alpha, query.epsilon, fixed.sensitivity)
    made = RoundAnnouncement(
        terms=terms.digest.hex(),
        number=number,
        run=run,
        purpose=query.purpose,
        encoding=query.encoding.to_dict(),
        length=query.encoding.length,
        epsilon=query.epsilon,
        alpha=fixed.alpha,
        scale=fixed.scale,
        rounding=model.rounding,
        bits=fixed.bits,
        corrupt=exact_fraction(model.corrupt, "corrupt"),
        dropout=exact_fraction(model.tolerated_dropout, "tolerated_dropout"),
        active=terms.active,
        sizes=tuple(int(size) for size in sizes),
    )
    for shard in {made.sizes.index(size) for size in set(made.sizes)}:
        made.parameters(shard)
    return made


def message_bytes(announced: RoundAnnouncement) -> dict[str, dict[str, int]]:
    """The most that one device of the largest shard sends and receives in each phase."""
    shard = int(np.argmax(announced.sizes))
    parameters = announced.parameters(shard)

    def sizes(kinds: tuple[Message, ...]) -> dict[str, int]:
        return {kind.name.lower(): usual_size(parameters, kind) for kind in kinds}

    sent, received = sent_messages(announced.active)
    return {"up": sizes(sent), "down": sizes(received)}


def round_terms(announcement: RoundAnnouncement) -> RoundTerms:
    """Units and scale of the sums of an announced round."""
    rounding: Rounding = "stochastic" if announcement.rounding == "stochastic" else "largest-remainder"
    return RoundTerms.of(
        Query(*announcement.query),
        np.array(announcement.sizes, dtype=np.int64),
        announcement.alpha,
        announcement.scale,
        rounding,
        bits=announcement.bits,
    )


def replay(terms: CollectionTerms, sizes: IntArray, done: Sequence[DoneRound]) -> Query | Estimate:
    """State of the plan after the rounds that are done: its next query, or its estimate.

    Parameters
    ----------
    terms : CollectionTerms
        Of a distributed collection.
    sizes : ndarray of int64, shape (shards,)
        Of the first round: the setting is made of them, once for all rounds.
    done : sequence of DoneRound
        In order.
    """
    found, raster = Offer(terms), Raster.of(terms.cells.lattice())
    setting = Setting.of_shards(found.model, raster, sizes, found.model.units, terms.cells.region)
    plan = found.sums.plan(setting)
    try:
        query = next(plan)
        for each in done:
            if not isinstance(query, Query) or _asks(query) != _asks(Query(*each.announcement.query)):
                raise PromiseError(
                    f"round {each.announcement.number} asked for {each.announcement.purpose!r}, and this version of "
                    f"Mapveil asks for {query.share.purpose!r}: the collection cannot go on"
                )
            query = plan.send(round_terms(each.announcement).noisy_sums(each.units, each.included))
    except StopIteration as stop:
        made: Estimate = stop.value
        return made
    if not isinstance(query, Query):
        raise PromiseError(f"{terms.method} asks what only a curator can answer")
    return query


def _asks(query: Query) -> tuple[Any, ...]:
    return query.purpose, query.epsilon, query.encoding.to_dict()


def check_feasible(terms: CollectionTerms) -> None:
    """Try the first round with the number of devices of the terms; raises InputError where it is impossible."""
    try:
        sizes = shard_sizes(terms.devices, Offer(terms).model)
        first = replay(terms, sizes, ())
        if isinstance(first, Query):
            announce(terms, first, 1, bytes(16).hex(), sizes)
    except PromiseError as error:
        raise InputError(str(error)) from None


def done_rounds(connection: Connection, identifier: str) -> list[DoneRound]:
    """Rounds of a collection whose sums are known, in order."""
    query = (
        select(rounds.c.announcement, rounds.c.total, rounds.c.included, rounds.c.bytes)
        .where(rounds.c.collection == identifier, rounds.c.total.is_not(None))
        .order_by(rounds.c.number)
    )
    return [
        DoneRound(
            RoundAnnouncement.decode(row.announcement),
            np.frombuffer(row.total, dtype=TOTAL).astype(np.int64),
            row.included,
            json.loads(row.bytes),
        )
        for row in connection.execute(query)
    ]


def costs_of(connection: Connection, identifier: str) -> tuple[RoundCost, ...]:
    """Communication cost of each round that is done, per device."""
    made = []
    for announced, _, included, sent in done_rounds(connection, identifier):
        fixed = (announced.purpose, announced.length, announced.bits, sum(announced.sizes), included)
        made.append(RoundCost(*fixed, len(announced.sizes), sent["up"], sent["down"]))
    return tuple(made)


def next_step(store: Store, terms: CollectionTerms, asked: int) -> Query | Estimate:
    """Next query of the plan after the rounds in the store, or its estimate. CPU-heavy.

    ``asked`` is the number of devices that the first round asks, if there was none yet.
    """
    with store.read() as connection:
        done = done_rounds(connection, terms.identifier)
    sizes = (
        np.array(done[0].announcement.sizes, dtype=np.int64)
        if done
        else shard_sizes(asked, Offer(terms).model)
    )
    return replay(terms, sizes, done)


def shares_of(connection: Connection, identifier: str) -> tuple[Share, ...]:
    """Shares of the budget that the rounds of a collection were charged."""
    query = (
        select(charges.c.purpose, charges.c.epsilon)
        .where(charges.c.collection == identifier)
        .order_by(charges.c.number)
    )
    return tuple(Share(row.purpose, Fraction(row.epsilon)) for row in connection.execute(query))
