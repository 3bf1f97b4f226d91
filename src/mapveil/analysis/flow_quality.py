"""Quality of estimated flows: by pair, by end, and by length of trip."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.maps.flow_map import FlowMap
from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError


class FlowQuality(NamedTuple):
    """Distances between distributions of trips, all 0 for the truth."""

    l1: float  # over pairs of cells, at most 2
    origins_l1: float  # over origins, at most 2
    destinations_l1: float
    length_m: float  # how far trips' lengths must be changed, on average, to be distributed as the true ones
    missed: float  # part of the largest true flows that are not among as many of the largest estimated ones


def flow_quality(origins: IntArray, destinations: IntArray, flows: FlowMap, *, top: int = 50) -> FlowQuality:
    r"""Compare the distribution of estimated trips over pairs of cells with that of the true ones.

    .. math:: L_1 = \sum_{x, x'} \lvert F_{x x'} - \hat F_{x x'} \rvert, \qquad
        \hat F_{x x'} = \frac{1}{\hat n} \begin{cases} \hat f_{x x'} & \text{listed} \\
        \hat f_{\text{elsewhere}} / (c^2 - l) & \text{otherwise} \end{cases}

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
    if ends[0].size == 0 or not flows.total > 0:
        raise ParameterError("no trip to compare; expected at least one, both true and estimated")
    if any(cells.min() < 0 or cells.max() >= size for cells in ends) or ends[0].shape != ends[1].shape:
        raise ParameterError(f"a true trip's end is no cell of {flows.tiling.spec}; expected 0 to {size - 1}")
    true_pair, times = np.unique(ends[0] * size + ends[1], return_counts=True)
    true = times / times.sum()
    listed = flows.origin * size + flows.destination
    rest = size * size - listed.size
    even = flows.elsewhere / flows.total / rest if rest else 0.0
    pairs = np.union1d(true_pair, listed)
    known, made = np.zeros(pairs.size), np.full(pairs.size, even)
    known[np.searchsorted(pairs, true_pair)] = true
    made[np.searchsorted(pairs, listed)] = flows.trips / flows.total
    outside = even * (size * size - pairs.size)
    by_end = [
        float(
            np.abs(
                np.bincount(cells, minlength=size) / cells.size
                - np.bincount(part, flows.trips / flows.total, size)
                - even * (size - np.bincount(part, minlength=size))
            ).sum()
        )
        for cells, part in zip(ends, (flows.origin, flows.destination), strict=True)
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
