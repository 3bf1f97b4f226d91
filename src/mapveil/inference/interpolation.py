r"""The density inside a measured cell, from the cells around it.

A cell that holds P users is cut into halves, along rows and columns in turn, until single sites are left. An even
division would give its first half r P; the map goes on sloping as it does around the cell, so the first half gets

.. math:: P\, \frac{r q}{r q + 1 - r}, \qquad q = \left(\frac{\rho_1 + \delta}{\rho_2 + \delta}\right)^{a}

where: r is the half's part of the cell's members, :math:`\rho_1, \rho_2` are the users per member in the cells of the
same size before and after it, :math:`\delta` is ``floor`` and a is ``exponent``. A density that grows exponentially is
continued exactly by a = 1/4, and an even division is a = 0. Cells keep their sums, nothing becomes negative, and
sites where nobody can be stay empty.

How well slopes continue differs from map to map and is learned from the noisy map itself one size up
(:func:`slope_exponent`). Pure post-processing: costs no privacy. Source: average-interpolating subdivision (Donoho
1993; Cohen, Daubechies, Feauveau 1992), on ratios in the place of differences.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray, quotient

_EXPONENTS: Final = np.linspace(0, 5 / 16, 21)  # from an even division to above 1/4, of exponential growth
# Mean and deviation of the exponent over maps; half or double changes the error by 1.1 % at most
# (docs/reference/mechanism-constants.md).
_USUAL, _SPREAD = 0.2, 0.1


class Known(NamedTuple):
    """Estimates inside cells that were divided into quarters and measured again."""

    square: FloatArray  # users per site of a raster as fine as the finest quarters, shape (fine, fine)
    depths: IntArray  # how often each cell was quartered, shape (cells, cells)

    def put(self, estimate: FloatArray) -> FloatArray:
        """The estimate with halves and quarters of the divided cells in their places."""
        down, across = (have // want for have, want in zip(self.square.shape, estimate.shape, strict=True))
        if not down or not across:
            return estimate
        height, width = estimate.shape
        found = self.square.reshape(height, down, width, across).sum(axis=(1, 3))
        cells = self.depths.shape[0]
        apart = (1 << self.depths) >= height // cells
        return np.where(apart.repeat(height // cells, axis=0).repeat(width // cells, axis=1), found, estimate)


def interpolate(
    coarse: FloatArray,
    members: npt.NDArray[Any],
    exponent: float,
    floor: FloatArray | float,
    *,
    known: Known | None = None,
) -> FloatArray:
    """Divide each cell over its sites, sloping like its surroundings. Run by: whoever holds the estimates.

    Parameters
    ----------
    coarse : ndarray of float64, shape (cells, cells)
        Users per cell, not negative.
    members : ndarray, shape (side, side)
        Number of cells that each site stands for, 0 for a structural zero; ``side`` is ``cells`` times a power of 2.
    exponent : float
        a, at least 0.
    floor : float or ndarray of float64, shape (cells, cells)
        :math:`\\delta`, users per member: differences below it are worth little. At least 0.
    known : Known, optional
        Estimates inside some cells.

    Returns
    -------
    ndarray of float64, shape (side, side)
        Each cell keeps its sum, unless it has no members.

    Examples
    --------
    >>> even = interpolate(np.array([[8.0, 0.0], [0.0, 0.0]]), np.ones((4, 4)), 0.0, 1.0)
    >>> even[0].tolist()
    [2.0, 2.0, 0.0, 0.0]
    >>> sloping = interpolate(np.array([[8.0, 0.0], [0.0, 0.0]]), np.ones((4, 4)), 0.25, 1.0)
    >>> bool(sloping[0, 0] > sloping[0, 1]), float(sloping[:2, :2].sum())
    (True, 8.0)
    """
    held = [np.asarray(members, dtype=np.float64)]
    while held[-1].shape[0] > coarse.shape[0]:
        held.append(_pairs(held[-1], 1))
        held.append(_pairs(held[-1], 0))
    estimate = np.where(held.pop() > 0, coarse, 0.0)
    least = np.broadcast_to(np.asarray(floor, dtype=np.float64), coarse.shape)
    axis = 0
    while held:
        finer = held.pop()
        estimate = _divided(estimate, finer, axis, exponent, least)
        least = least.repeat(2, axis)
        if known is not None:
            estimate = known.put(estimate)
        axis = 1 - axis
    return estimate


def slope_exponent(
    noisy: FloatArray, estimate: FloatArray, variance: float, members: npt.NDArray[Any], floor: float
) -> float:
    r"""Learn the exponent of slopes inside cells from pairs of neighbouring cells. Run by: as :func:`interpolate`.

    .. math:: \hat a = \arg\min_a \frac{1}{s^2} \sum_i (y_i - r_i P_i - P_i g_i(a))^2
        + \left(\frac{a - 0.2}{0.1}\right)^2

    where: :math:`y_i` is the noisy sum of the first cell of pair i, :math:`P_i` the pair's estimate,
    :math:`r_i P_i + P_i g_i(a)` the part of it that exponent a expects from the pairs beside it, and :math:`s^2` the
    least mean square of the departures. Noise adds the same to every a, so none is favoured.

    Parameters
    ----------
    noisy : ndarray of float64, shape (cells, cells)
        Unbiased sums.
    estimate : ndarray of float64, shape (cells, cells)
        Estimates from these sums, not negative.
    variance : float
        Noise variance of each sum.
    members : ndarray, shape (cells, cells)
        Cells of the tiling in each.
    floor : float
        As for :func:`interpolate`.

    Returns
    -------
    float
        From 0 to 5/16.
    """
    weight = np.asarray(members, dtype=np.float64)
    squares = np.zeros(_EXPONENTS.size)
    pairs = 0
    for axis in (0, 1):
        for skipped in (0, 1):
            layers = [_from(array, skipped, axis) for array in (noisy, estimate, weight)]
            if layers[0].shape[axis] < 2:
                continue
            whole, held = _pairs(layers[1], axis), _pairs(layers[2], axis)
            first = np.take(layers[2], np.arange(0, layers[2].shape[axis], 2), axis)
            cut = (first > 0) & (first < held)
            share = first[cut] / held[cut]
            found = np.take(layers[0], np.arange(0, layers[0].shape[axis], 2), axis)[cut]
            slope, inside = _slope(whole, held, axis, floor)[cut], whole[cut]
            for i, exponent in enumerate(_EXPONENTS):
                squares[i] += np.square(found - inside * _tilted(share, exponent * slope)).sum()
            pairs += int(cut.sum())
    least = max(float(squares.min()) / max(pairs, 1), variance, 1e-12)
    doubt = squares / least + np.square((_EXPONENTS - _USUAL) / _SPREAD)
    return float(_EXPONENTS[np.argmin(doubt)])


def _pairs(array: FloatArray, axis: int) -> FloatArray:
    """Sums of neighbours, two by two."""
    return np.asarray(np.add.reduceat(array, np.arange(0, array.shape[axis], 2), axis=axis))


def _from(array: FloatArray, skipped: int, axis: int) -> FloatArray:
    """An even number of rows or columns, the first ``skipped`` left out."""
    count = (array.shape[axis] - skipped) // 2 * 2
    return np.take(array, np.arange(skipped, skipped + count), axis)


def _slope(estimate: FloatArray, members: FloatArray, axis: int, floor: FloatArray | float) -> FloatArray:
    """Log ratio of the densities before and after each cell; its own where nobody can be there."""
    density = quotient(estimate, members)
    tiny = 1e-9 * float(density.mean()) + 1e-300
    edges = [(1, 1) if each == axis else (0, 0) for each in (0, 1)]
    wide, there = np.pad(density, edges), np.pad(members, edges) > 0
    count = density.shape[axis]
    logs = []
    for start in (0, 2):
        place = np.arange(start, start + count)
        beside = np.where(np.take(there, place, axis), np.take(wide, place, axis), density)
        logs.append(np.log(beside + floor + tiny))
    return np.asarray(logs[0] - logs[1])


def _tilted(share: FloatArray, slope: FloatArray) -> FloatArray:
    """The first half's part."""
    tilt = np.exp(np.clip(slope, -50, 50))
    return np.asarray(share * tilt / (share * tilt + 1 - share))


def _divided(
    estimate: FloatArray, finer: FloatArray, axis: int, exponent: float, floor: FloatArray
) -> FloatArray:
    """Every cell cut in two along one axis."""
    held = _pairs(finer, axis)
    first = np.take(finer, np.arange(0, finer.shape[axis], 2), axis)
    share = quotient(first, held)
    if exponent > 0:
        cut = (share > 0) & (share < 1)
        tilted = _tilted(share, exponent * _slope(estimate, held, axis, floor))
        share = np.where(cut, tilted, share)
    halves = np.stack([estimate * share, estimate * (1 - share)], axis=axis + 1)
    return halves.reshape(finer.shape)
