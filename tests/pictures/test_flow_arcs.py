"""Arcs: they begin and end where flows do, and bend to the left."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.maps.flow_map import FlowMap
from mapveil.pictures.flow_arcs import POINTS, flow_arcs
from mapveil.pictures.plane import map_plane
from mapveil.privacy.guarantee import Guarantee

PROMISE = Guarantee(trust="local", epsilon=None, bounding="", neighbours="")


@pytest.mark.parametrize(
    "grid",
    [
        Grid(Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=3, columns=4),
        Grid(Region.from_bbox(20.0, 68.0, 21.0, 68.4), rows=3, columns=4),
        Grid(Region.without_georeference(4, 3), rows=3, columns=4),
    ],
    ids=["city", "far north", "plain"],
)
def test_arcs_join_the_ends_and_bend_to_the_left(grid: Grid) -> None:
    origin, destination = (part.ravel() for part in np.meshgrid(np.arange(12), np.arange(12)))
    flows = FlowMap(origin, destination, np.arange(144.0), grid, PROMISE, "by hand")
    plane = map_plane(grid)
    arcs = flow_arcs(flows, plane)
    assert arcs.corners.shape == (132, POINTS, 2)
    assert np.array_equal(np.sort(np.concatenate([arcs.flow, arcs.dot_flow])), np.arange(144))
    a = np.stack(plane.projection.project(flows.ends.origin_lon, flows.ends.origin_lat), axis=1)
    b = np.stack(plane.projection.project(flows.ends.destination_lon, flows.ends.destination_lat), axis=1)
    np.testing.assert_allclose(arcs.corners[:, 0], a[arcs.flow], atol=1e-9)
    np.testing.assert_allclose(arcs.corners[:, -1], b[arcs.flow], atol=1e-9)
    np.testing.assert_allclose(arcs.dots, a[arcs.dot_flow], atol=1e-9)
    assert (flows.origin[arcs.dot_flow] == flows.destination[arcs.dot_flow]).all()
    # On the ground (an axis stretched to metres) the middle is 0.18 of the length away, at a right angle, to the left.
    ground = np.array([1.0, plane.aspect])
    along = (b - a)[arcs.flow] * ground
    away = (arcs.corners[:, POINTS // 2] - (a + b)[arcs.flow] / 2) * ground
    length = np.hypot(*along.T)
    cross = along[:, 0] * away[:, 1] - along[:, 1] * away[:, 0]
    np.testing.assert_allclose(cross / length**2, 0.18, rtol=1e-6)
    np.testing.assert_allclose((along * away).sum(axis=1) / length**2, 0, atol=1e-6)


def test_there_and_back_are_two_arcs() -> None:
    grid = Grid(Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=1, columns=2)
    flows = FlowMap(np.array([0, 1]), np.array([1, 0]), np.array([2.0, 1.0]), grid, PROMISE, "by hand")
    there, back = flow_arcs(flows, map_plane(grid)).corners
    assert not np.allclose(there[POINTS // 2], back[POINTS // 2])
    np.testing.assert_allclose(there[0], back[-1])
