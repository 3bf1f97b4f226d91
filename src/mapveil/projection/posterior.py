r"""What a server with a prior still does not know: its posterior over places, given one device's waves.

The server has a device's frequencies and phases exactly, and a public prior over cells of the region, people being
anywhere inside a cell. The phase of a place that is uniform in a cell is the sum of two uniform variables, so for one
feature the posterior is exact:

.. math:: \Pr[\text{cell } c \mid \omega, z] \propto \pi_c \prod_b \tau_b\big(\arg(z_b) - \omega_b \cdot (c - o)\big)

where: :math:`\pi` is the prior, c a cell's middle and :math:`\tau_b` the trapezoidal density of
:math:`\omega_b \cdot x` for x in a cell around 0, over all multiples of :math:`2 \pi` (with the device's own offset, if
it has one). For several features the product takes the phases inside one cell for independent.

Reported are the error of the guess that is best in expectation (the posterior's geometric median) and the exponential
of the posterior's entropy: how many equally likely cells it is worth. Deviation: Zong et al. (2023) score the maxima of
the surface (equation 16), against no prior.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final, NamedTuple

import numpy as np

from mapveil.privacy.random import Randomness
from mapveil.projection.frequencies import unit_frequencies
from mapveil.projection.query import Query
from mapveil.projection.report import FloatArray, Reports, Visits, client_reports
from mapveil.projection.variates import normals

__all__ = ["Hiding", "PriorCells", "best_guess", "blind_error", "hiding", "posterior"]

_BLOCK: Final = 1 << 21
_STEPS: Final = 10
_SEED: Final = 5


class PriorCells(NamedTuple):
    """A public prior: equal boxes of the plane and how likely each is."""

    places: FloatArray  # middles, shape (dimension, cells), metres
    size: tuple[float, ...]  # sides of a box, metres
    probability: FloatArray  # shape (cells,), sums to 1


class Hiding(NamedTuple):
    """How well devices are hidden, each an average over simulated ones."""

    error_m: float  # expected distance to the best guess, metres
    worst_error_m: float  # at most so much for the twentieth of devices with the least
    places: float  # equally likely cells
    prior_error_m: float  # the best guess without any report


def posterior(reports: Reports, query: Query, prior: PriorCells, *, jitter_m: float = 0.0) -> FloatArray:
    """The posterior of each device over the prior's cells, shape (devices, cells). Run by: an adversary.

    Parameters
    ----------
    reports : Reports
        Of devices at one place each, not folded by a grid: a server that has folded ones knows less.
    query : Query
        What they answered.
    prior : PriorCells
        What is known without them.
    jitter_m : float
        Standard deviation of each device's own offset, metres.
    """
    devices = reports.projections.shape[0]
    logs = np.broadcast_to(_log(prior.probability), (devices, prior.probability.size)).copy()
    offset = prior.places - np.asarray(query.origin)[:, None]
    for feature in range(query.features):
        frequency = reports.frequencies[:, :, feature]
        expected = frequency.T @ offset
        phase = np.angle(reports.projections[:, feature])[:, None] - expected
        phase -= 2 * math.pi * np.rint(phase / (2 * math.pi))
        spans = np.abs(frequency) * np.asarray(prior.size)[:, None]
        if jitter_m:
            # As a uniform variable of the same variance.
            blur = math.sqrt(12) * jitter_m * np.sqrt(np.square(frequency).sum(axis=0))
            spans = np.concatenate([spans, blur[None]])
        logs += _log(_wrapped_density(phase, spans))
    most = logs.max(axis=1, keepdims=True)
    possible = np.isfinite(most)
    weights = np.exp(logs - np.where(possible, most, 0.0))
    # Where rounding leaves no cell possible, nothing was learnt.
    weights = np.where(possible, weights, prior.probability)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


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
    # A cell wider than a few waves says nothing of the phase: the sum is then flat.
    turns = int(min(np.ceil((long + short).max() / (4 * math.pi)) + 1, 8))
    for turn in range(-turns, turns + 1):
        apart = np.abs(phase + 2 * math.pi * turn)
        total += np.clip((long + short) / 2 - apart, 0.0, short) / (long * short)
    flat = (long + short) / 2 > 2 * math.pi * turns
    return np.where(flat, 1 / (2 * math.pi), total)


def best_guess(weights: FloatArray, places: FloatArray) -> FloatArray:
    """The guess of least expected distance under each posterior, by Weiszfeld's iteration, shape (devices, dimension).

    Parameters
    ----------
    weights : ndarray of float64, shape (devices, cells)
        Posteriors.
    places : ndarray of float64, shape (dimension, cells)
        Where the cells are.
    """
    guess = weights @ places.T
    scale = np.ptp(places, axis=1).max() * 1e-6 + 1e-12
    for _ in range(_STEPS):
        pull = weights / (np.sqrt(_squares(guess, places)) + scale)
        guess = (pull @ places.T) / pull.sum(axis=1, keepdims=True)
    return np.asarray(guess)


def _squares(guess: FloatArray, places: FloatArray) -> FloatArray:
    # Around the middle, so that little is lost in the difference.
    middle = places.mean(axis=1)
    guess, places = guess - middle, places - middle[:, None]
    total = guess @ (-2 * places)
    total += np.square(guess).sum(axis=1)[:, None]
    total += np.square(places).sum(axis=0)
    return np.maximum(total, 0.0, out=total)


def _distances(guess: FloatArray, prior: PriorCells) -> FloatArray:
    """Root mean square distances of guesses to places in each cell, which are not all in its middle."""
    return np.asarray(np.sqrt(_squares(guess, prior.places) + np.square(prior.size).sum() / 12))


def hiding(query: Query, prior: PriorCells, *, devices: int = 128, jitter_m: float = 0.0) -> Hiding:
    """How well devices that answer this query are hidden from a server with this prior. Run by: anybody.

    Devices are drawn from the prior, with a fixed seed: the figures are properties of the query and the prior. The
    server is given the frequencies themselves, which is more than a grid with a step longer than the waves shows it.

    Parameters
    ----------
    query : Query
        What is asked.
    prior : PriorCells
        What the server knows; devices are where it says.
    devices : int
        How many to simulate.
    jitter_m : float
        Standard deviation of each device's own offset, metres.
    """
    query = dataclasses.replace(query, grid=None)
    rng = Randomness(_SEED)
    chance = rng.generator()
    dimension = query.dimension
    at = chance.choice(prior.probability.size, devices, p=prior.probability)
    inside = chance.uniform(-0.5, 0.5, (dimension, devices)) * np.asarray(prior.size)[:, None]
    places = prior.places[:, at] + inside
    units = unit_frequencies(devices, query.features, query.law, dimension, rng)
    visits = Visits(places).moved(jitter_m * normals(dimension * devices, rng).reshape(dimension, devices))
    reports = client_reports(units, visits, query)
    error, entropy = np.empty(devices), np.empty(devices)
    block = max(1, _BLOCK // prior.probability.size)
    for start in range(0, devices, block):
        part = slice(start, start + block)
        some = Reports(reports.frequencies[:, part], reports.projections[part])
        weights = posterior(some, query, prior, jitter_m=jitter_m)
        error[part] = (weights * _distances(best_guess(weights, prior.places), prior)).sum(axis=1)
        entropy[part] = -(weights * np.where(weights > 0, _log(np.maximum(weights, 1e-300)), 0)).sum(axis=1)
    return Hiding(
        float(error.mean()),
        float(np.quantile(error, 0.05)),
        float(np.exp(entropy.mean())),
        blind_error(prior),
    )


def blind_error(prior: PriorCells) -> float:
    """The expected distance of the best guess without any report, metres."""
    guess = best_guess(prior.probability[None], prior.places)
    return float(_distances(guess, prior)[0] @ prior.probability)
