r"""Find a region privately where none is given: the box that holds most users.

A map's bounding box reveals the outermost user unless it is public or chosen under noise. Here the world is cut down
three times. Each turn asks for noisy sums of the users over 64 columns and 64 rows of the current box (in one query of
sensitivity 2 over secure sums, in two of a curator), and keeps from the first to the last bin above t,

.. math:: \Pr[Z > t] \le 0.01 / 64

where: Z is the noise of a sum. One bin of margin stays on either side.

Deviation: the papers assume that the region is public. A given region is better: it costs nothing and cuts nobody off.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.claim import Share
from mapveil.privacy.laplace_sum import laplace_sum_quantile
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Answerer, Execution, NoisySums, Query, Raster
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.arrays import FloatArray
from mapveil_client.encodings import BlockEncoding, MarginsEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import ParameterError, PromiseError

_TURNS = 3  # of 64 bins an axis: from 626 km to 153 m of longitude at the equator
_DEPTH = 6
_BINS = 1 << _DEPTH
_FALSE_ALARM = 0.01  # probability that an axis without users keeps a bin
WORLD = (-180.0, -85.0, 180.0, 85.0)


class NoRegion(PromiseError):
    """No region can be found: an answer under noise, which was paid for."""


class FoundRegion(NamedTuple):
    """A region found under noise, and what the search cost."""

    region: Region
    shares: tuple[Share, ...]
    rounds: tuple[RoundCost, ...]


def find_region(
    points: Points,
    trust: Curator | SecureAggregation | TwoOperators,
    epsilon: Fraction,
    execution: Execution,
) -> FoundRegion:
    """Find the box that holds most users, epsilon-DP for each user.

    Parameters
    ----------
    points : Points
        The table.
    trust : Curator or SecureAggregation
        The trust model that answers.
    epsilon : Fraction
        Budget of the search, above zero.
    execution : Execution
        Randomness and callbacks of the release.

    Raises
    ------
    NoRegion
        The users are too few, or too spread out, to be found under this budget.
    PromiseError
        Too many clients drop out.
    """
    if isinstance(trust, TwoOperators):
        raise ParameterError(
            "region is required under trust operators: a device reports once, about its cells"
        )
    curator = isinstance(trust, Curator)
    queries = 2 * _TURNS if curator else _TURNS
    each = split_epsilon(epsilon, [1.0] * queries)[0]
    region = Region.from_bbox(*WORLD)
    shares: list[Share] = []
    costs: list[RoundCost] = []
    for turn in range(_TURNS):
        box = Grid(region, columns=_BINS, rows=_BINS)
        rng = execution.rng if curator else execution.rng.child(f"region {turn}")
        answerer = trust.answerer(points, box, Raster.of(box.lattice()), execution._replace(rng=rng))
        axes = _both_axes(answerer, turn, each) if curator else _margins(answerer, turn, each)
        shares += answerer.revealed
        costs += answerer.costs
        columns, rows = (_kept_bins(axis.values, axis.threshold) for axis in axes)
        if columns is None or rows is None:
            if turn == 0:
                raise NoRegion(
                    f"no region can be found privately: at most about {axes[0].threshold:.0f} users share any band of "
                    "the world; name one by region (--region W,S,E,N); 'mapveil describe' shows the curator which"
                )
            break
        region = _cut(region, columns, rows)
    return FoundRegion(region, tuple(shares), tuple(costs))


class _Axis(NamedTuple):
    values: FloatArray  # users per bin, shape (64,)
    threshold: float  # t, users


def _both_axes(answerer: Answerer, turn: int, epsilon: Fraction) -> list[_Axis]:
    """Columns, then rows: two queries of a curator."""
    whole, cut = np.array([0, _BINS]), np.arange(_BINS + 1)
    axes = []
    for name, rows, columns in (("columns", whole, cut), ("rows", cut, whole)):
        each = np.ones((rows.size - 1, columns.size - 1), dtype=np.int64)
        bins = BlockEncoding(_DEPTH, rows, columns, each)
        sums = answerer.answer(Query(f"the region, cut {turn + 1}: {name}", bins, epsilon))
        axes.append(_Axis(sums.values, _threshold(sums, 1)))
    return axes


def _margins(answerer: Answerer, turn: int, epsilon: Fraction) -> list[_Axis]:
    """Columns and rows in one query of secure sums."""
    sums = answerer.answer(Query(f"the region, cut {turn + 1}", MarginsEncoding(_DEPTH), epsilon))
    return [_Axis(values, _threshold(sums, 2)) for values in np.split(sums.values, 2)]


def _threshold(sums: NoisySums, sides: int) -> float:
    """t, users; with one of ``sides``, the quantile of the noise's magnitude, which is larger."""
    alpha = sides * _FALSE_ALARM / _BINS
    return laplace_sum_quantile(alpha, sums.terms, sums.epsilon, sums.sensitivity) / sums.scale


class _Bins(NamedTuple):
    """First and last of a row of bins."""

    first: int
    last: int


def _kept_bins(noisy: FloatArray, threshold: float) -> _Bins | None:
    """First and last bin above the threshold, with one bin of margin; None where there is none."""
    above = np.flatnonzero(noisy > threshold)
    if above.size == 0:
        return None
    return _Bins(max(int(above[0]) - 1, 0), min(int(above[-1]) + 1, noisy.size - 1))


def _cut(region: Region, columns: _Bins, rows: _Bins) -> Region:
    """The part of a box between two of its columns and two of its rows; row 0 is the northmost."""
    x0, y0, x1, y1 = region.bounds_m
    width, height = (x1 - x0) / _BINS, (y1 - y0) / _BINS
    xs = np.array([x0 + columns.first * width, x0 + (columns.last + 1) * width])
    ys = np.array([y1 - (rows.last + 1) * height, y1 - rows.first * height])
    lon, lat = region.unproject(xs, ys)
    west, south, east, north = region.bbox
    lon, lat = np.clip(lon, west, east), np.clip(lat, south, north)  # bounds are rounded
    return Region.from_bbox(float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1]))
