"""The server half of a distributed mechanism, rebuilt from the sums of the rounds that are done.

A server half is a generator that depends on its public setting and on the sums only, so sending it the stored sums
again brings it to where it was: nothing of it needs to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from mapveil.collector.rounds.offer import offer
from mapveil.distributed.mechanism import TABLE_SCALE, DistributedMechanism, morton_members
from mapveil.distributed.query import NoisySums, Query, Setting
from mapveil.distributed.round_terms import RoundTerms, shard_boundaries
from mapveil.mechanisms.mechanism import Estimate
from mapveil.privacy.sampling import check_round
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.provision import share_shape
from mapveil_client.terms import CollectionTerms
from mapveil_client.user_shares import Rounding

_LEAST_SHARD: Final = 3  # a secure sum of fewer is none


class DoneRound(NamedTuple):
    """A round whose sums are known."""

    announcement: RoundAnnouncement
    units: IntArray  # of all shards together
    included: int  # devices in them


def mechanism_of(terms: CollectionTerms) -> DistributedMechanism:
    """The mechanism of a distributed collection."""
    mechanism = offer(terms).mechanism
    if not isinstance(mechanism, DistributedMechanism):
        raise ParameterError(f"method must be a distributed one, got {terms.method}")
    return mechanism


def shard_sizes(asked: int, mechanism: DistributedMechanism) -> IntArray:
    """Devices of each shard, shape (shards,)."""
    sizes = np.diff(shard_boundaries(asked, mechanism.shard_size))
    if int(sizes.min()) < _LEAST_SHARD:
        raise PromiseError(
            f"{asked} devices in shards of at most {mechanism.shard_size} leave one with {int(sizes.min())}; at least "
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
    mechanism = mechanism_of(terms)
    fixed = RoundTerms.of(
        query, sizes, _alpha(mechanism, sizes), _scale(mechanism), mechanism.rounding, bits=mechanism.bits
    )
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
        rounding=mechanism.rounding,
        bits=fixed.bits,
        corrupt=_part(mechanism.corrupt),
        dropout=_part(mechanism.tolerated_dropout),
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
    mechanism = mechanism_of(terms)
    server = mechanism.server(_setting(terms, mechanism, sizes))
    try:
        query = next(server)
        for each in done:
            if (query.purpose, query.epsilon) != (each.announcement.purpose, each.announcement.epsilon) or (
                query.encoding.to_dict() != each.announcement.query.encoding.to_dict()
            ):
                raise PromiseError(
                    f"round {each.announcement.number} asked for {each.announcement.purpose!r}, and this version of "
                    f"Mapveil asks for {query.purpose!r}: the collection cannot go on"
                )
            query = server.send(_sums(each))
    except StopIteration as stop:
        made: Estimate = stop.value
        return made
    return query


def check_feasible(terms: CollectionTerms) -> None:
    """Try the first round with as many devices as are wanted."""
    mechanism = mechanism_of(terms)
    try:
        sizes = shard_sizes(terms.devices, mechanism)
        first = replay(terms, sizes, ())
        if isinstance(first, Query):
            announce(terms, first, 1, bytes(16).hex(), sizes)
    except PromiseError as error:
        raise InputError(str(error)) from None


def _sums(done: DoneRound) -> NoisySums:
    return round_terms(done.announcement).noisy_sums(done.units, done.included)


def _setting(terms: CollectionTerms, mechanism: DistributedMechanism, sizes: IntArray) -> Setting:
    lattice = terms.cells.lattice()
    return Setting(
        lattice.depth,
        morton_members(lattice),
        int(sizes.sum()),
        sizes.size,
        _alpha(mechanism, sizes),
        _scale(mechanism),
    )


def _alpha(mechanism: DistributedMechanism, sizes: IntArray) -> Fraction:
    """Each device's part of a discrete Laplace variable, for the smallest shard."""
    if mechanism.whole_noise:
        return Fraction(1)
    return share_shape(int(sizes.min()), _part(mechanism.tolerated_dropout), _part(mechanism.corrupt))


def _scale(mechanism: DistributedMechanism) -> int:
    return mechanism.scale or TABLE_SCALE


def _part(part: float | Fraction) -> Fraction:
    """The part as people write it: 0.1 is a tenth exactly."""
    return Fraction(str(part))
