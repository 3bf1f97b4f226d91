"""Three workloads on maps of windows, after Ahuja, Ghinita, Shahabi (2023): ranges, nearest hot spots, forecasts.

Both maps are users of each cell of a square raster in each window, shape (windows, cells), cells in Morton order.

- *Range counts*: random boxes of cells and windows; :math:`|y - u| / max(u, psi)` of the estimate y and the truth u,
  with psi a thousandth of all users.
- *Nearest hot spots*: for random cells and windows the nearest cell with at least v users, v the 99th percentile of
  the true cells that hold anybody. The distance penalty is the difference of the distances, as a fraction of the
  raster's side; the regret is by how much the cell that was found is truly below v, as a fraction of v.
- *Forecasts*: the last quarter of the windows of each of 64 blocks from the windows before, by simple exponential
  smoothing with a weight of 1/2; the mean of :math:`|F - A| / ((A + F) / 2)` over blocks that hold anybody.

Source: "A Neural Approach to Spatio-Temporal Data Release with User-Level Differential Privacy" (2023), section 2. The
definitions are the paper's; boxes, v, psi and the forecaster are chosen here, so that its figures do not compare.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.morton import deinterleave

QUERIES: Final = 500
_PSI: Final = 1e-3  # of all users
_HOT: Final = 99.0  # percentile of occupied cells
_BLOCKS: Final = 64
_LATER: Final = 4  # one window in so many is forecast
_SEED: Final = 0


class WorkloadErrors(NamedTuple):
    """Mean errors of three workloads."""

    ranges: float  # relative error
    distance: float  # of the nearest hot spot, sides of the raster
    regret: float  # of its density, fraction of the threshold
    forecast: float  # sMAPE


def workload_errors(found: FloatArray, truth: FloatArray) -> WorkloadErrors:
    """The errors of the module's header, of an estimate in the unit of the truth."""
    found = np.maximum(found, 0.0)
    return WorkloadErrors(_ranges(found, truth), *_hot_spots(found, truth), _forecasts(found, truth))


def _squares(maps: FloatArray) -> FloatArray:
    """Maps as squares, shape (windows, side, side)."""
    side = round(maps.shape[1] ** 0.5)
    row, col = deinterleave(np.arange(maps.shape[1]))
    made = np.zeros((len(maps), side, side))
    made[:, row, col] = maps
    return made


def _ranges(found: FloatArray, truth: FloatArray) -> float:
    rng, least = np.random.default_rng(_SEED), _PSI * truth.sum()
    counts = []
    shape = _squares(truth).shape
    edges = [np.sort(rng.integers(0, length + 1, (QUERIES, 2)), axis=1) for length in shape]
    for maps in (found, truth):
        summed = np.zeros([length + 1 for length in shape])
        summed[1:, 1:, 1:] = _squares(maps).cumsum(axis=0).cumsum(axis=1).cumsum(axis=2)
        total = np.zeros(QUERIES)
        for corner in np.ndindex(2, 2, 2):
            sign = (-1) ** (3 - sum(corner))
            total += sign * summed[tuple(edges[axis][:, side] for axis, side in enumerate(corner))]
        counts.append(total)
    return float((np.abs(counts[0] - counts[1]) / np.maximum(counts[1], least)).mean())


def _hot_spots(found: FloatArray, truth: FloatArray) -> tuple[float, float]:
    rng = np.random.default_rng(_SEED)
    hot = float(np.percentile(truth[truth > 0], _HOT))
    side = round(truth.shape[1] ** 0.5)
    place = np.stack(deinterleave(np.arange(truth.shape[1])), axis=1).astype(np.float64)
    distances, regrets = [], []
    for window, cell in zip(
        rng.integers(0, len(truth), QUERIES), rng.integers(0, truth.shape[1], QUERIES), strict=True
    ):
        away = np.linalg.norm(place - place[cell], axis=1) / side
        true, said = (np.flatnonzero(maps[window] >= hot) for maps in (truth, found))
        if not true.size:
            continue
        # Where no hot spot is reported the farthest cell stands for it.
        at = said[np.argmin(away[said])] if said.size else int(np.argmax(away))
        distances.append(abs(float(away[at]) - float(away[true].min())))
        regrets.append(max(0.0, 1 - float(truth[window, at]) / hot))
    return float(np.mean(distances)), float(np.mean(regrets))


def _forecasts(found: FloatArray, truth: FloatArray) -> float:
    blocks = [maps.reshape(len(maps), _BLOCKS, -1).sum(axis=2) for maps in (found, truth)]
    later = max(len(truth) // _LATER, 1)
    level = blocks[0][0]
    for window in blocks[0][1:-later]:
        level = (level + window) / 2
    actual = blocks[1][-later:]
    there = blocks[1].sum(axis=0) > 0
    forecast = np.broadcast_to(level, actual.shape)[:, there]
    middle = (actual[:, there] + forecast) / 2
    error = np.divide(
        np.abs(forecast - actual[:, there]), middle, out=np.zeros(middle.shape), where=middle > 0
    )
    return float(error.mean())


def as_users(shares: IntArray) -> FloatArray:
    """Exact sums in users."""
    return np.asarray(shares / 2**28, dtype=np.float64)
