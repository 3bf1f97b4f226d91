"""GeoTIFF: what a GIS reads is what was released, where it was released."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.warp
from rasterio.errors import NotGeoreferencedWarning

from mapveil.formats.content_hash import file_record
from mapveil.formats.read_map import read_map
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import InputError

MakeMap = Callable[..., DensityMap]

RASTERS = ("grid", "quadtree", "polygon", "utm", "degrees", "tiles")


@pytest.mark.parametrize("kind", RASTERS)
def test_every_cell_is_found_where_it_lies(kind: str, make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map(kind)
    heat.to_geotiff(tmp_path / "map.tif")
    interval = read_map(tmp_path / "map.tif").error(0.05)  # of the noisy sums as the file keeps them
    lon, lat = heat.tiling.centres()
    with rasterio.open(tmp_path / "map.tif") as file:
        x, y = rasterio.warp.transform("EPSG:4326", file.crs, lon, lat)
        bands = np.array(list(file.sample(zip(x, y, strict=True))))
    np.testing.assert_array_equal(bands, np.stack([heat.values, interval.lower, interval.upper], axis=1))


def test_rows_run_from_the_north(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("grid")
    heat.to_geotiff(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        np.testing.assert_array_equal(file.read(1), heat.values.reshape(5, 3))
        assert file.transform.e < 0 < file.transform.a
        west, south, east, north = rasterio.warp.transform_bounds(file.crs, "EPSG:4326", *file.bounds)
    assert (west, south, east, north) == pytest.approx((-74.03, 40.69, -73.90, 40.83), abs=1e-9)


def test_it_is_cloud_optimised_and_carries_everything(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("quadtree")
    heat.save(tmp_path / "map.tiff")
    with rasterio.open(tmp_path / "map.tiff") as file:
        assert json.loads(file.tags()["MAPVEIL"]) == file_record(heat)[0]
        assert file.tags()["MAPVEIL_GUARANTEE"] == heat.guarantee.in_words()
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.descriptions == (
            "users, estimate",
            "users, lower bound of the 95 % interval",
            "users, upper bound of the 95 % interval",
        )
        assert file.units == ("users per cell",) * 3
    assert os.listdir(tmp_path) == ["map.tiff"]


def test_without_measurements_there_is_one_band(make_map: MakeMap, tmp_path: Path) -> None:
    make_map("grid", measured=False).to_geotiff(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.count == 1


def test_pixels_that_are_no_cell_have_no_data(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("tiles")
    heat.to_geotiff(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert np.isnan(file.nodata)
        assert int(np.isfinite(file.read(1)).sum()) == heat.tiling.size < file.width * file.height


def test_without_georeference_the_file_has_none(make_map: MakeMap, tmp_path: Path) -> None:
    heat = make_map("no georeference")
    heat.to_geotiff(tmp_path / "map.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(tmp_path / "map.tif") as file:
            assert file.crs is None
            assert file.transform.is_identity
            assert file.read(1).sum() == pytest.approx(heat.values.sum())


@pytest.mark.parametrize("kind", ["hexagons", "places"])
def test_cells_that_are_no_pixels_are_refused(kind: str, make_map: MakeMap, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="GeoParquet"):
        make_map(kind).to_geotiff(tmp_path / "map.tif")
    assert os.listdir(tmp_path) == []
