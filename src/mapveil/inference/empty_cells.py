r"""Fewer users on empty cells, on a map where nearly every cell is empty and every cell was measured.

Noisy sums of cells follow a mixture: the noise alone, of scale b, where a cell is empty; elsewhere an exponential
number of users of mean :math:`2^j b`, plus the noise. Expectation maximisation finds the weights, and with them
:math:`p_i`, the probability that cell i is occupied given its noisy sum. Where nearly all cells are empty, an estimate
:math:`x_i` in box B of 8 by 8 cells becomes

.. math:: \frac{x_i \sqrt{p_i}}{\sum_{j \in B} x_j \sqrt{p_j}} \; \max_{j \in B} p_j \sum_{j \in B} x_j

times what keeps the total. The root, because noise hides single users. A box with an occupied cell keeps its users,
so that they do not leave the outskirts of a town for its centre.

Source: Johnstone and Silverman, "Needles and straw in haystacks" (Annals of Statistics, 2004), for the mixture.
"""

import math
from typing import Final

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray, quotient

# Chosen between drawn roads, islands and villages, and tuning sets of 1,024 cells; no benchmark varies them yet.
_EMPTY: Final = 0.9  # fraction of the cells
_SIGNAL: Final = (
    1.0  # noise scales of users per cell; with fewer, a faint map of people everywhere looks empty
)
_BOX: Final = 8  # cells a side: no fewer users in the outskirts of a town
_STEPS: Final = 100  # of expectation maximisation
_BINS: Final = 16  # per unit of asinh of the noisy sums, in noise scales


def emptied(users: FloatArray, noisy: FloatArray, scale: float, there: BoolArray) -> FloatArray:
    """The estimates with fewer users on empty cells, if nearly all are. Run by: whoever holds the estimates.

    Parameters
    ----------
    users : ndarray of float64, shape (rows, columns)
        Estimated users per cell, not negative; both lengths a power of two.
    noisy : ndarray of float64, same shape
        Noisy sum of each cell.
    scale : float
        Scale of the noise, users, above 0.
    there : ndarray of bool, same shape
        Whether anybody can be in each cell.

    Returns
    -------
    ndarray of float64, same shape

    Examples
    --------
    >>> noisy = np.random.default_rng(1).laplace(size=(16, 16))
    >>> noisy[3, 4] += 900
    >>> users = emptied(np.maximum(noisy, 0.0), noisy, 1.0, np.full(noisy.shape, True))
    >>> bool(users[3, 4] > 0.95 * users.sum())
    True
    """
    sums = noisy[there] / scale
    if not sums.size or sums.mean() < _SIGNAL:
        return users
    of_bin, count = np.unique(np.rint(_BINS * np.arcsinh(sums)), return_counts=True)
    octaves = max(math.ceil(math.log2(sums.max())), 0) + 2
    means = np.asarray(1.01 * 2.0 ** np.arange(octaves), dtype=np.float64)  # a mean of 1 would divide by zero
    weights = np.full(1 + means.size, 0.5 / means.size)
    weights[0] = 0.5
    likelihood = _likelihood(np.sinh(of_bin / _BINS), means)
    for _ in range(_STEPS):
        parts = weights[:, None] * likelihood
        weights = (parts / parts.sum(axis=0)) @ count / sums.size
    if weights[0] < _EMPTY:
        return users
    parts = weights[:, None] * _likelihood(sums, means)
    occupied = np.zeros(users.shape)
    occupied[there] = parts[1:].sum(axis=0) / parts.sum(axis=0)
    side = min(_BOX, users.shape[0])
    before, sure = _boxes(users, side).sum(axis=(1, 3)), _boxes(occupied, side).max(axis=(1, 3))
    kept = users * np.sqrt(occupied)
    kept *= np.kron(quotient(before * sure, _boxes(kept, side).sum(axis=(1, 3))), np.ones((side, side)))
    return np.asarray(kept * (users.sum() / max(float(kept.sum()), np.finfo(np.float64).tiny)))


def _boxes(cells: FloatArray, side: int) -> FloatArray:
    rows, columns = cells.shape
    return cells.reshape(rows // side, side, columns // side, side)


def _likelihood(sums: FloatArray, means: FloatArray) -> FloatArray:
    """Densities of the noise alone, and with exponential users of every mean, shape (1 + means, sums); scale 1."""
    mean, tail = means[:, None], np.exp(-np.abs(sums))
    above = np.exp(-np.maximum(sums, 0.0) / mean) * mean / (mean**2 - 1) - tail / (2 * (mean - 1))
    occupied = np.where(sums < 0, tail / (2 * (mean + 1)), above)
    return np.concatenate([tail[None] / 2, np.maximum(occupied, 0.0)])
