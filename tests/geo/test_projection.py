"""The closed forms against PROJ, in NumPy and in SQL."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.projection import OtherCrs, project_sql, projection_of, sql_number
from mapveil_client.plane import DEGREES_CRS, Degrees, EqualAreaCylinder, authalic

CYLINDERS = [
    EqualAreaCylinder(0.0, 0.0),
    EqualAreaCylinder(40.76, -73.965),
    EqualAreaCylinder(-33.9, 151.2),
    EqualAreaCylinder(67.5, 35.0),
    EqualAreaCylinder(89.0, 0.0),
]
OF_CYLINDER = pytest.mark.parametrize("cylinder", CYLINDERS, ids=lambda cylinder: cylinder.crs[10:40])


def around(cylinder: EqualAreaCylinder, count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(4)
    lon = np.clip(generator.uniform(-179, 179, count), -180, 180)
    lon = lon[np.abs(lon - cylinder.central_meridian) < 180]
    return lon, generator.uniform(-90, 90, lon.size)


@OF_CYLINDER
def test_the_cylinder_is_projs_to_a_micrometre(cylinder: EqualAreaCylinder) -> None:
    import pyproj

    lon, lat = around(cylinder)
    oracle = pyproj.Transformer.from_crs("EPSG:4326", cylinder.crs, always_xy=True)
    expected_x, expected_y = oracle.transform(lon, lat)
    x, y = cylinder.project(lon, lat)
    np.testing.assert_allclose(x, expected_x, rtol=0, atol=1e-6)
    # Northings stretch without bound with the standard parallel: a micrometre on the ground.
    np.testing.assert_allclose(y, expected_y, rtol=1e-14, atol=1e-6)


@OF_CYLINDER
def test_back_from_metres(cylinder: EqualAreaCylinder) -> None:
    lon, lat = around(cylinder)
    back_lon, back_lat = cylinder.unproject(*cylinder.project(lon, lat))
    np.testing.assert_allclose(back_lon, lon, rtol=0, atol=1e-11)
    np.testing.assert_allclose(back_lat[np.abs(lat) < 89.9], lat[np.abs(lat) < 89.9], rtol=0, atol=1e-10)
    np.testing.assert_allclose(back_lat, lat, rtol=0, atol=1e-6)


def test_poles_and_equator() -> None:
    cylinder = EqualAreaCylinder(0.0, 0.0)
    poles = np.array([-90.0, 0.0, 90.0])
    np.testing.assert_allclose(cylinder.unproject(*cylinder.project(poles, poles))[1], poles, atol=1e-6)
    assert authalic(np.array([0.0]))[0] == 0.0
    np.testing.assert_allclose(authalic(-poles), -authalic(poles), rtol=1e-15)


def test_long_arrays_are_projected_as_short_ones() -> None:
    generator = np.random.default_rng(0)
    lon, lat = generator.uniform(-80, 80, (2, 3, 40_000))
    whole = CYLINDERS[1].project(lon, lat)
    part = CYLINDERS[1].project(lon[2, 100:200], lat[2, 100:200])
    for all_of_them, some in zip(whole, part, strict=True):
        assert all_of_them.shape == lon.shape
        np.testing.assert_array_equal(all_of_them[2, 100:200], some)


@OF_CYLINDER
def test_sql_projects_as_numpy(cylinder: EqualAreaCylinder) -> None:
    import duckdb
    import pyarrow

    lon, lat = around(cylinder)
    sql_x, sql_y = project_sql(cylinder, "a.lon", "a.lat")
    with duckdb.connect() as connection:
        connection.register("a", pyarrow.table({"lon": lon, "lat": lat}))
        found = connection.execute(f"SELECT {sql_x} AS x, {sql_y} AS y FROM a").fetchnumpy()
    x, y = cylinder.project(lon, lat)
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_allclose(found["y"], y, rtol=1e-14, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_reach_sql_unchanged(value: float) -> None:
    import duckdb

    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {sql_number(value)}, typeof({sql_number(value)})").fetchone()
    assert row == (value, "DOUBLE")


def test_areas_in_degrees_are_those_of_the_cylinder() -> None:
    west, east = np.array([-10.0, 20.0, 179.0]), np.array([10.0, 20.5, 180.0])
    south, north = np.array([-90.0, 45.0, -1.0]), np.array([90.0, 46.0, 1.0])
    cylinder = EqualAreaCylinder(30.0, 5.0)
    expected = cylinder.box_area_m2(*cylinder.project(west, south), *cylinder.project(east, north))
    np.testing.assert_allclose(Degrees().box_area_m2(west, south, east, north), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("crs", "x", "y"),
    [
        ("EPSG:26918", 585000.0, 4510000.0),  # metres
        ("EPSG:3857", -8236000.0, 4970000.0),  # metres that are far from true
        ("EPSG:2263", 990000.0, 210000.0),  # feet
    ],
)
def test_areas_elsewhere_are_those_on_the_ellipsoid(crs: str, x: float, y: float) -> None:
    import pyproj

    other = OtherCrs(crs)
    corners = [(x, y), (x + 1000, y), (x + 1000, y + 1000), (x, y + 1000)]
    lon, lat = other.unproject(*np.array(corners).T)
    expected = abs(pyproj.Geod(ellps="WGS84").polygon_area_perimeter(lon, lat)[0])
    box = [np.array([value]) for value in (x, y, x + 1000, y + 1000)]
    assert other.box_area_m2(*box)[0] == pytest.approx(expected, rel=1e-4)
    assert other.in_metres == (crs != "EPSG:2263")
    assert project_sql(other, "lon", "lat") is None


def test_degrees_of_another_datum_have_areas_too() -> None:
    nad83 = OtherCrs("EPSG:4269")
    box = [np.array([value]) for value in (-75.0, 40.0, -74.0, 41.0)]
    np.testing.assert_array_equal(nad83.box_area_m2(*box), Degrees().box_area_m2(*box))
    assert not nad83.in_metres


def test_texts_name_projections() -> None:
    assert projection_of(DEGREES_CRS) == Degrees()
    assert projection_of(CYLINDERS[1].crs) == CYLINDERS[1]
    assert projection_of("").project(np.array([3.0]), np.array([4.0])) == (3.0, 4.0)
    assert projection_of("EPSG:26918") == OtherCrs("EPSG:26918")


def test_a_region_s_own_plane_has_a_name_and_the_same_numbers() -> None:
    from pyproj import Transformer

    from mapveil.geo.projection import named_crs

    flat = EqualAreaCylinder(40.76, -73.965)
    named = named_crs(flat.crs)
    assert named.name == "Mapveil equal-area cylinder, true at 40.76 degrees north, centred on -73.965 east"
    assert named.geodetic_crs.name == "WGS 84"
    to = Transformer.from_crs("EPSG:4326", named.to_wkt(), always_xy=True)
    assert np.allclose(
        to.transform(-74.0, 40.7), [float(v) for v in flat.project(np.array(-74.0), np.array(40.7))]
    )
    assert named_crs("EPSG:26918").to_epsg() == 26918
