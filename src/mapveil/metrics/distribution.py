"""Pairs of maps to compare: of the same cells, finite, and normalised where asked."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.maps.density_map import DensityMap
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError

MapLike = DensityMap | npt.ArrayLike
"""A :class:`~mapveil.maps.density_map.DensityMap`, or an array with one value per cell."""


class Pair(NamedTuple):
    """Two maps over the same cells, arrays of one shape."""

    truth: FloatArray
    estimate: FloatArray


def value_pair(truth: MapLike, estimate: MapLike) -> Pair:
    """The values of two maps as they are.

    Raises
    ------
    ParameterError
        The maps have different cells or none, or a value is not finite.
    """
    if isinstance(truth, DensityMap) and isinstance(estimate, DensityMap):
        _same_tiling(truth, estimate)
    pair = Pair(_values("truth", truth), _values("estimate", estimate))
    if pair.truth.shape != pair.estimate.shape:
        raise ParameterError(
            f"the maps must have the same cells, got shapes {pair.truth.shape} and {pair.estimate.shape}"
        )
    return pair


def distribution_pair(truth: MapLike, estimate: MapLike) -> Pair:
    """Two maps as probability distributions over their cells, each of sum one.

    A map of total zero says nothing about where anybody is, so it is read as uniform: over the cells of an
    array, by area over the cells of a :class:`~mapveil.maps.density_map.DensityMap`, whose negative
    estimates count as zero (:meth:`~mapveil.maps.density_map.DensityMap.normalised`).

    Raises
    ------
    ParameterError
        As :func:`value_pair`, or an array has a negative value.
    """
    pair = value_pair(truth, estimate)
    return Pair(_distribution("truth", truth, pair.truth), _distribution("estimate", estimate, pair.estimate))


def _same_tiling(truth: DensityMap, estimate: DensityMap) -> None:
    if truth.tiling is not estimate.tiling and truth.tiling.to_dict() != estimate.tiling.to_dict():
        raise ParameterError(
            f"the maps must have the same cells, got different tilings or regions: {truth.tiling.spec} and "
            f"{estimate.tiling.spec}"
        )


def _values(name: str, given: MapLike) -> FloatArray:
    raw: Any = given.values if isinstance(given, DensityMap) else given
    try:
        values = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be a DensityMap or an array of numbers") from None
    if values.size == 0:
        raise ParameterError(f"{name} must have at least one cell")
    if not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ParameterError(f"{name} must be finite, got {values[place]} at {place}")
    return values


def _distribution(name: str, given: MapLike, values: FloatArray) -> FloatArray:
    if isinstance(given, DensityMap):
        return given.normalised()
    if (values < 0).any():
        place = tuple(int(i) for i in np.argwhere(values < 0)[0])
        raise ParameterError(f"{name} must be at least 0, got {values[place]} at {place}")
    # Dividing by the largest first keeps sums of huge values finite.
    largest = values.max()
    if largest == 0:
        return np.full(values.shape, 1.0 / values.size)
    scaled = values / largest
    return np.asarray(scaled / scaled.sum())
