r"""The paper's score: how far the maxima of a device's own surface are from the device.

For device i the points j = 1, ..., :math:`K_i` of the grid that are no lower than their neighbours, and no lower than
the highest over :math:`\epsilon`, are where the server looks. The score is the expected error of a server that guesses
one of them with a chance in proportion to the surface there:

.. math:: Z_i = \sum_{j=1}^{K_i} e'_j \lVert g_j - d_i \rVert, \qquad e'_j = \frac{e_j}{\sum_k e_k}

where: :math:`g_j` are the points, :math:`e_j` the surface there, :math:`d_i` the device's place, :math:`\epsilon`
= 1.1 in the paper. Source: Zong et al. (2023), section 4.2.2.

Deviation: equation 16 as printed also divides by :math:`K_i`, although the weights already sum to one; the text around
it describes the weighted mean. Both are given. Neighbours are the eight around a point (at an edge, those there are).

The score assumes a server without a prior that looks at the points of a grid. It overstates privacy: see
:mod:`mapveil.attacks.bayesian_server`.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports

PAPER_RATIO: Final = 1.1
"""The paper's epsilon: maxima lower than the highest over this are left out."""

_BLOCK: Final = 1 << 18  # points held at once by a thread: few enough that their memory is used again


class Score(NamedTuple):
    """The score of each device, each of shape (devices,)."""

    expected_m: FloatArray  # as the text describes it, metres
    literal_m: FloatArray  # as equation 16 is printed, metres
    maxima: npt.NDArray[np.int64]  # K

    def mean(self) -> tuple[float, float]:
        """The average over devices of both, metres: Z of the paper, text and print."""
        return float(self.expected_m.mean()), float(self.literal_m.mean())


def _score_framed(framed: FloatArray, places: FloatArray, grid: EvenGrid, ratio: float) -> Score:
    """The score from surfaces with one more column and row, whose values do not matter and are overwritten.

    With that frame at minus infinity a neighbour is a fixed number of values away in memory, edges included: whole
    arrays are compared, which is several times faster than rows of a hundred.
    """
    devices, _, stride = framed.shape
    framed[:, -1, :] = -np.inf
    framed[:, :, -1] = -np.inf
    highest = framed.max(axis=(1, 2))
    # A surface without a positive point keeps its highest only.
    least = np.where(highest > 0, highest / ratio, highest)
    flat = framed.reshape(-1)
    peaks = (flat >= _highest_around(_highest_around(flat, 1), stride)).reshape(framed.shape)
    peaks &= framed >= least[:, None, None]
    at = np.flatnonzero(peaks)
    device, inside = np.divmod(at, framed.shape[1] * stride)
    column, row = np.divmod(inside, stride)
    height = flat[at]
    away = np.hypot(grid.axis(0)[column] - places[0, device], grid.axis(1)[row] - places[1, device])
    found = np.bincount(device, minlength=devices)
    weight = np.bincount(device, height, devices)
    plain = np.bincount(device, away, devices) / found
    expected = np.divide(np.bincount(device, height * away, devices), weight, out=plain, where=weight > 0)
    return Score(expected, expected / found, found)


def _highest_around(flat: FloatArray, step: int) -> FloatArray:
    """The highest of each value and those ``step`` before and after it."""
    highest = flat.copy()
    np.maximum(highest[step:], flat[:-step], out=highest[step:])
    np.maximum(highest[:-step], flat[step:], out=highest[:-step])
    return highest


def score_features(
    reports: Reports,
    places: FloatArray,
    query: Query,
    *,
    grid: EvenGrid | None = None,
    ratio: float = PAPER_RATIO,
    progress: Callable[[float], None] | None = None,
) -> Score:
    """The score of devices that sent random Fourier features. Run by: an evaluator who knows their places.

    Surfaces are evaluated a block of devices at a time and never kept: memory does not grow with their number.

    Parameters
    ----------
    reports : Reports
        Compact reports of any number of devices.
    places : ndarray of float64, shape (2, devices)
        Locations of the devices, metres.
    query : Query
        The query that they answered.
    grid : EvenGrid, optional
        Points at which the server looks for maxima; the query's by default.
    ratio : float
        The paper's epsilon, at least 1.
    progress : callable, optional
        Called with the finished fraction.

    Raises
    ------
    ParameterError
        There is no grid, it has not two axes, or ``ratio`` is below 1.
    """
    chosen = grid or query.grid
    if chosen is None:
        raise ParameterError("the query has no grid; expected a grid to look for maxima on")
    _check(chosen, ratio)
    devices = places.shape[1]
    along = [np.append(chosen.axis(axis) - query.origin[axis], 0.0) for axis in range(2)]
    block = max(1, _BLOCK // chosen.size)
    expected, literal, found = np.empty(devices), np.empty(devices), np.empty(devices, dtype=np.int64)

    def score(start: int) -> None:
        part = slice(start, min(start + block, devices))
        framed = _framed_surfaces(reports.frequencies[:, part], reports.projections[part], along)
        expected[part], literal[part], found[part] = _score_framed(framed, places[:, part], chosen, ratio)

    tell = progress or (lambda done: None)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        starts = range(0, devices, block)
        for number, _ in enumerate(pool.map(score, starts)):
            tell((number + 1) / len(starts))
    return Score(expected, literal, found)


def _framed_surfaces(
    frequencies: FloatArray, projections: npt.NDArray[np.complex128], along: list[FloatArray]
) -> FloatArray:
    """Equation 7 for each device, shape (devices, P + 1, Q + 1): a product of two thin matrices for each.

    The real part of :math:`a b` is :math:`\\Re a \\Re b - \\Im a \\Im b`, with a along x and b along y.
    """
    phase = frequencies[0][:, None, :] * along[0][:, None] - np.angle(projections)[:, None, :]
    height = np.abs(projections)[:, None, :]
    first = np.concatenate([height * np.cos(phase), -height * np.sin(phase)], axis=2)
    phase = frequencies[1][:, :, None] * along[1]
    second = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
    return np.asarray(first @ second)


def score_silence(places: FloatArray, grid: EvenGrid) -> Score:
    """The score of devices that answer with a constant: the mean distance to all points (the paper's 0 features).

    Parameters
    ----------
    places : ndarray of float64, shape (2, devices)
        Locations of the devices, metres.
    grid : EvenGrid
        Points at which the server looks.
    """
    _check(grid, PAPER_RATIO)
    devices = places.shape[1]
    away = np.empty(devices)
    block = max(1, _BLOCK // grid.size)
    for start in range(0, devices, block):
        part = places[:, start : start + block]
        x, y = (np.square(grid.axis(axis) - part[axis][:, None]) for axis in range(2))
        away[start : start + block] = np.sqrt(x[:, :, None] + y[:, None, :]).mean(axis=(1, 2))
    # Printed equation 16 would divide by K once more: the paper's own baseline does not.
    return Score(away, away, np.full(devices, grid.size))


def _check(grid: EvenGrid, ratio: float) -> None:
    if grid.dimension != 2:
        raise ParameterError(f"a grid of {grid.dimension} axes; maxima are looked for on two")
    check(1 <= ratio < math.inf, "the ratio of maxima", "at least 1", ratio)
