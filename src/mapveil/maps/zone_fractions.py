"""Fractions of cells that lie in zones: exact areas of the overlay of polygons and cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import projection_of
from mapveil.geo.region import reprojected
from mapveil.geo.zones import Zones, polygonal
from mapveil.maps.frame import RasterFrame, raster_frame
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.plane import BoxEdges, middle_cylinder

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from mapveil.geo.tiling import Tiling

Progress = Callable[[str, float], None]

_ROUNDING: Final = 1e-9  # of a cell
_PIXELS_AT_ONCE: Final = 1 << 18  # a cache's worth: with 32 times as many the overlay took 2.5 times as long
_PARTS: Final = 64  # of the region's side: edges are cut before they are projected


class ZoneFractions(NamedTuple):
    """The overlay of zones and cells."""

    fractions: csr_array  # of each cell's area, in (0, 1], shape (zones, cells)
    covered: FloatArray  # fraction of each zone's area that lies in the map's cells, shape (zones,)


def zone_fractions(
    zones: Zones, tiling: Tiling, progress: Progress = lambda step, done: None
) -> ZoneFractions:
    """Overlay zones and cells, exactly, in the plane of the region. Run by: anybody who holds the map.

    ``progress`` is told the fraction of the zones.

    Raises
    ------
    InputError
        The region has no georeference.
    """
    import shapely
    from scipy.sparse import csr_array

    region = tiling.region
    if not region.georeferenced:
        raise InputError(
            "a map without georeference cannot be asked about zones: nothing is known of where it lies"
        )
    west, south, east, north = region.bbox
    step = max(east - west, north - south) / _PARTS
    flat = middle_cylinder(region.bbox).project
    near = _near(zones.polygons, _box_of(tiling))
    frame = raster_frame(tiling)
    if frame is not None:
        zone, row, col, parts = raster_fractions(near, frame, step, progress)
        cell_of = np.full((frame.rows, frame.columns), -1, dtype=np.int64)
        cell_of[frame.row, frame.col] = np.arange(tiling.size)
        cell = cell_of[row, col]
    else:
        zone, cell, parts = _on_polygons(reprojected(shapely.segmentize(near, step), flat), tiling, flat)
    inside = getattr(tiling, "inside", None)
    kept = cell >= 0
    if inside is not None and region.polygon is not None:
        kept &= inside()[cell]
    if not kept.all():
        zone, cell, parts = zone[kept], cell[kept], parts[kept]
    areas = shapely.area(reprojected(shapely.segmentize(zones.polygons, step), flat))
    within = np.bincount(zone, parts * tiling.area_m2()[cell], len(zones))
    covered = np.divide(within, areas, out=np.zeros(len(zones)), where=areas > 0)
    rows = np.searchsorted(zone, np.arange(len(zones) + 1))  # overlaps come zone by zone
    return ZoneFractions(
        csr_array((parts, cell, rows), shape=(len(zones), tiling.size)), np.minimum(covered, 1.0)
    )


def _box_of(tiling: Tiling) -> BoxEdges:
    """The box around all cells, degrees: tiles and hexagons reach beyond their region."""
    if hasattr(tiling, "raster"):
        return tiling.region.bbox
    west, south, east, north = tiling.bounds()
    return float(west.min()), float(south.min()), float(east.max()), float(north.max())


def _near(polygons: npt.NDArray[np.object_], bbox: BoxEdges) -> npt.NDArray[np.object_]:
    """The polygons, cut to the box of the region: a plane need not reach farther."""
    import shapely

    west, south, east, north = bbox
    margin = max(east - west, north - south) / 1e3
    box = shapely.box(west - margin, south - margin, east + margin, north + margin)
    near = polygons.copy()
    beyond = np.flatnonzero(~shapely.covered_by(polygons, box))
    near[beyond] = polygonal(shapely.intersection(polygons[beyond], box))
    return near


class RasterOverlap(NamedTuple):
    """Overlaps of zones and pixels, shape (overlaps,)."""

    zone: IntArray
    row: IntArray
    col: IntArray
    fraction: FloatArray  # of the pixel's area, in (0, 1]


def raster_fractions(
    polygons: npt.NDArray[np.object_],
    frame: RasterFrame,
    step: float,
    progress: Progress = lambda step, done: None,
) -> RasterOverlap:
    """Overlay polygons (WGS84 degrees) and the pixels of a raster, in the raster's plane.

    Parameters
    ----------
    polygons : ndarray of shapely polygons, shape (zones,)
        Valid polygons in WGS84 degrees.
    frame : RasterFrame
        The raster; its crs is not empty.
    step : float
        Edges are cut to this length before they are projected, degrees.
    progress : callable
        Told the fraction of the zones that are overlaid.
    """
    import shapely

    x0, y0, x1, y1 = frame.bounds
    wide, high = (x1 - x0) / frame.columns, (y1 - y0) / frame.rows
    project = projection_of(frame.crs).project

    def to_pixels(xy: FloatArray) -> FloatArray:
        x, y = project(xy[:, 0], xy[:, 1])
        return np.column_stack(((np.asarray(x) - x0) / wide, (y1 - np.asarray(y)) / high))

    # Outer rings one way, holes the other, so that signed areas add up.
    placed = shapely.normalize(shapely.transform(shapely.segmentize(polygons, step), to_pixels))
    placed = np.asarray(placed, dtype=object)
    found = []
    for part in _chunks(placed, frame):
        found.append(_chunk(placed, part, frame))
        progress("overlay", part.stop / max(len(placed), 1))
    return RasterOverlap(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _window(placed: npt.NDArray[np.object_], frame: RasterFrame) -> IntArray:
    """First and last row and column that each zone can touch, shape (zones, 4): col, row, col, row."""
    import shapely

    bounds = shapely.bounds(placed)
    # An empty polygon has no bounds and no window.
    low = np.floor(np.nan_to_num(bounds[:, :2], nan=0.0)).astype(np.int64)
    high = np.ceil(np.nan_to_num(bounds[:, 2:], nan=-1.0)).astype(np.int64) - 1
    most = np.array([frame.columns - 1, frame.rows - 1])
    return np.hstack((np.maximum(low, 0), np.minimum(high, most)))


def _chunks(placed: npt.NDArray[np.object_], frame: RasterFrame) -> Iterator[slice]:
    """Runs of zones whose windows fit into memory."""
    window = _window(placed, frame)
    sizes = np.prod(np.maximum(window[:, 2:] - window[:, :2] + 2, 0), axis=1)
    start, held = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if held and held + size > _PIXELS_AT_ONCE:
            yield slice(start, at)
            start, held = at, 0
        held += size
    yield slice(start, len(placed))


def _chunk(placed: npt.NDArray[np.object_], part: slice, frame: RasterFrame) -> RasterOverlap:
    r"""The area of every pixel in every zone, by summing signed areas to the right of the zones' edges.

    An edge piece within one pixel of column c, from (x, y) to (x', y'), adds :math:`(y' - y)(c + 1 - (x + x') / 2)` to
    that pixel and :math:`y' - y` to all on its right; a running sum along each row does the latter.
    """
    window = _window(placed[part], frame)
    shape = np.maximum(window[:, 2:] - window[:, :2] + 1, 0)
    shape[(shape == 0).any(axis=1)] = 0
    width = shape[:, 0] + 1  # one more column takes what lies beyond the last
    starts = np.concatenate([[0], np.cumsum(width * shape[:, 1])])
    zone, x, y, dx, dy = _pieces(placed[part], frame)
    col, row = np.floor(x + dx / 2), np.floor(y + dy / 2)
    left, top = window[zone, 0], window[zone, 1]
    used = (row >= top) & (row <= window[zone, 3]) & (shape[zone, 0] > 0) & (dy != 0)
    zone, x, dx, dy, col, row = zone[used], x[used], dx[used], dy[used], col[used], row[used]
    left, top = left[used], top[used]
    middle = np.clip(x + dx / 2, left, left + shape[zone, 0])
    col = np.clip(col, left, left + shape[zone, 0] - 1).astype(np.int64)
    at = starts[zone] + (row.astype(np.int64) - top) * width[zone] + (col - left)
    share = col + 1 - middle
    area = (
        np.bincount(at, dy * share, starts[-1])
        + np.bincount(at + 1, dy * (1 - share), starts[-1] + 1)[: starts[-1]]
    )
    # The rows of a closed ring add up to 0, so one running sum does for all.
    parts = np.abs(np.cumsum(area))
    held = np.flatnonzero(parts > _ROUNDING)
    owner = np.searchsorted(starts, held, side="right") - 1
    down, across = np.divmod(held - starts[owner], width[owner])
    real = across < shape[owner, 0]
    held, owner, down, across = held[real], owner[real], down[real], across[real]
    fraction = np.where(parts[held] > 1 - _ROUNDING, 1.0, parts[held])
    return RasterOverlap(owner + part.start, down + window[owner, 1], across + window[owner, 0], fraction)


def _pieces(
    placed: npt.NDArray[np.object_], frame: RasterFrame
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Edges cut at every line between pixels: zone, beginning and extent of each piece."""
    import shapely

    polygons, owner = shapely.get_parts(placed, return_index=True)
    rings, of_polygon = shapely.get_rings(polygons, return_index=True)
    corners, of_ring = shapely.get_coordinates(rings, return_index=True)
    joined = of_ring[1:] == of_ring[:-1]
    begin, end = corners[:-1][joined], corners[1:][joined]
    zone = owner[of_polygon[of_ring[:-1][joined]]]
    edges = np.arange(zone.size)
    numbers, places = [edges], [np.zeros(zone.size)]
    for axis, most in ((0, frame.columns), (1, frame.rows)):
        low, high = np.minimum(begin[:, axis], end[:, axis]), np.maximum(begin[:, axis], end[:, axis])
        first = np.clip(np.floor(low) + 1, 0, most + 1)
        last = np.clip(np.ceil(high) - 1, -1, most)
        count = np.maximum(last - first + 1, 0).astype(np.int64)
        edge = np.repeat(edges, count)
        line = np.arange(edge.size) - np.repeat(np.cumsum(count) - count, count) + first[edge]
        numbers.append(edge)
        places.append((line - begin[edge, axis]) / (end[edge, axis] - begin[edge, axis]))
    edge, place = np.concatenate(numbers), np.concatenate(places)
    order = np.lexsort((place, edge))
    edge, place = edge[order], place[order]
    until = np.append(np.where(edge[1:] == edge[:-1], place[1:], 1.0), 1.0)
    extent = end - begin
    start, size = begin[edge] + place[:, None] * extent[edge], (until - place)[:, None] * extent[edge]
    return zone[edge], start[:, 0], start[:, 1], size[:, 0], size[:, 1]


def _on_polygons(
    shapes: npt.NDArray[np.object_], tiling: Tiling, flat: Callable[..., Any]
) -> tuple[IntArray, IntArray, FloatArray]:
    """Zone, cell and fraction of every overlap of zones with cells of any shape, in an equal-area plane."""
    import shapely

    cells = reprojected(tiling.polygons(), flat)
    areas = np.asarray(shapely.area(cells))
    zone, cell = shapely.STRtree(cells).query(shapes, predicate="intersects")
    shapely.prepare(shapes)
    cut = ~shapely.contains_properly(shapes[zone], cells[cell])
    parts = np.ones(zone.size)
    common = shapely.area(shapely.intersection(shapes[zone[cut]], cells[cell[cut]]))
    whole = areas[cell[cut]]
    parts[cut] = np.divide(common, whole, out=np.zeros(common.size), where=whole > 0)
    parts = np.where(parts > 1 - _ROUNDING, 1.0, parts)
    kept = parts > _ROUNDING
    return zone[kept], cell[kept], parts[kept]
