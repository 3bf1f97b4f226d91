"""Coordinates of other reference systems arrive as the WGS84 degrees that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapveil.geo.read_points import read_points
from mapveil_client.errors import InputError
from tests.geo.point_sources import REFERENCE, geo_frame, rows_of

UTM = "EPSG:32618"


def expect_reference(found: list[tuple[object, ...]]) -> None:
    assert [row[0] for row in found] == [row[0] for row in REFERENCE]
    places = [np.array([row[1:] for row in rows], dtype=float) for rows in (found, REFERENCE)]
    np.testing.assert_allclose(*places, rtol=0, atol=1e-9)


def coordinates(frame: Any, x: str, y: str) -> Any:
    placed = frame.to_crs(UTM)
    return placed.drop(columns="geometry").assign(**{x: placed.geometry.x, y: placed.geometry.y})


@pytest.mark.parametrize("crs", [UTM, "EPSG:3857", "EPSG:27700"])
def test_a_geometry_column_says_its_system(crs: str, tmp_path: Path) -> None:
    frame = geo_frame().to_crs(crs)
    frame.to_parquet(tmp_path / "g.parquet")
    expect_reference(rows_of(read_points(tmp_path / "g.parquet")))
    expect_reference(rows_of(read_points(frame)))


@pytest.mark.parametrize(("x", "y"), [("easting", "northing"), ("x", "y"), ("Lon", "Lat")])
def test_columns_are_read_in_the_named_system(x: str, y: str, tmp_path: Path) -> None:
    frame = coordinates(geo_frame(), x, y)
    frame.to_csv(tmp_path / "g.csv", index=False)
    expect_reference(rows_of(read_points(tmp_path / "g.csv", crs=UTM)))
    expect_reference(rows_of(read_points(frame, crs=UTM, lon=x, lat=y)))


def test_degrees_named_as_such_stay_as_they_are(tmp_path: Path) -> None:
    geo_frame().to_parquet(tmp_path / "g.parquet")
    assert rows_of(read_points(tmp_path / "g.parquet", crs="EPSG:4326")) == REFERENCE


def test_a_row_outside_of_the_system_is_named(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("user_id,x,y\nann,583000,4507000\nbob,1e30,4507000\n")
    with pytest.raises(InputError, match=r"row 2, column 'x and y' is '1e30, 4507000'; expected a point"):
        read_points(path, crs=UTM).check()
    path.write_text("user_id,x,y\nann,583000,north\n")
    with pytest.raises(InputError, match=r"row 1, column 'x and y' is '583000, north'"):
        read_points(path, crs=UTM).check()


def test_an_unknown_system_and_missing_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("user_id,east,north\nann,583000,4507000\n")
    with pytest.raises(InputError, match="'EPSG:1' is no known reference system"):
        read_points(path, crs="EPSG:1")
    with pytest.raises(InputError, match="no easting column among 'user_id', 'east', 'north'"):
        read_points(path, crs=UTM)
