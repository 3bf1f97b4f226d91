"""Sites on a raster of pixels, and a disk on the same raster by the parts of pixels it covers."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.grid import Grid
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.local.randomizers.domain import Domain
from mapveil_client.arrays import FloatArray, IntArray

_PIXELS_PER_SITE: Final = 16
_LONGEST: Final = 1024
_SAMPLES: Final = 16  # chords of a pixel
_PARTS: Final = 256


class PixelRaster(NamedTuple):
    """The pixel of each site; row 0 is the northmost."""

    row: IntArray
    column: IntArray
    rows: int
    columns: int
    pixel_m: tuple[float, float]  # height and width

    @property
    def extent_m(self) -> tuple[float, float]:
        """Width and height, metres."""
        return self.columns * self.pixel_m[1], self.rows * self.pixel_m[0]


class DiskKernel(NamedTuple):
    """A disk around the middle of a pixel."""

    part: FloatArray  # of each pixel that it covers, shape (2 up + 1, 2 along + 1); the middle one is 1
    reach: tuple[int, int]  # pixels up and along


def pixel_raster(domain: Domain) -> PixelRaster:
    """The raster of a tiling of rows and columns; of other sites, square pixels, about 16 for each.

    Parameters
    ----------
    domain : Domain
        The sites.
    """
    x, y = domain.plane
    if isinstance(domain.tiling, (Quadtree, Grid, WebMercatorTiles)):
        lattice = domain.tiling.lattice()
        row, column = lattice.row[domain.cells], lattice.col[domain.cells]
        row, column = row - row.min(), column - column.min()
        width, height = (_step(along, place) for along, place in ((x, column), (-y, row)))
        pixel = (height or width, width or height)
    else:
        wide, high = float(np.ptp(x)), float(np.ptp(y))
        side = max(
            math.sqrt(max(wide * high, 1e-300) / (_PIXELS_PER_SITE * domain.size)), max(wide, high) / _LONGEST
        )
        row, column = ((part / side).astype(np.int64) for part in (y.max() - y, x - x.min()))
        pixel = (side, side)
    return PixelRaster(row, column, int(row.max()) + 1, int(column.max()) + 1, pixel)


def _step(along: FloatArray, place: IntArray) -> float:
    """Metres from a row (or column) to the next, on average; 0 where there is only one."""
    first, last = int(np.argmin(place)), int(np.argmax(place))
    count = int(place[last] - place[first])
    return float(along[last] - along[first]) / count if count else 0.0


def disk_reach(radius_m: float, raster: PixelRaster) -> tuple[int, int]:
    """How many pixels a disk around the middle of one reaches up, and along."""
    up, along = (math.floor(radius_m / side + 0.5) for side in raster.pixel_m)
    return up, along


def disk_kernel(radius_m: float, raster: PixelRaster) -> DiskKernel:
    """The parts of pixels in a disk, to 1/256 of a pixel, by 16 chords through each.

    Parameters
    ----------
    radius_m : float
        Of the disk, metres.
    raster : PixelRaster
        Gives the pixels' size.
    """
    high, wide = raster.pixel_m
    up, along = disk_reach(radius_m, raster)
    offset = (np.arange(_SAMPLES) + 0.5) / _SAMPLES - 0.5
    y = ((np.arange(-up, up + 1)[:, None] + offset) * high).reshape(-1)
    half = np.sqrt(np.maximum(radius_m * radius_m - y * y, 0.0)) / wide  # of the chord, in pixels
    middle = np.abs(np.arange(-along, along + 1))
    covered = np.clip(half[:, None] - middle + 0.5, 0.0, 1.0)
    covered[:, along] = np.minimum(2 * half, 1.0)
    part = np.rint(covered.reshape(2 * up + 1, _SAMPLES, -1).mean(axis=1) * _PARTS) / _PARTS
    part[up, along] = 1.0
    return DiskKernel(part, (up, along))
