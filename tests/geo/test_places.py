"""Places: the nearest site, against every distance; Voronoi cells, against the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.places import Places
from mapveil.geo.region import Region
from mapveil.mechanisms.mechanism import check_tiling
from mapveil_client.errors import InputError, ParameterError

NEW_YORK = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TWO = (np.array([-74.00, -73.95]), np.array([40.71, 40.80]))


def around(count: int, seed: int, region: Region = NEW_YORK) -> tuple[np.ndarray, np.ndarray]:
    west, south, east, north = region.bbox
    return np.random.default_rng(seed).uniform([[west], [south]], [[east], [north]], (2, count))


def slow_distances(places: Places, lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """Every place's metres to every site, geodesic."""
    import pyproj

    sites = np.arange(places.size)
    at, site = (index.ravel() for index in np.meshgrid(np.arange(lon.size), sites, indexing="ij"))
    geod = pyproj.Geod(ellps="WGS84")
    return np.asarray(geod.inv(lon[at], lat[at], places.lon[site], places.lat[site])[2]).reshape(lon.size, -1)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 60), st.integers(0, 2**32))
def test_everybody_is_at_the_nearest_site(count: int, seed: int) -> None:
    places = Places(*around(count, seed), NEW_YORK)
    lon, lat = around(50, seed + 1)
    cells = places.locate(lon, lat)
    metres = slow_distances(places, lon, lat)
    # The plane is off by less than a thousandth over a city.
    assert (metres[np.arange(50), cells] <= metres.min(axis=1) * 1.004 + 0.01).all()


def test_in_a_raster_of_degrees_nearest_is_still_meant_in_metres() -> None:
    degrees = Region.from_bounds_in("EPSG:4326", *NEW_YORK.bbox)
    for options in ({}, {"max_distance_m": 900.0}):
        places, same = (Places(*around(20, 0), region, **options) for region in (NEW_YORK, degrees))
        np.testing.assert_array_equal(places.locate(*around(900, 1)), same.locate(*around(900, 1)))
        np.testing.assert_allclose(places.area_m2(), same.area_m2(), rtol=1e-4)


def test_too_far_is_nowhere() -> None:
    places = Places(*around(12, 3), NEW_YORK, max_distance_m=1500.0)
    lon, lat = around(800, 4)
    metres = slow_distances(places, lon, lat).min(axis=1)
    clear = np.abs(metres - 1500) > 10
    np.testing.assert_array_equal((places.locate(lon, lat) >= 0)[clear], (metres < 1500)[clear])
    share = (places.locate(lon, lat) >= 0).mean()
    assert places.area_m2().sum() / NEW_YORK.area_m2 == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize(
    "region", [NEW_YORK, Region.from_polygon(shapely.Point(13.4, 52.5).buffer(0.2))], ids=str
)
def test_cells_tile_the_region(region: Region) -> None:
    lon, lat = around(200, 5, region)
    inside = region.contains(lon, lat)
    places = Places(lon[inside], lat[inside], region)
    outlines = places.polygons()
    together = shapely.union_all(outlines)
    assert shapely.symmetric_difference(together, region.outline()).area < 1e-4 * region.outline().area
    assert shapely.area(outlines).sum() == pytest.approx(together.area, rel=1e-9), "no overlap"


@pytest.mark.parametrize("seed", [5, 9])
def test_cells_of_sites_of_a_lattice_tile_the_region(seed: int) -> None:
    """Of coordinates with four decimals many sites lie on one circle: some of GEOS's cells touch themselves."""
    sites = np.unique(np.round(around(30_000, seed), 4), axis=1)
    places = Places(sites[0], sites[1], NEW_YORK)
    assert (places.area_m2() > 0).all()
    assert places.area_m2().sum() == pytest.approx(NEW_YORK.area_m2, rel=1e-9), "no overlap, no gap"
    outlines = places.polygons()
    assert shapely.is_valid(outlines).all(), "in degrees too"
    assert set(shapely.get_type_id(outlines)) <= {3, 6}, "polygons, of one part or several"


def test_two_sites_divide_by_their_middle() -> None:
    places = Places(np.array([-74.0, -73.95]), np.array([40.75, 40.75]), NEW_YORK)
    np.testing.assert_allclose(places.bounds().east, [-73.975, -73.90], atol=1e-9)
    np.testing.assert_allclose(places.area_m2().sum(), NEW_YORK.area_m2, rtol=1e-9)


@st.composite
def crowded_sites(draw: st.DrawFn) -> Places:
    """Two to forty sites, half of them 1 cm to 1 m from another one; some lie on one line."""
    region = draw(
        st.sampled_from([NEW_YORK, Region.from_bbox(-10, 35, 30, 60), Region.from_bbox(-179, -80, 179, 80)])
    )
    count, seed = draw(st.integers(1, 20)), draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    west, south, east, north = region.bbox
    low, high = np.array([west, south]), np.array([east, north])
    ends = rng.uniform(low + (high - low) / 10, high - (high - low) / 10, (2, 2))
    if draw(st.booleans()):
        anchors = ends[0] + rng.random((count, 1)) * (ends[1] - ends[0])
    else:
        anchors = rng.uniform(ends.min(axis=0), ends.max(axis=0), (count, 2))
    # Degrees per metre, a little more than on the equator: a gap of 1 cm is one everywhere.
    angle = draw(st.sampled_from([0.0, np.pi / 2, 0.3]))
    gap = draw(st.floats(0.01, 1.0)) / 110_000
    step = (
        gap * np.array([np.cos(angle) / np.cos(np.radians(anchors[:, 1])), np.full(count, np.sin(angle))]).T
    )
    sites = np.concatenate([anchors, anchors + step])
    return Places(sites[:, 0], sites[:, 1], region)


@settings(max_examples=60, deadline=None)
@given(crowded_sites(), st.integers(0, 2**32))
def test_cells_of_crowded_sites_are_those_of_the_nearest_site(places: Places, seed: int) -> None:
    outlines = places._flat_cells
    assert shapely.is_valid(outlines).all()
    assert (places.area_m2() > 0).all()
    assert places.area_m2().sum() == pytest.approx(places.region.area_m2, rel=1e-9), "no overlap, no gap"
    assert shapely.covers(outlines, shapely.points(places._plane)).all(), "each site lies in its own cell"
    # Anywhere, and within a metre of the sites; a tenth of a millimetre for the borders' rounding.
    lon, lat = around(200, seed, places.region)
    near = np.random.default_rng(seed).uniform(-1e-5, 1e-5, (2, places.size))
    lon, lat = np.append(lon, places.lon + near[0]), np.append(lat, places.lat + near[1])
    at = np.column_stack(places.region.metric_projection.project(lon, lat))
    assert shapely.distance(outlines[places.locate(lon, lat)], shapely.points(at)).max() < 1e-4


def test_sites_that_no_polygon_can_tell_apart_are_refused_before_a_map_is_made() -> None:
    lon = np.array([-74.0, -73.95, -73.95 + 1e-12])
    with pytest.raises(InputError, match=r"site 1 is .* m from another site; .* at least 0\.0001 m apart"):
        check_tiling(Places(lon, np.array([40.7, 40.8, 40.8]), NEW_YORK))


def test_names_travel() -> None:
    from mapveil.geo.parse_tiling import tiling_from_dict

    places = Places(*TWO, NEW_YORK, names=("a", "b"), max_distance_m=100.0)
    again = tiling_from_dict(places.to_dict())
    assert isinstance(again, Places)
    assert again.names == ("a", "b")
    assert again.max_distance_m == 100.0
    assert places.spec == "places:2"


def test_lists_are_sites_too() -> None:
    places = Places([-74.00, -73.95], [40.71, 40.80], NEW_YORK)  # type: ignore[arg-type]
    assert places.locate([-74.0], [40.7]).tolist() == [0]  # type: ignore[arg-type]


def test_real_sites_share_few_places_of_the_lattice() -> None:
    generator = np.random.default_rng(0)
    lon, lat = generator.normal([[-73.97], [40.75]], [[0.02], [0.02]], (2, 3000))
    inside = NEW_YORK.contains(lon, lat)
    lattice = Places(lon[inside], lat[inside], NEW_YORK).lattice()
    assert (lattice.members()[lattice.row, lattice.col] > 1).mean() < 0.2
    assert lattice.depth <= 12


@pytest.mark.parametrize(
    ("lon", "lat", "message"),
    [
        ([-74.0], [40.7], "two or more"),
        ([-74.0, -73.95], [40.7], "two or more"),
        ([[-74.0, -73.95]], [[40.7, 40.8]], "two or more"),
        ([-74.0, np.nan], [40.7, 40.8], "site 1 is at nan"),
        ([-74.0, -73.95], [40.7, 91.0], "site 1 is at"),
        ([-74.0, -73.95, -74.0], [40.7, 40.8, 40.7], "site 0 is there twice"),
        ([-74.0, -73.5], [40.7, 40.8], "site 1 lies outside"),
    ],
)
def test_impossible_sites_are_refused(lon: Any, lat: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Places(np.array(lon), np.array(lat), NEW_YORK)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(InputError, match="3 names for 2 sites"):
        Places(*TWO, NEW_YORK, names=("a", "b", "c"))
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ParameterError, match="max_distance_m"):
            Places(*TWO, NEW_YORK, max_distance_m=bad)


def test_few_places_find_the_same_sites_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    region = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    lon, lat = rng.uniform(-74.03, -73.90, 90), rng.uniform(40.69, 40.83, 90)
    sites = Places(lon[:40], lat[:40], region, max_distance_m=900.0)
    few = sites.locate(lon, lat)
    monkeypatch.setattr("mapveil.geo.places._FEW_PAIRS", 0)
    assert few.tolist() == sites.locate(lon, lat).tolist()
    assert -1 in few
    assert few[:40].tolist() == list(range(40))
