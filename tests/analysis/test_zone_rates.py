"""Public denominators of rates: columns, and rasters in any CRS."""

from __future__ import annotations

from pathlib import Path

import geopandas
import numpy as np
import pytest
import rasterio
import shapely

from mapveil.analysis.zone_rates import denominators
from mapveil.geo.zones import Zones
from mapveil_client.errors import InputError

BOXES = [shapely.box(8.0, 47.0, 8.1, 47.1), shapely.box(8.05, 47.05, 8.35, 47.2)]


def raster(path: Path, pixels: np.ndarray, crs: str | None = "EPSG:4326", north: float = 47.4) -> Path:
    rows, columns = pixels.shape
    transform = rasterio.Affine(0.4 / columns, 0, 8.0, 0, -0.4 / rows, north)
    profile = {"height": rows, "width": columns, "count": 1, "dtype": "float64", "transform": transform}
    with rasterio.open(path, "w", driver="GTiff", crs=crs, nodata=-1, **profile) as file:
        file.write(pixels, 1)
    return path


def test_a_raster_is_summed_by_area(tmp_path: Path) -> None:
    pixels = np.arange(12.0).reshape(3, 4)
    pixels[0, 0] = -1  # nobody is known of there
    found = denominators(Zones.read(BOXES), raster(tmp_path / "people.tif", pixels)).values
    pixels[0, 0] = 0
    wide, high = 0.1, 0.4 / 3
    for polygon, total in zip(BOXES, found.tolist(), strict=True):
        exact = sum(
            pixels[row, col]
            * polygon.intersection(
                shapely.box(8 + col * wide, 47.4 - (row + 1) * high, 8 + (col + 1) * wide, 47.4 - row * high)
            ).area
            / (wide * high)
            for row in range(3)
            for col in range(4)
        )
        assert total == pytest.approx(exact, rel=1e-6)


def test_a_column_is_taken_as_it_is() -> None:
    frame = geopandas.GeoDataFrame({"people": [3, 4], "bad": [-1, 2], "geometry": BOXES}, crs="EPSG:4326")
    zones = Zones.read(frame)
    assert denominators(zones, "people").values.tolist() == [3, 4]
    with pytest.raises(InputError, match=r"per bad: a denominator must be 0, or a number of at least 1e-09"):
        denominators(zones, "bad")


def test_rasters_that_are_none_are_refused(tmp_path: Path) -> None:
    zones = Zones.read(BOXES)
    with pytest.raises(InputError, match="no such file"):
        denominators(zones, tmp_path / "none.tif")
    (tmp_path / "rubbish.tif").write_bytes(b"rubbish")
    with pytest.raises(InputError, match="not readable as GeoTIFF"):
        denominators(zones, tmp_path / "rubbish.tif")
    with pytest.raises(InputError, match="expected a raster with a CRS"):
        denominators(zones, raster(tmp_path / "nowhere.tif", np.ones((2, 2)), crs=None))


def test_zones_beyond_a_raster_are_told_by_their_fraction(tmp_path: Path) -> None:
    zones = Zones.read(BOXES)
    half = denominators(zones, raster(tmp_path / "half.tif", np.ones((4, 4)), north=47.45))
    np.testing.assert_allclose(half.covered, [0.5, 1.0])
    with pytest.raises(InputError, match="covers none of the zones"):
        denominators(zones, raster(tmp_path / "far.tif", np.ones((4, 4)), north=10.0))
