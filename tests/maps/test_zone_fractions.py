"""Fractions of cells in zones: against shapely's overlay, cell by cell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import shapely

from mapveil.geo.region import reprojected
from mapveil.geo.tiling import Tiling
from mapveil.geo.zones import Zones
from mapveil.maps.zone_fractions import zone_fractions
from mapveil_client.errors import InputError
from mapveil_client.plane import middle_cylinder

from .conftest import REGION, TILINGS


def polygons() -> list[shapely.Polygon | shapely.MultiPolygon]:
    rng = np.random.default_rng(3)
    turn = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    far = 0.03 + 0.02 * rng.random(90)
    star = shapely.Polygon(
        np.column_stack((-73.97 + far * np.cos(turn), 40.76 + far * np.sin(turn))),
        [np.column_stack((-73.97 + 0.01 * np.cos(turn), 40.76 + 0.01 * np.sin(turn)))],
    )
    west, south, east, north = REGION.bbox
    return [
        star,
        shapely.box(west - 1, south - 1, east + 1, north + 1),
        shapely.box(west, south, east, north),
        shapely.MultiPolygon(
            [shapely.box(-74.2, 40.7, -74.0, 40.71), shapely.box(-73.92, 40.75, -73.9, 40.9)]
        ),
        shapely.Point(-73.95, 40.72).buffer(1e-4),
        shapely.box(2, 48, 3, 49),
    ]


@pytest.mark.parametrize("kind", [kind for kind in TILINGS if kind != "no georeference"])
def test_fractions_are_those_of_shapely(kind: str) -> None:
    tiling: Tiling = TILINGS[kind]()
    zones = Zones.read(polygons())
    found = zone_fractions(zones, tiling)
    flat: Callable[..., object] = middle_cylinder(tiling.region.bbox).project
    cells = reprojected(shapely.segmentize(tiling.polygons(), 2e-3), flat)
    shapes = reprojected(shapely.segmentize(zones.polygons, 2e-3), flat)
    wanted = shapely.area(shapely.intersection(shapes[:, None], cells)) / shapely.area(cells)
    inside = getattr(tiling, "inside", None)
    if inside is not None:
        wanted[:, ~inside()] = 0
    np.testing.assert_allclose(found.fractions.toarray(), wanted, atol=2e-4)
    within = wanted @ shapely.area(cells)
    np.testing.assert_allclose(found.covered, within / shapely.area(shapes), atol=2e-3)


def test_zones_that_share_the_region_share_its_cells() -> None:
    west, south, east, north = REGION.bbox
    x, y = np.linspace(west, east, 24), np.linspace(south, north, 18)
    parts = [shapely.box(x[i], y[j], x[i + 1], y[j + 1]) for i in range(23) for j in range(17)]
    found = zone_fractions(Zones.read(parts), TILINGS["quadtree"]())
    np.testing.assert_allclose(found.fractions.sum(axis=0), 1.0, atol=1e-6)
    np.testing.assert_allclose(found.covered, 1.0, atol=1e-6)


def test_a_map_without_a_place_on_earth_is_refused() -> None:
    with pytest.raises(InputError, match="without georeference"):
        zone_fractions(Zones.read(polygons()[:1]), TILINGS["no georeference"]())
