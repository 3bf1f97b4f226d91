r"""Choose a region from the data, privately, when none was named.

A map's bounding box gives away the outermost person unless it is chosen without looking or chosen
under noise. Here the world is cut down three times: each round sums the users over
64 columns and 64 rows of the current box under Laplace noise, and keeps from the first to the last bin above

.. math:: t = \ln(64 / 0.01) / \epsilon'

where: :math:`\epsilon'` is a sixth of ``epsilon``, and :math:`t` is exceeded by an empty axis's
noise with probability below one in a hundred; one bin of margin stays on either side.

Deviation: no paper of the five needs this; they all assume the region is public. Naming the region
is better in every way: it costs nothing and cuts nobody off.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from mapveil.central.mechanism import noisy_sums
from mapveil.engines import user_sums
from mapveil.geo.cut_region import Bins, cut_region, kept_bins
from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.mechanisms.mechanism import Progress
from mapveil.privacy.claim import Share
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import PromiseError
from mapveil_client.randomness.random import Randomness

_ROUNDS = 3
_BINS = 64
_FALSE_ALARM = 0.01
_WORLD = (-180.0, -85.0, 180.0, 85.0)


class ChosenRegion(NamedTuple):
    """A region chosen under noise, and what it cost."""

    region: Region
    share: Share


def choose_region(
    points: Points, epsilon: Fraction, rng: Randomness, progress: Progress | None = None
) -> ChosenRegion:
    """Find the box that holds most users, epsilon-DP for each user. Run by: the curator.

    Parameters
    ----------
    points : Points
        The table.
    epsilon : Fraction
        Budget of the choice, above zero.
    rng : Randomness
        The source of bits.
    progress : callable, optional
        Told the step's name and the done part.

    Returns
    -------
    ChosenRegion
        The box (degrees inside a ``Region``) and the share of budget spent.

    Raises
    ------
    PromiseError
        The users are too few, or too spread out, to be found under this budget.
    """
    each = split_epsilon(epsilon, [1.0] * (2 * _ROUNDS))[0]
    threshold = math.log(_BINS / _FALSE_ALARM) / float(each)
    region = Region.from_bbox(*_WORLD)
    for turn in range(_ROUNDS):
        if progress:
            progress("choose the region", turn / _ROUNDS)
        columns = _kept(points, Grid(region, columns=_BINS, rows=1), each, threshold, rng)
        rows = _kept(points, Grid(region, columns=1, rows=_BINS), each, threshold, rng)
        if columns is None or rows is None:
            if turn == 0:
                raise PromiseError(
                    f"no region can be found privately: at most about {threshold:.0f} users share any band of "
                    "the world; name one with --region W,S,E,N"
                )
            break
        region = cut_region(region, columns, rows, _BINS)
    if progress:
        progress("choose the region", 1.0)
    return ChosenRegion(region, Share("the region", each * 2 * _ROUNDS))


def _kept(points: Points, bins: Grid, epsilon: Fraction, threshold: float, rng: Randomness) -> Bins | None:
    return kept_bins(noisy_sums(user_sums(points, bins, may_be_empty=True).sums, epsilon, rng), threshold)
