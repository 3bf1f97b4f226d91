"""Sources that read_points refuses: one line each, with the file, row and column."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapveil.geo.read_points import read_points
from mapveil_client.errors import CuratorWarning, InputError
from tests.geo.point_sources import (
    TABLE,
    collection,
    csv_text,
    parquet,
    write,
)

HEAD = "user_id,lon,lat\n"
GOOD = HEAD + "u,-73.9,40.7\n"
POINT = '{"type":"Feature","properties":{"user":"u"},"geometry":{"type":"Point","coordinates":[%s]}}'
BAD_FILES: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("a.csv", "", r"is empty \(0 bytes\)"),
    "no lon": ("a.csv", "user_id,lat\nu,1\n", "no lon column among 'user_id', 'lat'; expected .*lon=NAME"),
    "no place": ("a.csv", "user_id,a\nu,1\n", "no lon and no lat column among 'user_id', 'a'"),
    "no user": ("a.csv", "lon,lat\n1,2\n", "no column of user ids among 'lon', 'lat'; .*user=NAME"),
    "two of a name": ("a.csv", "user,lat,Lat,lon\nu,1,2,3\n", "two columns are named 'Lat' but for case"),
    "ambiguous": (
        "a.csv",
        "user,lon,lat,l_a_t\nu,1,2,3\n",
        "'lat' and 'l_a_t' could both be lat; expected lat=NAME",
    ),
    "latitude": (
        "a.csv",
        GOOD + "v,-73.9,140.7\n",
        "row 2, column 'lat' is '140.7'; expected a latitude from -90 to 90",
    ),
    "longitude": ("a.csv", GOOD + "v,-273.9,40.7\n", "row 2, column 'lon' is '-273.9'"),
    "swapped": ("a.csv", HEAD + "u,35.7,139.7\nv,35.6,139.6\n", "lat and lon swapped"),
    "nan": ("a.csv", GOOD + "v,nan,40.7\n", "row 2, column 'lon' is 'nan'"),
    "inf": ("a.csv", GOOD + "v,-73.9,inf\n", "row 2, column 'lat' is 'inf'"),
    "text": ("a.csv", GOOD + "v,west,40.7\n", "row 2, column 'lon' is 'west'; expected a longitude"),
    "decimal comma": (
        "a.csv",
        "user_id;lon;lat\nu;-73,9,1;40,7\n",
        "row 1, column 'lon' is '-73,9,1'; expected a longitude",
    ),
    "missing value": ("a.csv", GOOD + "v,,40.7\n", r"row 2, column 'lon' is missing \(null\)"),
    "null user": ("a.csv", GOOD + ",-73.9,40.7\n", "row 2, column 'user_id' is missing"),
    "bad weight": ("a.csv", "user,lon,lat,weight\nu,1,2,many\n", "row 1, column 'weight' is 'many'"),
    "ragged": ("a.csv", GOOD + "v,-73.9\n", "CSV Error on Line: 3, 2 columns where the header has 3"),
    "open quote": ("a.csv", GOOD + '"v,1,2\n', "CSV Error on Line: 3"),
    "not UTF-8": ("a.csv", GOOD.encode() + b"\xff\xfe,1,2\n", "CSV Error on Line: 3, not UTF-8 text"),
    "header not UTF-8": ("a.csv", b"\xff\xfeuser\n", "the header line is not UTF-8"),
    "mixed line ends": (
        "a.csv",
        HEAD + 'u,"1\n",2\n' + "u,1,2\r\n",
        r"line 4 ends with \\r\\n, the lines before it with \\n; expected one kind",
    ),
    "gzip cut": ("a.csv.gz", gzip.compress(GOOD.encode())[:-10], "cannot be read"),
    "parquet of text": ("a.parquet", b"PAR1 nothing", "not a complete Parquet file"),
    "unknown suffix": ("a.docx", "x", r"\.docx is a format that is not known; expected one of \.parquet"),
    "no suffix": ("table", "x", "a name without a suffix"),
    "a raster": ("a.npy", b"x", "a raster of counts"),
    "geojson cut": ("a.geojson", collection()[:-40], "ends in the middle of the features"),
    "geojson without end": ("a.geojson", collection().split(', "bbox"')[0].rstrip("]"), "ends in the middle"),
    "geojson empty": ("a.geojson", '{"type":"FeatureCollection","features":[]}', "holds no features"),
    "geojson text": ("a.geojson", "hello", "not GeoJSON; expected a FeatureCollection"),
    "geojson geometry": ("a.geojson", '{"type":"Point","coordinates":[1,2]}', "object 1 is not a Feature"),
    "geojson broken": ("a.geojson", '{"type":"Feature","properties":{]}', "not valid JSON|in the middle"),
    "geojson line": (
        "a.geojson",
        POINT % "1,2" + "\n" + (POINT % "[1,2],[3,4]").replace("Point", "LineString"),
        "row 2, column 'geometry' is .*LineString.*; expected a point with longitude",
    ),
    "geojson null": (
        "a.geojson",
        POINT % "1,2" + (POINT % "").replace("[]", "null"),
        "row 2, column 'geometry'",
    ),
    "geojson range": ("a.geojson", POINT % "1,91", "row 1, column 'geometry' is .*a point with"),
    "geojson no user": (
        "a.geojson",
        (POINT % "1,2").replace("user", "name"),
        "no column of user ids among 'name'",
    ),
    "geojson crs": (
        "a.geojson",
        '{"type":"FeatureCollection","crs":{"properties":{"name":"EPSG:3857"}},"features":['
        + POINT % "1,2"
        + "]}",
        "another reference system than WGS84",
    ),
}


@pytest.mark.parametrize(("name", "content", "expected"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_one_line(name: str, content: str | bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_points(path, weight="weight" if "weight" in str(content) else None).check()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert re.search(expected, message), message


def test_a_truncated_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path)
    whole = path.read_bytes()
    for length in (3, 4, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="not a complete Parquet file") as caught:
            read_points(path).check()
        assert str(path) in str(caught.value)
    # Pages that are gone while the footer is whole: found when the rows are read.
    path.write_bytes(whole[:4] + bytes(len(whole) // 2 - 4) + whole[len(whole) // 2 :])
    with pytest.raises(InputError, match=re.escape(str(path))):
        read_points(path).check()


def test_the_bad_file_of_many_and_its_own_row_are_named(tmp_path: Path) -> None:
    for name, lat in (("1", [1.0, 2.0]), ("2", [3.0, 4.0, -95.0]), ("3", [99.0])):
        table = pa.table({"user": [1] * len(lat), "lon": [0.0] * len(lat), "lat": lat})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match=r"2\.parquet: row 3, column 'lat' is '-95.0'"):
        read_points(str(tmp_path / "*.parquet")).check()
    for name in "12":
        (tmp_path / f"{name}.csv").write_text(GOOD if name == "1" else GOOD + ",1,1\n")
    with pytest.raises(InputError, match=r"2\.csv: row 2, column 'user_id' is missing"):
        read_points(str(tmp_path / "*.csv")).check()
    (tmp_path / "2.csv").write_text("user_id,lat,lon\nu,1,2\n")
    with pytest.raises(InputError, match=r"2\.csv: its header line is not that of .*1\.csv"):
        read_points(str(tmp_path / "*.csv"))


def test_a_file_given_twice_is_refused_and_a_copy_is_told(tmp_path: Path) -> None:
    first, link, copy = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    first.write_text(GOOD)
    link.hardlink_to(first)
    with pytest.raises(InputError, match=r"a\.csv: is given twice, so its rows would count twice"):
        read_points([first, first])
    with pytest.raises(InputError, match=r"b\.csv: is given twice, also as .*a\.csv"):
        read_points(str(tmp_path / "*.csv"))
    copy.write_text(GOOD)
    with pytest.warns(CuratorWarning, match=r"c\.csv: has the same bytes as .*a\.csv, .* leave one out"):
        read_points([first, copy])


def test_columns_of_another_type() -> None:
    days = pa.array([1], pa.date32())
    with pytest.raises(InputError, match="column 'lat' for lat is of type date; expected numbers"):
        read_points(pa.table({"user": [1], "lon": [1.0], "lat": days}))
    read_points(pa.table({"user": [1], "lon": pa.array([1], pa.int8()), "lat": [1]})).check()


BAD_SOURCES: dict[str, tuple[Any, str]] = {
    "missing": ("nowhere.parquet", "nowhere.parquet: no such file; expected one of "),
    "pattern": ("nowhere-*.csv", "no file matches this pattern"),
    "folder": (".", "is a folder; expected a file or a pattern"),
    "address": ("s3://bucket/a.parquet", "a local file"),
    "mixed": (["a.csv", "b.parquet"], "no such file"),
    "two statements": ("SELECT 1; SELECT 2", "one SELECT"),
    "statement": ("WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a", "one SELECT"),
    "python name": ("SELECT * FROM TABLE", "^SQL: cannot be read"),
    "no sql": ("SELECT FROM WHERE", "^SQL: cannot be read: syntax error"),
    "sql of nothing": ("SELECT * FROM 'nowhere.parquet'", "^SQL: cannot be read: "),
    "number": (3, "points of type int cannot be read"),
    "empty list": ([], "points of type list cannot be read"),
}


@pytest.mark.parametrize(("source", "expected"), BAD_SOURCES.values(), ids=BAD_SOURCES.keys())
def test_a_source_that_is_none(
    source: Any, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=expected) as caught:
        read_points(source)
    assert "\n" not in str(caught.value)


def test_sql_cannot_reach_the_callers_variables() -> None:
    secrets = TABLE
    with pytest.raises(InputError, match="secrets does not exist"):
        read_points("SELECT * FROM secrets")
    assert secrets is TABLE


def test_a_stream_that_ends_is_refused() -> None:
    with pytest.raises(InputError, match="read once only"):
        read_points(TABLE.to_reader())


def test_several_formats_are_refused(tmp_path: Path) -> None:
    write("a.csv", csv_text())(tmp_path)
    with pytest.raises(InputError, match=r"several formats \(\.csv, \.parquet\)"):
        read_points([tmp_path / "a.csv", parquet(tmp_path)])
