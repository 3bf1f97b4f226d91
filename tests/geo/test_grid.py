"""Grids: rows from the north, columns from the west, edges where they belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil_client.errors import ParameterError

NEW_YORK = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
SIDES = st.integers(1, 300)


def test_the_first_cell_is_in_the_north_west() -> None:
    grid = Grid(NEW_YORK, rows=2, columns=3)
    lon = np.array([-74.02, -73.97, -73.91] * 2)
    lat = np.array([40.82] * 3 + [40.70] * 3)
    assert grid.locate(lon, lat).tolist() == [0, 1, 2, 3, 4, 5]
    assert grid.spec == "grid:2x3"


@settings(deadline=None)
@given(SIDES, SIDES, st.integers(0, 2**32))
def test_cells_follow_from_metres(rows: int, columns: int, seed: int) -> None:
    grid = Grid(NEW_YORK, rows, columns)
    lon, lat = np.random.default_rng(seed).uniform([[-74.03], [40.69]], [[-73.9], [40.83]], (2, 200))
    x, y = NEW_YORK.project(lon, lat)
    x0, _, _, y1 = NEW_YORK.bounds_m
    cells = grid.locate(lon, lat)
    east = (x - x0) / (NEW_YORK.width_m / columns) - cells % columns
    south = (y1 - y) / (NEW_YORK.height_m / rows) - cells // columns
    for part in (east, south):
        assert ((part > -1e-9) & (part < 1 + 1e-9)).all()


@settings(deadline=None)
@given(SIDES, SIDES)
def test_corners_belong_to_the_corner_cells(rows: int, columns: int) -> None:
    grid = Grid(NEW_YORK, rows, columns)
    west, south, east, north = NEW_YORK.bbox
    corners = grid.locate(np.array([west, east, west, east]), np.array([north, north, south, south]))
    assert corners.tolist() == [0, columns - 1, (rows - 1) * columns, rows * columns - 1]
    beyond = grid.locate(
        np.nextafter([west, east, west, west], [-np.inf, np.inf, 0, 0]),
        np.nextafter([north, north, south, north], [0, 0, -np.inf, np.inf]),
    )
    assert beyond.tolist() == [-1, -1, -1, -1]


@settings(deadline=None)
@given(SIDES, SIDES)
def test_all_cells_have_the_same_area(rows: int, columns: int) -> None:
    area = Grid(NEW_YORK, rows, columns).area_m2()
    np.testing.assert_allclose(area, NEW_YORK.area_m2 / (rows * columns), rtol=1e-8)


def test_neighbours_share_their_edges_exactly() -> None:
    for region in (NEW_YORK, Region.from_bbox(-180, -90, 180, 90)):
        bounds = Grid(region, rows=17, columns=31).bounds()
        west, south, east, north = (edge.reshape(17, 31) for edge in bounds)
        np.testing.assert_array_equal(east[:, :-1], west[:, 1:])
        np.testing.assert_array_equal(south[:-1], north[1:])
        np.testing.assert_allclose(
            (west[0, 0], south[-1, 0], east[0, -1], north[0, 0]), region.bbox, atol=1e-6
        )


def test_a_raster_in_cells_is_its_own_array() -> None:
    grid = Grid(Region.without_georeference(4, 3), rows=3, columns=4)
    x, y = np.meshgrid(np.arange(4) + 0.5, 3 - np.arange(3) - 0.5)
    np.testing.assert_array_equal(grid.locate(x.ravel(), y.ravel()), np.arange(12))
    np.testing.assert_array_equal(grid.area_m2(), 1.0)


def test_only_cells_with_their_centre_in_the_polygon_hold_anybody() -> None:
    polygon = shapely.Polygon([(13.1, 52.4), (13.7, 52.45), (13.4, 52.7)])
    grid = Grid(Region.from_polygon(polygon), rows=20, columns=30)
    inside = shapely.contains_xy(polygon, *grid.centres())
    np.testing.assert_array_equal(grid.inside(), inside)
    np.testing.assert_array_equal(grid.inside(np.array([3, 310])), inside[[3, 310]])
    lon, lat = np.random.default_rng(0).uniform([[13.1], [52.4]], [[13.7], [52.7]], (2, 3000))
    cells = grid.locate(lon, lat)
    whole = Grid(Region.from_bbox(*polygon.bounds), rows=20, columns=30).locate(lon, lat)
    np.testing.assert_array_equal(cells, np.where(inside[whole], whole, -1))
    assert np.asarray(grid.lattice().inside).tolist() == inside.tolist()


def test_a_fine_grid_of_a_polygon_is_never_laid_out() -> None:
    polygon = shapely.Polygon([(13.1, 52.4), (13.7, 52.45), (13.4, 52.7)])
    coarse = Grid(Region.from_polygon(polygon), rows=1000, columns=1000)
    fine = Grid(Region.from_polygon(polygon), rows=1_000_000, columns=1_000_000)
    lon, lat = np.random.default_rng(0).uniform([[13.1], [52.4]], [[13.7], [52.7]], (2, 3000))
    cells = fine.locate(lon, lat)
    np.testing.assert_array_equal(cells >= 0, shapely.contains_xy(polygon, lon, lat))
    assert (coarse.locate(*fine.centres(cells[cells >= 0])) >= 0).mean() > 0.99


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", 2**31 + 1, None])
def test_impossible_sides_are_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match=r"rows must be"):
        Grid(NEW_YORK, rows=bad, columns=3)
    with pytest.raises(ParameterError, match=r"columns must be a whole number from 1"):
        Grid(NEW_YORK, rows=3, columns=bad)


def test_equal_grids_are_equal() -> None:
    assert Grid(NEW_YORK, 3, 4) == Grid(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), 3, 4)
    assert Grid(NEW_YORK, 3, 4) != Grid(NEW_YORK, 4, 3)
    assert len({Grid(NEW_YORK, 3, 4), Grid(NEW_YORK, 3, 4)}) == 1
