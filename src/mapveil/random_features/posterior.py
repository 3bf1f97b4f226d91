r"""The posterior of a server with a prior over places, given the features of one device.

The server has a device's frequencies and phases exactly, and a public prior over cells of the region, uniform inside
each cell. Fewer features than axes leave lines of places. The phase of a place that is uniform in a cell is the sum of
uniform variables, so for one feature the posterior is exact:

.. math:: \Pr[c \mid \omega, z] \propto \pi_c \prod_b \tau_b\big(\arg(z_b) - \omega_b \cdot (c - o)\big)

where: :math:`\pi` is the prior, c a cell's middle and :math:`\tau_b` the trapezoidal density of
:math:`\omega_b \cdot x` for x in a cell around 0, over all multiples of :math:`2 \pi` (with the device's own offset, if
it has one). As many features as axes leave points (:mod:`mapveil.random_features.crossings`), and

.. math:: \Pr[c \mid \omega, z] \propto \pi_c \sum_{x} \Pr[x - e \in c]

where: x are the crossings and e the device's own offset, if it has one.

Measured are the error of the guess that is best in expectation (the posterior's geometric median) and the exponential
of the posterior's entropy, a number of equally likely cells. Deviation: Zong et al. (2023) score the maxima of the
surface (equation 16), against no prior.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.random_features.crossings import crossings
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Reports, Visits, client_reports
from mapveil_client.randomness.random import Randomness

AnyArray = npt.NDArray[Any]

_BLOCK: Final = 1 << 21
_STEPS: Final = 12
_LAST_STEPS: Final = 2
_SEED: Final = 5
_REACH: Final = 4.0  # deviations of an offset
_WITH_SQUARE: Final = math.sqrt(1 + 1 / 12)  # of a normal offset and one uniform in a square of that side
_NEGLIGIBLE: Final = 1e-20
_ROUNDING: Final = 1e-14


class PriorCells(NamedTuple):
    """A public prior: equal boxes of the plane and their probabilities."""

    places: FloatArray  # middles, shape (dimension, cells), metres
    size: tuple[float, ...]  # sides of a box, metres
    probability: FloatArray  # shape (cells,), sums to 1

    @property
    def spread(self) -> float:
        """Root mean square distance of a box's places to its middle, metres."""
        return math.sqrt(sum(side * side for side in self.size) / 12)

    def lattice(self) -> CellLattice:
        """Positions of the boxes in the smallest array of boxes that holds them."""
        first = self.places.min(axis=1)
        at = np.rint((self.places - first[:, None]) / np.asarray(self.size)[:, None]).astype(np.int64)
        count = tuple(int(most) + 1 for most in at.max(axis=1))
        low = tuple(float(value) for value in first - np.asarray(self.size) / 2)
        return CellLattice(low, count, np.ravel_multi_index(tuple(at), count))


class CellLattice(NamedTuple):
    """An array of boxes that contains those of a prior."""

    low: tuple[float, ...]  # corner of the array, metres
    boxes: tuple[int, ...]  # along each axis
    kept: IntArray  # indices of the prior's boxes in the flat array


class Posterior(NamedTuple):
    """The posterior of each device."""

    weights: FloatArray  # (devices, cells), each row sums to 1
    spread: FloatArray  # (devices,): root mean square distance to the place inside a cell, metres


class Hiding(NamedTuple):
    """Measures of hiding, each an average over simulated devices."""

    error_m: float  # expected distance to the best guess, metres
    worst_error_m: float  # the error's 5 % quantile over devices
    places: float  # equally likely cells
    prior_error_m: float  # of the best guess without any report


class Simulated(NamedTuple):
    """Devices that were drawn from a prior."""

    cell: IntArray  # (devices,): of the prior
    places: FloatArray  # (dimension, devices), metres
    reports: Reports


def posterior(
    reports: Reports, query: Query, prior: PriorCells, *, jitter_m: float = 0.0, cellwise: bool = False
) -> Posterior:
    """The posterior of each device over the prior's cells. Run by: an adversary.

    Parameters
    ----------
    reports : Reports
        Reports of devices at one place each, not folded by a grid: a server with folded reports knows less.
    query : Query
        Query that the devices answered.
    prior : PriorCells
        Knowledge of the server without the reports.
    jitter_m : float
        Standard deviation of the offset of each place along x and y, metres. The square's middle, at which the offset
        begins, is taken for another offset, uniform in the square.
    cellwise : bool
        Whether the server compares each phase with each cell by itself and ignores crossings. For comparison.
    """
    jitter_m *= _WITH_SQUARE
    devices = reports.projections.shape[0]
    spread = np.full(devices, prior.spread)
    if cellwise or query.features < query.dimension:
        logs = _on_lines(reports, query, prior, jitter_m)
    else:
        logs, spread, countless = _at_crossings(reports, query, prior, jitter_m)
        if countless.any():
            part = Reports(reports.frequencies[:, countless], reports.projections[countless])
            logs[countless] = _on_lines(part, query, prior, jitter_m)
    logs += _log(prior.probability)
    most = logs.max(axis=1, keepdims=True)
    possible = np.isfinite(most)
    weights = np.exp(logs - np.where(possible, most, 0.0))
    # Where the prior excludes every place that the report leaves, the posterior is the prior.
    weights = np.where(possible, weights, prior.probability)
    spread = np.where(possible[:, 0], spread, prior.spread)
    return Posterior(np.asarray(weights / weights.sum(axis=1, keepdims=True)), spread)


def _on_lines(reports: Reports, query: Query, prior: PriorCells, jitter_m: float) -> FloatArray:
    """Logarithms of each report's likelihood in each cell, with phases independent inside a cell."""
    logs = np.zeros((reports.projections.shape[0], prior.probability.size))
    offset = prior.places - np.asarray(query.origin)[:, None]
    for feature in range(query.features):
        frequency = reports.frequencies[:, :, feature]
        phase = np.angle(reports.projections[:, feature])[:, None] - _products(frequency.T, offset)
        phase -= 2 * math.pi * np.rint(phase / (2 * math.pi))
        spans = np.abs(frequency) * np.asarray(prior.size)[:, None]
        if jitter_m:
            # As a uniform variable of the same variance.
            blur = math.sqrt(12) * jitter_m * np.sqrt(np.square(frequency[:2]).sum(axis=0))
            spans = np.concatenate([spans, blur[None]])
        logs += _log(_wrapped_density(phase, spans))
    return logs


def _at_crossings(
    reports: Reports, query: Query, prior: PriorCells, jitter_m: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """The same where crossings are left, the spread inside a cell, and devices with too many crossings."""
    lattice = prior.lattice()
    size, devices = np.asarray(prior.size), reports.projections.shape[0]
    # A moved place may be outside.
    moved = size.size if jitter_m == 0 else min(2, size.size)
    pad = np.zeros(size.size, dtype=np.int64)
    pad[:moved] = np.minimum(np.ceil(_REACH * jitter_m / size[:moved]), max(lattice.boxes))
    count = np.asarray(lattice.boxes) + 2 * pad
    low = np.asarray(lattice.low) - pad * size
    found = crossings(reports, query, tuple(low), tuple(low + count * size))
    cell = np.floor((found.places - low[:, None]) / size[:, None]).astype(np.int64)
    cell = np.clip(cell, 0, count[:, None] - 1)
    flat = np.ravel_multi_index((found.device, *cell), (devices, *count))
    held = (
        np.bincount(flat, minlength=devices * int(count.prod())).astype(np.float64).reshape(devices, *count)
    )
    if jitter_m:
        from scipy.ndimage import correlate1d

        for axis in range(moved):
            held = correlate1d(held, _spill(jitter_m / float(size[axis])), axis=axis + 1, mode="constant")
    inner = tuple(slice(int(p), int(p + n)) for p, n in zip(pad, lattice.boxes, strict=True))
    likelihood = held[(slice(None), *inner)].reshape(devices, -1)[:, lattice.kept]
    # As many crossings as cells reveal no more than the cell.
    others = np.maximum(np.bincount(found.device, minlength=devices) - 1, 0)
    many = np.minimum(others / float(np.prod(lattice.boxes)), 1.0)
    within = prior.spread**2 * many + moved * jitter_m**2 * math.pi / 4
    spread = np.sqrt(np.minimum(np.where(found.countless, np.inf, within), prior.spread**2))
    return _log(np.maximum(likelihood, 0.0)), spread, found.countless


def _spill(deviation: float) -> FloatArray:
    """Fractions of a normal variable around the middle of a cell that fall into the cells around it."""
    from scipy.special import ndtr

    reach = math.ceil(_REACH * deviation)
    apart = np.arange(-reach, reach + 1)
    return np.asarray(ndtr((apart + 0.5) / deviation) - ndtr((apart - 0.5) / deviation))


def _log(values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _wrapped_density(phase: FloatArray, spans: FloatArray) -> FloatArray:
    """The density at a phase (modulo 2 pi) of a sum of uniform variables of these widths, shape of ``phase``.

    Two widths make a trapezoid; more are narrowed to the two largest, the third added to the second.
    """
    ordered = np.sort(spans, axis=0)[::-1]
    long = ordered[0][:, None]
    short = ordered[1:].sum(axis=0)[:, None] if ordered.shape[0] > 1 else np.zeros_like(long)
    long, short = np.maximum(long, short), np.minimum(long, short)
    floor = 1e-9
    long, short = np.maximum(long, floor), np.maximum(short, floor)
    total = np.zeros(phase.shape)
    # In a cell wider than a few periods the phase is uniform.
    turns = int(min(np.ceil((long + short).max() / (4 * math.pi)) + 1, 8))
    for turn in range(-turns, turns + 1):
        apart = np.abs(phase + 2 * math.pi * turn)
        total += np.clip((long + short) / 2 - apart, 0.0, short) / (long * short)
    flat = (long + short) / 2 > 2 * math.pi * turns
    return np.where(flat, 1 / (2 * math.pi), total)


def best_guess(weights: FloatArray, places: FloatArray) -> FloatArray:
    """The guess of least expected distance under each posterior, by Weiszfeld's iteration.

    ``weights`` are posteriors of shape (devices, cells), ``places`` the cells' middles, shape (dimension, cells); the
    guesses have shape (devices, dimension).
    """
    middle = places.mean(axis=1)
    extent = float(np.ptp(places, axis=1).max()) or 1.0
    around = (places - middle[:, None]) / extent
    guess = _means(weights, around)
    # Most steps in single precision; there, tiny weights would be slow.
    short = np.where(weights > _NEGLIGIBLE, weights, 0).astype(np.float32)
    for _ in range(_STEPS):
        guess = _step(short, around.astype(np.float32), guess.astype(np.float32), 1e-3)
    for _ in range(_LAST_STEPS):
        guess = _step(weights, around, guess.astype(np.float64), 1e-6)
    return np.asarray(guess * extent + middle)


def _step(weights: AnyArray, places: AnyArray, guess: AnyArray, least: float) -> AnyArray:
    """One of Weiszfeld's steps; no place is nearer than ``least``."""
    pull = _products(-2 * guess, places)
    pull += np.square(guess).sum(axis=1, keepdims=True)
    pull += np.square(places).sum(axis=0)
    np.maximum(pull, least * least, out=pull)
    np.sqrt(pull, out=pull)
    np.divide(weights, pull, out=pull)
    return _means(pull, places)


def _products(first: AnyArray, second: AnyArray) -> AnyArray:
    """The matrix product over two or three columns, without the threads of a matrix library."""
    made: AnyArray = np.multiply.outer(first[:, 0], second[0])
    for axis in range(1, second.shape[0]):
        made += np.multiply.outer(first[:, axis], second[axis])
    return made


def _means(weights: AnyArray, places: AnyArray) -> AnyArray:
    """The mean place under each row of weights, shape (rows, dimension)."""
    sums = np.stack([np.einsum("dc,c->d", weights, axis) for axis in places], axis=1)
    return np.asarray(sums / weights.sum(axis=1, keepdims=True))


def _squares(guess: FloatArray, places: FloatArray) -> FloatArray:
    # Around the middle, so that little is lost in the difference.
    middle = places.mean(axis=1)
    guess, places = guess - middle, places - middle[:, None]
    total = _products(-2 * guess, places)
    total += np.square(guess).sum(axis=1)[:, None]
    total += np.square(places).sum(axis=0)
    # Rounding makes millimetres of 0 in a city.
    total[total < _ROUNDING * np.square(np.ptp(places, axis=1)).sum()] = 0.0
    return total


def expected_error(
    weights: FloatArray, spread: FloatArray | float, prior: PriorCells, guess: FloatArray | None = None
) -> FloatArray:
    """The expected distance of a guess under each posterior, metres, shape (devices,).

    Parameters
    ----------
    weights, spread
        Posteriors, as :class:`Posterior`.
    prior : PriorCells
        The cells.
    guess : ndarray of float64, shape (devices, dimension), optional
        :func:`best_guess` by default.
    """
    away = _squares(best_guess(weights, prior.places) if guess is None else guess, prior.places)
    away += np.square(np.broadcast_to(spread, weights.shape[0]))[:, None]
    return np.asarray((weights * np.sqrt(away)).sum(axis=1))


def effective_places(weights: FloatArray) -> FloatArray:
    """The exponential of each posterior's entropy: a number of equally likely cells, shape (devices,)."""
    return np.asarray(np.exp(-(weights * _log(np.where(weights > 0, weights, 1.0))).sum(axis=1)))


def hiding(
    query: Query, prior: PriorCells, *, devices: int = 256, jitter_m: float = 0.0, cellwise: bool = False
) -> Hiding:
    """Measure how well a query hides devices from a server with this prior. Run by: anybody.

    Devices are drawn from the prior, with a fixed seed: the figures are properties of the query and the prior. The
    server is given the frequencies themselves, more than a grid with a step longer than their periods reveals.

    Parameters
    ----------
    query, prior, jitter_m, cellwise
        As for :func:`posterior`.
    devices : int
        Number of devices to simulate.
    """
    query = dataclasses.replace(query, grid=None)
    drawn = simulated_devices(query, prior, devices, Randomness(_SEED), jitter_m=jitter_m)
    error, places = np.empty(devices), np.empty(devices)
    block = max(1, _BLOCK // prior.probability.size)
    for start in range(0, devices, block):
        part = slice(start, start + block)
        some = Reports(drawn.reports.frequencies[:, part], drawn.reports.projections[part])
        found = posterior(some, query, prior, jitter_m=jitter_m, cellwise=cellwise)
        error[part] = expected_error(found.weights, found.spread, prior)
        places[part] = effective_places(found.weights)
    return Hiding(
        float(error.mean()),
        float(np.quantile(error, 0.05)),
        float(np.exp(np.log(places).mean())),
        blind_error(prior),
    )


def simulated_devices(
    query: Query, prior: PriorCells, devices: int, rng: Randomness, *, jitter_m: float = 0.0
) -> Simulated:
    """Draw devices from a prior, uniform inside a cell, and their reports. Run by: a simulation."""
    chance, dimension = rng.generator(), query.dimension
    at = chance.choice(prior.probability.size, devices, p=prior.probability)
    inside = chance.uniform(-0.5, 0.5, (dimension, devices)) * np.asarray(prior.size)[:, None]
    places = prior.places[:, at] + inside
    units = unit_frequencies(devices, query.features, query.law, dimension, rng)
    visits = Visits(places).jittered(query.low, jitter_m, rng)
    return Simulated(at, places, client_reports(units, visits, query))


def blind_error(prior: PriorCells) -> float:
    """The expected distance of the best guess without any report, metres."""
    return float(expected_error(prior.probability[None], prior.spread, prior)[0])
