"""Web-mercator tiles: the published example of quadkeys, and formulas written otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.region import Region
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil_client.errors import ParameterError

NEW_YORK = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WORLD = Region.from_bbox(-180, -90, 180, 90)


def slow_tile(lon: float, lat: float, zoom: int) -> tuple[int, int]:
    """Column and row by the formula of the slippy map, with tangent and secant."""
    side = 2**zoom
    phi = math.radians(lat)
    x = (lon + 180) / 360 * side
    y = (1 - math.asinh(math.tan(phi)) / math.pi) / 2 * side
    return min(int(x), side - 1), min(int(y), side - 1)


def slow_quadkey(x: int, y: int, zoom: int) -> str:
    digits = [(x >> k & 1) + 2 * (y >> k & 1) for k in reversed(range(zoom))]
    return "".join(map(str, digits))


# Tile (3, 5) of level 3 is quadkey 213 in Microsoft's "Bing Maps Tile System"; the others are
# tile 486, 332 of level 10 (which holds 20.6852, 40.1222) and tile 19295, 24641 of level 16.
@pytest.mark.parametrize(
    ("x", "y", "zoom", "quadkey"),
    [(3, 5, 3, "213"), (486, 332, 10, "0313102310"), (0, 0, 1, "0"), (1, 0, 1, "1"), (0, 1, 1, "2")],
)
def test_known_quadkeys(x: int, y: int, zoom: int, quadkey: str) -> None:
    assert slow_quadkey(x, y, zoom) == quadkey
    side = 2**zoom
    lon = (x + 0.5) / side * 360 - 180
    lat = math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * (y + 0.5) / side))))
    around = Region.from_bbox(lon - 1e-3, lat - 1e-3, lon + 1e-3, lat + 1e-3)
    assert WebMercatorTiles(around, zoom).quadkeys().tolist() == [quadkey]


@settings(deadline=None)
@given(st.integers(0, 23), st.floats(-180, 180), st.floats(-85.05, 85.05))
def test_the_tile_of_a_place(zoom: int, lon: float, lat: float) -> None:
    west, south = min(lon, 180 - 1e-6), min(lat, 85.0)
    tiles = WebMercatorTiles(Region.from_bbox(west, south, west + 1e-6, south + 1e-6), zoom)
    cells = tiles.locate(np.array([west]), np.array([south]))
    assert cells[0] >= 0
    expected = slow_tile(west, south, zoom)
    bounds = tiles.bounds(cells)
    assert bounds.west[0] - 1e-9 <= west <= bounds.east[0] + 1e-9
    assert bounds.south[0] - 1e-9 <= south <= bounds.north[0] + 1e-9
    on_an_edge = min(
        abs(west - bounds.west[0]),
        abs(west - bounds.east[0]),
        abs(south - bounds.south[0]),
        abs(south - bounds.north[0]),
    )
    if on_an_edge > 1e-9:
        assert tiles.quadkeys(cells)[0] == slow_quadkey(*expected, zoom)


@pytest.mark.parametrize("zoom", [0, 1, 2, 5])
def test_the_world_has_all_tiles_in_the_order_of_their_quadkeys(zoom: int) -> None:
    tiles = WebMercatorTiles(WORLD, zoom)
    assert tiles.size == 4**zoom
    quadkeys = tiles.quadkeys()
    assert quadkeys.tolist() == sorted(
        slow_quadkey(x, y, zoom) for x in range(2**zoom) for y in range(2**zoom)
    )
    assert tiles.lattice().depth == zoom


def test_tiles_nest_by_prefix() -> None:
    lon, lat = np.random.default_rng(0).uniform([[-74.03], [40.69]], [[-73.9], [40.83]], (2, 500))
    coarse, fine = WebMercatorTiles(NEW_YORK, 11), WebMercatorTiles(NEW_YORK, 14)
    above = coarse.quadkeys(coarse.locate(lon, lat))
    below = fine.quadkeys(fine.locate(lon, lat))
    assert all(key.startswith(prefix) for key, prefix in zip(below, above, strict=True))


def test_the_region_is_covered_and_nothing_else() -> None:
    for region in (NEW_YORK, Region.from_polygon(shapely.Point(13.4, 52.5).buffer(0.2))):
        tiles = WebMercatorTiles(region, 13)
        together = shapely.union_all(tiles.polygons())
        assert shapely.difference(region.outline(), together).area < 1e-12
        assert (shapely.area(shapely.intersection(tiles.polygons(), region.outline())) > 0).all()
        assert np.unique(tiles.quadkeys()).size == tiles.size


def test_a_region_that_is_a_tile_has_one() -> None:
    tile = WebMercatorTiles(NEW_YORK, 12).bounds(np.array([4]))
    west, south, east, north = (float(edge[0]) for edge in tile)
    inner = Region.from_bbox(west + 1e-9, south + 1e-9, east - 1e-9, north - 1e-9)
    assert WebMercatorTiles(inner, 12).size == 1


def test_tiles_are_square_on_the_map_and_smaller_towards_the_pole() -> None:
    tiles = WebMercatorTiles(WORLD, 4)
    order = np.argsort(np.abs(tiles.centres().lat))
    assert (np.diff(tiles.area_m2()[order]) < 1e-3 * tiles.area_m2().max()).all()
    nearest = np.abs(tiles.centres().lat[order[0]])
    expected = (40_075_017 / 16 * np.cos(np.radians(nearest))) ** 2
    assert tiles.area_m2()[order][0] == pytest.approx(expected, rel=0.02)


def test_beyond_the_map_there_is_no_tile() -> None:
    tiles = WebMercatorTiles(WORLD, 3)
    lat = np.array([85.06, -85.06, 90.0, -90.0, 85.05, -85.05])
    assert (tiles.locate(np.zeros(6), lat) >= 0).tolist() == [False] * 4 + [True] * 2
    edges = tiles.locate(np.array([180.0, -180.0]), np.degrees(np.arctan(np.sinh([-np.pi, np.pi]))))
    assert edges.tolist() == [63, 0], "the outer edges belong to the last tiles"
    assert (tiles.locate(np.array([180.0, -180.0, 180.1]), np.zeros(3)) >= 0).tolist() == [True, True, False]


@pytest.mark.parametrize("bad", [-1, 24, 3.0, True, "3", None])
def test_impossible_zooms_are_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match=r"zoom must be"):
        WebMercatorTiles(NEW_YORK, bad)


def test_regions_without_tiles_or_with_too_many_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"within 85\.05 degrees south and north, got '0,86,10,89'"):
        WebMercatorTiles(Region.from_bbox(0, 86, 10, 89), 3)
    with pytest.raises(ParameterError, match="got '3 x 3 cells without georeference"):
        WebMercatorTiles(Region.without_georeference(3, 3), 3)
    with pytest.raises(ParameterError, match=r"at most 67108864"):
        WebMercatorTiles(WORLD, 14)
