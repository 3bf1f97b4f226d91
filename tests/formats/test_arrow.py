"""Maps as Arrow streams: pyarrow, Polars, DuckDB and geopandas read them as they are."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import geopandas
import numpy as np
import polars
import pyarrow as pa
import pytest

import mapveil as mv
from mapveil.formats import table
from mapveil.maps.density_map import DensityMap

MakeMap = Callable[..., DensityMap]


@pytest.mark.parametrize("kind", ["grid", "utm", "hexagons", "no georeference"])
def test_readers_see_every_cell(kind: str, make_map: MakeMap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ROWS_AT_ONCE", 7)  # several batches
    heat = make_map(kind)
    read = pa.table(heat)
    np.testing.assert_array_equal(read["users"], heat.values)
    assert read.schema.metadata[b"mapveil"].decode() == heat.metadata_json()
    assert polars.DataFrame(heat)["cell"].to_list() == list(range(heat.tiling.size))
    found = duckdb.sql("SELECT COUNT(*), SUM(users) FROM heat").fetchall()
    assert found[0] == (heat.tiling.size, pytest.approx(heat.values.sum()))
    frame = geopandas.GeoDataFrame.from_arrow(heat)
    if heat.tiling.region.georeferenced:
        assert frame.crs == "EPSG:4326"
        assert frame.geometry.geom_equals_exact(heat.to_geodataframe().geometry, 1e-12).all()
    else:
        assert frame.crs is None


def test_flows_are_lines() -> None:
    region = mv.Region.from_bbox(0.0, 0.0, 0.1, 0.1)
    ends = ".01 AS lon, .01 AS lat, .09 AS dest_lon, .09 AS dest_lat"
    rows = f"SELECT 'u' || i AS user_id, {ends} FROM range(400) AS t(i)"
    made = mv.flows(mv.read_trips(rows), "grid:2x2", epsilon=8, region=region, account=None)
    read = pa.table(made)
    assert {"origin", "destination"} <= set(read.column_names)
    assert len(read) == made.size
