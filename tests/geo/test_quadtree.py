"""Quadtrees: cells nest, codes are digits, and depth costs nothing."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client import morton
from mapveil_client.cells import MAX_DEPTH
from mapveil_client.errors import ParameterError

NEW_YORK = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def places(seed: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(seed).uniform([[-74.05], [40.67]], [[-73.88], [40.85]], (2, count))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12))
def test_cells_are_the_grids_in_another_order(seed: int, depth: int) -> None:
    lon, lat = places(seed)
    cells = Quadtree(NEW_YORK, depth).locate(lon, lat)
    grid = Grid(NEW_YORK, 2**depth, 2**depth).locate(lon, lat)
    np.testing.assert_array_equal(cells < 0, grid < 0)
    row, col = np.divmod(grid[grid >= 0], 2**depth)
    np.testing.assert_array_equal(cells[cells >= 0], morton.interleave(row, col))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, MAX_DEPTH), st.data())
def test_the_parent_is_the_cell_of_the_shallower_tree(seed: int, depth: int, data: st.DataObject) -> None:
    levels = data.draw(st.integers(0, depth))
    lon, lat = places(seed)
    tree = Quadtree(NEW_YORK, depth)
    cells = tree.locate(lon, lat)
    inside = cells >= 0
    shallower = Quadtree(tree.region, depth - levels)
    np.testing.assert_array_equal(cells[inside] >> (2 * levels), shallower.locate(lon, lat)[inside])
    children = morton.children(cells[inside])
    np.testing.assert_array_equal(children >> 2, np.repeat(cells[inside], 4).reshape(-1, 4))


def test_children_tile_their_parent() -> None:
    tree = Quadtree(NEW_YORK, depth=3)
    cells = np.arange(tree.size)
    finer = Quadtree(tree.region, 4)
    together = shapely.union_all(finer.polygons(morton.children(cells).ravel()).reshape(-1, 4), axis=1)
    assert shapely.area(shapely.symmetric_difference(together, tree.polygons())).max() < 1e-12
    np.testing.assert_allclose(finer.area_m2(morton.children(cells)).sum(axis=1), tree.area_m2(), rtol=1e-9)


def test_the_deepest_tree_costs_nothing() -> None:
    tracemalloc.start()
    tree = Quadtree(Region.from_bbox(-180, -90, 180, 90), MAX_DEPTH)
    assert tree.size == 4**23
    cells = tree.locate(np.array([-74.0, 179.99]), np.array([40.7, -89.9]))
    assert (cells > 0).all()
    centres, bounds = tree.centres(cells), tree.bounds(cells)
    assert (np.abs(centres.lon - [-74.0, 179.99]) < 1e-4).all()
    assert ((bounds.west <= [-74.0, 179.99]) & (bounds.east >= [-74.0, 179.99])).all()
    assert (tree.area_m2(cells) < 25).all()
    assert (cells >> (2 * MAX_DEPTH)).tolist() == [0, 0]
    assert tree.locate_sql("lon", "lat") is not None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_the_lattice_is_the_tree() -> None:
    tree = Quadtree(NEW_YORK, 4)
    lattice = tree.lattice()
    assert lattice.depth == 4
    np.testing.assert_array_equal(morton.interleave(lattice.row, lattice.col), np.arange(256))
    np.testing.assert_array_equal(lattice.members(), 1)


@pytest.mark.parametrize("bad", [-1, MAX_DEPTH + 1, 2.0, True, "8", None])
def test_impossible_depths_are_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match=r"depth must be"):
        Quadtree(NEW_YORK, bad)
