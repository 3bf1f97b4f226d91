"""GeoPackage, Shapefile, FlatGeobuf and Excel give the points of the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapveil.geo.read_points import read_points
from mapveil_client.errors import InputError
from tests.geo.point_sources import REFERENCE, TABLE, geo_frame, rows_of
from tests.geo.test_projected import expect_reference


@pytest.mark.parametrize("suffix", [".gpkg", ".shp", ".fgb"])
def test_a_file_of_gdal_is_streamed(suffix: str, tmp_path: Path) -> None:
    geo_frame().to_file(tmp_path / f"points{suffix}")
    points = read_points(tmp_path / f"points{suffix}")
    assert rows_of(points) == REFERENCE
    assert rows_of(points) == REFERENCE  # a second pass reads the same
    geo_frame().to_crs("EPSG:32618").to_file(tmp_path / f"utm{suffix}")
    expect_reference(rows_of(read_points(tmp_path / f"utm{suffix}")))


def test_one_layer_of_points_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "layers.gpkg"
    frame = geo_frame()
    frame.assign(geometry=frame.to_crs(3857).buffer(1).to_crs(4326)).to_file(path, layer="discs")
    with pytest.raises(InputError, match=r"one layer of points, got discs \(Polygon\)"):
        read_points(path)
    frame.to_file(path, layer="people")
    assert rows_of(read_points(path)) == REFERENCE
    frame.to_file(path, layer="more")
    with pytest.raises(InputError, match="one layer of points, got discs"):
        read_points(path)


@pytest.mark.parametrize("suffix", [".gpkg", ".shp", ".fgb", ".xlsx"])
def test_rubbish_is_named_in_one_line(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"points{suffix}"
    path.write_bytes(b"rubbish")
    with pytest.raises(InputError, match="not readable") as caught:
        read_points(path)
    assert "\n" not in str(caught.value)


def test_the_first_sheet_of_excel_is_read(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(TABLE.column_names)
    for row in TABLE.to_pylist():
        sheet.append(list(row.values()))
    sheet.append([None, None, None])
    book.create_sheet("other").append(["nothing"])
    book.save(tmp_path / "points.xlsx")
    assert rows_of(read_points(tmp_path / "points.xlsx")) == REFERENCE


def test_ids_of_excel_are_whole_numbers(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["user_id", "lon", "lat"], [7, -73.9, 40.7], [7.0, -73.8, 40.8], [12345678901, -73.8, 40.9]):
        book.active.append(row)
    book.save(tmp_path / "points.xlsx")
    assert [row[0] for row in rows_of(read_points(tmp_path / "points.xlsx"))] == ["12345678901", "7", "7"]


def test_columns_of_excel_have_names_of_their_own(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["user_id", None, "lat"])
    book.save(tmp_path / "points.xlsx")
    with pytest.raises(InputError, match="the first row must name every column"):
        read_points(tmp_path / "points.xlsx")
