r"""The law of a sum of squared residuals, each the difference of sums of discrete Laplace variables.

For :math:`s > 0` and standard normal Z,

.. math:: E\,e^{-s r^2} = E_Z\,\varphi(\sqrt{2 s}\, Z), \qquad
    \varphi(t) = \prod_k \Big(1 + \frac{4 x_k}{(1 - x_k)^2} \sin^2 \frac{h_k t}{2}\Big)^{-m_k}, \qquad x_k = e^{-\rho_k}

where: r is one residual, :math:`\varphi` its characteristic function, :math:`m_k` the number of variables of
measurement k in it, :math:`h_k` their lattice step and :math:`\rho_k` their rate per step. The transform gives the
saddlepoint approximation of the lower tail (Lugannani and Rice 1980). There is none of the upper tail, which falls
slower than any exponential: it is compared with the gamma law of the same three moments (Pearson's type III).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import optimize, special

from mapveil.maps.measurement import Law
from mapveil_client.arrays import FloatArray

_NODES: Final = np.linspace(0.0, 8.0, 257)  # of the integral over |Z|, whose density ends within them
_DENSITY: Final = np.exp(-(_NODES**2) / 2) * np.where(_NODES > 0, 2, 1)
_WEIGHTS: Final = _DENSITY / _DENSITY.sum()
_LEAST: Final = 1e-7  # s times the mean variance, where the search for the saddlepoint begins
_MOST: Final = 300.0  # and ends: at a sum of 1/600 of its mean
_NEAR: Final = 0.5  # deviations around the mean where no tail is judged
_EULERIAN: Final = {2: (1,), 4: (1, 4, 1), 6: (1, 26, 66, 26, 1)}
"""Coefficients of the cumulants of a geometric variable, by order."""


@dataclass(frozen=True, eq=False)
class SquaredResiduals:
    """The law of a sum of squared residuals.

    Parameters
    ----------
    laws : sequence of Law
        Law of the noise on one sum of each of the two measurements.
    counts : ndarray of float64, shape (2, kinds)
        Numbers of sums of either measurement in one residual, for each kind of residual.
    residuals : ndarray of float64, shape (kinds,)
        Number of residuals of each kind.
    """

    laws: Sequence[Law]
    counts: FloatArray
    residuals: FloatArray

    def moments(self, scales: tuple[float, float] = (1.0, 1.0)) -> tuple[float, float, float]:
        """Mean, variance and third central moment, with either measurement's noise scaled.

        Parameters
        ----------
        scales : tuple of float
            Factor of the noise of either measurement: 1 as stated, 0 without any.
        """
        second, fourth, sixth = (
            sum(
                count * _cumulant(law, order) * scale**order
                for law, count, scale in zip(self.laws, self.counts, scales, strict=True)
            )
            for order in (2, 4, 6)
        )
        third = 8 * second**3 + 12 * second * fourth + sixth
        mean, variance, skew = (
            float(self.residuals @ each) for each in (second, 2 * second**2 + fourth, third)
        )
        return mean, variance, skew

    def tails(self, total: float) -> tuple[float, float]:
        """Probabilities of a sum as small or smaller than ``total``, and as large or larger."""
        mean, variance, third = self.moments()
        deviation = math.sqrt(variance)
        shape = 4 * variance**3 / third**2
        over = (total - mean) / deviation * math.sqrt(shape)
        large = float(special.gammaincc(shape, max(shape + over, 0.0)))
        return (self._lower(total, mean) if total < mean - _NEAR * deviation else 1 - large), large

    def finds(self, scales: tuple[float, float], level: float) -> float:
        """Probability that the lower tail of the sum is below ``level`` where the noise is scaled so, about."""
        mean, variance, _ = self.moments()
        other, spread, _ = self.moments(scales)
        stated, scaled = mean**2 / variance, other**2 / spread  # gamma laws' shapes (Satterthwaite 1946)
        limit = float(special.gammaincinv(stated, level)) * mean / stated
        return float(special.gammainc(scaled, limit * scaled / other))

    def _lower(self, total: float, mean: float) -> float:
        unit = self.residuals.sum() / mean
        low, high = math.log(_LEAST * unit), math.log(_MOST * unit)
        if self._transform(math.exp(high))[1] > total:
            log, _, _ = self._transform(math.exp(high))
            return math.exp(min(0.0, math.exp(high) * total + log))  # Chernoff's bound
        place = math.exp(
            optimize.brentq(lambda at: self._transform(math.exp(at))[1] - total, low, high, xtol=1e-9)
        )
        log, _, curvature = self._transform(place)
        root = -math.sqrt(-2 * (place * total + log))
        density = math.exp(-(root**2) / 2) / math.sqrt(2 * math.pi)
        return float(special.ndtr(root)) + density * (1 / root + 1 / (place * math.sqrt(curvature)))

    def _transform(self, at: float) -> tuple[float, float, float]:
        """Logarithm of the sum's Laplace transform at s, its slope with the other sign, and its curvature."""
        logarithms = np.array([_log_characteristic(law, math.sqrt(2 * at) * _NODES) for law in self.laws])
        # Derivatives of the normal density by its variance are Hermite polynomials.
        weights = _WEIGHTS * np.array(
            [
                np.ones(_NODES.size),
                (_NODES**2 - 1) / (2 * at),
                (_NODES**4 - 6 * _NODES**2 + 3) / (2 * at) ** 2,
            ]
        )
        value, first, second = weights @ np.exp(self.counts.T @ logarithms).T
        slope = first / value
        return (
            float(self.residuals @ np.log(value)),
            float(-(self.residuals @ slope)),
            float(self.residuals @ (second / value - slope**2)),
        )


def _cumulant(law: Law, order: int) -> float:
    """A cumulant of the noise on one sum: twice that of a geometric variable, users to the power of the order."""
    ratio = math.exp(-law.rate)
    series = ratio * float(np.polyval(_EULERIAN[order], ratio))
    return float(law.terms * 2 * series * (law.step / -math.expm1(-law.rate)) ** order)


def _log_characteristic(law: Law, at: FloatArray) -> FloatArray:
    steepness = 4 * math.exp(-law.rate) / math.expm1(-law.rate) ** 2
    return np.asarray(-law.terms * np.log1p(steepness * np.sin(law.step * at / 2) ** 2))
