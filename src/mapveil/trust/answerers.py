"""The answerer of a table under a trust model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapveil.engines import UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.mechanism import Progress
from mapveil.mechanisms.plan import Answerer, BeforeReveal, Raster
from mapveil.trust.curator import Curator
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.contribution import Devices
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum


def answerer_of(
    trust: Curator | SecureAggregation,
    points: Points | Counts | UserSums | Devices,
    tiling: Tiling,
    raster: Raster,
    *,
    rng: Randomness,
    progress: Progress,
    secure_sum: SecureSum | None = None,
    dropout: float = 0.0,
    before_reveal: BeforeReveal | None = None,
    may_be_outside: bool = False,
) -> Answerer:
    """Answer queries about a table: a curator sums it, secure sums are simulated in this process.

    Parameters
    ----------
    trust : Curator or SecureAggregation
        Who answers.
    points : Points, Counts, UserSums or Devices
        A table, counts with each unit one user, a curator's exact sums, or the clients of a simulation.
    tiling : Tiling
        The cells.
    raster : Raster
        The raster of sites that queries are about.
    rng, progress, secure_sum, dropout, before_reveal
        As for :meth:`mapveil.mechanisms.sum_mechanism.SumMechanism.release`.
    may_be_outside : bool
        Whether a table without a row inside is answered.

    Raises
    ------
    InputError
        The table cannot be used, or is of the other trust model's kind.
    """
    if isinstance(trust, Curator):
        if isinstance(points, Devices) or secure_sum is not None or dropout:
            raise InputError("a curator sums a table: devices, secure_sum and dropout need SecureAggregation")
        sums = user_sums(points, tiling, progress=progress, may_be_empty=may_be_outside).sums
        return trust.answerer(sums, tiling, raster, rng=rng, progress=progress, before_reveal=before_reveal)
    from mapveil.trust.secure_aggregation.simulation import simulate

    if isinstance(points, UserSums):
        raise InputError(
            "a curator's sums have no clients: SecureAggregation needs a table, counts or devices"
        )
    return simulate(
        trust,
        points,
        tiling,
        raster,
        rng=rng,
        progress=progress,
        secure_sum=secure_sum,
        dropout=dropout,
        before_reveal=before_reveal,
        may_be_outside=may_be_outside,
    )
