"""The plane of a tiling: even grids where cells are, their middles where not, squares inside polygons."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.random_features.exact_density import direct_density
from mapveil.random_features.known_population import population_cells
from mapveil.random_features.map_points import (
    inscribed_side,
    map_points,
    prior_cells,
    sum_of_features,
    sum_of_kernels,
)
from mapveil_client.errors import InputError
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness
from tests.random_features.direct_surface import direct_surface

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
DEGREES = mv.Region.from_bounds_in("EPSG:4326", -74.03, 40.69, -73.90, 40.83)
UTM = mv.Region.from_bounds_in("EPSG:32618", 580_000, 4_504_000, 592_000, 4_520_000)
NOWHERE = mv.Region.without_georeference(60, 40)
TILINGS = {
    "grid": mv.Grid(REGION, rows=11, columns=23),
    "quadtree": mv.Quadtree(REGION, depth=4),
    "utm": mv.Grid(UTM, rows=16, columns=12),
    "cells": mv.Grid(NOWHERE, rows=40, columns=60),
    "degrees": mv.Grid(DEGREES, rows=9, columns=8),
    "hexagons": mv.Hexagons(REGION, resolution=7),
    "tiles": mv.WebMercatorTiles(REGION, zoom=13),
    "places": mv.Places(lon=np.linspace(-74.0, -73.92, 11), lat=np.linspace(40.70, 40.82, 11), region=REGION),
}
EVEN = ("grid", "quadtree", "utm", "cells")


@pytest.mark.parametrize("name", TILINGS)
def test_places_are_the_cells_middles_and_areas_add_up(name):
    tiling = TILINGS[name]
    where = map_points(tiling)
    assert (where.grid is not None) == (name in EVEN)
    centres = tiling.centres()
    x, y = tiling.region.metric_projection.project(centres.lon, centres.lat)
    np.testing.assert_allclose(where.places, [x, y], atol=1e-5)
    if where.grid is not None:
        np.testing.assert_allclose(
            where.grid.points()[0].reshape(where.grid.count)[where.column, where.row], x, atol=1e-5
        )
        box = (where.high[0] - where.low[0]) * (where.high[1] - where.low[1])
        assert where.area.sum() == pytest.approx(box)


@pytest.mark.parametrize("name", TILINGS)
def test_features_and_kernels_are_summed_at_the_cells(name):
    where = map_points(TILINGS[name])
    low, high = np.array(where.low), np.array(where.high)
    h = float((high - low).min() / 12)
    query = Query((h, h), where.low, where.high, 2, "gaussian", where.grid, where.crs)
    rng = Randomness(3)
    places = rng.generator().uniform(low[:, None], high[:, None], (2, 150))
    reports = client_reports(unit_frequencies(150, 2, query.law, 2, rng), Visits(places), query)
    features = sum_of_features(where, reports, query, threads=None) / 2
    np.testing.assert_allclose(features, direct_surface(reports, query, where.places), atol=1e-5)
    kernels = sum_of_kernels(where, places, None, Gaussian(), (h, h), threads=1)
    wanted = direct_density(places, None, where.places, Gaussian(), (h, h))
    np.testing.assert_allclose(kernels, wanted, atol=1e-5)


def triangle(corner):
    ring = [[-74.03, 40.69], [-73.90, 40.69], corner, [-74.03, 40.69]]
    return mv.Region.from_polygon({"type": "Polygon", "coordinates": [ring]})


def test_the_square_inside_a_box_is_its_side_and_inside_a_triangle_half():
    box = mv.Grid(REGION, 8, 8)
    assert inscribed_side(box, map_points(box)) == pytest.approx(min(REGION.width_m, REGION.height_m))
    region = triangle([-74.03, 40.83])
    tiling = mv.Grid(region, 8, 8)
    a, b = region.width_m, region.height_m
    assert inscribed_side(tiling, map_points(tiling)) == pytest.approx(a * b / (a + b), rel=0.02)


def test_priors_are_even_inside_or_follow_a_population():
    for name, tiling in TILINGS.items():
        where = map_points(tiling)
        even = prior_cells(tiling, where)
        assert even.probability.sum() == pytest.approx(1)
        assert np.ptp(even.probability) < 1e-12
        users = np.zeros(tiling.size, dtype=np.int64)
        users[tiling.size // 3] = 5
        found = population_cells(even, where, mv.Counts(users, tiling), floor=0.0)
        lon, lat = where.projection.unproject(*found.places)
        assert (tiling.locate(lon, lat) == tiling.size // 3).all(), name
        with pytest.raises(InputError, match="holds nobody in this region"):
            population_cells(even, where, mv.Counts(0 * users, tiling), floor=0.0)
    half = mv.Grid(triangle([-74.03, 40.83]), 8, 8)
    inside = prior_cells(half, map_points(half))
    box = prior_cells(TILINGS["grid"], map_points(TILINGS["grid"]))
    assert inside.probability.size == pytest.approx(box.probability.size / 2, rel=0.05)
