"""Variances of sums of unbiased estimates over groups of sites: the noise of one report, given the users' places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray


class SiteNoise(NamedTuple):
    """The noise of one report in the estimate of each single site."""

    variance: FloatArray  # shape (sites,)
    step: float  # largest change of one estimate by one report


def two_level_noise(distribution: FloatArray, held: float, other: float) -> SiteNoise:
    r"""The noise where a report supports its own site with probability p = ``held`` and any other with q = ``other``.

    .. math:: \frac{f_x\, p (1 - p) + (1 - f_x)\, q (1 - q)}{(p - q)^2}

    where: :math:`f_x` is the fraction of users at site x.
    """
    spread = distribution * held * (1 - held) + (1 - distribution) * other * (1 - other)
    return SiteNoise(spread / (held - other) ** 2, 1 / (held - other))


class Covariance(Protocol):
    """Covariance of the estimates of all sites, one report's worth."""

    def of_sums(self, order: IntArray, first: IntArray, size: IntArray) -> FloatArray:
        """The variance of the sum of estimates over each interval of an order, shape (intervals,).

        Parameters
        ----------
        order : ndarray of int64, shape (sites,)
            Sites.
        first, size : ndarray of int64, shape (intervals,)
            Interval i holds ``size[i]`` sites from position ``first[i]``.
        """
        ...


@dataclass(frozen=True, eq=False)
class ExchangeableCovariance:
    """A covariance that depends on the number of sites and the fraction of users in them only: sites are exchangeable.

    ``within`` and ``without`` give the variance of the sum over a number of sites, for a user at one of them and for
    one elsewhere.
    """

    within: Callable[[FloatArray], FloatArray]
    without: Callable[[FloatArray], FloatArray]
    distribution: FloatArray  # of the users, estimated; shape (sites,)

    def of_sums(self, order: IntArray, first: IntArray, size: IntArray) -> FloatArray:
        """See :class:`Covariance`."""
        part = _interval_sums(self.distribution[order], first, size)
        number = size.astype(np.float64)
        return np.asarray(part * self.within(number) + (1 - part) * self.without(number))


@dataclass(frozen=True, eq=False)
class IndependentCovariance:
    """A covariance of uncorrelated sites."""

    variance: FloatArray  # of each site's estimate, shape (sites,)

    def of_sums(self, order: IntArray, first: IntArray, size: IntArray) -> FloatArray:
        """See :class:`Covariance`."""
        return _interval_sums(self.variance[order], first, size)


@dataclass(frozen=True, eq=False)
class DenseCovariance:
    """The whole matrix."""

    matrix: FloatArray  # shape (sites, sites)

    @classmethod
    def of_estimator(
        cls, matrix: FloatArray, reported: FloatArray, distribution: FloatArray
    ) -> DenseCovariance:
        r"""The covariance of a linear estimator: :math:`L \operatorname{diag}(\pi) L^T - \operatorname{diag}(p)`.

        where: L is ``matrix``, shape (sites, symbols), :math:`\pi` is ``reported``, the probability of each symbol, and
        p is ``distribution``; the second term is the variance of the users' own places.
        """
        return cls((matrix * reported) @ matrix.T - np.diag(distribution))

    def of_sums(self, order: IntArray, first: IntArray, size: IntArray) -> FloatArray:
        """See :class:`Covariance`."""
        placed = self.matrix[np.ix_(order, order)]
        table = np.zeros((placed.shape[0] + 1, placed.shape[1] + 1))
        np.cumsum(placed.cumsum(axis=0), axis=1, out=table[1:, 1:])
        last = first + size
        return np.asarray(table[last, last] - 2 * table[first, last] + table[first, first])


def _interval_sums(values: FloatArray, first: IntArray, size: IntArray) -> FloatArray:
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[first + size] - total[first])
