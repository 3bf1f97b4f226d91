"""Flows as arcs in the plane of a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from mapveil.maps.flow_map import FlowMap
    from mapveil.pictures.plane import MapPlane


POINTS: Final = 17
"""Corners of an arc."""

_BEND: Final = 0.18  # of its length, how far an arc's middle leaves the straight line


class Arcs(NamedTuple):
    """The flows between different cells as curves, and those within a cell as dots."""

    flow: IntArray  # of each arc, shape (arcs,)
    corners: FloatArray  # shape (arcs, POINTS, 2): x, y
    dot_flow: IntArray  # shape (dots,)
    dots: FloatArray  # shape (dots, 2)


def flow_arcs(flows: FlowMap, plane: MapPlane) -> Arcs:
    r"""Quadratic curves that leave the straight line to the left of whoever travels along them.

    .. math:: c(t) = (1 - t)^2\, a + 2 t (1 - t)\, k + t^2\, b, \qquad k = \tfrac12 (a + b) + 2 h\, (b - a)^\perp

    where: a and b are origin and destination, :math:`(x, y)^\perp = (-y, x)` on the ground, and h is how far the
    middle leaves the line, as a part of its length. The two directions of a pair are thereby told apart.
    """
    ends = flows.ends
    a = np.stack(plane.projection.project(ends.origin_lon, ends.origin_lat), axis=1)
    b = np.stack(plane.projection.project(ends.destination_lon, ends.destination_lat), axis=1)
    within = flows.origin == flows.destination
    flow = np.flatnonzero(~within)
    a, b, stays = a[flow], b[flow], a[within]
    along = (b - a) * (1.0, plane.aspect)
    side = np.stack([-along[:, 1], along[:, 0] / plane.aspect], axis=1)
    middle = (a + b) / 2 + 2 * _BEND * side
    t = np.linspace(0.0, 1.0, POINTS)[None, :, None]
    corners = (1 - t) ** 2 * a[:, None] + 2 * t * (1 - t) * middle[:, None] + t**2 * b[:, None]
    return Arcs(flow, corners, np.flatnonzero(within), stays)
