"""A server with a list of exact places that reads the difference of two phases of one device.

An offset that a device adds to all its places cancels in the difference of two of its phases, so that the difference
names both places; independent offsets of the places do not cancel.
"""

import math

import numpy as np

from mapveil.attacks.bayesian_server import AGREE
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.random_features.frequencies import unit_frequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Visits, client_reports
from mapveil_client.randomness.random import Randomness


def named_pairs(
    frequency: FloatArray,
    difference: float,
    places: FloatArray,
    *,
    either: bool = False,
    within: float = 2 * AGREE,
) -> IntArray:
    r"""The pairs (a, b) of places with :math:`\omega \cdot (x_b - x_a)` equal to a difference of phases.

    Parameters
    ----------
    frequency : ndarray of float64, shape (2,)
        :math:`\omega`, radians per metre.
    difference : float
        Of the phases of the second and the first place, radians.
    places : ndarray of float64, shape (2, places)
        The list, metres.
    either : bool
        Whether the sign of the difference is unknown.
    within : float
        Rounding of the difference, radians.

    Returns
    -------
    ndarray of int64, shape (pairs, 2)
    """
    turn = 2 * math.pi
    phase = np.mod(frequency @ (places - places.mean(axis=1, keepdims=True)), turn)
    order = np.argsort(phase)
    ordered, found = phase[order], []
    for signed in (difference, -difference) if either else (difference,):
        wanted = np.mod(phase + signed, turn)
        first, last = (np.searchsorted(ordered, wanted + edge) for edge in (-within, within))
        several = np.maximum(last - first, 0)
        start = np.repeat(np.arange(phase.size), several)
        at = (
            np.arange(start.size)
            - np.repeat(np.cumsum(several) - several, several)
            + np.repeat(first, several)
        )
        found.append(np.stack([start, order[at]], axis=1))
    pairs = np.concatenate(found)
    return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]], dtype=np.int64)


def pairs_named(
    places: FloatArray, query: Query, rng: Randomness, *, devices: int, jitter_m: float = 0.0
) -> float:
    """The fraction of devices whose two places the server names from one report at each. Run by: an adversary.

    Parameters
    ----------
    places : ndarray of float64, shape (2, places)
        The list, metres; each device was at two of them.
    query : Query
        The query at both, of one feature (of more, the server reads the first).
    rng : Randomness
        Source of the devices.
    jitter_m : float
        As for :func:`mapveil.attacks.bayesian_server.listed`.
    """
    chance = rng.generator()
    pairs = np.stack([chance.choice(places.shape[1], 2, replace=False) for _ in range(devices)])
    units = unit_frequencies(devices, query.features, query.law, query.dimension, rng)
    visits = Visits(places[:, pairs.ravel()], np.arange(devices + 1) * 2)
    moved = visits.jittered(query.low, jitter_m, rng).places.reshape(2, devices, 2)
    one, other = (client_reports(units, Visits(moved[:, :, k]), query) for k in (0, 1))
    turns = np.angle(other.projections[:, 0] / one.projections[:, 0])
    right = 0
    for device, pair in enumerate(pairs):
        named = named_pairs(one.frequencies[:, device, 0], float(turns[device]), places)
        right += named.tolist() == [pair.tolist()]
    return right / devices
