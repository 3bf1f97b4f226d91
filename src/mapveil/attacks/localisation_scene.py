"""The scene of a localisation report: the region, its devices, and the priors of the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.random_features.bandwidth import public_bandwidth
from mapveil.random_features.exact_density import kernel_density_at
from mapveil.random_features.known_population import FLOOR, population_cells
from mapveil.random_features.map_points import MapPoints, map_points, prior_cells
from mapveil.random_features.posterior import PriorCells
from mapveil.random_features.visits import all_places
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.random_features.kernels import Gaussian
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap


_SCORE_SIDE: Final = 100


class Scene(NamedTuple):
    """The region, devices and query that all modelled servers share."""

    tiling: Tiling
    where: MapPoints
    even: PriorCells  # of a server that knows the region only
    known: PriorCells  # of one that knows more
    knows: str  # what that is
    grid: EvenGrid  # where maxima are looked for
    places: FloatArray | None  # of devices, metres; None: they are drawn from the known prior

    @property
    def unit(self) -> str:
        """Of lengths."""
        return "m" if self.tiling.region.georeferenced else "cells"

    def query(self, features: int, bandwidth: float, kernel: str) -> Query:
        """The query, as a server that sees the frequencies themselves asks it."""
        return Query((bandwidth, bandwidth), self.where.low, self.where.high, features, kernel)


def device_places(source: Points | Counts, tiling: Tiling, most: int, rng: Randomness) -> FloatArray:
    """Locations of devices, shape (2, devices): each user's most visited, or units of counts spread in their cells.

    Parameters
    ----------
    source : Points or Counts
        The devices.
    tiling : Tiling
        Cells of the region.
    most : int
        Maximum number of devices; a random sample where there are more.
    rng : Randomness
        Source of the sample.
    """
    chance = rng.generator()
    if isinstance(source, Counts):
        where, total = map_points(tiling), int(source.values.sum())
        if total == 0:
            return np.zeros((2, 0))
        at = np.repeat(np.arange(tiling.size), source.values) if total <= most else None
        if at is None:
            at = chance.choice(tiling.size, most, p=source.values / total)
        inside = np.zeros((2, at.size))
        if where.grid is not None:
            inside = chance.uniform(-0.5, 0.5, inside.shape) * np.asarray(where.grid.step)[:, None]
        return np.asarray(where.places[:, at] + inside)
    places = all_places(source, tiling)
    if places.shape[1] > most:
        places = places[:, np.sort(chance.choice(places.shape[1], most, replace=False))]
    return places


def scene(
    tiling: Tiling,
    places: FloatArray | None,
    public: DensityMap | Counts | None = None,
    *,
    knows: str = "this map",
) -> Scene:
    """The priors and the grid of a report.

    Parameters
    ----------
    tiling : Tiling
        Cells of the region.
    places : ndarray of float64, shape (2, devices), optional
        Where devices are, metres; without, they are drawn from the known prior.
    public : DensityMap or Counts, optional
        What the server that knows more knows, on cells of its own. Without, it knows the kernel density of the places
        (Gaussian, as wide as a hundredth neighbour is far if people are spread evenly): what a good map would tell it.
    knows : str
        What ``public`` is, in a few words.

    Raises
    ------
    InputError
        ``public`` holds nobody in the region, or is a map by fourier-kde; or nobody is there.
    """
    where = map_points(tiling)
    even = prior_cells(tiling, where)
    if public is not None:
        # Devices that are drawn from the prior are where it says; others may be anywhere.
        known = population_cells(even, where, public, floor=0.0 if places is None else FLOOR)
    elif places is not None and places.size:
        known = _density(even, places, float(where.area.sum()))
        knows = "the density of these devices"
    else:
        raise InputError("nobody is inside the region; expected devices there, or a public density")
    size = [high - low for low, high in zip(where.low, where.high, strict=True)]
    step = max(size) / _SCORE_SIDE
    count = [max(2, round(side / step)) for side in size]
    steps = tuple(side / number for side, number in zip(size, count, strict=True))
    start = tuple(low + gap / 2 for low, gap in zip(where.low, steps, strict=True))
    grid = EvenGrid(start, steps, (count[0], count[1]))
    return Scene(tiling, where, even, known, knows, grid, places)


def _density(even: PriorCells, places: FloatArray, area: float) -> PriorCells:
    wide = public_bandwidth(area, max(places.shape[1], 100), neighbours=100)
    found = kernel_density_at(places, None, even.places, Gaussian(), (wide, wide), threads=None)
    found = np.maximum(found, 0.0)
    probability = FLOOR * even.probability
    if found.sum() > 0:
        probability = (1 - FLOOR) * found / found.sum() + probability
    return even._replace(probability=probability / probability.sum())
