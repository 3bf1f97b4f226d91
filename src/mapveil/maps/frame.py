"""Rasters of the maps whose cells are pixels."""

import math
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.raster import Raster
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError

_EARTH_RADIUS_M: Final = 6378137.0  # of the sphere of EPSG:3857


class RasterFrame(NamedTuple):
    """A raster of equal pixels in a plane; row 0 is the northmost. Pixels without a cell are NaN."""

    rows: int
    columns: int
    row: IntArray  # of each cell, shape (cells,)
    col: IntArray  # of each cell, shape (cells,)
    bounds: tuple[float, float, float, float]  # x0, y0, x1, y1 of the plane
    crs: str  # of the plane, empty without georeference

    def image(self, values: FloatArray) -> FloatArray:
        """Per-cell values as pixels, shape (rows, columns)."""
        pixels = np.full((self.rows, self.columns), np.nan)
        pixels[self.row, self.col] = values
        return pixels

    def cells(self, pixels: FloatArray) -> FloatArray:
        """Pixels as per-cell values: the inverse of :meth:`image`, shape (cells,)."""
        return np.asarray(pixels[self.row, self.col])

    def x_centres(self) -> FloatArray:
        """Middle of each column, west to east, shape (columns,)."""
        x0, _, x1, _ = self.bounds
        return np.asarray(x0 + (np.arange(self.columns) + 0.5) * (x1 - x0) / self.columns)

    def y_centres(self) -> FloatArray:
        """Middle of each row, north to south, shape (rows,)."""
        _, y0, _, y1 = self.bounds
        return np.asarray(y1 - (np.arange(self.rows) + 0.5) * (y1 - y0) / self.rows)

    def geotransform(self) -> tuple[float, float, float, float, float, float]:
        """GDAL's six numbers: west, pixel width, 0, north, 0, minus pixel height."""
        x0, y0, x1, y1 = self.bounds
        return (x0, (x1 - x0) / self.columns, 0.0, y1, 0.0, (y0 - y1) / self.rows)


def is_raster(tiling: Tiling | str) -> bool:
    """Whether the cells, or those of a specification such as ``"h3:8"`` in any region, are pixels."""
    if isinstance(tiling, str):
        return tiling.partition(":")[0] not in ("h3", "places")
    return isinstance(tiling, WebMercatorTiles) or isinstance(getattr(tiling, "raster", None), Raster)


def raster_frame(tiling: Tiling) -> RasterFrame | None:
    """The raster that a tiling is, or None where its cells are no pixels (places, hexagons)."""
    if isinstance(tiling, WebMercatorTiles):
        return _tile_frame(tiling)
    raster = getattr(tiling, "raster", None)
    if not isinstance(raster, Raster):
        return None
    lattice, region = tiling.lattice(), raster.region
    return RasterFrame(raster.rows, raster.columns, lattice.row, lattice.col, region.bounds_m, region.crs)


def _tile_frame(tiles: WebMercatorTiles) -> RasterFrame:
    side = 2 * math.pi * _EARTH_RADIUS_M / 2**tiles.zoom
    bounds = tiles.bounds()
    left = _EARTH_RADIUS_M * np.radians(bounds.west)
    top = _EARTH_RADIUS_M * np.arctanh(np.sin(np.radians(bounds.north)))
    x0, y1 = float(left.min()), float(top.max())
    col, row = np.rint((left - x0) / side).astype(np.int64), np.rint((y1 - top) / side).astype(np.int64)
    rows, columns = int(row.max()) + 1, int(col.max()) + 1
    return RasterFrame(rows, columns, row, col, (x0, y1 - rows * side, x0 + columns * side, y1), "EPSG:3857")


def require_frame(tiling: Tiling, what: str) -> RasterFrame:
    """The raster that a tiling is, or an :class:`InputError` that names a format for any tiling."""
    frame = raster_frame(tiling)
    if frame is None:
        raise no_raster(tiling.spec, what)
    return frame


def no_raster(spec: str, what: str) -> InputError:
    """The error of a format that holds no cells but pixels."""
    return InputError(
        f"{what} holds a raster, and the cells of {spec} are not one; "
        "GeoParquet (.parquet) and GeoJSON (.geojson) hold cells of any shape"
    )
