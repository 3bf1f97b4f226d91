"""Frames and planes: pixels, outlines and metres where the tiling says they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pyproj import Geod

import mapveil as mv
from mapveil.geo.projection import projection_of
from mapveil.maps.density_map import DensityMap
from mapveil.maps.frame import raster_frame, require_frame
from mapveil.pictures.picture import plot
from mapveil.pictures.picture_frame import BEYOND, beyond_words
from mapveil.pictures.picture_plane import map_plane, region_rings
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]

ON_EARTH = ("grid", "quadtree", "polygon", "utm", "degrees", "tiles")


@pytest.mark.parametrize("kind", [*ON_EARTH, "no georeference"])
def test_pixels_lie_where_the_cells_do(kind: str, make_map: MakeMap) -> None:
    heat = make_map(kind)
    frame = require_frame(heat.tiling, "this")
    x, y = projection_of(frame.crs).project(*heat.tiling.centres())
    pixel = (frame.bounds[2] - frame.bounds[0]) / frame.columns
    np.testing.assert_allclose(frame.x_centres()[frame.col], x, atol=pixel * 1e-6)
    # The middle of a mercator tile in degrees is not its middle in metres, but nearly so.
    np.testing.assert_allclose(frame.y_centres()[frame.row], y, atol=pixel * 1e-3)
    np.testing.assert_array_equal(frame.cells(frame.image(heat.values)), heat.values)


@pytest.mark.parametrize("kind", ["hexagons", "places"])
def test_other_cells_have_outlines_instead(kind: str, make_map: MakeMap) -> None:
    tiling = make_map(kind).tiling
    assert raster_frame(tiling) is None
    with pytest.raises(InputError, match="GeoParquet"):
        require_frame(tiling, "this")
    plane = map_plane(tiling)
    assert plane.rings is not None
    assert set(plane.rings.cell.tolist()) == set(range(tiling.size))
    first, last = plane.rings.start[:-1], plane.rings.start[1:] - 1
    np.testing.assert_array_equal(plane.rings.corners[first], plane.rings.corners[last])
    x0, y0, x1, y1 = plane.bounds
    x, y = plane.projection.project(*tiling.centres())
    assert ((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)).all()


@pytest.mark.parametrize("kind", [*ON_EARTH, "hexagons", "places"])
def test_a_bar_is_as_long_as_it_says(kind: str, make_map: MakeMap) -> None:
    plane = map_plane(make_map(kind).tiling)
    x0, y0, x1, y1 = plane.bounds
    middle = (y0 + y1) / 2
    lon, lat = plane.projection.unproject(np.array([x0, (x0 + x1) / 2]), np.array([middle, middle]))
    _, _, metres = Geod(ellps="WGS84").inv(lon[0], lat[0], lon[1], lat[1])
    assert metres == pytest.approx((x1 - x0) / 2 * plane.metres_per_x, rel=1e-3)


def test_the_outline_keeps_its_hole(make_map: MakeMap) -> None:
    heat = make_map("polygon")
    rings = region_rings(heat.tiling, heat.tiling.region.projection)
    assert rings.start.size - 1 == 2
    assert rings.cell.tolist() == [0, 0]


def test_what_lies_outside_the_polygon_is_not_shown(make_map: MakeMap) -> None:
    heat = make_map("polygon")
    lon, lat = heat.tiling.centres()
    np.testing.assert_array_equal(np.isfinite(heat.density()), heat.tiling.region.contains(lon, lat))


def test_densities_are_named_by_what_is_known(make_map: MakeMap) -> None:
    assert make_map("grid").scene().layers[0].unit == "users per km²"
    assert "km" not in make_map("no georeference").scene().layers[0].unit


@pytest.mark.parametrize("corner", [True, False])
def test_scale_bar_and_legend_hide_no_value(corner: bool) -> None:
    pytest.importorskip("matplotlib")
    west, south, east, north = -74.03, 40.69, -73.90, 40.83
    lon, lat = (west + 0.01, south + 0.01) if corner else ((west + east) / 2, (south + north) / 2)
    points = mv.Points.from_arrays(np.arange(900), np.full(900, lon), np.full(900, lat))
    tiling = mv.Quadtree(mv.Region.from_bbox(west, south, east, north), depth=3)
    heat = mv.release(points, tiling, epsilon=4, account=None, rng=1)
    axes = plot(heat)
    low, _ = axes.get_ylim()
    bottom = map_plane(tiling).bounds[1]
    assert bool(low < bottom) is corner
    said = " ".join(" ".join(text.get_text() for text in axes.texts).split())
    assert (BEYOND.strip() in said) is corner, "the strip below the map is not hatched"


@pytest.mark.parametrize("kind", ["grid", "polygon", "utm", "tiles", "hexagons"])
def test_ground_that_is_shown_beyond_a_region_is_said_to_be_outside(kind: str, make_map: MakeMap) -> None:
    heat = make_map(kind)
    plane = map_plane(heat.tiling)
    said = beyond_words(heat, plane, plane.bounds)
    assert said.startswith(BEYOND) is (heat.tiling.region.polygon is not None or kind == "hexagons")
    assert ("reach across" in said) is (kind == "hexagons"), "they count who is beyond the outline"
