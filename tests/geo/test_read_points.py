"""read_points: every format gives the same points, every bad input one line."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo import read_geojson as geojson
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.read_geojson import cut_features
from mapveil.geo.read_geoparquet import decode_wkb_points
from mapveil.geo.read_points import read_points, read_source
from mapveil_client.errors import InputError

TABLE = pa.table(
    {
        "user_id": ["ann", "bob", "ann", 'it\'s "so", b\\'],
        "lon": [-73.9, -74.0, -73.95, -73.99],
        "lat": [40.7, 40.71, 40.72, 40.73],
    }
)
REFERENCE = Points.from_arrays(*(column.to_pylist() for column in TABLE.columns)).fingerprint()


def csv_text(delimiter: str = ",", end: str = "\n") -> str:
    rows = [TABLE.column_names, *zip(*(column.to_pylist() for column in TABLE.columns), strict=True)]
    quoted = [['"' + str(value).replace('"', '""') + '"' for value in row] for row in rows]
    return "".join(delimiter.join(row) + end for row in quoted)


def features() -> list[dict[str, Any]]:
    return [
        {
            "type": "Feature",
            "properties": {"note": 'braces {[ and \\" quotes " in text ]}', "user_id": row["user_id"]},
            "geometry": {"type": "Point", "coordinates": [row["lon"], row["lat"], 12.5]},
        }
        for row in TABLE.to_pylist()
    ]


def collection(indent: int | None = None) -> str:
    named = {"type": "FeatureCollection", "name": "a", "features": features(), "bbox": [0, 0, 1, 1]}
    return json.dumps(named, indent=indent)


def geo_frame() -> Any:
    geopandas = pytest.importorskip("geopandas")
    places = geopandas.points_from_xy(TABLE["lon"].to_numpy(), TABLE["lat"].to_numpy())
    return geopandas.GeoDataFrame({"user_id": TABLE["user_id"].to_pylist()}, geometry=places, crs=4326)


def write(name: str, content: str | bytes) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return folder / name

    return make


def parquet(folder: Path) -> Path:
    pq.write_table(TABLE, folder / "a.parquet")
    return folder / "a.parquet"


def two_files(folder: Path) -> list[Path]:
    paths = [folder / "part [1].parquet", folder / "part [2]'s*.parquet"]
    for path, part in zip(paths, (TABLE[:1], TABLE[1:].select(["lat", "user_id", "lon"])), strict=True):
        pq.write_table(part, path)
    return paths


def two_csv(folder: Path) -> str:
    lines = csv_text().splitlines(keepends=True)
    (folder / "1.csv").write_text("".join(lines[:2]))
    (folder / "2.csv").write_text(lines[0] + "".join(lines[2:]))
    return str(folder / "?.csv")


def geoparquet(encoding: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        geo_frame().to_parquet(folder / "g.parquet", geometry_encoding=encoding)
        return folder / "g.parquet"

    return make


def wkb_column(folder: Path) -> pa.Table:
    return pa.table({"user_id": TABLE["user_id"], "geom": geo_frame().geometry.to_wkb().to_list()})


SOURCES: dict[str, Callable[[Path], Any]] = {
    "parquet": parquet,
    "text path": lambda folder: str(parquet(folder)),
    "list with odd names": two_files,
    "pattern": lambda folder: [two_files(folder), str(folder / "part*.parquet")][1],
    "csv": write("a.csv", csv_text()),
    "csv windows with mark": write("a.csv", "\ufeff" + csv_text(end="\r\n")),
    "semicolons": write("a.csv", csv_text(";")),
    "tsv": write("a.tsv", csv_text("\t")),
    "csv.gz": write("a.csv.gz", csv_text()),
    "csv pattern": two_csv,
    "geojson": write("a.geojson", collection()),
    "geojson indented": write("a.json", collection(indent=2)),
    "geojson.gz": write("a.geojson.gz", collection()),
    "geojson lines": write("a.geojsonl", "\n".join(map(json.dumps, features()))),
    "geojson sequence": write("a.geojsons", "".join("\x1e" + json.dumps(one) + "\n" for one in features())),
    "geoparquet": geoparquet("WKB"),
    "geoparquet of coordinates": geoparquet("geoarrow"),
    "wkb bytes": wkb_column,
    "geopandas": lambda folder: geo_frame(),
    "arrow": lambda folder: TABLE,
    "arrow batch": lambda folder: TABLE.combine_chunks().to_batches()[0],
    "arrow dataset": lambda folder: pads.dataset(parquet(folder)),
    "pandas": lambda folder: TABLE.to_pandas(),
    "polars": lambda folder: pytest.importorskip("polars").from_arrow(TABLE),
    "polars lazy": lambda folder: pytest.importorskip("polars").from_arrow(TABLE).lazy(),
    "duckdb relation": lambda folder: duckdb.connect().read_parquet(str(parquet(folder))),
    "sql": lambda folder: f"SELECT * FROM '{parquet(folder)}';",
    "sql with a comment": lambda folder: f"from '{parquet(folder)}' -- all of it",
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_every_source_gives_the_same_points(make: Callable[[Path], Any], tmp_path: Path) -> None:
    points = read_points(make(tmp_path))
    points.check()
    for _ in range(2):  # a source is read again and again
        assert points.fingerprint() == REFERENCE
    assert np.sort(points.arrays().lon).tolist() == sorted(TABLE["lon"].to_pylist())
    assert "ann" not in repr(points)


@pytest.mark.parametrize("name", ["csv", "geojson", "parquet"])
def test_standard_input_of_every_format(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(SOURCES[name](tmp_path)).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    points = read_source("-")
    assert isinstance(points, Points)
    assert points.source == "standard input"
    spool = points.table.kept.folder  # type: ignore[attr-defined]
    assert spool.stat().st_mode & 0o077 == 0
    assert points.fingerprint() == REFERENCE
    del points
    assert not spool.exists()


def test_nothing_comes_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    with pytest.raises(InputError, match="standard input: is empty"):
        read_points("-")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["UID", "Longitude", "LATITUDE"], ("UID", "Longitude", "LATITUDE", None, None, None)),
        (["device id", "lng", "lat", "Count"], ("device id", "lng", "lat", None, "Count", None)),
        (["user-id", "x", "y", "category"], ("user-id", "x", "y", None, None, "category")),
        (["userid", "user", "lon", "lat", "date", "time"], ("userid", "lon", "lat", "time", None, None)),
    ],
)
def test_usual_names_are_found(names: list[str], expected: tuple[str | None, ...]) -> None:
    assert read_points(pa.table({name: [1.0] for name in names})).columns == expected


def test_given_names_win_and_are_quoted() -> None:
    names = ['who "am" I', "east; DROP TABLE x", "north'", "weight"]
    table = pa.table({**{name: [1.0] for name in names}, "user": [2.0], "lon": [3.0], "lat": [4.0]})
    points = read_points(table, user=names[0], lon=names[1], lat=names[2])
    points.check()
    assert points.columns == (*names[:3], None, "weight", None)
    assert points.arrays().lon.tolist() == [1.0]
    assert read_points(table, lat="NORTH'").columns.lat == "north'"


def test_weights_are_numbers_and_text_numbers_count(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,lon,lat,weight\n007, -73.9 ,4.07e1,2\n7,-73.9,40.7,0.5\n")
    points = read_points(path)
    points.check()
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT user_id, weight FROM ({points.scan(connection)})").fetchall()
    assert rows == [("007", 2.0), ("7", 0.5)]  # ids are text: 007 is not 7


HEAD = "user_id,lon,lat\n"
GOOD = HEAD + "u,-73.9,40.7\n"
POINT = '{"type":"Feature","properties":{"user":"u"},"geometry":{"type":"Point","coordinates":[%s]}}'
BAD_FILES: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("a.csv", "", r"is empty \(0 bytes\)"),
    "header only": ("a.csv", HEAD, "holds no rows; expected at least one"),
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
    "decimal comma": ("a.csv", "user_id;lon;lat\nu;-73,9;40,7\n", "row 1, column 'lon' is '-73,9'"),
    "missing value": ("a.csv", GOOD + "v,,40.7\n", r"row 2, column 'lon' is missing \(null\)"),
    "null user": ("a.csv", GOOD + ",-73.9,40.7\n", "row 2, column 'user_id' is missing"),
    "bad weight": ("a.csv", "user,lon,lat,weight\nu,1,2,many\n", "row 1, column 'weight' is 'many'"),
    "ragged": ("a.csv", GOOD + "v,-73.9\n", "CSV Error on Line: 3, 2 columns where the header has 3"),
    "open quote": ("a.csv", GOOD + '"v,1,2\n', "CSV Error on Line: 3"),
    "not UTF-8": ("a.csv", GOOD.encode() + b"\xff\xfe,1,2\n", "CSV Error on Line: 3, not UTF-8 text"),
    "header not UTF-8": ("a.csv", b"\xff\xfeuser\n", "the header line is not UTF-8"),
    "gzip cut": ("a.csv.gz", gzip.compress(GOOD.encode())[:-10], "cannot be read"),
    "parquet of text": ("a.parquet", b"PAR1 nothing", "not a complete Parquet file"),
    "unknown suffix": ("a.xlsx", "x", r"\.xlsx is a format that is not known; expected one of \.parquet"),
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
        read_points(path).check()
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


def test_another_reference_system_is_refused(tmp_path: Path) -> None:
    frame = geo_frame().to_crs(3857)
    frame.to_parquet(tmp_path / "g.parquet")
    with pytest.raises(InputError, match="column 'geometry' is in WGS 84 / Pseudo-Mercator; expected WGS84"):
        read_points(tmp_path / "g.parquet")


def test_a_geometry_that_is_no_point_is_named(tmp_path: Path) -> None:
    shapely = pytest.importorskip("shapely")
    geopandas = pytest.importorskip("geopandas")
    shapes = [shapely.Point(1, 2), shapely.LineString([(0, 0), (1, 1)])]
    geopandas.GeoDataFrame({"user": [1, 2]}, geometry=shapes, crs=4326).to_parquet(tmp_path / "g.parquet")
    with pytest.raises(
        InputError, match=r"row 2, column 'geometry' is 'LINESTRING.*; expected a point with longitude"
    ):
        read_points(tmp_path / "g.parquet").check()


def test_named_columns_win_over_a_geometry(tmp_path: Path) -> None:
    frame = geo_frame().assign(lon=1.0, lat=2.0)
    frame.to_parquet(tmp_path / "g.parquet")
    assert read_points(tmp_path / "g.parquet").columns.lon == "lon"


def test_a_feature_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geojson, "_BLOCK", 97)
    monkeypatch.setattr(geojson, "_SAMPLE", 1)
    for name, text in (("a.geojson", collection(2)), ("b.geojsonl", "\n".join(map(json.dumps, features())))):
        head = '{"type": "FeatureCollection", "features": [' if name == "a.geojson" else ""
        body = text[text.index("[") + 1 :] if head else text
        (tmp_path / name).write_text(head + body)
        assert read_points(tmp_path / name).fingerprint() == REFERENCE


json_value = st.recursive(
    st.text(max_size=6) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), json_value, max_size=3), max_size=4),
    st.sampled_from([", ", "\n", "\x1e", ""]),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.booleans(),
)
def test_features_are_cut_as_a_parser_would(
    objects: list[dict[str, Any]], between: str, indent: int | None, ascii_only: bool, closed: bool
) -> None:
    texts = [json.dumps(one, indent=indent, ensure_ascii=ascii_only) for one in objects]
    data = (between.join(texts) + ('], "more": {"a": [1]}}' if closed else "")).encode(
        "utf-8", "surrogatepass"
    )
    cut = cut_features(np.frombuffer(data, dtype=np.uint8))
    found = [
        json.loads(data[a:b].decode("utf-8", "surrogatepass"))
        for a, b in zip(cut.starts, cut.ends, strict=True)
    ]
    assert found == objects
    assert cut.closed == closed


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False),
            st.floats(allow_nan=False),
            st.sampled_from(["<", ">"]),
            st.sampled_from(["xy", "xyz", "srid", "line", "cut", "null"]),
        ),
        max_size=20,
    ),
    st.integers(0, 3),
)
def test_wkb_is_decoded_in_every_form(rows: list[tuple[float, float, str, str]], offset: int) -> None:
    import struct

    encoded: list[bytes | None] = []
    expected = []
    for x, y, order, form in rows:
        mark = b"\x01" if order == "<" else b"\x00"
        body = struct.pack(order + "dd", x, y)
        code = {"xyz": 1001, "srid": 0x20000001, "line": 2}.get(form, 1)
        srid = struct.pack(order + "I", 4326) if form == "srid" else b""
        whole = mark + struct.pack(order + "I", code) + srid + body + (body[:8] if form == "xyz" else b"")
        encoded.append(None if form == "null" else whole[:-1] if form == "cut" else whole)
        expected.append((np.nan, np.nan) if form in ("line", "cut", "null") else (x, y))
    lon, lat = decode_wkb_points(pa.array(encoded, pa.binary())[offset:])
    np.testing.assert_array_equal(np.stack([lon, lat], 1), np.array(expected[offset:]).reshape(-1, 2))


def test_read_source_tells_rasters_from_tables(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", values=np.eye(2, dtype=np.int64))
    assert isinstance(read_source(str(tmp_path / "a.npz")), Counts)
    assert isinstance(read_source(str(parquet(tmp_path))), Points)
    assert isinstance(read_source("SELECT 1 AS user, 2 AS lon, 3 AS lat -- .npz"), Points)
