"""A randomizer of small domains given by a whole table of weights."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import MOST_SITES, Covariance, SiteNoise
from mapveil.local.randomizers.domain import Domain
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.randomness.uniform import uniform_below_each

WEIGHT_BITS: Final = 36
"""Weights are below 2 to this."""

_ROW_BITS: Final = 48
_NEAR: Final = 1e-11
_SINGULAR: Final = 1e-13


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
        Of at most :data:`MOST_SITES`.
    epsilon : Fraction
        What the table keeps.
    weights : ndarray of int64, shape (sites, sites)
        From 1 to below ``2**WEIGHT_BITS``.
    """

    kind: ClassVar[int] = 8

    def __init__(self, domain: Domain, epsilon: Fraction, weights: IntArray) -> None:
        super().__init__(domain, epsilon)
        self._weights = weights
        self._total = weights.sum(axis=1)
        self._matrix: FloatArray = weights / self._total[:, None]
        # Rows one after another in one ascending list, each in its own range.
        ends = weights.cumsum(axis=1) + (np.arange(domain.size, dtype=np.int64)[:, None] << _ROW_BITS)
        self._ends = ends.reshape(-1)

    @staticmethod
    def check_size(sites: int, name: str) -> None:
        """Refuse a domain whose table would be too large.

        Raises
        ------
        ParameterError
            It has more than :data:`MOST_SITES` sites.
        """
        if sites > MOST_SITES:
            raise ParameterError(
                f"{name} writes out a table of all pairs of sites; {MOST_SITES} sites at most are accepted, not {sites}"
            )

    @property
    def symbols(self) -> int:
        """One for each site."""
        return self.size

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

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`, by LU decomposition."""
        return solve_regular(self._matrix.T, tally.counts / max(tally.reports, 1))

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: of the inverse."""
        return self._inverse_covariance(distribution)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: from the inverse."""
        inverse = np.linalg.inv(self._matrix)
        spread = (distribution @ self._matrix) @ np.square(inverse)
        return SiteNoise(spread - distribution, float(np.abs(inverse).max()))

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        import hashlib

        digest = hashlib.sha256(np.ascontiguousarray(self._weights, dtype="<i8").data).hexdigest()
        return f"table {digest}"


def solve_regular(matrix: npt.NDArray[np.float64], right: FloatArray) -> FloatArray:
    """Solve a square system by LU decomposition.

    Raises
    ------
    ParameterError
        The system is singular to working precision.
    """
    from scipy.linalg.lapack import dgecon, dgetrf, dgetrs

    factors, pivots, failed = dgetrf(matrix)
    reciprocal = 0.0 if failed else float(dgecon(factors, np.linalg.norm(matrix, 1))[0])
    if reciprocal < _SINGULAR:
        raise ParameterError(
            "the system of equations is singular: different distributions have the same reports; "
            "the estimator 'smoothed-em' is accepted, or groups whose first is the place alone"
        )
    return np.asarray(dgetrs(factors, pivots, right)[0])
