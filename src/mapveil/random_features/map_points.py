"""Points of the plane at which a tiling needs a density: an even grid of metres, or the centres of its cells."""

import math
from typing import NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.maps.frame import raster_frame
from mapveil.random_features.exact_density import kernel_density, kernel_density_at
from mapveil.random_features.posterior import PriorCells
from mapveil.random_features.surface import evaluate_on_grid, evaluate_on_points
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.plane import Projection
from mapveil_client.random_features.kernels import Kernel
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports

_PRIOR_SIDE = 96
_SQUARE_SIDE = 256


class MapPoints(NamedTuple):
    """A tiling's cells in the plane."""

    grid: EvenGrid | None  # None where the cells' middles are not evenly spaced in metres
    column: IntArray  # of each cell on the grid
    row: IntArray
    places: FloatArray  # the cells' middles, shape (2, cells), metres
    area: FloatArray  # of each cell in that plane, square metres
    low: tuple[float, float]  # corners of the region's box
    high: tuple[float, float]
    projection: Projection  # between degrees and the plane
    crs: str  # the same as text

    def on_cells(self, surface: FloatArray) -> FloatArray:
        """The values of a surface on the grid at each cell."""
        return np.asarray(surface[self.column, self.row])


def map_points(tiling: Tiling) -> MapPoints:
    """The plane of a tiling: metres, or cells where the region is nowhere on Earth."""
    region = tiling.region
    projection = region.metric_projection
    crs = str(getattr(projection, "crs", ""))
    frame = raster_frame(tiling)
    if frame is not None and frame.crs == region.crs and projection is region.projection:
        x0, y0, x1, y1 = frame.bounds
        dx, dy = (x1 - x0) / frame.columns, (y1 - y0) / frame.rows
        grid = EvenGrid((x0 + dx / 2, y1 - dy / 2), (dx, -dy), (frame.columns, frame.rows))
        places = np.stack([grid.axis(0)[frame.col], grid.axis(1)[frame.row]])
        area = np.full(tiling.size, dx * dy)
        return MapPoints(grid, frame.col, frame.row, places, area, (x0, y0), (x1, y1), projection, crs)
    places = np.stack(projection.project(*tiling.centres()))
    west, south, east, north = region.bbox
    x, y = projection.project(np.array([west, east]), np.array([south, north]))
    low, high = (float(x[0]), float(y[0])), (float(x[1]), float(y[1]))
    none = np.zeros(0, dtype=np.int64)
    return MapPoints(None, none, none, places, tiling.area_m2(), low, high, projection, crs)


def inside_region(tiling: Tiling) -> BoolArray:
    """Whether the middle of each cell lies in the region's polygon, shape (cells,)."""
    inside = getattr(tiling, "inside", None)
    if tiling.region.polygon is None or inside is None:
        return np.ones(tiling.size, dtype=np.bool_)
    return np.asarray(inside())


def inscribed_side(tiling: Tiling, where: MapPoints) -> float:
    """The side of the largest square inside the region along the plane's axes, metres: l of Lemma 3."""
    width, height = (high - low for low, high in zip(where.low, where.high, strict=True))
    if tiling.region.polygon is None:
        return min(width, height)
    from scipy.ndimage import distance_transform_cdt

    side = max(width, height) / _SQUARE_SIDE
    columns, rows = math.ceil(width / side), math.ceil(height / side)
    x, y = np.meshgrid(
        where.low[0] + (np.arange(columns) + 0.5) * side, where.low[1] + (np.arange(rows) + 0.5) * side
    )
    inside = tiling.region.contains(*where.projection.unproject(x.ravel(), y.ravel())).reshape(x.shape)
    # The chessboard distance d to the nearest cell outside: a square of 2 d - 1 cells fits around.
    distance = distance_transform_cdt(np.pad(inside, 1), metric="chessboard")
    return float(max(2 * int(distance.max()) - 1, 0)) * side


def sum_of_features(where: MapPoints, reports: Reports, query: Query, *, threads: int | None) -> FloatArray:
    """B times S at each cell, shape (cells,). Run by: the server."""
    if query.grid is not None:
        return where.on_cells(evaluate_on_grid(reports, query, query.grid, threads=threads))
    return evaluate_on_points(reports, query, where.places, threads=threads)


def sum_of_kernels(
    where: MapPoints,
    places: FloatArray,
    weights: FloatArray | None,
    kernel: Kernel,
    bandwidth: tuple[float, float],
    *,
    threads: int | None,
) -> FloatArray:
    """The exact sum of kernels (1 at each place) at each cell, shape (cells,)."""
    if where.grid is not None:
        return where.on_cells(kernel_density(places, weights, where.grid, kernel, bandwidth, threads=threads))
    return kernel_density_at(places, weights, where.places, kernel, bandwidth, threads=threads)


def prior_cells(tiling: Tiling, where: MapPoints) -> PriorCells:
    """The uniform prior over equal boxes of the region."""
    width, height = (high - low for low, high in zip(where.low, where.high, strict=True))
    side = max(width, height) / _PRIOR_SIDE
    columns, rows = max(1, round(width / side)), max(1, round(height / side))
    size = (width / columns, height / rows)
    x, y = np.meshgrid(
        where.low[0] + (np.arange(columns) + 0.5) * size[0], where.low[1] + (np.arange(rows) + 0.5) * size[1]
    )
    places = np.stack([x.ravel(), y.ravel()])
    lon, lat = where.projection.unproject(places[0], places[1])
    inside = tiling.region.contains(lon, lat)
    return PriorCells(
        places[:, inside], size, np.full(np.count_nonzero(inside), 1 / np.count_nonzero(inside))
    )
