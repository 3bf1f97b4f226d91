"""Regions: what is accepted, what is refused and how, and what they measure."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.projection import project_sql
from mapveil.geo.region import Region
from mapveil_client.errors import InputError
from mapveil_client.plane import EqualAreaCylinder

NEW_YORK = (-74.03, 40.69, -73.90, 40.83)
TRIANGLE = shapely.Polygon([(13.1, 52.4), (13.7, 52.45), (13.4, 52.7)])
GEOD = pyproj.Geod(ellps="WGS84")


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, float, float, float]:
    west = draw(st.floats(-180, 179.9))
    south = draw(st.floats(-90, 89.9))
    return west, south, draw(st.floats(west + 1e-3, 180)), draw(st.floats(south + 1e-3, 90))


@settings(deadline=None)
@given(boxes())
def test_any_box_keeps_its_edges_and_its_area(box: tuple[float, float, float, float]) -> None:
    region = Region.from_bbox(*box)
    west, south, east, north = box
    assert region.bbox == box
    x, y = region.project(np.array([west, east]), np.array([south, north]))
    assert (x[0], y[0], x[1], y[1]) == pytest.approx(region.bounds_m, abs=1e-6)
    assert region.contains(np.array([west, east]), np.array([south, north])).all()
    # The area of a zone in terms of the ellipsoid's, an oracle with no projection in it.
    ring = [(west + (east - west) * k / 64, side) for side in (south, north) for k in range(65)]
    ring = ring[:65] + ring[:64:-1]
    if east - west < 60 and north - south < 10 and abs(south) < 80 and abs(north) < 80:
        expected = abs(GEOD.polygon_area_perimeter(*np.array(ring).T)[0])
        assert region.area_m2 == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("towards", [-np.inf, np.inf])
def test_a_box_is_the_same_where_sines_differ_in_the_last_bits(
    towards: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps of two machines are compared, and devices are given the bounds of a server's."""
    here, project = Region.from_bbox(*NEW_YORK), EqualAreaCylinder.project

    def elsewhere(self: EqualAreaCylinder, lon: np.ndarray, lat: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.nextafter(np.nextafter(each, towards), towards) for each in project(self, lon, lat))

    monkeypatch.setattr(EqualAreaCylinder, "project", elsewhere)
    assert Region.from_bbox(*NEW_YORK).to_dict() == here.to_dict()


def test_the_world_has_the_area_of_the_ellipsoid() -> None:
    world = Region.from_bbox(-180, -90, 180, 90)
    assert world.area_m2 == pytest.approx(510_065_621.72e6, rel=1e-9)
    assert world.contains(np.array([-180.0, 180.0, 0.0]), np.array([90.0, -90.0, 0.0])).all()


def test_a_city_is_as_large_as_pyproj_says() -> None:
    region = Region.from_bbox(*NEW_YORK)
    outline = shapely.segmentize(region.outline(), 0.001)
    assert region.area_m2 == pytest.approx(abs(GEOD.geometry_area_perimeter(outline)[0]), rel=1e-6)
    assert region.width_m == pytest.approx(GEOD.inv(-74.03, 40.76, -73.90, 40.76)[2], rel=1e-5)
    assert region.height_m == pytest.approx(GEOD.inv(-74, 40.69, -74, 40.83)[2], rel=1e-5)


def test_metres_are_pyprojs_and_its_crs_reads_back() -> None:
    region = Region.from_bbox(*NEW_YORK)
    transformer = pyproj.Transformer.from_crs("EPSG:4326", pyproj.CRS(region.crs), always_xy=True)
    lon, lat = np.random.default_rng(0).uniform([[-74.03], [40.69]], [[-73.9], [40.83]], (2, 1000))
    np.testing.assert_allclose(region.project(lon, lat), transformer.transform(lon, lat), rtol=0, atol=1e-6)
    np.testing.assert_allclose(region.unproject(*region.project(lon, lat)), (lon, lat), rtol=0, atol=1e-11)
    assert pyproj.CRS(region.crs).to_wkt()


def test_a_polygon_is_measured_and_searched_by_its_outline() -> None:
    region = Region.from_polygon(TRIANGLE)
    expected = abs(GEOD.geometry_area_perimeter(shapely.segmentize(TRIANGLE, 0.001))[0])
    assert region.area_m2 == pytest.approx(expected, rel=1e-5)
    lon, lat = np.random.default_rng(0).uniform([[13.0], [52.3]], [[13.8], [52.8]], (2, 1000))
    np.testing.assert_array_equal(region.contains(lon, lat), shapely.contains_xy(TRIANGLE, lon, lat))
    assert region.contains(np.array([13.1]), np.array([52.4])).all(), "corners belong"
    assert region.bbox == TRIANGLE.bounds
    assert region.outline() == TRIANGLE
    assert str(region) == "polygon within 13.1,52.4,13.7,52.7"


@pytest.mark.parametrize(
    "given",
    [
        TRIANGLE,
        shapely.geometry.mapping(TRIANGLE),
        {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(TRIANGLE)},
        {
            "type": "FeatureCollection",
            "features": [
                {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(TRIANGLE)},
                {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(TRIANGLE)},
            ],
        },
        shapely.force_3d(TRIANGLE, 7.0),
        shapely.MultiPolygon([TRIANGLE]),
    ],
    ids=["shapely", "geometry", "feature", "features", "3d", "multi"],
)
def test_polygons_come_in_many_forms(given: Any) -> None:
    region = Region.from_polygon(given)
    assert region.bbox == TRIANGLE.bounds
    assert region.polygon is not None
    assert region.polygon.equals(TRIANGLE)
    assert not region.polygon.has_z


def test_a_polygon_that_is_a_box_becomes_one() -> None:
    assert Region.from_polygon(shapely.box(*NEW_YORK)) == Region.from_bbox(*NEW_YORK)


@pytest.mark.parametrize("suffix", [".geojson", ".json"])
def test_geojson_files(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"region{suffix}"
    file.write_text(json.dumps(shapely.geometry.mapping(TRIANGLE)))
    assert Region.from_file(file) == Region.from_polygon(TRIANGLE)
    assert Region.parse(str(file)) == Region.from_polygon(TRIANGLE)


def test_other_files_through_geopandas(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    file = tmp_path / "region.gpkg"
    geopandas.GeoSeries([TRIANGLE], crs=4326).to_crs(25833).to_file(file)
    region = Region.from_file(file)
    np.testing.assert_allclose(region.bbox, TRIANGLE.bounds, atol=1e-6)


@pytest.mark.parametrize("text", ["-74.03,40.69,-73.90,40.83", " -74.03, 40.69, -73.90, 40.83 "])
def test_four_numbers(text: str) -> None:
    region = Region.parse(text)
    assert region == Region.from_bbox(*NEW_YORK)
    assert Region.parse(str(region)) == region


def test_a_box_in_the_antarctic_that_is_new_york_when_exchanged_is_refused() -> None:
    with pytest.raises(InputError, match=r"nobody lives; longitude and latitude seem to be swapped.*GeoJSON"):
        Region.parse("40.69,-74.03,40.83,-73.90")
    for meant in ("15.4,78.1,15.9,78.3", "100,85,120,86"):  # Longyearbyen, and no box when exchanged
        Region.parse(meant)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((np.nan, 40, -73, 41), "west must be a finite number of degrees, got nan"),
        ((-74, 40, np.inf, 41), "east must be a finite number of degrees, got inf"),
        ((-73, 40, -74, 41), "west -73 is not less than east -74"),
        ((170, -20, -170, -10), "antimeridian, give two: 170 to 180, and -180 to -170"),
        ((170, -20, 190, -10), "longitudes must be from -180 to 180.* antimeridian"),
        ((-74, 41, -73, 40), "south 41 is not less than north 40"),
        ((-74, 40, -73, 40), "south 40 is not less than north 40"),
        ((40.69, -174.03, 40.83, -173.9), "latitudes must be from -90 to 90.* swapped"),
        ((40.83, -74.03, 40.69, -73.9), "as north,west,south,east the numbers would be a box"),
        ((-74.03, 40.83, -73.9, 40.69), "as west,north,east,south the numbers would be a box"),
        ((-73.9, 40.69, -74.03, 40.83), "east -74.03; as east,south,west,north the numbers would be a box"),
        ((130, 140, 30, 40), "as west,east,south,north the numbers would be a box"),
        ((120, -174.03, 130, -173.9), "latitudes must be from -90 to 90, got -174.03 to -173.9$"),
        ((-74, 40, -73.9999999999, 41), "no area"),
        ((0, 89.9999999999, 1, 90), "no area"),
    ],
)
def test_impossible_boxes_are_refused(box: tuple[float, float, float, float], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Region.from_bbox(*box)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("polygon", "message"),
    [
        (shapely.Polygon(), "empty"),
        (shapely.Point(1, 2), "a Point"),
        (shapely.LineString([(0, 0), (1, 1)]), "a LineString"),
        (shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), "Self-intersection"),
        (shapely.Polygon([(0, 0), (1, 1), (0, 0)]), "invalid|no area"),
        (shapely.Polygon([(170, 0), (190, 0), (190, 10)]), "antimeridian"),
        ({"type": "Polygon"}, "not a GeoJSON polygon"),
        ({"type": "Feature", "geometry": None}, "not a GeoJSON polygon"),
        ({"type": "FeatureCollection", "features": []}, "empty"),
        ({"type": "FeatureCollection", "features": [3]}, "not a GeoJSON polygon"),
        ([1, 2], "not a GeoJSON polygon"),
        ({"hello": "world"}, "not a GeoJSON polygon"),
    ],
)
def test_impossible_polygons_are_refused(polygon: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Region.from_polygon(polygon)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "1,2,3", "a,b,c,d", "nowhere.geojson", "1,2,3,4,5"])
def test_texts_that_are_no_region_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"(no such file|numbers).*; expected west,south,east,north"):
        Region.parse(text)


def test_files_that_are_no_region_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Region.from_file(tmp_path / "nothing.geojson")
    broken = tmp_path / "broken.geojson"
    broken.write_text('{"type": "Polyg')
    with pytest.raises(InputError, match=r"broken\.geojson: not readable as GeoJSON"):
        Region.from_file(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"broken\.geojson: not readable as GeoJSON"):
        Region.from_file(broken)
    pytest.importorskip("geopandas")
    other = tmp_path / "broken.gpkg"
    other.write_bytes(b"nothing of use")
    with pytest.raises(InputError, match=r"broken\.gpkg: not readable"):
        Region.from_file(other)


def test_a_box_in_degrees_keeps_degrees() -> None:
    region = Region.from_bounds_in("OGC:CRS84", *NEW_YORK)
    assert region == Region.from_bounds_in("EPSG:4326", *NEW_YORK)
    assert region.bounds_m == region.bbox == NEW_YORK
    assert region.area_m2 == pytest.approx(Region.from_bbox(*NEW_YORK).area_m2, rel=1e-9)
    assert project_sql(region.projection, "lon", "lat") == ("(lon)", "(lat)")
    assert not region.projection.in_metres
    assert region.metric_projection.in_metres


def test_a_box_in_another_crs_keeps_its_edges() -> None:
    region = Region.from_bounds_in("EPSG:26918", 580000, 4500000, 592000, 4516000)
    assert region.bounds_m == (580000, 4500000, 592000, 4516000)
    assert region.crs == "EPSG:26918"
    assert region.area_m2 == pytest.approx(12_000 * 16_000, rel=2e-3), "the scale of UTM is off by so much"
    expected = abs(GEOD.geometry_area_perimeter(region.outline())[0])
    assert region.area_m2 == pytest.approx(expected, rel=1e-5)
    assert project_sql(region.projection, "lon", "lat") is None
    lon, lat = region.unproject(np.array([580001.0, 591999.0]), np.array([4500001.0, 4515999.0]))
    assert region.contains(lon, lat).all()
    assert not region.contains(*region.unproject(np.array([579999.0]), np.array([4510000.0]))).any()
    assert region.metric_projection is region.projection


def test_a_raster_of_mapveils_own_keeps_its_plane() -> None:
    region = Region.from_bbox(*NEW_YORK)
    again = Region.from_bounds_in(region.crs, *region.bounds_m)
    assert again.crs == region.crs
    np.testing.assert_allclose(again.bbox, region.bbox, rtol=0, atol=1e-10)


def test_a_crs_given_as_wkt_is_known_by_its_name() -> None:
    wkt = pyproj.CRS("EPSG:26918").to_wkt()
    assert Region.from_bounds_in(wkt, 580000, 4500000, 592000, 4516000).crs == "EPSG:26918"


@pytest.mark.parametrize(
    ("crs", "box", "message"),
    [
        ("EPSG:99999999", (0, 0, 1, 1), "not known"),
        ("nonsense", (0, 0, 1, 1), "not known"),
        ("EPSG:26918", (1, 0, 0, 1), "empty"),
        ("EPSG:26918", (0, np.nan, 1, 1), "empty"),
        ("EPSG:26918", (1e12, 1e12, 2e12, 2e12), "finite|accepted"),
        ("EPSG:4326", (40.69, -174.03, 40.83, -173.9), "swapped"),
    ],
)
def test_impossible_boxes_elsewhere_are_refused(
    crs: str, box: tuple[float, float, float, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Region.from_bounds_in(crs, *box)


def test_without_georeference_everything_is_in_cells() -> None:
    region = Region.without_georeference(30, 20)
    assert not region.georeferenced
    assert Region.from_bbox(*NEW_YORK).georeferenced
    assert region.area_m2 == 600
    assert (region.width_m, region.height_m) == (30, 20)
    assert "without georeference" in str(region)
    with pytest.raises(InputError, match="empty"):
        Region.without_georeference(0, 20)


@pytest.mark.parametrize(
    "region",
    [
        Region.from_bbox(*NEW_YORK),
        Region.from_polygon(TRIANGLE),
        Region.from_bounds_in("EPSG:26918", 580000, 4500000, 592000, 4516000),
        Region.from_bounds_in("EPSG:4326", *NEW_YORK),
        Region.without_georeference(3, 4),
    ],
    ids=str,
)
def test_records_and_copies_make_it_again(region: Region) -> None:
    assert Region.from_dict(json.loads(json.dumps(region.to_dict()))) == region
    assert copy.deepcopy(region) == region
    assert hash(region) == hash(Region.from_dict(region.to_dict()))


@pytest.mark.parametrize("record", [{}, {"crs": "", "bounds": [1, 2, 3], "bbox": [1, 2, 3, 4]}, {"crs": 3}])
def test_records_that_lack_something_are_refused(record: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="record"):
        Region.from_dict(record)


def test_different_regions_differ() -> None:
    assert Region.from_bbox(*NEW_YORK) != Region.from_bounds_in("EPSG:4326", *NEW_YORK)
    assert Region.from_polygon(TRIANGLE) != Region.from_bbox(*TRIANGLE.bounds)


def test_a_frame_in_any_reference_system_is_the_union_of_its_polygons() -> None:
    geopandas = pytest.importorskip("geopandas")
    parts = [shapely.box(-74.0, 40.7, -73.95, 40.8), shapely.box(-73.95, 40.7, -73.9, 40.8)]
    frame = geopandas.GeoDataFrame(geometry=parts, crs=4326)
    for polygons in (frame.to_crs(32618), frame.to_crs(32618).geometry):
        region = Region.from_polygon(polygons)
        np.testing.assert_allclose(region.bbox, (-74.0, 40.7, -73.9, 40.8), atol=1e-9)
    with pytest.raises(InputError, match="without a CRS"):
        Region.from_polygon(frame.set_crs(None, allow_override=True))
