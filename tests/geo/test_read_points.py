"""read_points: every format gives the same points, whatever the names of its columns."""

from __future__ import annotations

import io
import json
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

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.read_points import read_points, read_source
from mapveil_client.errors import InputError
from tests.geo.point_sources import (
    REFERENCE,
    TABLE,
    collection,
    csv_text,
    features,
    geo_frame,
    parquet,
    rows_of,
    write,
)


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
        assert rows_of(points) == REFERENCE
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
    assert rows_of(points) == REFERENCE
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
        (["device id", "lng", "lat", "Count"], ("device id", "lng", "lat", None, None, None)),
        (["user-id", "x", "y", "category"], ("user-id", "x", "y", None, None, "category")),
        (["userid", "user", "lon", "lat", "date", "time"], ("userid", "lon", "lat", "time", None, None)),
    ],
)
def test_usual_names_are_found(names: list[str], expected: tuple[str | None, ...]) -> None:
    assert read_points(pa.table({name: [1.0] for name in names})).columns == (*expected, None, None)


def test_given_names_win_and_are_quoted() -> None:
    names = ['who "am" I', "east; DROP TABLE x", "north'", "weight"]
    table = pa.table({**{name: [1.0] for name in names}, "user": [2.0], "lon": [3.0], "lat": [4.0]})
    points = read_points(table, user=names[0], lon=names[1], lat=names[2], weight="weight")
    points.check()
    assert points.columns == (*names[:3], None, "weight", None, None, None)
    assert points.arrays().lon.tolist() == [1.0]
    assert read_points(table, lat="NORTH'").columns.lat == "north'"


def test_weights_are_numbers_and_text_numbers_count(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,lon,lat,weight\n007, -73.9 ,4.07e1,2\n7,-73.9,40.7,0.5\n")
    points = read_points(path, weight="weight")
    points.check()
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT user_id, weight FROM ({points.scan(connection)})").fetchall()
    assert rows == [("007", 2.0), ("7", 0.5)]  # ids are text: 007 is not 7


@pytest.mark.parametrize("name", ["weight", "count", "Visits"])
def test_weights_are_asked_for(name: str) -> None:
    frame = pa.table({"user": [1], "lon": [0.0], "lat": [0.0], name: [5]})
    points = read_points(frame)
    assert points.columns.weight is None
    assert points.like_weights() == [name]
    asked = read_points(frame, weight=name)
    assert (asked.columns.weight, asked.like_weights()) == (name, [])


def test_read_source_tells_rasters_from_tables(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", values=np.eye(2, dtype=np.int64))
    assert isinstance(read_source(str(tmp_path / "a.npz")), Counts)
    assert isinstance(read_source(str(parquet(tmp_path))), Points)
    assert isinstance(read_source("SELECT 1 AS user, 2 AS lon, 3 AS lat -- .npz"), Points)


def test_csv_of_other_encodings_and_decimal_commas(tmp_path: Path) -> None:
    text = "user_id;lon;lat\nJosé;-73,9;40,7\n"
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "a.csv").write_text(text, encoding=encoding)
        assert rows_of(read_points(tmp_path / "a.csv", encoding=encoding)) == [("José", -73.9, 40.7)]
    (tmp_path / "a.csv").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"not UTF-8 text.* needs encoding"):
        read_points(tmp_path / "a.csv").check()
