r"""Find a region by asking the devices, privately, when none was named.

The world is cut down three times. Each round asks how many devices are in each of 64 columns and each of 64 rows of
the current box (one vector of 128 coordinates, sensitivity 2), and keeps from the first to the last bin above t,

.. math:: \Pr[Z > t] \le 0.01 / 64

where: Z is the round's noise, the sum of the shards' discrete Laplace noise of a third of ``epsilon``. One bin
of margin stays on either side. As :mod:`mapveil.central.private_region`, but nobody sees the places.

Deviation: no paper of the five needs this; they all assume that the region is public. Naming it costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mapveil.distributed.mechanism import TABLE_SCALE, DistributedMechanism
from mapveil.distributed.query import Query
from mapveil.engines.devices import devices_of
from mapveil.geo.cut_region import cut_region, kept_bins
from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Progress
from mapveil.privacy.claim import Share
from mapveil.privacy.laplace_sum import laplace_sum_quantile
from mapveil_client.encodings import MarginsEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import PromiseError
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.distributed.rounds import BeforeReveal
    from mapveil.secure_sum.drivers import SecureSum


_ROUNDS = 3
_DEPTH = 6
_BINS = 1 << _DEPTH
_FALSE_ALARM = 0.01
_WORLD = (-180.0, -85.0, 180.0, 85.0)


class FoundRegion(NamedTuple):
    """A region found under noise, and what the search cost."""

    region: Region
    shares: tuple[Share, ...]
    rounds: tuple[RoundCost, ...]


def find_region(
    points: Points,
    mechanism: DistributedMechanism,
    *,
    rng: Randomness,
    progress: Progress,
    secure_sum: SecureSum | None = None,
    dropout: float = 0.0,
    before_reveal: BeforeReveal | None = None,
) -> FoundRegion:
    """Find the box that holds most devices, with the whole budget of ``mechanism``. Run by: the server.

    Parameters
    ----------
    points : Points
        What the devices know; the server's half sees noisy sums only.
    mechanism : DistributedMechanism
        Its parameters say how devices are asked, its budget is that of the search.
    rng, progress, secure_sum, dropout, before_reveal
        See :meth:`mapveil.distributed.mechanism.DistributedMechanism.release`.

    Raises
    ------
    PromiseError
        The devices are too few, or too spread out, to be found under this budget; or too many drop out.
    """
    each = split_epsilon(mechanism.budget, [1.0] * _ROUNDS)[0]
    region = Region.from_bbox(*_WORLD)
    shares: list[Share] = []
    costs: list[RoundCost] = []
    for turn in range(_ROUNDS):
        box = Grid(region, columns=_BINS, rows=_BINS)
        collection = mechanism.collection(
            devices_of(points, box, may_be_outside=True),
            scale=TABLE_SCALE,
            rng=rng.child(f"region {turn}"),
            progress=progress,
            secure_sum=secure_sum,
            dropout=dropout,
            before_reveal=before_reveal,
        )
        sums = collection.ask(Query(f"the region, cut {turn + 1}", MarginsEncoding(_DEPTH), each))
        shares += collection.revealed
        costs += collection.costs
        quantile = laplace_sum_quantile(2 * _FALSE_ALARM / _BINS, sums.terms, sums.epsilon, sums.sensitivity)
        threshold = quantile / sums.scale
        columns = kept_bins(sums.values[:_BINS], threshold)
        rows = kept_bins(sums.values[_BINS:], threshold)
        if columns is None or rows is None:
            if turn == 0:
                raise PromiseError(
                    f"no region can be found privately: at most about {threshold:.0f} devices share any band of "
                    "the world; name one with --region W,S,E,N"
                )
            break
        region = cut_region(region, columns, rows, _BINS)
    return FoundRegion(region, tuple(shares), tuple(costs))
