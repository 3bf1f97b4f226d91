"""Columns that a map is not read from are those that follow from it, in every format."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import shapely
from pyarrow import parquet

import mapveil as mv
from mapveil.analysis.verify_release import verify_release
from mapveil.formats.compare_file import compare_columns
from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap

SUFFIXES = ("parquet", "csv", "geojson", "gpkg", "tif")


@pytest.fixture(scope="module", params=("hierarchical", "multiscale", "laplace"))
def heat(request: pytest.FixtureRequest) -> DensityMap:
    tiling = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=4)
    users = np.random.default_rng(1).poisson(np.arange(tiling.size) / 9)
    made: DensityMap = mv.release(
        mv.Counts(users, tiling), epsilon=1, method=request.param, account=None, rng=1
    )
    return made


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_as_it_was_written_is_the_same(heat: DensityMap, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"map.{suffix}"
    heat.save(path)
    assert compare_columns(read_map(path), path) == ((), ())


def content(path: Path) -> tuple[str, str]:
    (found,) = (each[1:] for each in verify_release(path).findings if each.what == "content")
    return found


def test_altered_bounds_and_outlines_of_geoparquet_fail(heat: DensityMap, tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    heat.save(path)
    assert content(path)[0] == "ok"
    table = parquet.read_table(path)
    at = table.schema.get_field_index("upper")
    parquet.write_table(table.set_column(at, "upper", pa.array(np.zeros(table.num_rows))), path)
    assert content(path) == ("failed", "its column upper is not what follows from its measurements")
    shapes = shapely.from_wkb(table["geometry"].to_numpy())[::-1]
    at = table.schema.get_field_index("geometry")
    parquet.write_table(table.set_column(at, "geometry", pa.array(shapely.to_wkb(shapes))), path)
    assert "geometry" in content(path)[1]


def test_altered_bounds_of_csv_and_geojson_fail(heat: DensityMap, tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    heat.save(path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, "lower": 0, "upper": 0, "lon": -50} for row in rows)
    assert content(path)[1] == "its columns lon, lower, upper are not what follows from its measurements"
    path = tmp_path / "map.geojson"
    heat.save(path)
    record = json.loads(path.read_text())
    record["features"][7]["properties"]["users_per_km2"] = 99999
    path.write_text(json.dumps(record, separators=(",", ":")))
    assert "users_per_km2" in content(path)[1]


def test_altered_blocks_of_a_geopackage_fail(heat: DensityMap, tmp_path: Path) -> None:
    path = tmp_path / "map.gpkg"
    heat.save(path)
    with sqlite3.connect(path) as base:
        # Functions of geometries that the file's own triggers call.
        for name in ("ST_IsEmpty", "ST_MinX", "ST_MaxX", "ST_MinY", "ST_MaxY"):
            base.create_function(name, 1, lambda _shape: 1)
        base.execute("update map set told_from_zero = 1 - told_from_zero")
        base.execute("update blocks set users = users + 5")
    base.close()
    found = content(path)[1]
    assert "told_from_zero" in found
    assert "blocks.users" in found


def test_a_column_that_no_such_map_has_is_named(heat: DensityMap, tmp_path: Path) -> None:
    path = tmp_path / "map.parquet"
    heat.save(path)
    table = parquet.read_table(path)
    parquet.write_table(table.append_column("luck", pa.array(np.ones(table.num_rows))), path)
    state, said = content(path)
    assert state == "ok"
    assert said.endswith("not checked: luck")
