r"""The gravity model of trips: rarer with distance, with given numbers of trips from and to every zone.

.. math:: F_{x x'} = a_x\, b_{x'}\, s^{[x = x']} e^{-|x - x'| / L}

where: a and b are such that F has the given marginal distributions (iterative proportional fitting, to .001 in L1), L
is the length over which trips get e times rarer, and s how much likelier a trip within one zone is than the decay says.
L and s are those of a grid that a score prefers. Without any decay (:math:`L = \infty, s = 1`) it is the independent
model.

Source: Wilson (1971) for the model; Deming, Stephan (1940) for the fitting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import FloatArray

_STAYING: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_GAIN: Final = 1.0  # of the score that a weight of staying must win; a decay with distance needs none
_NEAR: Final = 1e-3  # of all trips: the L1 distance of the sums of rows at which sweeps end
_SWEEPS: Final = 500  # at most; 218 were the most measured, at the shortest decay lengths
_WORK: Final = 1 << 30
"""Entries of the matrix over all sweeps at most, each of which multiplies by it twice, some ten seconds: some margins
no matrix of the allowed pairs has."""
_TINY: Final = 1e-300


class Gravity(NamedTuple):
    """The decay of trips with distance."""

    length_m: float  # e times rarer over this much; infinite where distance does not matter
    staying: float  # how much likelier a trip within one zone is than the decay says
    joint: FloatArray  # the distribution over pairs of zones, summing to 1, shape (zones, zones)


def fit_gravity(
    start: FloatArray,
    origins: FloatArray,
    destinations: FloatArray,
    plane: FloatArray,
    spacing_m: float,
    score: Callable[[FloatArray], float],
) -> Gravity:
    """The gravity model of a grid with the best score: lengths that double, and six weights of staying.

    The lengths are searched first, then the neighbours of the best point of the grid, for as long as one of them is
    better.

    Parameters
    ----------
    start : ndarray of float64, shape (zones, zones)
        The independent model, summing to 1; 0 for pairs that are impossible.
    origins, destinations : ndarray of float64, shape (zones,)
        The marginal distributions.
    plane : ndarray of float64, shape (2, zones)
        The zones in metres.
    spacing_m : float
        About how far zones lie apart.
    score : callable
        The score of a distribution over pairs, such as its log-likelihood in nats.
    """
    across = np.hypot(*(part[:, None] - part[None, :] for part in plane))
    halvings = max(math.ceil(math.log2(max(float(across.max()) / spacing_m, 2.0))), 1)
    lengths = [float(spacing_m * 2.0**k) for k in range(-1, halvings + 1)]
    best = Gravity(math.inf, 1.0, start)
    reached, at = score(start), (len(lengths), _STAYING.index(1.0))
    tried = {at}

    def attempt(length: int, staying: int) -> bool:
        nonlocal best, reached, at
        point = (length, staying)
        if point in tried or not (0 <= length <= len(lengths) and 0 <= staying < len(_STAYING)):
            return False
        tried.add(point)
        metres, weight = math.inf if length == len(lengths) else lengths[length], _STAYING[staying]
        pulled = start * np.exp(across / -metres)
        pulled[np.diag_indices_from(pulled)] *= weight
        joint = proportional_fit(pulled, origins, destinations)
        if joint is None:
            return False
        found = score(joint)
        gain = _GAIN if staying != at[1] and weight != 1 else 0.0
        if not found > reached + gain:
            return False
        best, reached, at = Gravity(metres, weight, joint), found, point
        return True

    for length in range(len(lengths)):
        attempt(length, at[1])
    while any(
        attempt(at[0] + step, at[1] + turn)
        for step, turn in ((0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1), (1, 0), (-1, 0))
    ):
        pass
    return best


def spacing_m(plane: FloatArray) -> float:
    """The median distance from a zone to the nearest other, metres; ``plane`` has shape (2, zones)."""
    from scipy.spatial import cKDTree

    return float(np.median(np.asarray(cKDTree(plane.T).query(plane.T, k=2)[0])[:, 1]))


def proportional_fit(joint: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray | None:
    """The matrix with its rows and columns scaled to given sums, in turn; None where it has nothing left.

    The columns' sums are exact, the rows' within an L1 distance of .001 unless that takes more than 500 sweeps, or
    more than 15 sweeps of more than 2**30 entries together.

    Source: Deming, Stephan (1940).

    Parameters
    ----------
    joint : ndarray of float64, shape (sites, sites)
        Not negative.
    rows, columns : ndarray of float64, shape (sites,)
        The sums wanted, which are 1 together.

    Examples
    --------
    >>> made = proportional_fit(np.array([[1.0, 1], [1, 3]]), np.array([0.5, 0.5]), np.array([0.4, 0.6]))
    >>> made.sum(axis=0).round(6).tolist()
    [0.4, 0.6]
    """
    # Two vectors are scaled, not the matrix: its entries are touched once, at the end.
    right = np.ones(columns.size)
    left = np.zeros(rows.size)
    for _ in range(min(_SWEEPS, max(_WORK // joint.size, 15))):
        reached = joint @ right
        if np.abs(left * reached - rows).sum() < _NEAR:
            break
        left = rows / np.maximum(reached, _TINY)
        right = columns / np.maximum(joint.T @ left, _TINY)
    made = np.minimum(left, 1e150)[:, None] * joint * np.minimum(right, 1e150)[None, :]
    total = made.sum()
    return np.asarray(made / total) if 0 < total < math.inf else None
