"""The plane of a picture: its extent and metres, and cells' outlines, lines and arcs there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import projection_of
from mapveil.geo.tiling import Tiling
from mapveil.maps.frame import RasterFrame, raster_frame
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.plane import Projection

if TYPE_CHECKING:
    from mapveil.maps.scene import Lines

POINTS: Final = 17
"""Corners of an arc."""

_BEND: Final = 0.18  # fraction of an arc's length by which its middle leaves the straight line


class Rings(NamedTuple):
    """Closed outlines in a plane: outer rings and holes, to be filled by the even-odd rule."""

    corners: FloatArray  # shape (corners, 2): x, y
    start: IntArray  # of each ring in ``corners``, and the end; shape (rings + 1,)
    cell: IntArray  # the cell each ring belongs to, ascending; shape (rings,)


class Courses(NamedTuple):
    """Lines in a plane."""

    corners: FloatArray  # shape (corners, 2): x, y
    start: IntArray  # of each line in ``corners``, and the end; shape (lines + 1,)


class MapPlane(NamedTuple):
    """The plane and extent of a picture."""

    projection: Projection
    bounds: tuple[float, float, float, float]  # x0, y0, x1, y1
    metres_per_x: float  # in the middle; 1 without georeference
    metres_per_y: float
    frame: RasterFrame | None  # the pixels, or None
    rings: Rings | None  # the cells' outlines where they are no pixels

    @property
    def aspect(self) -> float:
        """Length of a unit of y on the ground, in units of x."""
        return self.metres_per_y / self.metres_per_x


def map_plane(tiling: Tiling) -> MapPlane:
    """The plane for a tiling: its raster's, or its region's widened to every cell."""
    frame, region = raster_frame(tiling), tiling.region
    if frame is None:
        return outlines_plane(region.projection, polygon_rings(tiling.polygons(), region.projection))
    projection, metres = projection_of(frame.crs), (1.0, 1.0)
    if region.georeferenced:
        metres = _metres_per_unit(projection, frame.bounds)
    return MapPlane(projection, frame.bounds, *metres, frame, None)


def outlines_plane(projection: Projection, rings: Rings) -> MapPlane:
    """The plane around outlines on earth."""
    low, high = rings.corners.min(axis=0), rings.corners.max(axis=0)
    bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    return MapPlane(projection, bounds, *_metres_per_unit(projection, bounds), None, rings)


def region_rings(tiling: Tiling, projection: Projection) -> Rings:
    """Outline of the tiling's region."""
    return polygon_rings(np.array([tiling.region.outline()], dtype=np.object_), projection)


def planar(plane: MapPlane, lines: Lines) -> Courses:
    """Project lines to the plane; directed ones become arcs."""
    corners = np.stack(plane.projection.project(lines.lon, lines.lat), axis=1)
    if not lines.directed:
        return Courses(corners, lines.start)
    bent = arcs(corners.reshape(-1, 2, 2), plane.aspect)
    return Courses(bent.reshape(-1, 2), POINTS * np.arange(len(bent) + 1))


def arcs(ends: FloatArray, aspect: float) -> FloatArray:
    r"""Bend straight lines to the left of their direction, which tells the two directions of a pair apart.

    .. math:: c(t) = (1 - t)^2\, a + 2 t (1 - t)\, k + t^2\, b, \qquad k = \tfrac12 (a + b) + 2 h\, (b - a)^\perp

    where: a and b are origin and destination in the plane (``ends``, shape (lines, 2, 2)), :math:`(x, y)^\perp =
    (-y, x)` on the ground, where a unit of y is ``aspect`` units of x long, and h is the distance of the middle from
    the line, as a fraction of its length. The result has shape (lines, POINTS, 2).
    """
    a, b = ends[:, 0], ends[:, 1]
    along = (b - a) * (1.0, aspect)
    side = np.stack([-along[:, 1], along[:, 0] / aspect], axis=1)
    middle = (a + b) / 2 + 2 * _BEND * side
    t = np.linspace(0.0, 1.0, POINTS)[None, :, None]
    return np.asarray((1 - t) ** 2 * a[:, None] + 2 * t * (1 - t) * middle[:, None] + t**2 * b[:, None])


def polygon_rings(polygons: npt.NDArray[np.object_], projection: Projection) -> Rings:
    """Project the outlines of shapely's polygons, WGS84 degrees."""
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
