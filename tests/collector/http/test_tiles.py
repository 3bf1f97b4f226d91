"""Tiles show what the map says where it says it; the record of cells finds every place's cell."""

from __future__ import annotations

import io
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.collector.http.tiles import LAYERS, MOST_ZOOM, SIDE, THEMES, UNIT, MapTiles, cells_record
from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.maps.density_map import DensityMap, Measurement
from mapveil.pictures.colours import density_scale, ramp
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave

PROMISE = Guarantee(
    model=TrustModel.SECURE_AGGREGATION,
    neighbours=Neighbouring.ZERO_OUT,
    epsilon=Fraction(1),
    adversary=Adversary.HONEST_SERVER,
)
REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TRIANGLE = Region.from_polygon(
    {"type": "Polygon", "coordinates": [[[-74.03, 40.69], [-73.90, 40.69], [-73.96, 40.83], [-74.03, 40.69]]]}
)
SITES = np.random.default_rng(3).random((40, 2)) * [0.13, 0.14] + [-74.03, 40.69]
TILINGS: dict[str, Tiling] = {
    "quadtree": Quadtree(REGION, 4),
    "grid": Grid(REGION, rows=5, columns=7),
    "triangle": Quadtree(TRIANGLE, 4),
    "tiles": WebMercatorTiles(REGION, 14),
    "tiles of a triangle": WebMercatorTiles(TRIANGLE, 14),
    "places": Places(SITES[:, 0], SITES[:, 1], REGION),
    "near places": Places(SITES[:, 0], SITES[:, 1], REGION, max_distance_m=900.0),
}


def a_map(tiling: Tiling, *, bounds: bool = True) -> DensityMap:
    values = np.random.default_rng(7).exponential(20.0, tiling.size)
    groups = np.arange(tiling.size)
    groups[0] = -1  # what nothing measured, nothing bounds
    measured = (Measurement(groups, values, Fraction(1, 2), 1),) if bounds else ()
    return DensityMap(values, tiling, PROMISE, "multiscale", measurements=measured)


def pixels(png: bytes) -> np.ndarray:
    """What any reader makes of it: RGBA, shape (SIDE, SIDE, 4)."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(png))
    assert image.format == "PNG"
    assert image.size == (SIDE, SIDE)
    return np.asarray(image.convert("RGBA"))


def tile_of(lon: float, lat: float, z: int) -> tuple[int, int]:
    """The textbook formula, of one place."""
    north = math.log(math.tan(math.pi / 4 + math.radians(lat) / 2))
    return int((lon + 180) / 360 * 2**z), int((1 - north / math.pi) / 2 * 2**z)


def place_of(z: int, x: int, y: int, column: float, row: float) -> tuple[float, float]:
    """Degrees of a place of a tile, by Gudermann's function."""
    lat = 2 * math.atan(math.exp(math.pi * (1 - 2 * (y + row / SIDE) / 2**z))) - math.pi / 2
    return (x + column / SIDE) / 2**z * 360 - 180, math.degrees(lat)


@pytest.mark.parametrize("name", TILINGS)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_pixel_has_the_colour_of_its_middle(name: str, theme: Any, layer: Any) -> None:
    heat = a_map(TILINGS[name])
    density = heat.density()
    if layer == "uncertainty":
        bounds, area = heat.interval(), heat.tiling.area_m2() / 1e6
        assert bounds is not None
        density = np.where(np.isfinite(density), (bounds.upper - bounds.lower) / 2 / area, np.nan)
        density[~np.isfinite(density)] = np.nan
    scale = density_scale(density, "log")
    colours = ramp(255)[:: -1 if theme == "dark" else 1].astype(int)
    z = 15  # a pixel is smaller than a cell here
    for lon, lat in ((-73.965, 40.76), (-74.0299, 40.8299), (-73.98, 40.70)):
        x, y = tile_of(lon, lat, z)
        image = pixels(MapTiles(heat).png(z, x, y, layer, theme))
        for row, column in np.random.default_rng(1).integers(0, SIDE, (60, 2)):
            place = place_of(z, x, y, column + 0.5, row + 0.5)
            cell = heat.tiling.locate(np.array([place[0]]), np.array([place[1]]))[0]
            if cell < 0 or math.isnan(density[cell]):
                assert image[row, column, 3] == 0
            else:
                wanted = colours[round(float(scale.fraction(density[cell])) * 254)]
                assert image[row, column, 3] == 255
                assert np.abs(image[row, column, :3] - wanted).max() <= 0


def test_from_afar_a_pixel_is_the_mean_of_what_lies_in_it() -> None:
    # Checkerboard: by its middle alone a pixel would be black or white.
    tree = Quadtree(REGION, 7)
    row, col = np.divmod(np.arange(128 * 128), 128)
    values = np.zeros(tree.size)
    values[interleave(row, col)] = (row + col) % 2 * 2.0
    heat = DensityMap(values, tree, PROMISE, "multiscale")
    x, y = tile_of(-73.965, 40.76, 9)
    image = pixels(MapTiles(heat).png(9, x, y))
    shown = image[image[..., 3] > 0][:, :3].astype(int)
    scale = density_scale(heat.per_km2(), "log")
    mean = ramp(255)[round(float(scale.fraction(heat.per_km2().max() / 2)) * 254)].astype(int)
    inner = np.abs(shown - mean).max(axis=1) <= 12
    assert shown.shape[0] > 1000
    assert inner.mean() > 0.9


def test_the_pyramid_has_edges_and_the_region_too() -> None:
    tiles = MapTiles(a_map(TILINGS["quadtree"]))
    assert pixels(tiles.png(10, 0, 0))[..., 3].max() == 0
    assert pixels(tiles.png(0, 0, 0)).shape == (SIDE, SIDE, 4)
    # The whole region's pixels of level 11 lie in its box.
    x, y = tile_of(-74.03, 40.83, 11)
    shown = pixels(tiles.png(11, x, y))[..., 3] > 0
    rows, columns = np.nonzero(shown)
    west, north = place_of(11, x, y, columns.min(), rows.min())
    assert west == pytest.approx(-74.03, abs=0.001)
    assert north == pytest.approx(40.83, abs=0.001)
    for z, x, y in ((-1, 0, 0), (MOST_ZOOM + 1, 0, 0), (3, 8, 0), (3, 0, -1)):
        with pytest.raises(InputError, match="tile"):
            tiles.png(z, x, y)


def test_two_maps_can_share_one_scale() -> None:
    heat = a_map(TILINGS["grid"])
    tiles, half = MapTiles(heat), MapTiles(DensityMap(heat.values / 2, heat.tiling, PROMISE, "multiscale"))
    x, y = tile_of(-73.96, 40.76, 13)
    own = tiles.legend()
    assert own is not None
    assert half.png(13, x, y) != tiles.png(13, x, y)
    assert half.png(13, x, y, top=own["top"] / 2, knee=own["knee"] / 2) == tiles.png(13, x, y)
    for top, knee in ((1.0, None), (None, 1.0), (1.0, 2.0), (math.inf, 1.0), (1.0, 0.0), (math.nan, 1.0)):
        with pytest.raises(InputError, match="knee"):
            tiles.png(13, x, y, top=top, knee=knee)


def test_a_map_without_bounds_has_no_uncertainty() -> None:
    tiles = MapTiles(a_map(TILINGS["grid"], bounds=False))
    assert tiles.legend("uncertainty") is None
    assert tiles.record()["legend"]["uncertainty"] is None
    with pytest.raises(InputError, match="layer must be one of density on this map"):
        tiles.png(0, 0, 0, "uncertainty")
    for wrong in ({"layer": "colour"}, {"theme": "sepia"}):
        with pytest.raises(InputError, match=r"must|needs"):
            tiles.png(0, 0, 0, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="georeference"):
        MapTiles(a_map(Grid(Region.without_georeference(4, 4), rows=2, columns=2)))


@pytest.mark.parametrize("name", [*TILINGS, "hexagons"])
def test_the_record_says_what_a_page_needs(name: str) -> None:
    tiling = Hexagons(REGION, 7) if name == "hexagons" else TILINGS[name]
    tiles = MapTiles(a_map(tiling))
    record = json.loads(json.dumps(tiles.record(), allow_nan=False))
    assert record["unit"] == record["legend"]["density"]["unit"] == UNIT
    assert record["guarantee_in_words"] == PROMISE.in_words()
    west, south, east, north = record["bounds"]
    boxes = tiling.bounds()
    assert west <= boxes.west.min() + 1e-6
    assert east >= boxes.east.max() - 1e-6
    assert south <= boxes.south.min() + 1e-6
    assert north >= boxes.north.max() - 1e-6
    ring = np.array(record["outline"][0])
    assert ring.shape[1] == 2
    assert (ring[0] == ring[-1]).all()
    # From the deepest level on, a cell is at least as wide as 32 pixels, and no deeper than needed.
    pixel = (
        2 * math.pi * 6378137 * math.cos(math.radians((south + north) / 2)) / SIDE / 2 ** record["maxzoom"]
    )
    cell = math.sqrt(float(np.median(tiling.area_m2())))
    assert cell / 64 < pixel <= cell / 32
    assert len(record["colours"]) == 24
    assert all(colour.startswith("#") and len(colour) == 7 for colour in record["colours"])


def located(record: dict[str, Any], lon: float, lat: float) -> int:
    """The cell of a place by the record alone, as the page finds it; -1 outside."""
    geometry = record["geometry"]
    if geometry["kind"] == "raster":
        columns = np.searchsorted(geometry["lon"], lon, side="right") - 1
        rows = np.searchsorted(-np.array(geometry["lat"]), -lat, side="right") - 1
        if not (0 <= columns < geometry["columns"] and 0 <= rows < geometry["rows"]):
            return -1
        if geometry["order"] == "morton":
            return int(interleave(np.array([rows]), np.array([columns]))[0])
        at = int(rows * geometry["columns"] + columns)
        return at if geometry["order"] == "rows" else geometry["order"][at]
    # Metres by a small flat Earth; the sites are far enough apart.
    west = np.array(geometry["lon"]) - lon
    north = np.array(geometry["lat"]) - lat
    metres = np.hypot(west * math.cos(math.radians(geometry["standard_parallel"])), north) * 111_200
    nearest = int(metres.argmin())
    limit = geometry["max_distance_m"]
    return nearest if limit is None or metres[nearest] <= limit else -1


@pytest.mark.parametrize("name", TILINGS)
@settings(max_examples=40, deadline=None)
@given(across=st.floats(0.002, 0.998), down=st.floats(0.002, 0.998))
def test_the_cells_record_finds_the_cell_of_a_place(name: str, across: float, down: float) -> None:
    tiling = TILINGS[name]
    record = RECORDS.setdefault(name, json.loads(json.dumps(cells_record(a_map(tiling)), allow_nan=False)))
    lon, lat = -74.03 + 0.13 * across, 40.69 + 0.14 * down
    wanted = int(tiling.locate(np.array([lon]), np.array([lat]))[0])
    found = located(record, lon, lat)
    if record["geometry"]["kind"] == "nearest":
        # The flat Earth of the oracle is a few metres off: the middles must be as far, not the same.
        centres = tiling.centres(np.array([max(wanted, 0), max(found, 0)]))
        apart = np.hypot((centres.lon - lon) * 0.758, centres.lat - lat) * 111_200
        limit = record["geometry"]["max_distance_m"] or math.inf
        assert abs(apart[0] - apart[1]) < 30 or min(abs(apart - limit)) < 30
    elif wanted < 0:  # outside the polygon
        assert found < 0 or record["per_km2"][found] is None
    else:
        assert found == wanted


RECORDS: dict[str, Any] = {}


@pytest.mark.parametrize("name", [*TILINGS, "hexagons"])
def test_the_cells_record_holds_the_maps_numbers(name: str) -> None:
    tiling = Hexagons(REGION, 7) if name == "hexagons" else TILINGS[name]
    heat = a_map(tiling)
    record = json.loads(json.dumps(cells_record(heat), allow_nan=False))
    bounds, density = heat.interval(), heat.density()
    assert bounds is not None
    inside = np.isfinite(density)
    for key, truth in (
        ("values", heat.values), ("per_km2", density), ("low", bounds.lower), ("high", bounds.upper)
    ):  # fmt: skip
        known = inside & np.isfinite(truth)
        assert [value is not None for value in record[key]] == known.tolist()
        kept = np.array([value for value in record[key] if value is not None])
        np.testing.assert_allclose(kept, truth[known], rtol=5.0001e-4)
    area = record["area_km2"]
    np.testing.assert_allclose(
        area, tiling.area_m2() / 1e6 if isinstance(area, list) else tiling.area_m2()[0] / 1e6, rtol=1e-3
    )
    bare = cells_record(a_map(tiling, bounds=False))
    assert bare["low"] is None
    assert bare["high"] is None


def test_numbers_of_the_record_are_short() -> None:
    tree = Quadtree(REGION, 2)
    values = np.array([0.0, 1 / 3, 2e-9, 123456.789, 1e15 / 3, 99999.0, 0.1, 7, *[1.0] * 8])
    record = cells_record(DensityMap(values, tree, PROMISE, "laplace"))
    text = json.dumps(record["values"])
    assert text.startswith("[0.0, 0.3333, 2e-09, 123500.0, 333300000000000.0, 100000.0, 0.1, 7.0, 1.0")
