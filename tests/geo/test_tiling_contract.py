"""The laws that every tiling keeps, over one table: joining is adding a row."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pytest
import shapely

from mapveil.engines.contributions import _function
from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.parse_tiling import parse_tiling, tiling_from_dict
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles

BOX = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WORLD = Region.from_bbox(-180, -90, 180, 90)
BLOB = Region.from_polygon(
    shapely.Polygon(
        [(13.10, 52.40), (13.35, 52.34), (13.75, 52.45), (13.60, 52.66), (13.30, 52.62), (13.20, 52.50)],
        [[(13.40, 52.48), (13.45, 52.48), (13.45, 52.52), (13.40, 52.52)]],
    )
)
DEGREES = Region.from_bounds_in("EPSG:4326", 5.0, 45.0, 11.0, 48.0)
UTM = Region.from_bounds_in("EPSG:26918", 580000, 4500000, 592000, 4516000)
NOWHERE = Region.without_georeference(12, 7)


def places(region: Region, count: int, **options: float) -> Places:
    generator = np.random.default_rng(5)
    west, south, east, north = region.bbox
    lon, lat = generator.uniform(west, east, 4 * count), generator.uniform(south, north, 4 * count)
    inside = np.flatnonzero(region.contains(lon, lat))[:count]
    return Places(lon[inside], lat[inside], region, **options)


class Case(NamedTuple):
    tiling: Tiling
    least_area: float = 1 - 1e-9  # sum of the cells' areas over the region's
    most_area: float = 1 + 1e-9
    slack: float = 1e-9  # how far, in diameters, a place may be from its cell's straight outline in degrees
    geodesic: float | None = (
        1e-3  # how close the areas come to those of geodesic polygons; None: too large or nowhere
    )


CASES = {
    "grid": Case(Grid(BOX, rows=9, columns=23)),
    "grid of one cell": Case(Grid(BOX, rows=1, columns=1)),
    "grid of a polygon": Case(Grid(BLOB, rows=40, columns=60), 0.98, 1.02),
    "grid in degrees": Case(Grid(DEGREES, rows=30, columns=60)),
    "grid in UTM": Case(Grid(UTM, rows=16, columns=12), 1 - 1e-4, 1 + 1e-4, slack=1e-4),
    "grid without georeference": Case(Grid(NOWHERE, rows=7, columns=12), geodesic=None),
    "grid of the world": Case(Grid(WORLD, rows=13, columns=21), geodesic=None),
    "quadtree": Case(Quadtree(BOX, depth=5)),
    "root": Case(Quadtree(BOX, depth=0)),
    "quadtree of a polygon": Case(Quadtree(BLOB, depth=6), 0.98, 1.02),
    "quadtree of the world": Case(Quadtree(WORLD, depth=4), geodesic=None),
    "tiles": Case(WebMercatorTiles(BOX, zoom=13), 1.0, 2.0),
    "tiles of a polygon": Case(WebMercatorTiles(BLOB, zoom=14), 1.0, 1.2),
    "tiles of the world": Case(WebMercatorTiles(WORLD, zoom=3), 0.99, 1.0, geodesic=None),
    "one tile": Case(WebMercatorTiles(WORLD, zoom=0), 0.99, 1.0, geodesic=None),
    "places": Case(places(BOX, 17)),
    "places in a polygon": Case(places(BLOB, 50), 1 - 1e-3, 1 + 1e-3, slack=1e-3),
    "places in degrees": Case(places(DEGREES, 40), 1 - 1e-6, 1 + 1e-6, slack=1e-3, geodesic=1e-2),
    "places in UTM": Case(places(UTM, 30), 1 - 1e-3, 1 + 1e-3, slack=1e-3),
    "places without georeference": Case(places(NOWHERE, 9), geodesic=None),
    "near places": Case(places(BOX, 17, max_distance_m=700.0), 0.05, 0.95),
    "hexagons": Case(Hexagons(BOX, resolution=8), 0.95, 1.05, slack=1e-3, geodesic=1e-2),
    "hexagons of a polygon": Case(Hexagons(BLOB, resolution=8), 0.98, 1.02, slack=1e-3, geodesic=1e-2),
    "hexagons of the world": Case(Hexagons(WORLD, resolution=1), slack=0.5, geodesic=None),
}
OF_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
OF_FLAT_CASE = pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for name, case in CASES.items() if case.geodesic is not None]
)
OF_TEXT_CASE = pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name) for name, case in CASES.items() if not isinstance(case.tiling, Places)],
)


def inside(tiling: Tiling) -> np.ndarray:
    """Cells that can hold anybody."""
    flags = tiling.lattice().inside
    return np.ones(tiling.size, dtype=bool) if flags is None else flags


def somewhere(region: Region, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Places in and around a region, some of them no places at all."""
    generator = np.random.default_rng(seed)
    west, south, east, north = region.bbox
    width, height = east - west, north - south
    lon = generator.uniform(west - width / 4, east + width / 4, count)
    lat = generator.uniform(south - height / 4, north + height / 4, count)
    odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, 90.0, -90.0, 180.0, -180.0, 1e300, west, south, east, north]
    pairs = np.array(np.meshgrid(odd, odd)).reshape(2, -1)
    return np.concatenate([lon, pairs[0]]), np.concatenate([lat, pairs[1]])


@OF_CASE
def test_it_is_a_tiling(case: Case) -> None:
    assert isinstance(case.tiling, Tiling)
    assert case.tiling.size >= 1


@OF_CASE
def test_every_centre_is_in_its_cell(case: Case) -> None:
    cells = np.arange(case.tiling.size)
    found = case.tiling.locate(*case.tiling.centres())
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.where(inside(case.tiling), cells, -1))
    assert inside(case.tiling).any()


@OF_CASE
def test_outlines_contain_centres_and_fill_their_bounds(case: Case) -> None:
    lon, lat = case.tiling.centres()
    outlines = case.tiling.polygons()
    assert outlines.shape == (case.tiling.size,)
    assert shapely.is_valid(outlines).all()
    assert shapely.contains_xy(outlines, lon, lat).all()
    bounds = np.stack(case.tiling.bounds(), axis=1)
    np.testing.assert_allclose(bounds, shapely.bounds(outlines), rtol=0, atol=1e-12)
    if case.tiling.region.georeferenced:
        assert (np.abs(bounds) <= [180, 90, 180, 90]).all()


@OF_CASE
def test_areas_add_up_to_the_region(case: Case) -> None:
    area = case.tiling.area_m2()
    assert area.dtype == np.float64
    assert (area > 0).all()
    share = area[inside(case.tiling)].sum() / case.tiling.region.area_m2
    assert case.least_area <= share <= case.most_area


@OF_FLAT_CASE
def test_areas_are_those_of_the_outlines_on_the_ellipsoid(case: Case) -> None:
    import pyproj

    geod = pyproj.Geod(ellps="WGS84")
    some = np.unique(np.linspace(0, case.tiling.size - 1, 25).astype(int))
    step = float(np.ptp(case.tiling.bounds(some).west) + 0.01) / 100
    outlines = shapely.segmentize(case.tiling.polygons(some), step)
    expected = [abs(geod.geometry_area_perimeter(outline)[0]) for outline in outlines]
    np.testing.assert_allclose(case.tiling.area_m2(some), expected, rtol=case.geodesic or 0.0)


@OF_CASE
def test_places_lie_in_the_cells_they_are_located_to(case: Case) -> None:
    lon, lat = somewhere(case.tiling.region, 2000)
    cells = case.tiling.locate(lon, lat)
    assert cells.min() >= -1
    assert cells.max() < case.tiling.size
    located = np.flatnonzero(cells >= 0)
    assert located.size > 50
    outlines = case.tiling.polygons(cells[located])
    bounds = shapely.bounds(outlines)
    diameter = np.hypot(bounds[:, 2] - bounds[:, 0], bounds[:, 3] - bounds[:, 1])
    away = shapely.distance(outlines, shapely.points(lon[located], lat[located]))
    assert (away <= case.slack * diameter + 1e-12).all()


@OF_CASE
def test_what_is_outside_or_nowhere_has_no_cell(case: Case) -> None:
    west, south, east, north = case.tiling.region.bbox
    beyond = 0.2 * max(east - west, north - south) + 1
    middle_lon, middle_lat = (west + east) / 2, (south + north) / 2
    lon = np.array([west - beyond, east + beyond, middle_lon, middle_lon, np.nan, middle_lon, np.inf, np.nan])
    lat = np.array([middle_lat, middle_lat, south - beyond, north + beyond, middle_lat, np.nan, 0.0, np.nan])
    np.testing.assert_array_equal(case.tiling.locate(lon, lat), -1)
    nothing = case.tiling.locate(np.array([]), np.array([]))
    assert nothing.shape == (0,)
    assert nothing.dtype == np.int64


@OF_CASE
def test_sql_agrees_with_numpy(case: Case) -> None:
    located = case.tiling.locate_sql("lon", "lat")
    if located is None:
        polygon = case.tiling.region.polygon is not None
        assert polygon or isinstance(case.tiling, Places | Hexagons) or case.tiling.region is UTM
        return
    import duckdb
    import pyarrow

    lon, lat = somewhere(case.tiling.region, 20_000)
    table = pyarrow.table({"lon": [*lon, None, 0.0, None], "lat": [*lat, 0.0, None, None]})
    with duckdb.connect() as connection:
        key = _function(connection, located.exact, ("lon", "lat")).key
        assert key.split("(")[0] in located.key
        connection.register("places", table)
        steps = "".join(f", {sql} AS {name}" for name, sql in located.steps)
        places = f"(SELECT *{steps} FROM places) AS places"
        found = connection.execute(f"SELECT {located.expression} AS key FROM {places}").fetchnumpy()["key"]
    keys = np.ma.filled(found, -1).astype(np.int64)
    assert (keys >= -1).all()
    np.testing.assert_array_equal(located.cells(keys[:-3]), case.tiling.locate(lon, lat))
    np.testing.assert_array_equal(keys[-3:], -1)
    # The engine counts every key that is not -1, so each must stand for a cell.
    assert (located.cells(keys[keys >= 0]) >= 0).all()


@OF_CASE
def test_parts_are_parts_of_the_whole(case: Case) -> None:
    generator = np.random.default_rng(1)
    some = generator.integers(0, case.tiling.size, 7)
    for method in (case.tiling.centres, case.tiling.bounds):
        for part, whole in zip(method(some), method(), strict=True):
            np.testing.assert_array_equal(part, whole[some])
    np.testing.assert_array_equal(case.tiling.area_m2(some), case.tiling.area_m2()[some])
    np.testing.assert_array_equal(case.tiling.polygons(some), case.tiling.polygons()[some])


@OF_CASE
def test_the_record_makes_it_again(case: Case) -> None:
    record = json.loads(json.dumps(case.tiling.to_dict()))
    again = tiling_from_dict(record)
    assert type(again) is type(case.tiling)
    assert again.to_dict() == record == case.tiling.to_dict()
    lon, lat = somewhere(case.tiling.region, 500)
    np.testing.assert_array_equal(again.locate(lon, lat), case.tiling.locate(lon, lat))
    np.testing.assert_array_equal(again.area_m2(), case.tiling.area_m2())


@OF_TEXT_CASE
def test_the_text_makes_it_again(case: Case) -> None:
    again = parse_tiling(case.tiling.spec, case.tiling.region)
    assert again.to_dict() == case.tiling.to_dict()
    assert again.spec == case.tiling.spec


@OF_CASE
def test_the_lattice_keeps_north_up_and_west_left(case: Case) -> None:
    lattice = case.tiling.lattice()
    side = 2**lattice.depth
    for site in (lattice.row, lattice.col):
        assert site.shape == (case.tiling.size,)
        assert site.min() >= 0
        assert site.max() < side
    assert side == lattice.side
    assert lattice.side < 64 * max(case.tiling.size, 1), "the raster is not far larger than it must be"
    x, y = case.tiling.region.project(*case.tiling.centres())
    for site, place in ((lattice.col, x), (lattice.row, -y)):
        order = np.argsort(site, kind="stable")
        starts = np.flatnonzero(np.diff(site[order], prepend=-1))
        first = np.minimum.reduceat(place[order], starts)
        last = np.maximum.reduceat(place[order], starts)
        assert (last[:-1] <= first[1:] + 1e-6).all()


@OF_CASE
def test_a_lattice_keeps_what_lies_on_it(case: Case) -> None:
    lattice = case.tiling.lattice()
    values = np.where(inside(case.tiling), np.random.default_rng(3).uniform(size=case.tiling.size), 0.0)
    shared = np.maximum(lattice.members(), 1)[lattice.row, lattice.col]
    back = lattice.to_square(values)[lattice.row, lattice.col] / shared
    if lattice.inside is not None:
        back[~lattice.inside] = 0.0
    assert back.sum() == pytest.approx(values.sum())
    if isinstance(case.tiling, Grid | Quadtree | WebMercatorTiles):
        np.testing.assert_array_equal(back, values)
    else:
        crowded = lattice.members()[lattice.row, lattice.col] > 1
        assert crowded.mean() < 0.5
