"""Flows as tables: every format says the same, and carries the promise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyarrow import csv

from mapveil.formats.content_hash import file_record
from mapveil.formats.csv import write_csv
from mapveil.formats.read_map import read_flows
from mapveil.formats.table import line_columns
from mapveil.geo.grid import Grid
from mapveil.geo.places import Places
from mapveil.geo.region import Region
from mapveil.maps.flow_map import FlowMap
from mapveil.privacy.claim import Adversary, TrustModel
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError

REGION = Region.from_bbox(-8.70, 41.10, -8.52, 41.22)
PROMISE = Guarantee(model=TrustModel.LOCAL, epsilon=None, adversary=Adversary.REPORTS)
ODD = ('said "here"', "a,b\nc", "São João 🚕")


def flow_table(flows: FlowMap) -> pa.Table:
    return pa.table(line_columns(flows.rows()))


def named() -> FlowMap:
    places = Places([-8.65, -8.60, -8.55], [41.12, 41.15, 41.20], REGION, names=ODD)
    return FlowMap(
        np.array([0, 1, 2]),
        np.array([1, 2, 2]),
        np.array([0.125, 7.5, 1e-7]),
        places,
        PROMISE,
        "by hand",
        deviation=np.array([1.0, 2.0, 3.0]),
    )


def test_columns_are_the_flows_largest_first() -> None:
    table = flow_table(named())
    assert table["trips"].to_pylist() == [7.5, 0.125, 1e-7]
    assert table["origin"].to_pylist() == [1, 0, 2]
    assert table["origin_name"].to_pylist() == [ODD[1], ODD[0], ODD[2]]
    assert table["deviation"].to_pylist() == [2.0, 1.0, 3.0]
    assert table["destination_lat"].to_pylist() == [41.20, 41.15, 41.20]
    assert table["length_m"].to_pylist()[2] == 0


def test_csv_says_the_same_and_the_promise_lies_beside(tmp_path: Path) -> None:
    flows = named()
    flows.save(tmp_path / "flows.csv")
    read = csv.read_csv(tmp_path / "flows.csv", parse_options=csv.ParseOptions(newlines_in_values=True))
    assert read.to_pydict() == flow_table(flows).to_pydict()
    beside = json.loads((tmp_path / f"flows.csv{CSV_METADATA_SUFFIX}").read_text())
    assert beside == file_record(flows)[0]


def test_a_csv_never_lies_there_without_its_promise(tmp_path: Path) -> None:
    (tmp_path / f"flows.csv{CSV_METADATA_SUFFIX}").mkdir()
    with pytest.raises(InputError):
        write_csv(named(), tmp_path / "flows.csv")
    assert not (tmp_path / "flows.csv").exists()


def test_geoparquet_says_the_same(tmp_path: Path) -> None:
    flows = named()
    flows.save(tmp_path / "flows.parquet")
    read = pq.read_table(tmp_path / "flows.parquet")
    assert read.drop(["geometry", "bbox"]).to_pydict() == flow_table(flows).to_pydict()
    assert json.loads(read.schema.metadata[b"mapveil"]) == file_record(flows)[0]
    geo = json.loads(read.schema.metadata[b"geo"])
    assert geo["columns"]["geometry"]["geometry_types"] == ["LineString"]
    lines = shapely.from_wkb(read["geometry"].to_pylist())
    np.testing.assert_allclose(
        shapely.get_coordinates(lines).reshape(-1, 4), np.stack(flows.ends, axis=1), atol=1e-8
    )


def test_geopandas_reads_it(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    flows = named()
    flows.save(tmp_path / "flows.parquet")
    frame = geopandas.read_parquet(tmp_path / "flows.parquet")
    assert frame.crs.to_string() == "OGC:CRS84"
    assert frame.trips.tolist() == flows.trips.tolist()


def test_geojson_says_the_same(tmp_path: Path) -> None:
    flows = named()
    flows.save(tmp_path / "flows.geojson")
    read = json.loads((tmp_path / "flows.geojson").read_text(encoding="utf-8"))
    assert read["mapveil"] == file_record(flows)[0]
    table = flow_table(flows)
    assert [each["properties"] for each in read["features"]] == table.to_pylist()
    first = read["features"][0]["geometry"]
    assert first == {"type": "LineString", "coordinates": [[-8.60, 41.15], [-8.55, 41.20]]}


@pytest.mark.parametrize("suffix", [".parquet", ".geojson", ".json", ".gpkg", ".csv"])
def test_every_format_gives_back_what_tells_flows_from_zero(tmp_path: Path, suffix: str) -> None:
    if suffix == ".gpkg":
        pytest.importorskip("pyogrio")
    grid = Grid(REGION, rows=3, columns=3)
    pair, rng = np.arange(0, 81, 2), np.random.default_rng(0)
    # The smallest of these are below what a float of 32 bits holds.
    p = np.where(pair % 4, rng.uniform(0, 1, pair.size), 10.0 ** -rng.uniform(3, 60, pair.size))
    flows = FlowMap(*np.divmod(pair, 9), rng.exponential(10, pair.size), grid, PROMISE, "by hand",
                    unbiased=rng.normal(0, 1e3, pair.size), p_value=p)  # fmt: skip
    told = flows.told_from_zero()
    assert told is not None
    assert 5 < told.sum() < pair.size - 5
    flows.save(tmp_path / f"flows{suffix}")
    read = read_flows(tmp_path / f"flows{suffix}")
    np.testing.assert_array_equal(read.unbiased, flows.unbiased)
    np.testing.assert_array_equal(read.p_value, flows.p_value)
    np.testing.assert_array_equal(read.told_from_zero(), told)


def test_no_flows_are_an_empty_table(tmp_path: Path) -> None:
    none = named().largest(0)
    for suffix in (".csv", ".parquet", ".geojson"):
        none.save(tmp_path / f"none{suffix}")
    assert json.loads((tmp_path / "none.geojson").read_text())["features"] == []
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_without_georeference_geojson_is_refused(tmp_path: Path) -> None:
    grid = Grid(Region.without_georeference(3, 2), rows=2, columns=3)
    flows = FlowMap(np.array([0]), np.array([1]), np.array([1.0]), grid, PROMISE, "by hand")
    with pytest.raises(InputError, match="georeference"):
        flows.save(tmp_path / "flows.geojson")
    assert not (tmp_path / "flows.geojson").exists()
    flows.save(tmp_path / "flows.parquet")
    assert (
        json.loads(pq.read_schema(tmp_path / "flows.parquet").metadata[b"geo"])["columns"]["geometry"]["crs"]
        is None
    )
