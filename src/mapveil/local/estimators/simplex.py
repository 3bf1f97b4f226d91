"""From unbiased estimates, which may be negative, to distributions."""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import FloatArray


def project_to_simplex(values: FloatArray) -> FloatArray:
    r"""The nearest distribution, :math:`\max(v_i - t, 0)` with the t that makes it sum to 1. Run by: the server.

    Parameters
    ----------
    values : ndarray of float64, shape (sites,)
        v.

    Examples
    --------
    >>> project_to_simplex(np.array([0.9, 0.5, -0.2])).round(3).tolist()
    [0.7, 0.3, 0.0]
    """
    ordered = np.sort(values)[::-1]
    levels = (np.cumsum(ordered) - 1) / np.arange(1, ordered.size + 1)
    level = levels[np.flatnonzero(ordered > levels)[-1]]
    return np.asarray(np.maximum(values - level, 0.0))


def norm_clip(values: FloatArray) -> FloatArray:
    """Negative entries become 0, the others are divided by their sum; even where none is above 0. Run by: the server.

    Parameters
    ----------
    values : ndarray of float64, shape (sites,)
        Estimates.
    """
    kept = np.maximum(values, 0.0)
    total = kept.sum()
    return np.asarray(kept / total) if total > 0 else np.full(values.shape, 1 / values.size)
