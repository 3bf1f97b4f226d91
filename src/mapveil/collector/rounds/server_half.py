"""The server half of a distributed mechanism, rebuilt from the sums of the rounds that are done.

A server half is a generator that depends on its public setting and on the sums only, so sending it the stored sums
again brings it to where it was: nothing of it needs to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil.collector.rounds.offer import offer
from mapveil.mechanisms.mechanism import Estimate
from mapveil.mechanisms.plan import NoisySums, Query, Raster, Setting
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.sampling import check_round
from mapveil.trust.secure_aggregation.model import SecureAggregation, exactly
from mapveil.trust.secure_aggregation.round_terms import RoundTerms, shard_boundaries
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Rounding
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.methods import TABLE_SCALE
from mapveil_client.terms import CollectionTerms

_LEAST_SHARD: Final = 3  # a secure sum of fewer is none


class DoneRound(NamedTuple):
    """A round whose sums are known."""

    announcement: RoundAnnouncement
    units: IntArray  # of all shards together
    included: int  # devices in them


def mechanism_of(terms: CollectionTerms) -> SumMechanism:
    """The mechanism of a distributed collection.

    Raises
    ------
    ParameterError
        The terms are of another trust.
    """
    mechanism = offer(terms).mechanism
    if not isinstance(mechanism, SumMechanism) or not isinstance(mechanism.trust, SecureAggregation):
        raise ParameterError(f"method must be a distributed one, got {terms.method}")
    return mechanism


def model_of(terms: CollectionTerms) -> SecureAggregation:
    """How the clients of a distributed collection are asked.

    Raises
    ------
    ParameterError
        The terms are of another trust.
    """
    model = mechanism_of(terms).trust
    assert isinstance(model, SecureAggregation)
    return model


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
    model = model_of(terms)
    alpha = model.alpha(int(sizes.min()))
    fixed = RoundTerms.of(query, sizes, alpha, _scale(model), model.rounding, bits=model.bits)
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
        corrupt=exactly(model.corrupt),
        dropout=exactly(model.tolerated_dropout),
        active=terms.active,
        sizes=tuple(int(size) for size in sizes),
    )
    for shard in {made.sizes.index(size) for size in set(made.sizes)}:
        made.parameters(shard)
    return made


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
    """State of the server half after the rounds that are done: its next query, or its estimate.

    Parameters
    ----------
    terms : CollectionTerms
        Of a distributed collection.
    sizes : ndarray of int64, shape (shards,)
        Of the first round: the setting is made of them, once for all rounds.
    done : sequence of DoneRound
        In order.
    """
    plan = mechanism_of(terms).plan(_setting(terms, model_of(terms), sizes))
    try:
        query = next(plan)
        for each in done:
            asked = each.announcement.query
            if not isinstance(query, Query) or (
                (query.purpose, query.epsilon, query.encoding.to_dict())
                != (each.announcement.purpose, asked.epsilon, asked.encoding.to_dict())
            ):
                raise PromiseError(
                    f"round {each.announcement.number} asked for {each.announcement.purpose!r}, and this version of "
                    f"Mapveil asks for {query.share.purpose!r}: the collection cannot go on"
                )
            query = plan.send(_sums(each))
    except StopIteration as stop:
        made: Estimate = stop.value
        return made
    if not isinstance(query, Query):
        raise PromiseError(f"{terms.method} asks what only a curator can answer")
    return query


def check_feasible(terms: CollectionTerms) -> None:
    """Try the first round with as many devices as are wanted.

    Raises
    ------
    InputError
        It could not be held.
    """
    try:
        sizes = shard_sizes(terms.devices, model_of(terms))
        first = replay(terms, sizes, ())
        if isinstance(first, Query):
            announce(terms, first, 1, bytes(16).hex(), sizes)
    except PromiseError as error:
        raise InputError(str(error)) from None


def _sums(done: DoneRound) -> NoisySums:
    return round_terms(done.announcement).noisy_sums(done.units, done.included)


def _setting(terms: CollectionTerms, model: SecureAggregation, sizes: IntArray) -> Setting:
    raster = Raster.of(terms.cells.lattice())
    return Setting(
        raster.depth,
        raster.members,
        int(sizes.sum()),
        sizes.size,
        model.alpha(int(sizes.min())),
        _scale(model),
        model.rounding,
    )


def _scale(model: SecureAggregation) -> int:
    return model.scale or TABLE_SCALE
