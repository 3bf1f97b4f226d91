"""Directed lines as arcs in the plane of a picture."""

from __future__ import annotations

from typing import Final

import numpy as np

from mapveil_client.arrays import FloatArray

POINTS: Final = 17
"""Corners of an arc."""

_BEND: Final = 0.18  # fraction of an arc's length by which its middle leaves the straight line


def arcs(ends: FloatArray, aspect: float) -> FloatArray:
    r"""Bend straight lines to the left of their direction, which tells the two directions of a pair apart.

    .. math:: c(t) = (1 - t)^2\, a + 2 t (1 - t)\, k + t^2\, b, \qquad k = \tfrac12 (a + b) + 2 h\, (b - a)^\perp

    where: a and b are origin and destination, :math:`(x, y)^\perp = (-y, x)` on the ground, and h is the distance
    of the middle from the line, as a fraction of its length.

    Parameters
    ----------
    ends : ndarray of float64, shape (lines, 2, 2)
        x and y of origin and destination in the plane.
    aspect : float
        Length of a unit of y on the ground, in units of x.

    Returns
    -------
    ndarray of float64, shape (lines, POINTS, 2)
    """
    a, b = ends[:, 0], ends[:, 1]
    along = (b - a) * (1.0, aspect)
    side = np.stack([-along[:, 1], along[:, 0] / aspect], axis=1)
    middle = (a + b) / 2 + 2 * _BEND * side
    t = np.linspace(0.0, 1.0, POINTS)[None, :, None]
    return np.asarray((1 - t) ** 2 * a[:, None] + 2 * t * (1 - t) * middle[:, None] + t**2 * b[:, None])
