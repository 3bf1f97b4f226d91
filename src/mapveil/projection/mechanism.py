"""What the mechanisms of this wing share: a plane, a bandwidth that says where it came from, and a release."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.errors import InputError
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.frame import raster_frame
from mapveil.maps.mechanism import AnyMechanism, Progress, tiling_of
from mapveil.privacy.guarantee import Guarantee, Measured
from mapveil.privacy.random import Randomness, as_randomness
from mapveil.projection.even_grid import EvenGrid

__all__ = ["MapPoints", "ProjectionMechanism", "Surface", "clipped", "map_points"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class MapPoints(NamedTuple):
    """Where in the plane a tiling's cells ask for a density."""

    grid: EvenGrid | None  # None where the cells' middles are not evenly spaced in metres
    column: IntArray  # of each cell on the grid
    row: IntArray
    places: FloatArray  # the cells' middles, shape (2, cells), metres
    area: FloatArray  # of each cell in that plane, square metres
    low: tuple[float, float]  # corners of the region's box
    high: tuple[float, float]

    def on_cells(self, surface: FloatArray) -> FloatArray:
        """The values of a surface on the grid at each cell."""
        return np.asarray(surface[self.column, self.row])


def map_points(tiling: Tiling) -> MapPoints:
    """The plane of a tiling: metres, or cells where the region is nowhere on Earth."""
    region = tiling.region
    frame = raster_frame(tiling)
    if frame is not None and frame.crs == region.crs and region.projection.in_metres:
        x0, y0, x1, y1 = frame.bounds
        dx, dy = (x1 - x0) / frame.columns, (y1 - y0) / frame.rows
        grid = EvenGrid((x0 + dx / 2, y1 - dy / 2), (dx, -dy), (frame.columns, frame.rows))
        places = np.stack([grid.axis(0)[frame.col], grid.axis(1)[frame.row]])
        area = np.full(tiling.size, dx * dy)
        return MapPoints(grid, frame.col, frame.row, places, area, (x0, y0), (x1, y1))
    places = np.stack(region.metric_projection.project(*tiling.centres()))
    west, south, east, north = region.bbox
    corners = region.metric_projection.project(np.array([west, east]), np.array([south, north]))
    (x0, x1), (y0, y1) = (part.tolist() for part in corners)
    none = np.zeros(0, dtype=np.int64)
    return MapPoints(None, none, none, places, tiling.area_m2(), (x0, y0), (x1, y1))


class Surface(NamedTuple):
    """What the server half makes of the reports."""

    users: FloatArray  # estimated users per cell, negative where chance says so
    devices: int
    notes: tuple[str, ...]
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProjectionMechanism(AnyMechanism):
    """A mechanism whose devices report without a budget."""

    @abstractmethod
    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Surface:
        """Run every device's half and the server's."""

    @abstractmethod
    def promise(self, measured: tuple[Measured, ...], *, seeded: bool) -> Guarantee:
        """The guarantee in words, with what was measured."""

    def release(
        self,
        points: Points | Counts,
        tiling: Tiling | None = None,
        *,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> DensityMap:
        """Run a whole collection in this process: every device's half, and the server's.

        Parameters
        ----------
        points : Points or Counts
            What each device knows: one device per user.
        tiling : Tiling, optional
            The cells; counts bring their own.
        rng : Randomness, int or None
            Leave it out for a release; an integer seeds the run and marks the map.
        progress : callable, optional
            Told the name and the done part of each step.

        Raises
        ------
        InputError
            The table cannot be used, or the tiling has too many cells for a dense map.
        PromiseError
            The devices refuse the query: it is outside their policy. Nothing is answered.
        """
        stream = as_randomness(rng)
        cells = tiling_of(points, tiling)
        made = self.collect(points, cells, stream, progress or (lambda step, done: None))
        values, notes = clipped(made.users, cells)
        return DensityMap(
            values=values,
            tiling=cells,
            guarantee=self.promise(made.measured, seeded=stream.seeded),
            method=self.name,
            parameters=self.parameters(),
            notes=(*made.notes, *notes),
        )

    def _check_bandwidth(self, bandwidth_m: float, tiling: Tiling) -> None:
        """Refuse degrees given for metres."""
        if tiling.region.georeferenced and bandwidth_m < 1:
            raise InputError(
                f"bandwidth_m is {bandwidth_m:g}; metres are accepted, at least 1 (are these degrees? "
                f"{bandwidth_m:g} degrees are about {bandwidth_m * 111_000:.0f} m)"
            )


def clipped(users: FloatArray, tiling: Tiling) -> tuple[FloatArray, tuple[str, ...]]:
    """The estimate without negative users, and a note that says what that did."""
    inside = getattr(tiling, "inside", None)
    if tiling.region.polygon is not None and inside is not None:
        users = np.where(inside(), users, 0.0)
    negative = users < 0
    if not negative.any():
        return users, ()
    kept = np.maximum(users, 0.0)
    note = (
        f"{negative.mean():.0%} of the cells came out negative and are shown as 0: the map's total is "
        f"{kept.sum():.6g} users, the estimate's {math.fsum(users):.6g}"
    )
    return kept, (note,)
