"""Planar Laplace on a finite list of sites: the farther a site, the less likely, exponentially."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import keeps
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import MOST_SITES, LocalMethod, SymbolRandomizer
from mapveil_client.randomness.random import Randomness, uniform_below_each

_CLOSE: Final = 1e-6  # relative precision of a rate
_WEIGHT_BITS: Final = 36  # weights are below 2 to this power
_ROW_BITS: Final = 48  # sums of a row's weights are below 2 to this power
_NEAR: Final = 1e-11  # relative; double precision may order closer ratios wrongly


def table_ratio(weights: IntArray) -> Fraction:
    """The largest ratio of two entries of one column, each over its row's sum, exactly.

    Parameters
    ----------
    weights : ndarray of int64, shape (sites, symbols)
        All above 0.
    """
    total = weights.sum(axis=1)
    probability = weights / total[:, None]
    high, low = probability.argmax(axis=0), probability.argmin(axis=0)
    column = np.arange(weights.shape[1])
    ratio = probability[high, column] / probability[low, column]
    near = np.flatnonzero(ratio >= ratio.max() * (1 - _NEAR))
    found = {
        (int(weights[high[y], y]), int(total[high[y]]), int(weights[low[y], y]), int(total[low[y]]))
        for y in near.tolist()
    }
    return max(Fraction(more * of_less, less * of_more) for more, of_more, less, of_less in found)


class TableRandomizer(SymbolRandomizer):
    """A randomizer whose probabilities are the rows of a table over their sums; symbol y is site y.

    Parameters
    ----------
    domain : Domain
        At most :data:`MOST_SITES` sites.
    epsilon : Fraction
        Privacy parameter of the table.
    weights : ndarray of int64, shape (sites, sites)
        From 1 to below 2**36.
    """

    kind: ClassVar[int] = 8

    def __init__(self, domain: Domain, epsilon: Fraction, weights: IntArray) -> None:
        super().__init__(domain, epsilon)
        self._weights = weights
        self._total = weights.sum(axis=1)

    # Each table is as large as the weights: a server draws no report, and a device needs no matrix.

    @cached_property
    def _matrix(self) -> FloatArray:
        return np.asarray(self._weights / self._total[:, None])

    @cached_property
    def _ends(self) -> IntArray:
        """Sums along rows, one after another in one ascending list, each in its own range."""
        ends = self._weights.cumsum(axis=1)
        ends += np.arange(self.size, dtype=np.int64)[:, None] << _ROW_BITS
        return ends.reshape(-1)

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`."""
        return table_ratio(self._weights)

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        left = uniform_below_each(self._total[sites], rng) + (sites << _ROW_BITS)
        return np.searchsorted(self._ends, left, side="right") - sites * self.size

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`."""
        return np.asarray(distribution @ self._matrix)

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`."""
        return np.asarray(self._matrix @ values)

    def transition_matrix(self) -> FloatArray:
        """The table's probabilities; see :meth:`SymbolRandomizer.transition_matrix`."""
        return self._matrix.copy()

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        digest = hashlib.sha256(np.ascontiguousarray(self._weights, dtype="<i8").data).hexdigest()
        return f"table {digest}"


def distances_m(domain: Domain) -> FloatArray:
    """Distances between all pairs of sites, metres, shape (sites, sites).

    Raises
    ------
    ParameterError
        The domain has more than :data:`MOST_SITES` sites.
    """
    if domain.size > MOST_SITES:
        raise ParameterError(
            f"the domain must have {MOST_SITES} sites at most for a table of all pairs, got {domain.size}"
        )
    x, y = domain.plane
    return np.asarray(np.hypot(x[:, None] - x[None], y[:, None] - y[None]))


def exponential_weights(distance: npt.NDArray[np.float64], rate: float) -> IntArray:
    """Whole weights in proportion to exp(-rate distance), at least 1, the nearest below 2**36."""
    scaled = np.exp(-rate * distance) * ((1 << _WEIGHT_BITS) - 1)
    return np.maximum(scaled.astype(np.int64), 1)


def largest_rate(distance: FloatArray, epsilon: Fraction) -> float:
    """The largest rate of :func:`exponential_weights`, to a millionth, whose exact worst ratio keeps epsilon."""
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
    """The randomizer of :class:`PlanarLaplace` on one domain.

    The exponential functions of two processors may differ in the last of a weight's 36 bits. So messages name the
    domain and epsilon, not the table: a client keeps the promise by its own table, exactly.
    """

    def __init__(self, domain: Domain, epsilon: Fraction) -> None:
        distance = distances_m(domain)
        super().__init__(domain, epsilon, exponential_weights(distance, largest_rate(distance, epsilon)))

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        return f"planar laplace {self.epsilon}"


@dataclass(frozen=True, kw_only=True)
class PlanarLaplace(LocalMethod):
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
    summary: ClassVar[str] = "each client reports a site, exponentially less likely with its distance"
    source: ClassVar[str] = "Andres et al. 2013"
    randomizer = PlanarLaplaceRandomizer
