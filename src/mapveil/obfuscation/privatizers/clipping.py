"""Rows brought within a ball, and how large a ball the pilot asks for."""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import FloatArray

_SHRINK = 1 - 2.0**-40  # more than the rounding of a norm, so that no row stays outside


def clip_rows(rows: FloatArray, radius: float, order: int) -> FloatArray:
    r"""Shorten every row that is longer than a radius. Run by: the client.

    .. math:: x' = x \min(1, C / \|x\|_p)

    where: C is ``radius`` and p is ``order``, 1 or 2.

    Source: equation 16 of Zhang et al. 2022, with C for :math:`\Delta / 2`.
    """
    norms = _norms(rows, order)
    return np.asarray(rows * (np.minimum(1.0, radius / np.maximum(norms, radius)) * _SHRINK)[:, None])


def pilot_radius(rows: FloatArray, clipped: float, order: int) -> float:
    """The radius that shortens a part of the pilot's rows. Run by: the curator of the pilot.

    Parameters
    ----------
    rows : ndarray of float64, shape (rows, width)
        The pilot, normalised.
    clipped : float
        Part of the rows, 0 to 1; 0.05 in the paper.
    order : int
        1 or 2.
    """
    return float(np.quantile(_norms(rows, order), 1 - clipped))


def _norms(rows: FloatArray, order: int) -> FloatArray:
    if order == 1:
        return np.asarray(np.abs(rows).sum(axis=1))
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
