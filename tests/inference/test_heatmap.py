"""The Gaussian heatmap against its definition, and what smoothing must keep."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from shapely.geometry import Polygon

import mapveil as mv
from mapveil.inference import heatmap as module
from mapveil.inference.heatmap import heatmap, smooth
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.cells import Centres, Lattice
from mapveil_client.errors import ParameterError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))


def by_definition(values, down, along, mask):
    """Equation of section 2.3, one source and one target at a time."""
    rows, columns = values.shape
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    out = np.zeros(values.shape)
    for source in cells:
        if not mask[source]:
            out[source] += values[source]
            continue
        reach = {
            cell: math.exp(
                -((cell[0] - source[0]) ** 2) / (2 * down**2) - (cell[1] - source[1]) ** 2 / (2 * along**2)
            )
            for cell in cells
            if mask[cell]
        }
        total = sum(reach.values())
        for cell, weight in reach.items():
            out[cell] += values[source] * weight / total
    return out


@settings(max_examples=60, deadline=None)
@given(st.data(), SHAPES, st.floats(0.3, 6), st.floats(0.3, 6), st.booleans())
def test_equals_the_definition(data, shape, down, along, masked):
    values = data.draw(arrays(np.float64, shape, elements=st.floats(-5, 5)))
    mask = data.draw(arrays(np.bool_, shape)) if masked else np.ones(shape, dtype=bool)
    found = heatmap(values, sigma_cells=(down, along), mask=mask if masked else None)
    assert np.allclose(found, by_definition(values, down, along, mask), atol=1e-12)
    assert found.sum() == pytest.approx(values.sum(), abs=1e-10)


def test_sigma_zero_changes_nothing_and_a_huge_one_makes_it_uniform():
    values = np.random.default_rng(2).random((8, 8))
    assert np.array_equal(heatmap(values, sigma_cells=0), values)
    assert np.array_equal(heatmap(values, sigma_cells=0, mask=values > 0.5), values)
    assert np.allclose(heatmap(values, sigma_cells=1e4), values.mean(), rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_the_convolution_of_large_rasters_equals_the_product(monkeypatch, masked):
    rng = np.random.default_rng(3)
    values = rng.random((90, 70)) * (rng.random((90, 70)) < 0.1)
    mask = rng.random((90, 70)) < 0.8 if masked else None
    whole = heatmap(values, sigma_cells=(3.0, 20.0), mask=mask)
    monkeypatch.setattr(module, "_DENSE_SIDE", 16)
    cut = heatmap(values, sigma_cells=(3.0, 20.0), mask=mask)
    assert np.allclose(cut, whole, atol=1e-13)
    assert cut.min() >= 0
    assert cut.sum() == pytest.approx(values.sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("raster", "sigma", "mask", "says"),
    [
        (np.ones(3), 1, None, "shape"),
        (np.full((2, 2), np.nan), 1, None, "finite"),
        (np.ones((2, 2)), -1, None, "sigma_cells must be at least 0, got -1"),
        (np.ones((2, 2)), (1, math.inf), None, "sigma_cells must be"),
        (np.ones((2, 2)), 1, np.ones((3, 3), dtype=bool), "mask"),
    ],
)
def test_unusable_arguments_are_refused(raster, sigma, mask, says):
    with pytest.raises(ParameterError, match=says):
        heatmap(raster, sigma_cells=sigma, mask=mask)


def released(tiling, values=None):
    values = np.ones(tiling.size) if values is None else values
    promise = Guarantee(
        model=TrustModel.CURATOR,
        neighbours=Neighbouring.ADD_OR_REMOVE,
        epsilon=Fraction(1),
        adversary=Adversary.RELEASE,
    )
    return DensityMap(np.asarray(values, dtype=np.float64), tiling, promise, "test")


class Scattered:
    """A tiling that is no raster: some sites of the region."""

    region, spec, size = REGION, "scattered", 40

    def centres(self, cells=None):
        lon, lat = np.random.default_rng(8).uniform((-74.03, 40.69), (-73.90, 40.83), (self.size, 2)).T
        return Centres(lon, lat)

    def lattice(self):
        x, y = REGION.project(*self.centres())
        x0, y0, x1, y1 = REGION.bounds_m
        row, col = (y1 - y) / (y1 - y0) * 8, (x - x0) / (x1 - x0) * 8
        return Lattice(3, row.astype(np.int64), col.astype(np.int64))


def test_a_map_is_smoothed_as_its_raster():
    tree = mv.Quadtree(REGION, depth=5)
    values = np.random.default_rng(4).random(tree.size)
    found = smooth(released(tree, values), sigma_cells=2)
    lattice = tree.lattice()
    assert np.allclose(lattice.to_square(found.values), heatmap(lattice.to_square(values), sigma_cells=2))
    assert "smoothed by a Gaussian filter of 2 cells" in found.notes[-1]
    assert found.guarantee == released(tree).guarantee


def test_metres_become_cells_of_either_axis():
    grid = mv.Grid(REGION, rows=20, columns=40)
    values = np.random.default_rng(5).random(grid.size)
    found = smooth(released(grid, values), sigma_m=500.0)
    down, along = 500 / (REGION.height_m / 20), 500 / (REGION.width_m / 40)
    expected = heatmap(values.reshape(20, 40), sigma_cells=(down, along))
    assert np.allclose(found.values, expected.ravel())


def test_metres_are_those_of_the_ground_whatever_the_plane():
    """One place seen in three planes: the same metres are about as many cells."""
    mercator = mv.Region.from_bounds_in("EPSG:3857", -8242000, 4968000, -8227000, 4988000)
    degrees = mv.Region.from_bounds_in("EPSG:4326", *mercator.bbox)
    cylinder = mv.Region.from_bbox(*mercator.bbox)
    point = np.zeros(41 * 41)
    point[20 * 41 + 20] = 1
    spread = [
        smooth(released(mv.Grid(region, rows=41, columns=41), point), sigma_m=1200.0).values
        for region in (cylinder, degrees, mercator)
    ]
    assert np.allclose(spread[0], spread[1], rtol=1e-2, atol=1e-5)
    assert np.allclose(spread[0], spread[2], rtol=1e-2, atol=1e-5)


def test_nothing_leaks_out_of_a_polygon():
    corner = Polygon([(-74.03, 40.69), (-73.90, 40.69), (-74.03, 40.83)])
    grid = mv.Grid(mv.Region.from_polygon(corner), rows=16, columns=16)
    values = np.where(grid.inside(), 1.0, 0.0)
    found = smooth(released(grid, values), sigma_cells=3).values
    assert (found[~grid.inside()] == 0).all()
    assert found.sum() == pytest.approx(values.sum())


def test_scattered_sites_are_smoothed_pair_by_pair():
    sites = Scattered()
    values = np.random.default_rng(6).random(sites.size)
    found = smooth(released(sites, values), sigma_m=1500.0).values
    x, y = REGION.project(*sites.centres())
    expected = np.zeros(sites.size)
    for source in range(sites.size):
        weight = np.exp(-((x - x[source]) ** 2 + (y - y[source]) ** 2) / (2 * 1500.0**2))
        expected += values[source] * weight / weight.sum()
    assert np.allclose(found, expected)
    with pytest.raises(ParameterError, match="no raster"):
        smooth(released(sites, values), sigma_cells=1)


@pytest.mark.parametrize(
    "sigmas", [{}, {"sigma_m": 1.0, "sigma_cells": 1.0}, {"sigma_m": -1.0}, {"sigma_cells": math.nan}]
)
def test_one_usable_sigma_is_needed(sigmas):
    with pytest.raises(ParameterError, match="sigma"):
        smooth(released(mv.Grid(REGION, rows=2, columns=2)), **sigmas)


def test_no_metres_without_a_place():
    grid = mv.Grid(mv.Region.without_georeference(4, 4), rows=4, columns=4)
    with pytest.raises(ParameterError, match="georeferenced"):
        smooth(released(grid), sigma_m=10)
    assert smooth(released(grid), sigma_cells=0).notes == released(grid).notes
