r"""Crossings: the places that the exact phases of one device leave, given as many features as axes.

Each feature puts the device on parallel lines (planes) :math:`\omega_b \cdot (x - o) = \arg z_b + 2 \pi n_b`. As many
features as axes leave a lattice of points, one for each choice of whole numbers n. One feature more tells the
device's point among them, for the phases carry no noise: a wrong point agrees by chance only, to one part in a million.

Zong et al. (2023) count the crossings as the protection of a device (section 3.5, after Lemma 2) and do not count how
few the next feature leaves.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Reports

_MOST: Final = 1 << 20  # whole numbers tried for one device
_BLOCK: Final = 1 << 22  # and at once
_TOLERANCE: Final = 1e-6  # radians: far above rounding, far below chance
_PARALLEL: Final = 1e-7  # sine of an angle


class Crossings(NamedTuple):
    """The places that agree with each device's report; none for a device with too many to enumerate."""

    places: FloatArray  # (dimension, crossings), metres
    device: IntArray  # of each, ascending
    countless: BoolArray  # (devices,): frequencies too high, or too nearly parallel


class _Lattices(NamedTuple):
    first: FloatArray  # (devices, dimension): least n of each of the chosen features
    many: FloatArray  # the number of them
    inverse: FloatArray  # (devices, dimension, dimension): from phases to places
    phase: FloatArray  # (devices, dimension)


def crossings(reports: Reports, query: Query, low: Sequence[float], high: Sequence[float]) -> Crossings:
    """Every place in a box that agrees with all of a device's phases. Run by: an adversary.

    Parameters
    ----------
    reports : Reports
        Reports of devices at one place each, not folded by a grid; at least as many features as axes.
    query : Query
        Query that the devices answered.
    low, high : sequence of float
        Corners of the box, metres.

    Raises
    ------
    ParameterError
        There are fewer features than axes, so that whole lines agree.

    Examples
    --------
    >>> from mapveil_client.randomness.random import Randomness
    >>> from mapveil_client.random_features.frequencies import unit_frequencies
    >>> from mapveil_client.random_features.report import Visits, client_reports
    >>> query = Query((100.0, 100.0), (0.0, 0.0), (9000.0, 9000.0), features=3)
    >>> units = unit_frequencies(1, 3, query.law, 2, Randomness(seed=1))
    >>> report = client_reports(units, Visits(np.array([[1234.5], [6789.0]])), query)
    >>> crossings(report, query, query.low, query.high).places.round(3).tolist()
    [[1234.5], [6789.0]]
    """
    dimension, _, features = reports.frequencies.shape
    if features < dimension:
        raise ParameterError(
            f"features must be at least the number of axes, {dimension}, got {features}: fewer features leave lines"
        )
    frequencies = np.moveaxis(reports.frequencies, 0, 2)
    # The lowest frequencies cross least often.
    order = np.argsort(np.square(frequencies).sum(axis=2), axis=1)
    frequencies = np.take_along_axis(frequencies, order[:, :, None], axis=1)
    phase = np.take_along_axis(np.angle(reports.projections), order, axis=1)
    origin = np.asarray(query.origin)
    ends = np.stack([np.asarray(low) - origin, np.asarray(high) - origin])
    lattices, countless = _lattices(frequencies[:, :dimension], phase[:, :dimension], ends)
    total = np.where(countless, 0, lattices.many.prod(axis=1)).astype(np.int64)
    found: list[tuple[FloatArray, IntArray]] = []
    for part in _blocks(total):
        places, device = _points(lattices, part, total[part])
        held = ((places >= ends[0] - 1e-6) & (places <= ends[1] + 1e-6)).all(axis=1)
        places, device = places[held], device[held]
        for feature in range(dimension, features):
            off = (frequencies[device, feature] * places).sum(axis=1) - phase[device, feature]
            off -= 2 * math.pi * np.rint(off / (2 * math.pi))
            places, device = places[np.abs(off) < _TOLERANCE], device[np.abs(off) < _TOLERANCE]
        found.append((places, device))
    if not found:
        return Crossings(np.zeros((dimension, 0)), np.zeros(0, dtype=np.int64), countless)
    places = np.concatenate([places for places, _ in found]) + origin
    return Crossings(
        np.ascontiguousarray(places.T), np.concatenate([device for _, device in found]), countless
    )


def _lattices(frequencies: FloatArray, phase: FloatArray, ends: FloatArray) -> tuple[_Lattices, BoolArray]:
    """The lattice of each device's first features, and which devices have too many points."""
    corner = frequencies * ends[:, None, None, :]
    least, most = np.minimum(*corner).sum(axis=2), np.maximum(*corner).sum(axis=2)
    slack = 1e-9
    first = np.ceil((least - phase) / (2 * math.pi) - slack)
    count = np.maximum(np.floor((most - phase) / (2 * math.pi) + slack) - first + 1, 0)
    length = np.sqrt(np.square(frequencies).sum(axis=2)).prod(axis=1)
    with np.errstate(invalid="ignore"):
        parallel = np.abs(np.linalg.det(frequencies)) <= _PARALLEL * length
        countless = np.asarray(parallel | (count.prod(axis=1) > _MOST) | ~np.isfinite(length))
    usable = np.where(countless[:, None, None], np.eye(frequencies.shape[1]), frequencies)
    return _Lattices(first, count, np.linalg.inv(usable), phase), countless


def _blocks(total: IntArray) -> list[IntArray]:
    """Devices in runs that are enumerated together."""
    if not total.size:
        return []
    number = np.cumsum(total) // _BLOCK
    return np.split(np.arange(total.size), np.flatnonzero(np.diff(number)) + 1)


def _points(lattices: _Lattices, part: IntArray, total: IntArray) -> tuple[FloatArray, IntArray]:
    """Every lattice point of some devices from the origin, shape (points, dimension), and its device."""
    device = np.repeat(part, total)
    rest = np.arange(device.size) - np.repeat(np.cumsum(total) - total, total)
    phases = np.empty((device.size, lattices.phase.shape[1]))
    for axis in range(phases.shape[1]):
        rest, digit = np.divmod(rest, lattices.many[device, axis].astype(np.int64))
        phases[:, axis] = lattices.phase[device, axis] + 2 * math.pi * (lattices.first[device, axis] + digit)
    return np.einsum("nij,nj->ni", lattices.inverse[device], phases), device
