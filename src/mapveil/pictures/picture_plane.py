"""The plane a picture is drawn in: its extent, its metres, and the cells' outlines there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import projection_of
from mapveil.geo.tiling import Tiling
from mapveil.maps.frame import RasterFrame, raster_frame
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.plane import Projection


class Rings(NamedTuple):
    """Closed outlines in a plane: outer rings and holes, to be filled by the even-odd rule."""

    corners: FloatArray  # shape (corners, 2): x, y
    start: IntArray  # of each ring in ``corners``, and the end; shape (rings + 1,)
    cell: IntArray  # the cell each ring belongs to, ascending; shape (rings,)


class MapPlane(NamedTuple):
    """Where a map is drawn."""

    projection: Projection
    bounds: tuple[float, float, float, float]  # x0, y0, x1, y1
    metres_per_x: float  # in the middle; 1 without georeference
    metres_per_y: float
    frame: RasterFrame | None  # the pixels, or None
    rings: Rings | None  # the cells' outlines where they are no pixels

    @property
    def aspect(self) -> float:
        """How much longer a unit of y is than a unit of x on the ground."""
        return self.metres_per_y / self.metres_per_x


def map_plane(tiling: Tiling) -> MapPlane:
    """The plane for a tiling: its raster's, or its region's widened to every cell."""
    frame = raster_frame(tiling)
    rings = None
    if frame is not None:
        projection, bounds = projection_of(frame.crs), frame.bounds
    else:
        projection = tiling.region.projection
        rings = cell_rings(tiling, projection)
        low, high = rings.corners.min(axis=0), rings.corners.max(axis=0)
        bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    metres = (1.0, 1.0)
    if tiling.region.georeferenced:
        metres = _metres_per_unit(projection, bounds)
    return MapPlane(projection, bounds, *metres, frame, rings)


def cell_rings(tiling: Tiling, projection: Projection) -> Rings:
    """Outlines of all cells of a tiling."""
    return _rings(tiling.polygons(), projection)


def region_rings(tiling: Tiling, projection: Projection) -> Rings:
    """Outline of the tiling's region."""
    return _rings(np.array([tiling.region.outline()], dtype=np.object_), projection)


def _rings(polygons: npt.NDArray[np.object_], projection: Projection) -> Rings:
    import shapely

    parts, cell = shapely.get_parts(polygons, return_index=True)
    rings, part = shapely.get_rings(parts, return_index=True)
    corners, ring = shapely.get_coordinates(rings, return_index=True)
    x, y = projection.project(corners[:, 0], corners[:, 1])
    start = np.concatenate([[0], np.cumsum(np.bincount(ring, minlength=len(rings)))])
    return Rings(np.column_stack([x, y]), start.astype(np.int64), np.asarray(cell[part], dtype=np.int64))


def _metres_per_unit(
    projection: Projection, bounds: tuple[float, float, float, float]
) -> tuple[float, float]:
    from pyproj import Geod

    x0, y0, x1, y1 = bounds
    x, y, half = (x0 + x1) / 2, (y0 + y1) / 2, (x1 - x0) / 200
    lon, lat = projection.unproject(
        np.array([x - half, x + half, x, x]), np.array([y, y, y - half, y + half])
    )
    _, _, length = Geod(ellps="WGS84").inv(lon[::2], lat[::2], lon[1::2], lat[1::2])
    return float(length[0] / (2 * half)), float(length[1] / (2 * half))
