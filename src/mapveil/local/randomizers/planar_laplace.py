"""Planar Laplace on a finite list of sites: the farther a site, the less likely, exponentially."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mapveil.local.mechanism import LocalMechanism
from mapveil.local.randomizers.domain import Domain
from mapveil.local.randomizers.odds import keeps
from mapveil.local.randomizers.weight_table import WEIGHT_BITS, TableRandomizer, table_ratio
from mapveil_client.arrays import FloatArray, IntArray

_CLOSE = 1e-6


def distances_m(plane: FloatArray) -> FloatArray:
    """Distances between all pairs of sites, metres, shape (sites, sites)."""
    x, y = plane
    return np.asarray(np.hypot(x[:, None] - x[None], y[:, None] - y[None]))


def exponential_weights(distance: npt.NDArray[np.float64], rate: float) -> IntArray:
    """Whole weights in proportion to exp(-rate distance), at least 1, the nearest below 2**WEIGHT_BITS."""
    scaled = np.exp(-rate * distance) * ((1 << WEIGHT_BITS) - 1)
    return np.maximum(scaled.astype(np.int64), 1)


def largest_rate(distance: FloatArray, epsilon: Fraction) -> float:
    """The largest rate of :func:`exponential_weights` (to a millionth) whose exact worst ratio is at most e^epsilon."""
    goal = float(min(epsilon, Fraction(1000)))

    def spent(rate: float) -> float:
        log = -rate * distance
        log -= np.log(np.exp(log).sum(axis=1, keepdims=True))
        return float((log.max(axis=0) - log.min(axis=0)).max())

    # A rate costs the longest distance, and at most as much again for the places' different sums.
    far = float(distance.max())
    low, high = goal / (2 * far), goal / far
    while high - low > _CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= goal else (low, middle)
    while not keeps(table_ratio(exponential_weights(distance, low)), epsilon):
        low *= 1 - _CLOSE
    return low


class PlanarLaplaceRandomizer(TableRandomizer):
    """The halves of :class:`PlanarLaplace` on one domain.

    Its table follows from the domain and epsilon, but for the last of a weight's 36 bits, in which the exponential
    functions of two processors differ. So messages name these two, and not the table's digits: a phone keeps the
    promise by its own table, exactly, and an estimate does not see so small a difference.
    """

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"planar laplace {self.epsilon}"


@dataclass(frozen=True, kw_only=True)
class PlanarLaplace(LocalMechanism):
    r"""Report a site with a probability that falls exponentially with its distance.

    .. math:: q(y \mid x) = \frac{e^{-\lambda\, d(x, y)}}{\sum_z e^{-\lambda\, d(x, z)}}

    where: d is the distance in metres and :math:`\lambda` the largest rate with which the exact ratio of
    probabilities over all places and reports is at most :math:`e^\epsilon`. Weights are whole numbers of 36 bits, at
    least 1.

    Deviation: geo-indistinguishability promises :math:`e^{\lambda d(x, x')}` for two places; here the promise is the
    same for all. Deviation: the noise is drawn on the sites, not rounded to them: every table of at most 4,096 sites.

    Source: Andres, Bordenabe, Chatzikokolakis, Palamidessi, "Geo-Indistinguishability" (2013); Wang et al. (2022),
    section 5.
    """

    name: ClassVar[str] = "planar-laplace"
    summary: ClassVar[str] = "each phone reports a site, exponentially less likely with its distance"
    source: ClassVar[str] = "Andres et al. 2013"

    def on(self, domain: Domain) -> PlanarLaplaceRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        TableRandomizer.check_size(domain.size, self.name)
        distance = distances_m(domain.plane)
        rate = largest_rate(distance, self.budget)
        return PlanarLaplaceRandomizer(domain, self.budget, exponential_weights(distance, rate))
