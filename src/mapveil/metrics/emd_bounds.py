"""Certified bounds on the earth mover's distance: fast, and for rasters of any size."""

from typing import NamedTuple

import numpy as np

from mapveil.maps.density_map import DensityMap
from mapveil.metrics.beckmann import ROUNDING, least_flow
from mapveil.metrics.distribution import MapLike
from mapveil.metrics.emd import LARGEST_LATTICE, cell_size, emd, surplus
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check

LARGEST_SIDE = 1024
"""Rasters with a longer side are aggregated to at most this many rows and columns."""


class EmdBounds(NamedTuple):
    """The distance lies between ``lower`` and ``upper``, in the unit asked for."""

    lower: float
    upper: float

    @property
    def middle(self) -> float:
        """The value between them, off by at most half their difference."""
        return (self.lower + self.upper) / 2


def emd_bounds(
    truth: MapLike,
    estimate: MapLike,
    *,
    cell: tuple[float, float] | None = None,
    tolerance: float = 1e-3,
    iterations: int = 5000,
) -> EmdBounds:
    r"""Bounds on the earth mover's distance for the L1 ground distance that are sure to hold.

    On a raster the distance is the least cost of a flow between neighbours (Beckmann's problem) and, by
    duality, the greatest gain of a potential that no edge lets grow faster than its length:

    .. math:: \min_{\operatorname{div} f = p - q} \sum_e \ell_e |f_e| \;=\;
        \max_{|u_i - u_j| \le \ell_{ij}} \sum_i (p_i - q_i)\, u_i

    where: :math:`p`, :math:`q` are ``truth`` and ``estimate`` normalised to sum one, and :math:`\ell` is the
    width or height of ``cell``. Every such flow gives an upper and every such potential a lower bound
    (:func:`mapveil.metrics.beckmann.least_flow`); the distances of the two pairs of marginals add up to a lower bound
    too. All bounds allow for rounding.

    A raster with more than ``LARGEST_SIDE`` rows or columns is first summed over blocks. Each block's mass
    is then at its middle, so both bounds give way by what it costs to bring the differing mass there:

    .. math:: D = \sum_i |p_i - q_i|\, d(i, \text{middle of its block})

    Run by: the evaluator. Source: see :mod:`mapveil.metrics.beckmann`.

    Parameters
    ----------
    truth, estimate : DensityMap or array_like of shape (rows, columns)
        The maps. A map of total zero is read as uniform.
    cell : (float, float), optional
        Width and height of a cell; see :func:`mapveil.metrics.emd.emd`.
    tolerance : float
        Stop when the bounds differ by at most this part of the upper one (before :math:`D`).
    iterations : int
        Stop after so many in any case; the bounds hold then too, but are wider.

    Raises
    ------
    ParameterError
        As for :func:`mapveil.metrics.emd.emd`, or ``tolerance`` or ``iterations`` is not positive.

    Examples
    --------
    >>> bounds = emd_bounds([[1, 0], [0, 0]], [[0, 0], [0, 1]])
    >>> bounds.lower <= 1 <= bounds.upper
    True
    """
    check(np.isfinite(tolerance) and tolerance > 0, "tolerance", "above 0", tolerance)
    check(iterations >= 1, "iterations", "at least 1", iterations)
    moved = surplus(truth, estimate)
    width, height = cell_size(moved, cell)
    differing_rows, differing_columns = np.flatnonzero(moved.any(axis=1)), np.flatnonzero(moved.any(axis=0))
    if differing_rows.size == 0:
        return EmdBounds(0.0, 0.0)
    # No mass gains by leaving the box around what differs.
    moved = moved[
        differing_rows[0] : differing_rows[-1] + 1, differing_columns[0] : differing_columns[-1] + 1
    ]
    factor = -(-max(moved.shape) // LARGEST_SIDE)
    blocks, displaced = _aggregated(moved, factor, width, height)
    bounds = least_flow(blocks, width * factor, height * factor, tolerance, iterations)
    marginal = _marginal_bound(moved, width, height)
    lower = max(bounds.lower - displaced, marginal * (1 - ROUNDING), 0.0)
    return EmdBounds(lower, max(bounds.upper + displaced, lower))


def emd_within(
    truth: MapLike,
    estimate: MapLike,
    *,
    cell: tuple[float, float] | None = None,
    tolerance: float = 1e-4,
) -> float:
    """Earth mover's distance to a relative tolerance, much faster than exactly.

    The middle of :func:`emd_bounds`, off by at most half of ``tolerance`` of itself on rasters of up to
    ``LARGEST_SIDE`` rows and columns; where the iterations do not suffice, :func:`mapveil.metrics.emd.emd` up
    to 256 x 256. Run by: the evaluator.

    Raises
    ------
    ParameterError
        As for :func:`emd_bounds`.
    """
    bounds = emd_bounds(truth, estimate, cell=cell, tolerance=tolerance)
    met = bounds.upper - bounds.lower <= 1.01 * tolerance * bounds.upper + ROUNDING
    if not met and np.size(truth.values if isinstance(truth, DensityMap) else truth) <= LARGEST_LATTICE:
        return emd(truth, estimate, cell=cell)
    return bounds.middle


def _aggregated(b: FloatArray, factor: int, width: float, height: float) -> tuple[FloatArray, float]:
    """Sums over square blocks, and what it costs at most to bring every cell's mass to its block's middle."""
    if factor == 1:
        return b, 0.0
    rows, columns = b.shape
    padded = np.pad(b, ((0, -rows % factor), (0, -columns % factor)))
    blocks = padded.reshape(padded.shape[0] // factor, factor, padded.shape[1] // factor, factor)
    offset = np.abs(np.arange(factor) - (factor - 1) / 2)
    within = np.abs(blocks).sum(axis=(0, 2))
    return blocks.sum(axis=(1, 3)), float((within * (offset[:, None] * height + offset * width)).sum())


def _marginal_bound(b: FloatArray, width: float, height: float) -> float:
    """Moving mass moves its marginals, and on a line the cost is that of the cumulative sums."""
    along, down = np.cumsum(b.sum(axis=0))[:-1], np.cumsum(b.sum(axis=1))[:-1]
    return float(width * np.abs(along).sum() + height * np.abs(down).sum())
