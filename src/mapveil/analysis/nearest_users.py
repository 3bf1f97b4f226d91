r"""The k nearest users of every location, from a density alone.

With :math:`u_1, u_2, \ldots` the estimated users of the cells in the order of their distance from a place, the i-th
nearest user is in the cell where the running total passes :math:`i - \tfrac12`: with whole users, exactly the i-th;
with fractions of users, the middle of them. Cells at one distance (to a millimetre) come in the order of their codes.
Whoever asks is not a neighbour of themselves: their own cell counts one user less, and never less than none.

Source: Wang et al. (2022), section 6.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_CHUNK_ENTRIES: Final = 1 << 22
_MOST_ENTRIES: Final = 1 << 26  # of all lists: 1 GiB of cells and distances
_FIRST_REACH: Final = 32


class NearestUsers(NamedTuple):
    """The nearest users of some places; -1 and NaN where the map has fewer users than were asked for."""

    place: IntArray  # the cell of each place, shape (places,)
    cell: IntArray  # of its i-th nearest user, shape (places, k)
    distance_m: FloatArray  # from cell to cell, shape (places, k)

    @property
    def k(self) -> int:
        """Users asked for."""
        return int(self.cell.shape[1])

    @property
    def radius_m(self) -> FloatArray:
        """Distance to the k-th nearest user, infinite where there is none, shape (places,)."""
        last = self.distance_m[:, -1]
        return np.where(np.isnan(last), np.inf, last)


def check_lists(k: int, places: int) -> None:
    """Refuse lists of k users that do not fit the memory, for so many places; raise ParameterError."""
    check(
        1 <= k <= _MOST_ENTRIES // max(places, 1),
        "k",
        f"from 1 to {_MOST_ENTRIES // max(places, 1)} on {places} cells",
        k,
    )


def nearest_users(
    users: npt.ArrayLike,
    tiling: Tiling,
    k: int,
    *,
    places: npt.ArrayLike | None = None,
    progress: Progress = lambda step, done: None,
) -> NearestUsers:
    """List the k nearest users of each place. Run by: the server, or anybody who holds the map; costs no privacy.

    Parameters
    ----------
    users : array_like of float, shape (cells,)
        Estimated (or true) users per cell; below zero counts as zero.
    tiling : Tiling
        The cells; distances are between their centres, in metres.
    k : int
        How many, at least 1; all lists together hold at most 2^26 users.
    places : array_like of int, optional
        The cells of those who ask; all cells by default.
    progress : callable
        Told the fraction of the places whose lists are known.

    Raises
    ------
    ParameterError
        k is out of range, the map has another size, or a place is no cell.

    Examples
    --------
    >>> import mapveil as mv
    >>> row = mv.Grid(mv.Region.without_georeference(4, 1), rows=1, columns=4)
    >>> nearest_users([1, 0, 2, 5], row, 3, places=[0]).cell.tolist()
    [[2, 2, 3]]
    """
    mass = np.maximum(np.asarray(users, dtype=np.float64), 0.0)
    asking = np.arange(tiling.size) if places is None else np.asarray(places, dtype=np.int64).ravel()
    check_lists(k, asking.size)
    if mass.shape != (tiling.size,) or not np.isfinite(mass).all():
        raise ParameterError(f"users have shape {mass.shape}; expected {tiling.size} finite numbers")
    if asking.size and not (asking.min() >= 0 and asking.max() < tiling.size):
        raise ParameterError(f"a place is no cell of {tiling.spec}; expected 0 to {tiling.size - 1}")
    from scipy.spatial import cKDTree

    plane = np.stack(tiling.region.metric_projection.project(*tiling.centres()), axis=1)
    inhabited = np.flatnonzero(mass > 0)
    cell = np.full((asking.size, k), -1, dtype=np.int64)
    distance = np.full((asking.size, k), np.nan)
    made = NearestUsers(asking, cell, distance)
    if inhabited.size == 0:
        return made
    tree = cKDTree(plane[inhabited])
    left, reach = np.arange(asking.size), min(_FIRST_REACH, inhabited.size)
    known = 0
    progress("neighbours", 0.0)
    while left.size:
        unsettled = []
        size = max(1, _CHUNK_ENTRIES // max(reach, k))
        for start in range(0, left.size, size):
            part = left[start : start + size]
            settled = _settle(made, part, tree, plane, inhabited, mass, reach)
            unsettled.append(part[~settled])
            known += int(settled.sum())
            progress("neighbours", known / asking.size)
        left, reach = np.concatenate(unsettled), min(2 * reach, inhabited.size)
    return made


def _settle(
    made: NearestUsers,
    part: IntArray,
    tree: cKDTree,
    plane: FloatArray,
    inhabited: IntArray,
    mass: FloatArray,
    reach: int,
) -> npt.NDArray[np.bool_]:
    """Fill in the places whose lists the nearest ``reach`` cells decide; which these are."""
    asking = made.place[part]
    far, near = (np.asarray(found) for found in tree.query(plane[asking], k=[*range(1, reach + 1)]))
    cells = inhabited[near]
    # Millimetres and codes in one number: equal distances in a stable order.
    order = np.argsort(np.round(far * 1000).astype(np.int64) * mass.size + cells, axis=1)
    cells, far = np.take_along_axis(cells, order, 1), np.take_along_axis(far, order, 1)
    users = np.where(cells == asking[:, None], np.maximum(mass[cells] - 1, 0.0), mass[cells])
    k = made.k
    total = np.minimum(np.cumsum(users, axis=1), k)
    wanted = np.arange(k) + 0.5
    # One search for all rows: running totals of each row, moved past those of the rows before.
    height = total[:, -1] + k + 1.0
    base = np.concatenate([[0.0], np.cumsum(height)])[:-1]
    at = np.searchsorted((total + base[:, None]).ravel(), (wanted + base[:, None]).ravel(), side="right")
    at = at.reshape(part.size, k) - (np.arange(part.size) * reach)[:, None]
    found = at < reach
    at = np.minimum(at, reach - 1)
    reached = np.take_along_axis(far, at, 1)
    # The last distance may be shared by cells that were not looked at.
    whole = reach == inhabited.size
    settled = np.full(part.size, True) if whole else found[:, -1] & (reached[:, -1] < far[:, -1] - 1e-3)
    rows = part[settled]
    made.cell[rows] = np.where(found, np.take_along_axis(cells, at, 1), -1)[settled]
    made.distance_m[rows] = np.where(found, reached, np.nan)[settled]
    return settled
