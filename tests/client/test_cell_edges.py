"""Edges of rows and columns: monotone to the last bit, whatever the formula rounds, and alike for every engine."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines.contributions import user_cells
from mapveil_client import cell_edges
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cell_edges import CellEdges

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILINGS = [
    mv.Quadtree(REGION, depth=5),
    mv.Grid(mv.Region.from_bbox(-180, -90, 180, 90), rows=21, columns=35),
    mv.WebMercatorTiles(REGION, zoom=15),
]


def shaken(value: FloatArray) -> IntArray:
    """Tenths, with the last bits of the coordinate in disorder."""
    disorder = (value.view(np.int64) * 2654435761 >> 7) % 9 - 4
    return np.clip((value + disorder * np.spacing(value)) * 10, 0, 9).astype(np.int64)


def around(edges: FloatArray) -> FloatArray:
    """Each edge and the forty floats around it."""
    return (edges.view(np.int64)[:, None] + np.arange(-20, 21)).view(np.float64)


def test_lines_grow_with_the_coordinate_where_the_formula_does_not() -> None:
    values = around(np.arange(1, 10) / 10)
    assert (np.diff(shaken(values)) < 0).any()
    found = CellEdges(0.0, 1.0, 10, shaken).locate(values.ravel()).reshape(values.shape)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_array_equal(found[:, 0], np.arange(9))
    np.testing.assert_array_equal(found[:, -1], np.arange(1, 10))


def test_edges_found_on_the_way_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.concatenate([around(np.arange(1, 10) / 10).ravel(), np.linspace(0, 1, 1001)])
    kept = CellEdges(0.0, 1.0, 10, shaken).locate(values)
    monkeypatch.setattr(cell_edges, "MOST_KEPT", 0)
    np.testing.assert_array_equal(CellEdges(0.0, 1.0, 10, shaken).locate(values), kept)


def test_each_edge_is_the_least_coordinate_of_its_line() -> None:
    edges = CellEdges(-3.0, 2.0, 5, lambda value: np.clip(np.floor(value) + 3, 0, 4).astype(np.int64))
    np.testing.assert_array_equal(edges.first(np.arange(1, 5)), [-2.0, -1.0, 0.0, 1.0])
    assert edges.first(np.array([7])).tolist() == [np.inf]


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: tiling.spec)
def test_duckdb_puts_what_lies_at_an_edge_where_numpy_does(tiling: mv.Tiling) -> None:
    bounds = tiling.bounds()
    inner = [np.unique(np.concatenate(pair))[1:-1] for pair in (bounds[::2], bounds[1::2])]
    # The bounds are unprojected, so they are a few bits beside the edges.
    lon, lat = (around(each[:: max(1, each.size // 9)]).ravel() for each in inner)
    lon, lat = lon[np.arange(4000) % lon.size], lat[np.arange(4000) * 7 % lat.size]
    expected = tiling.locate(lon, lat)
    assert np.unique(expected).size > 9
    found = user_cells(mv.Points.from_arrays(np.arange(lon.size), lon, lat), tiling)
    np.testing.assert_array_equal(found.starts, np.append(0, np.cumsum(expected >= 0)))
    np.testing.assert_array_equal(found.cells, expected[expected >= 0])
