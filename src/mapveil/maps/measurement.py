"""Measurements: the noisy sums behind a map, each with the law of its noise. They are part of what epsilon paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from mapveil.privacy.discrete_laplace import laplace_quantile, laplace_variance
from mapveil_client.arrays import FloatArray, IntArray

INTERVAL_ALPHA: Final = 0.05
"""Exports carry bounds that hold for each cell with probability at least one minus this."""


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


@dataclass(frozen=True, eq=False)
class EstimatedUsers(Measurement):
    r"""Unbiased estimates of the users at each site. Bounds are Bernstein's, for any number of reports:

    .. math:: t = \sqrt{2 n v \ell} + \frac{2 s\, \ell}{3}, \qquad \ell = \ln \frac{2}{\alpha}

    where: n is ``reports``, v is ``variance``, the largest variance of one report's term of a site's estimate, given
    the users' places (taken at the estimated map), and s is ``step``, the largest term. They bound the users at a site
    around the unbiased estimate, not around the map: a map by an estimator that smooths may lie outside of them.
    """

    reports: int = 0
    variance: float = 0.0
    step: float = 0.0

    def deviation(self, groups: int = 1) -> float:
        """Standard deviation of the noise on the sum of so many estimates, users, at most: at the noisiest sites."""
        return groups * math.sqrt(self.reports * self.variance)

    def half_width(self, alpha: float, groups: int = 1) -> float:
        """Half the width of a two-sided interval of coverage 1 - alpha around the sum of so many estimates, users.

        Estimates of one map depend on each other: deviation and step of a sum are taken as the sums of theirs.
        """
        level = math.log(2 / alpha)
        return groups * (math.sqrt(2 * self.reports * self.variance * level) + 2 * self.step * level / 3)
