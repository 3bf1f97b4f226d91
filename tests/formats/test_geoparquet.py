"""GeoParquet: what other programs read is what was released."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import geopandas
import h3
import numpy as np
import pyarrow.parquet
import pytest
import shapely

from mapveil.formats.content_hash import file_record
from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap

MakeMap = Callable[..., DensityMap]

KINDS = ("grid", "quadtree", "polygon", "utm", "tiles", "hexagons", "places")


@pytest.mark.parametrize("kind", KINDS)
def test_geopandas_reads_every_cell(kind: str, make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map(kind)
    heat.save(tmp_path / "map.parquet")
    frame = geopandas.read_parquet(tmp_path / "map.parquet")
    interval = read_map(tmp_path / "map.parquet").error(0.05)  # of the noisy sums as the file keeps them
    assert frame.crs == "OGC:CRS84"
    np.testing.assert_array_equal(frame["cell"], np.arange(heat.tiling.size))
    np.testing.assert_array_equal(frame["users"], heat.values)
    np.testing.assert_array_equal(frame["lower"], interval.lower)
    np.testing.assert_array_equal(frame["upper"], interval.upper)
    centres = shapely.points(*heat.tiling.centres())
    assert shapely.covers(frame.geometry.to_numpy(), centres).all()
    assert (shapely.get_num_geometries(frame.geometry.to_numpy()) >= 1).all()
    assert all(polygon.exterior.is_ccw for polygon in frame.geometry.explode())


def test_density_times_area_is_users(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("hexagons")
    heat.to_geoparquet(tmp_path / "map.parquet")
    frame = geopandas.read_parquet(tmp_path / "map.parquet").to_crs("EPSG:6933")
    np.testing.assert_allclose(frame["users_per_km2"] * frame.area / 1e6, heat.values, rtol=2e-3, atol=1e-9)


def test_the_schema_carries_everything(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map()
    heat.to_geoparquet(tmp_path / "map.parquet")
    metadata = pyarrow.parquet.read_schema(tmp_path / "map.parquet").metadata
    assert json.loads(metadata[b"mapveil"]) == file_record(heat)[0]
    geo = json.loads(metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    assert geo["columns"]["geometry"]["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]


def test_the_covering_finds_cells_by_place(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map()
    heat.to_geoparquet(tmp_path / "map.parquet")
    found = geopandas.read_parquet(tmp_path / "map.parquet", bbox=(-74.03, 40.82, -74.02, 40.83))
    assert found["cell"].tolist() == [0]


def test_what_is_not_known_is_null(make_map: MakeMap, tmp_path: Path) -> None:
    make_map("no georeference", measured=False).to_geoparquet(tmp_path / "map.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "map.parquet")
    for name in ("users_per_km2", "lower", "upper"):
        assert table[name].null_count == table.num_rows
    assert geopandas.read_parquet(tmp_path / "map.parquet").crs is None


def test_hexagons_keep_their_h3_index(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("hexagons")
    heat.to_geoparquet(tmp_path / "map.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "map.parquet")
    lon, lat = heat.tiling.centres()
    expected = [h3.latlng_to_cell(y, x, 7) for x, y in zip(lon, lat, strict=True)]
    assert table["name"].to_pylist() == expected
