"""Measurements: the noisy sums behind a map, each with the law of its noise. They are part of what epsilon paid for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from mapveil.privacy.discrete_laplace import laplace_quantile, laplace_variance
from mapveil_client.arrays import FloatArray, IntArray

INTERVAL_ALPHA: Final = 0.05
"""Exports carry bounds that hold for each cell with probability at least one minus this."""


_ROUNDED: Final = 2.0**-4  # deviations: more than the rounding of noisy sums in files
_FINE: Final = 2.0**-24
"""Users per lattice unit of an estimate, which is on no lattice: so fine that none is seen."""

_LEAST_TERMS: Final = 0.5  # that WeightedNoise takes


class Law(NamedTuple):
    """A sum of ``terms`` discrete Laplace variables, see :mod:`mapveil.privacy.weighted_noise`."""

    step: float  # users per lattice unit
    rate: float  # per lattice unit
    terms: float


class Interval(NamedTuple):
    """Bounds on every cell's true sum, users."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy sums over groups of cells.

    Parameters
    ----------
    groups : ndarray of int64, shape (cells,)
        Group of each cell, -1 for none.
    noisy : ndarray of float64, shape (groups,)
        Noisy sum of each group, users.
    epsilon : Fraction
        Epsilon of the discrete Laplace noise on each sum, at sensitivity ``sensitivity``.
    unit : int
        Lattice units per user.
    terms : float
        Number of discrete Laplace variables in the noise: more than one over several shards of devices.
    sensitivity : int, optional
        Units that one user changes all sums by; ``unit`` by default.
    """

    groups: IntArray
    noisy: FloatArray
    epsilon: Fraction
    unit: int
    terms: float = 1.0
    sensitivity: int | None = None

    def deviation(self, groups: int = 1) -> float:
        """Standard deviation of the noise on the sum of so many groups, users."""
        sensitivity = self.unit if self.sensitivity is None else self.sensitivity
        return math.sqrt(self.terms * groups * laplace_variance(self.epsilon, sensitivity)) / self.unit

    def half_width(self, alpha: float, groups: int = 1) -> float:
        """Half the width of a two-sided interval of coverage 1 - alpha around the sum of so many groups, users."""
        sensitivity = self.unit if self.sensitivity is None else self.sensitivity
        terms = self.terms * groups
        if terms == 1:
            return laplace_quantile(alpha, self.epsilon, sensitivity) / self.unit
        from mapveil.privacy.laplace_sum import laplace_sum_quantile

        return laplace_sum_quantile(alpha, terms, self.epsilon, sensitivity) / self.unit

    def law(self) -> Law:
        """The law of the noise on one sum."""
        return Law(1 / self.unit, float(self.epsilon / (self.sensitivity or self.unit)), self.terms)

    def relative_variance(self, users: FloatArray) -> FloatArray:
        """Variance of the noise on each sum over that of :meth:`deviation`, shape (groups,).

        Parameters
        ----------
        users : ndarray of float64, shape (groups,)
            Users that the map shows in each group.
        """
        return np.ones(users.size)


@dataclass(frozen=True, eq=False)
class EstimatedUsers(Measurement):
    r"""Unbiased estimates of the users at each node, from randomized reports. Bounds are Bernstein's:

    .. math:: t = \sqrt{2 n v m \ell} + \frac{2 s m\, \ell}{3}, \qquad \ell = \ln \frac{2}{\alpha}

    where: n is ``reports``, m the number of nodes in the sum, v is ``variance``, the largest variance of one report's
    term of a node's estimate, given the users' places (taken at the estimated map), and s is ``step``, the largest
    term. They bound the users at a node around the unbiased estimate, not around the map: a map by an estimator that
    smooths may lie outside of them.

    Parameters
    ----------
    reports : int
        Number of reports, n.
    variance : float
        v, squared users.
    step : float
        s, users.
    slope : float
        Variance of one report's term that all users at one node add; v holds that of the fullest node.
    independent : bool
        Whether a weighted sum over nodes has at most the variance that uncorrelated nodes would give it. Otherwise
        the deviation of a sum is taken as the sum of deviations.
    """

    reports: int = 0
    variance: float = 0.0
    step: float = 0.0
    slope: float = 0.0
    independent: bool = False

    def deviation(self, groups: int = 1) -> float:
        """Standard deviation of the noise on the sum of so many estimates, users, at most: at the noisiest nodes."""
        return (math.sqrt(groups) if self.independent else groups) * math.sqrt(self.reports * self.variance)

    def half_width(self, alpha: float, groups: int = 1) -> float:
        """Half the width of a two-sided interval of coverage 1 - alpha around the sum of so many estimates, users."""
        level = math.log(2 / alpha)
        return self.deviation(groups) * math.sqrt(2 * level) + 2 * groups * self.step * level / 3

    def law(self) -> Law:
        r"""The law that stands for the noise on one estimate: m Laplace variables of the same variance.

        .. math:: m = \frac{n v}{2 s^2}, \qquad \frac12 \le m \le n

        A term is s with a small probability, so the sum of few such terms has a longer tail than a Gaussian. By the
        law of m variables both tails together are at most 1.4 times the stated probability, down to 1e-8, and at
        most that from 1 % on where n v is a few squares of s (``tests/maps/test_measurement.py``).
        """
        total = self.variance * self.reports
        if not total > 0:
            return Law(_FINE, _FINE, 0.0)
        terms = self.reports if self.step <= 0 else min(total / (2 * self.step**2), self.reports)
        terms = max(float(terms), _LEAST_TERMS)
        return Law(_FINE, _FINE * math.sqrt(2 * terms / total), terms)

    def relative_variance(self, users: FloatArray) -> FloatArray:
        """See :meth:`Measurement.relative_variance`: less at nodes that hold fewer users than the fullest."""
        total = float(users.sum())
        if not self.slope or not self.variance or total <= 0:
            return np.ones(users.size)
        fraction = np.maximum(users, 0.0) / total
        return np.asarray(1 - self.slope / self.variance * (fraction.max() - fraction))


def are_one_release(one: Sequence[Measurement], other: Sequence[Measurement]) -> bool:
    """Whether these are the same noisy sums, but for their rounding in a file: two releases never have the same."""
    pairs = zip(one, other, strict=False)
    return bool(one) and all(
        a.noisy.shape == b.noisy.shape
        and np.allclose(a.noisy, b.noisy, rtol=0, atol=_ROUNDED * a.deviation())
        for a, b in pairs
    )
