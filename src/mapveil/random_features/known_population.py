"""Knowledge of a server about where people are without any report: an external population, or a private map."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.geo.counts import Counts, read_counts
from mapveil.random_features.map_points import MapPoints
from mapveil.random_features.posterior import PriorCells
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap

FLOOR: Final = 0.01
"""Fraction of a prior that is uniform, where devices may be where it says that nobody is."""


def read_population(path: str | PathLike[str]) -> DensityMap | Counts:
    """A private map, or a raster of people per cell.

    Raises
    ------
    InputError
        The file is neither.
    """
    from mapveil.formats.read_map import NotAMap, read_map

    try:
        return read_map(path)
    except NotAMap:
        return read_counts(path)


def population_cells(
    even: PriorCells, where: MapPoints, population: DensityMap | Counts, *, floor: float
) -> PriorCells:
    """A prior in proportion to a population's density, on the cells of a uniform one.

    Parameters
    ----------
    even : PriorCells
        The uniform prior (:func:`mapveil.random_features.map_points.prior_cells`).
    where : MapPoints
        The region's plane.
    population : DensityMap or Counts
        On cells of its own.
    floor : float
        Fraction of the prior that stays uniform.

    Raises
    ------
    InputError
        It holds nobody in the region, or is itself made of random Fourier features: the devices would be looked for
        where its noise is, and seem better hidden than they are.
    """
    if getattr(population, "method", "") == "fourier-kde":
        raise InputError(
            "a prior must be an external population or a private map, got a map by fourier-kde: a server with its "
            "noise for a prior is farther off than one that knows where people are"
        )
    tiling = population.tiling
    cell = tiling.locate(*where.projection.unproject(*even.places))
    area = tiling.area_m2()
    density = np.divide(population.values, area, out=np.zeros(tiling.size), where=area > 0)
    found = np.where(cell >= 0, density[np.maximum(cell, 0)], 0.0)
    if not found.sum() > 0:
        raise InputError(f"the prior on {tiling.spec} over {tiling.region} holds nobody in this region")
    probability = (1 - floor) * found / found.sum() + floor * even.probability
    kept = probability > 0
    return PriorCells(even.places[:, kept], even.size, probability[kept] / probability.sum())
