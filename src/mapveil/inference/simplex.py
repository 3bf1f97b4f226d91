"""Projections of unbiased estimates, which may be negative, on non-negative values of a given total."""

import numpy as np

from mapveil_client.arrays import FloatArray


def simplex_level(values: FloatArray, total: float) -> float:
    r"""The level t for which :math:`\sum_i \max(v_i - t, 0)` is the total, which is above 0.

    Source: Held, Wolfe, Crowder, "Validation of Subgradient Optimization" (1974).
    """
    ordered = np.sort(values)[::-1]
    levels = (np.cumsum(ordered) - total) / np.arange(1, ordered.size + 1)
    return float(levels[np.flatnonzero(ordered > levels)[-1]])


def project_to_simplex(values: FloatArray) -> FloatArray:
    r"""Project on the distributions: :math:`\max(v_i - t, 0)` with the t that makes the sum 1. Run by: the server.

    Parameters
    ----------
    values : ndarray of float64, shape (sites,)
        Unbiased estimates v, which may be negative.

    Examples
    --------
    >>> project_to_simplex(np.array([0.9, 0.5, -0.2])).round(3).tolist()
    [0.7, 0.3, 0.0]
    """
    return np.asarray(np.maximum(values - simplex_level(values, 1.0), 0.0))


def norm_clip(values: FloatArray) -> FloatArray:
    """Set negative entries to 0 and normalise; uniform where no entry is above 0. Run by: the server.

    Parameters
    ----------
    values : ndarray of float64, shape (sites,)
        Unbiased estimates.
    """
    kept = np.maximum(values, 0.0)
    total = kept.sum()
    return np.asarray(kept / total) if total > 0 else np.full(values.shape, 1 / values.size)
