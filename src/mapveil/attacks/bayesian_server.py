r"""Servers with a prior that locate devices by the random Fourier features they send.

Each has a public prior over cells of the region (:mod:`mapveil.random_features.posterior`):

- :func:`one_report`: one report of each device. Twice the features stand for a second set of frequencies from the same
  place.
- :func:`walking`: reports of a device at several places on its way, all with the same frequencies; the server knows
  how far people go between two reports, and filters:

  .. math:: \alpha_{k+1}(y) \propto L_{k+1}(y) \sum_x \alpha_k(x)\, T(x, y), \qquad
            T(x, y) = \frac{G_s(x - y)\, w(y)}{\sum_{y'} G_s(x - y')\, w(y')}

  where: :math:`\alpha_k` is the belief at report k, L the likelihood of a report, :math:`G_s` a Gaussian of the step
  s, and w such that the walk keeps the prior :math:`\pi`: :math:`w(x) \sum_y G_s(x - y) w(y) = \pi(x)`. Each report
  by itself is thus one of a device drawn from the prior, and only their succession tells more.
- :func:`listed`: the prior is a list of exact places, such as venues or addresses.

Deviation: Zong et al. (2023) argue that a moving device's travel cannot be inferred (section 3.5, "Multiple Queries")
and score the maxima of one surface (:mod:`mapveil.attacks.localisation_score`); none of these servers is in the paper.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mapveil.random_features.crossings import crossings
from mapveil.random_features.posterior import (
    Posterior,
    PriorCells,
    Simulated,
    best_guess,
    effective_places,
    expected_error,
    posterior,
)
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.frequencies import middles, squares, unit_frequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Reports, Visits, client_reports
from mapveil_client.randomness.random import Randomness

_BLOCK: Final = 1 << 21
_SCALINGS: Final = 200
AGREE: Final = 1e-9
"""Rounding of phases, which carry no noise, radians."""

_REACH: Final = 5.0  # deviations of an offset


class Verdict(NamedTuple):
    """Averages over the devices of a server's success in locating them."""

    error_m: float  # distance of its best guess from the place, metres
    expected_m: float  # what it expects that to be: the same where its prior is true, and less by chance
    twentieth_m: float  # the error for the twentieth of the devices that it expects to know best
    places: float  # equally likely cells that are left, geometric mean
    right: float  # part of the devices whose cell it names right
    standard_error_m: float  # of error_m over the devices; 0 for one device


def devices_at(
    places: FloatArray, prior: PriorCells, query: Query, rng: Randomness, *, jitter_m: float = 0.0
) -> Simulated:
    """Devices at given places, and their reports. Run by: a simulation.

    Parameters
    ----------
    places : ndarray of float64, shape (2, devices)
        Locations, metres.
    prior : PriorCells
        Prior whose grid discretises the locations (nearest centre).
    query, rng, jitter_m
        As for :func:`listed`; without a grid, the server has frequencies that are not folded.
    """
    from scipy.spatial import KDTree

    devices = places.shape[1]
    cell = np.asarray(KDTree(prior.places.T).query(places.T)[1], dtype=np.int64)
    units = unit_frequencies(devices, query.features, query.law, query.dimension, rng)
    moved = Visits(places).jittered(query.low, jitter_m, rng)
    return Simulated(cell, places, client_reports(units, moved, query))


def of_devices(drawn: Simulated, part: slice | IntArray) -> Simulated:
    """Some of the devices."""
    reports = Reports(drawn.reports.frequencies[:, part], drawn.reports.projections[part])
    return Simulated(drawn.cell[part], drawn.places[:, part], reports)


def first_features(drawn: Simulated, features: int) -> Simulated:
    """The same devices, had they been asked for fewer features."""
    reports = drawn.reports
    return drawn._replace(
        reports=Reports(reports.frequencies[:, :, :features], reports.projections[:, :features])
    )


def _judge(found: Posterior, cell: IntArray, prior: PriorCells) -> FloatArray:
    """Per-device quantities that a verdict averages, shape (4, devices)."""
    guess = best_guess(found.weights, prior.places)
    away = np.square(guess.T - prior.places[:, cell]).sum(axis=0) + np.square(found.spread)
    # Half a millimetre is rounding.
    away = np.where(away < 2.5e-7, 0.0, np.sqrt(away))
    likeliest = found.weights.argmax(axis=1)
    left = np.log(effective_places(found.weights))
    return np.stack(
        [away, expected_error(found.weights, found.spread, prior, guess), left, likeliest == cell]
    )


def _by_blocks(devices: int, cells: int, judge: Callable[[slice], FloatArray]) -> Verdict:
    """The verdict on all devices, of which each block fits in memory beside the cells."""
    block = max(1, _BLOCK // cells)
    parts = [slice(start, min(start + block, devices)) for start in range(0, devices, block)]
    return _verdict(np.concatenate([judge(part) for part in parts], axis=1))


def _verdict(judged: FloatArray) -> Verdict:
    away, expected, left, right = judged
    return Verdict(
        float(away.mean()),
        float(expected.mean()),
        float(away[expected <= np.quantile(expected, 0.05)].mean()),
        math.exp(float(left.mean())),
        float(right.mean()),
        float(away.std(ddof=1)) / math.sqrt(away.size) if away.size > 1 else 0.0,
    )


def one_report(
    drawn: Simulated, query: Query, prior: PriorCells, *, jitter_m: float = 0.0, cellwise: bool = False
) -> Verdict:
    """Locate every device from one report. Run by: an adversary.

    Parameters
    ----------
    drawn : Simulated
        The devices; their reports have ``query.features`` features.
    prior : PriorCells
        The server's prior.
    query, jitter_m
        As for :func:`listed`.
    cellwise : bool
        A server that reads each phase to a cell by itself and does not see where the features cross.
    """

    def judge(part: slice) -> FloatArray:
        some = of_devices(drawn, part)
        found = posterior(some.reports, query, prior, jitter_m=jitter_m, cellwise=cellwise)
        return _judge(found, some.cell, prior)

    return _by_blocks(drawn.cell.size, prior.probability.size, judge)


def blind(drawn: Simulated, prior: PriorCells) -> Verdict:
    """Locate every device from the prior alone."""
    one = _judge(Posterior(prior.probability[None], np.array([prior.spread])), drawn.cell[:1], prior)
    guess = best_guess(prior.probability[None], prior.places)[0]
    away = np.square(guess[:, None] - prior.places[:, drawn.cell]).sum(axis=0) + prior.spread**2
    judged = np.repeat(one, drawn.cell.size, axis=1)
    judged[0] = np.sqrt(away)
    judged[3] = drawn.cell == prior.probability.argmax()
    return _verdict(judged)


class Walk:
    """A random walk whose stationary law is the prior.

    Parameters
    ----------
    prior : PriorCells
        Over two axes.
    step_m : float
        Standard deviation of a step along each axis, metres; at least half a cell, for inside a cell each report is
        taken for one of another place.

    Raises
    ------
    ParameterError
        The step is shorter than half a cell, or not a finite number.
    """

    def __init__(self, prior: PriorCells, step_m: float) -> None:
        if not (math.isfinite(step_m) and step_m >= max(prior.size) / 2):
            raise ParameterError(
                f"step_m must be at least half a cell of the prior, {max(prior.size) / 2:.4g}, got {step_m!r}"
            )
        self.prior, self._lattice, self._kernels = prior, prior.lattice(), list[FloatArray]()
        for boxes, side in zip(self._lattice.boxes, prior.size, strict=True):
            apart = np.subtract.outer(np.arange(boxes), np.arange(boxes)) * (side / step_m)
            self._kernels.append(np.exp(-0.5 * np.square(apart)))
        # Sinkhorn's scaling, in its symmetric form.
        weight = np.sqrt(prior.probability)
        for _ in range(_SCALINGS):
            weight = np.sqrt(weight * prior.probability / self._blur(weight[None])[0])
        self._weight, self._reached = weight, self._blur(weight[None])[0]

    def _blur(self, values: FloatArray) -> FloatArray:
        """G_s over the cells, of each row, shape (rows, cells)."""
        raster = np.zeros((values.shape[0], math.prod(self._lattice.boxes)))
        raster[:, self._lattice.kept] = values
        first, second = self._kernels
        made = first @ raster.reshape(-1, *self._lattice.boxes) @ second
        return np.asarray(made.reshape(values.shape[0], -1)[:, self._lattice.kept])

    def onward(self, belief: FloatArray) -> FloatArray:
        """The law after a step, given the law before, shape (devices, cells)."""
        return np.asarray(self._weight * self._blur(belief / self._reached))

    def draw(self, devices: int, places: int, rng: Randomness) -> IntArray:
        """Cells that devices come through, shape (places, devices). Run by: a simulation."""
        chance = rng.generator()
        cells = self.prior.probability.size
        at = chance.choice(cells, devices, p=self.prior.probability)
        path = [at]
        for _ in range(places - 1):
            onward = self.onward(_one_hot(at, cells))
            summed = np.cumsum(onward, axis=1)
            drawn = chance.uniform(0, 1, devices) * summed[:, -1]
            at = np.minimum((summed < drawn[:, None]).sum(axis=1), cells - 1)
            path.append(at)
        return np.stack(path)


def _one_hot(at: IntArray, cells: int) -> FloatArray:
    made = np.zeros((at.size, cells))
    made[np.arange(at.size), at] = 1.0
    return made


def walking(
    query: Query, walk: Walk, rng: Randomness, *, places: int = 8, devices: int = 200, jitter_m: float = 0.0
) -> Verdict:
    """Locate a moving device from its reports along the way. Run by: an adversary.

    Parameters
    ----------
    query : Query
        The query at each place, without a grid.
    walk : Walk
        The law of the devices' movement, which the server knows.
    rng : Randomness
        Source of devices and ways.
    places : int
        Reports of each device.
    devices : int
        Number of simulated devices.
    jitter_m : float
        As for :func:`listed`. A square that the device comes back to is the same point again.
    """
    if places < 1 or devices < 1:
        raise ParameterError(f"{places} places of {devices} devices; expected at least 1 of each")
    prior = walk.prior
    path = walk.draw(devices, places, rng)
    units = unit_frequencies(devices, query.features, query.law, query.dimension, rng)
    inside = rng.generator().uniform(-0.5, 0.5, (places, 2, devices)) * np.asarray(prior.size)[:, None]
    ways = np.moveaxis(prior.places[:, path] + inside.swapaxes(0, 1), 2, 1).reshape(2, -1)
    seen = Visits(ways, np.arange(devices + 1) * places).jittered(query.low, jitter_m, rng).places
    seen = seen.reshape(2, devices, places)
    possible = prior.probability > 0

    def judge(part: slice) -> FloatArray:
        belief = np.broadcast_to(prior.probability, (path[0, part].size, prior.probability.size))
        for at in range(places):
            reports = client_reports(units[:, part], Visits(seen[:, part, at]), query)
            found = posterior(reports, query, prior, jitter_m=jitter_m)
            likelihood = np.divide(
                found.weights, prior.probability, out=np.zeros_like(found.weights), where=possible
            )
            belief = (belief if at == 0 else walk.onward(belief)) * likelihood
            belief /= belief.sum(axis=1, keepdims=True)
        return _judge(Posterior(belief, found.spread), path[-1, part], prior)

    return _by_blocks(devices, prior.probability.size, judge)


def listed(
    places: FloatArray, at: IntArray, query: Query, rng: Randomness, *, cell_m: float, jitter_m: float = 0.0
) -> Verdict:
    """Locate every device among a known list of possible locations. Run by: an adversary.

    Parameters
    ----------
    places : ndarray of float64, shape (2, places)
        The list, metres; each place equally likely.
    at : ndarray of int64, shape (devices,)
        The place of each device.
    query : Query
        The query, without a grid.
    rng : Randomness
        Source of frequencies and offsets.
    cell_m : float
        A guess within this distance names the place right, metres.
    jitter_m : float
        Standard deviation of the offset of each place, metres; the server knows it, and the squares.
    """
    if jitter_m:  # places of one square are one point
        snapped = middles(squares(places, query.low, jitter_m), query.low, jitter_m)
    else:
        snapped = places
    listing = PriorCells(places, (cell_m, cell_m), np.full(places.shape[1], 1 / places.shape[1]))
    units = unit_frequencies(at.size, query.features, query.law, query.dimension, rng)
    reports = client_reports(units, Visits(places[:, at]).jittered(query.low, jitter_m, rng), query)

    def judge(part: slice) -> FloatArray:
        some = Reports(reports.frequencies[:, part], reports.projections[part])
        weights = _agreeing(some, snapped, query, jitter_m)
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 0, weights / np.where(total > 0, total, 1.0), listing.probability)
        judged = _judge(Posterior(weights, np.zeros(weights.shape[0])), at[part], listing)
        judged[3] = np.hypot(*(places[:, weights.argmax(axis=1)] - places[:, at[part]])) <= cell_m
        return judged

    return _by_blocks(at.size, places.shape[1], judge)


def _agreeing(reports: Reports, places: FloatArray, query: Query, jitter_m: float) -> FloatArray:
    """Likelihood of each report at each location, up to one factor per device, shape (devices, places)."""
    if jitter_m and query.features >= query.dimension:
        return _near_crossings(reports, places, query, jitter_m)
    offset = places - np.asarray(query.origin)[:, None]
    logs = np.zeros((reports.projections.shape[0], places.shape[1]))
    for feature in range(query.features):
        frequency = reports.frequencies[:, :, feature]
        phase = np.angle(reports.projections[:, feature])[:, None] - frequency.T @ offset
        phase -= 2 * math.pi * np.rint(phase / (2 * math.pi))
        if jitter_m:
            logs += _wrapped_normal(phase, jitter_m * np.sqrt(np.square(frequency).sum(axis=0))[:, None])
        else:
            logs += np.where(np.abs(phase) < AGREE, 0.0, -np.inf)
    return np.asarray(np.exp(logs))


def _wrapped_normal(phase: FloatArray, deviation: FloatArray) -> FloatArray:
    """Logarithm of the density of a normal variable modulo 2 pi, up to a factor of each row.

    Beyond a deviation of pi it is flat to a hundredth.
    """
    total = np.zeros(phase.shape)
    narrow = np.maximum(np.minimum(deviation, math.pi), 1e-9)
    for turn in range(-2, 3):
        total += np.exp(-0.5 * np.square((phase + 2 * math.pi * turn) / narrow))
    with np.errstate(divide="ignore"):
        return np.where(deviation > math.pi, 0.0, np.log(total))


def _near_crossings(reports: Reports, places: FloatArray, query: Query, jitter_m: float) -> FloatArray:
    """The same for devices whose moved place is one of a few points."""
    from scipy.spatial import KDTree

    reach = _REACH * jitter_m
    found = crossings(reports, query, tuple(places.min(axis=1) - reach), tuple(places.max(axis=1) + reach))
    made = np.zeros((reports.projections.shape[0], places.shape[1]))
    if found.device.size:
        near = KDTree(found.places.T).sparse_distance_matrix(
            KDTree(places.T), reach, output_type="coo_matrix"
        )
        closeness = np.exp(-0.5 * np.square(near.data / jitter_m))
        np.add.at(made, (found.device[near.row], near.col), closeness)
    return made
