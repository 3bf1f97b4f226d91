"""One table of points in several formats, for the tests of readers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapveil.geo.points import Points

TABLE = pa.table(
    {
        "user_id": ["ann", "bob", "ann", 'it\'s "so", b\\'],
        "lon": [-73.9, -74.0, -73.95, -73.99],
        "lat": [40.7, 40.71, 40.72, 40.73],
    }
)
REFERENCE = sorted(zip(*(column.to_pylist() for column in TABLE.columns), strict=True))


def rows_of(points: Points) -> list[tuple[object, ...]]:
    """The rows that points yield, in the order of ``REFERENCE``."""
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT user_id, lon, lat FROM ({points.scan(connection)}) AS points")
        return sorted(found.fetchall())


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
