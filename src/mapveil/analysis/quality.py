"""Quality of estimated flows and of estimated neighbours, against the true ones."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.analysis.nearest_users import NearestUsers, nearest_users
from mapveil.geo.tiling import Tiling
from mapveil.maps.flow_map import FlowMap
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError, check


class FlowQuality(NamedTuple):
    """Distances between distributions of trips, all 0 for the truth."""

    l1: float  # over pairs of cells, at most 2
    origins_l1: float  # over origins, at most 2
    destinations_l1: float
    length_m: float  # how far trips' lengths must be changed, on average, to be distributed as the true ones
    missed: float  # part of the largest true flows that are not among as many of the largest estimated ones


def flow_quality(
    origins: IntArray,
    destinations: IntArray,
    flows: FlowMap,
    *,
    weights: FloatArray | None = None,
    top: int = 50,
) -> FlowQuality:
    r"""Compare the distribution of estimated trips over pairs of cells with that of the true ones.

    .. math:: L_1 = \sum_{x, x'} \lvert F_{x x'} - \hat F_{x x'} \rvert, \qquad
        \hat F_{x x'} = \frac{1}{\hat n} \begin{cases} \hat f_{x x'} & \text{listed} \\
        \hat f_{\text{unlisted}} / (c^2 - l) & \text{otherwise} \end{cases}

    where: F is the part of the true trips that go from x to x', :math:`\hat f` the estimated trips,
    :math:`\hat n` all of them, c the number of cells, and l that of listed flows: what a reader of the list knows of
    the others is their sum. Run by: the evaluator, who holds the true trips; nothing here is private.

    Source: Wang et al. (2022), section 6.4, for :math:`L_1`.

    Parameters
    ----------
    origins, destinations : ndarray of int64, shape (trips,)
        Cells of the true trips.
    flows : FlowMap
        The estimate.
    weights : ndarray of float64, shape (trips,), optional
        Users that each true trip counts as; 1 by default.
    top : int
        How many of the largest flows ``missed`` is about; fewer where there are not as many.

    Raises
    ------
    ParameterError
        There is no true or no estimated trip, or a cell is none of the map.

    Examples
    --------
    >>> import mapveil as mv
    >>> grid = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=2)
    >>> promise = mv.mechanisms.GeneralizedRandomizedResponse(epsilon=3).guarantee()
    >>> flows = FlowMap(np.array([0]), np.array([1]), np.array([2.0]), grid, promise, "by hand")
    >>> flow_quality(np.array([0, 2]), np.array([1, 3]), flows).l1
    1.0
    """
    size = flows.tiling.size
    ends = (np.asarray(origins, dtype=np.int64), np.asarray(destinations, dtype=np.int64))
    if ends[0].size == 0 or not flows.all_trips > 0:
        raise ParameterError("no trip to compare; expected at least one, both true and estimated")
    if any(cells.min() < 0 or cells.max() >= size for cells in ends) or ends[0].shape != ends[1].shape:
        raise ParameterError(f"a true trip's end is no cell of {flows.tiling.spec}; expected 0 to {size - 1}")
    true_pair, pair = np.unique(ends[0] * size + ends[1], return_inverse=True)
    times = np.bincount(pair, weights, true_pair.size)
    true = times / times.sum()
    listed = flows.origin * size + flows.destination
    rest = size * size - listed.size
    even = flows.unlisted / flows.all_trips / rest if rest else 0.0
    pairs = np.union1d(true_pair, listed)
    known, made = np.zeros(pairs.size), np.full(pairs.size, even)
    known[np.searchsorted(pairs, true_pair)] = true
    made[np.searchsorted(pairs, listed)] = flows.trips / flows.all_trips
    outside = even * (size * size - pairs.size)
    by_end = [
        float(
            np.abs(
                np.bincount(cells, true, size)
                - np.bincount(part, flows.trips / flows.all_trips, size)
                - even * (size - np.bincount(part, minlength=size))
            ).sum()
        )
        for cells, part in zip(divmod(true_pair, size), (flows.origin, flows.destination), strict=True)
    ]
    count = min(top, true_pair.size)
    largest = true_pair[np.argsort(-times, kind="stable")[:count]]
    hits = int(np.isin(largest, listed[:count]).sum())
    return FlowQuality(
        float(np.abs(known - made).sum()) + outside,
        by_end[0],
        by_end[1],
        _length_distance(true_pair, true, flows),
        1 - hits / count,
    )


def _length_distance(pairs: IntArray, part: npt.NDArray[np.float64], flows: FlowMap) -> float:
    """Between the lengths of the true trips and of the listed ones, metres (Wasserstein); NaN without listed ones."""
    if not flows.trips.any():
        return float("nan")
    from scipy.stats import wasserstein_distance

    origin, destination = np.divmod(pairs, flows.tiling.size)
    plane = np.stack(flows.tiling.region.metric_projection.project(*flows.tiling.centres()), axis=1)
    known, made = (
        np.linalg.norm(plane[start] - plane[end], axis=1)
        for start, end in ((origin, destination), (flows.origin, flows.destination))
    )
    return float(wasserstein_distance(known, made, part, flows.trips))


class NeighbourQuality(NamedTuple):
    """Means over all users' lists."""

    normalised_mse: float  # 0 for the true positions, about 1 for those of random users
    precision: float  # part of the listed places that hold a true neighbour
    recall: float  # part of the true neighbours' places that are listed
    common: float  # part of the k users who are at the true places, each counted as often as there are users


def neighbour_quality(
    truth: npt.ArrayLike, estimate: npt.ArrayLike, tiling: Tiling, k: int
) -> NeighbourQuality:
    r"""Compare every user's k nearest users by an estimated map with those by the true one.

    .. math:: \mathrm{NMSE} = \frac{1}{n k s^2} \sum_u \sum_{i=1}^k \lVert z_{ui} - \hat z_{ui} \rVert^2,
        \qquad \text{precision} = \frac{|S_u \cap \hat S_u|}{|\hat S_u|}, \quad
        \text{recall} = \frac{|S_u \cap \hat S_u|}{|S_u|}

    where: :math:`z_{ui}`, :math:`\hat z_{ui}` are the true and estimated positions of user u's i-th nearest user,
    :math:`s^2` is the mean squared distance between two users of the true map, :math:`S_u`, :math:`\hat S_u` are the
    places where the k nearest are, and precision and recall are means over the n users. Run by: the evaluator, who
    holds the true map; nothing here is private.

    Deviation: the paper does not say by what its MSE is normalised, nor of which sets its precision and recall are;
    as they differ, the sets cannot be k users each.

    Source: Wang et al. (2022), section 6.3.

    Parameters
    ----------
    truth, estimate : array_like of float, shape (cells,)
        Users per cell; the estimate is scaled to the true total.
    tiling : Tiling
        The cells.
    k : int
        Users in a list, at least 1 and fewer than there are.

    Raises
    ------
    ParameterError
        k is outside its range, or one of the maps is empty.

    Examples
    --------
    >>> import mapveil as mv
    >>> row = mv.Grid(mv.Region.without_georeference(4, 1), rows=1, columns=4)
    >>> neighbour_quality([1, 0, 2, 5], [1, 0, 2, 5], row, 3)
    NeighbourQuality(normalised_mse=0.0, precision=1.0, recall=1.0, common=1.0)
    """
    true, made = (np.maximum(np.asarray(values, dtype=np.float64), 0.0) for values in (truth, estimate))
    total = float(true.sum())
    check(1 <= k <= total - 1, "k", f"from 1 to fewer than the {total:g} users", k)
    if made.sum() <= 0:
        raise ParameterError("the estimate holds nobody; expected a map of somebody")
    where = np.flatnonzero(true > 0)
    known = nearest_users(true, tiling, k, places=where)
    found = nearest_users(made * (total / made.sum()), tiling, k, places=where)
    weight = true[where] / total
    plane = np.stack(tiling.region.metric_projection.project(*tiling.centres()), axis=1)
    middle = true @ plane / total
    spread = 2 * float(true @ ((plane - middle) ** 2).sum(axis=1)) / total
    both = (known.cell >= 0) & (found.cell >= 0)
    # A list that ends early is wrong by as much as a random user.
    apart = np.where(
        both,
        ((plane[known.cell] - plane[found.cell]) ** 2).sum(axis=2),
        np.where(known.cell == found.cell, 0.0, spread),
    )
    precision, recall, common = _sets(known, found)
    return NeighbourQuality(
        float(weight @ apart.mean(axis=1)) / spread if spread > 0 else 0.0,
        float(weight @ precision),
        float(weight @ recall),
        float(weight @ common),
    )


def _sets(known: NearestUsers, found: NearestUsers) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precision, recall and the common part of the users of each list, shape (places,)."""
    rows, k = known.cell.shape
    width = int(max(known.cell.max(), found.cell.max())) + 1
    # A place of a list and how many of its users are there, as one number each over all lists.
    true_key, true_times = _places(known.cell, width)
    made_key, made_times = _places(found.cell, width)
    shared, at, there = np.intersect1d(true_key, made_key, assume_unique=True, return_indices=True)
    row = shared // width
    hits = np.bincount(row, minlength=rows)
    common = np.bincount(row, np.minimum(true_times[at], made_times[there]), minlength=rows)
    true, made = (np.maximum(np.bincount(key // width, minlength=rows), 1) for key in (true_key, made_key))
    return hits / made, hits / true, common / k


def _places(cell: IntArray, width: int) -> tuple[IntArray, IntArray]:
    key = np.arange(cell.shape[0])[:, None] * width + cell
    distinct, times = np.unique(key[cell >= 0], return_counts=True)
    return distinct, times
