r"""The law of a sum of discrete Laplace variables: its tails and quantiles.

.. math:: Z = A - B, \qquad A, B \sim \mathrm{NB}(r, \beta), \qquad
    \mathrm E\, z^Z = \left( \frac{(1 - \beta)^2}{(1 - \beta z)(1 - \beta / z)} \right)^r, \qquad
    \beta = e^{-\epsilon / \Delta}

where: :math:`r` is ``terms``, any number above zero: the summed shapes of all shares in the sum;
:math:`\epsilon` is ``epsilon`` and :math:`\Delta` is ``sensitivity``. One term is the discrete Laplace law.

A tail is bracketed, not estimated. Split the values of B at integers :math:`b_0 < b_1 < \dots`; since
:math:`\Pr[A > a]` falls in a,

.. math:: \Pr[Z > t] \le \sum_i \Pr[b_i \le B < b_{i+1}] \, \Pr[A > t + b_i],

with equality where all steps are of one; the tails of A and B are incomplete beta functions. The bound is as tight
as the steps are short: up to a few thousandths of the standard deviation where the law is wide. Floating point is
held on the safe side: :math:`\beta` is rounded up, and :data:`_SLACK` covers the incomplete beta functions.

Source: Bagdasaryan et al. (2022), Theorem 4.1 and equation 5, for the sum; Johnson, Kemp, Kotz, "Univariate Discrete
Distributions" (2005), section 5.6, for the tail of the negative binomial law.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mapveil.privacy.discrete_laplace import laplace_quantile
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError, check

_POINTS = 1 << 11
_SLACK = 1e-9  # relative; the incomplete beta functions are good to some 1e-12
_LEFT_OUT = 1e-30  # of either end of the law of B: one step
_LARGEST = 2.0**120
_TOLERANCE = 13
_NEAR_ONE = 1e-13


def laplace_sum_tail(threshold: int, terms: Fraction | float, epsilon: Fraction, sensitivity: int) -> float:
    r"""An upper bound of :math:`\Pr[|Z| > t]`, within a few percent, and exact for one term.

    Parameters
    ----------
    threshold : int
        t, not negative, in lattice units.
    terms : Fraction or float
        Summed shape r, above zero.
    epsilon : Fraction
        The privacy parameter, above zero.
    sensitivity : int
        The L1 sensitivity, in units of the lattice, above zero.

    Raises
    ------
    ParameterError
        A number is outside its range.
    """
    check(threshold >= 0, "threshold", "0 or more", threshold)
    count, rate = _parameters(terms, epsilon, sensitivity)
    if count == 1:
        return 2 * math.exp(-rate * (threshold + 1)) / (1 + math.exp(-rate))
    starts, masses = _split(count, rate)
    return min(1.0, 2 * _tail(threshold, count, rate, starts, masses))


def laplace_sum_quantile(alpha: float, terms: Fraction | float, epsilon: Fraction, sensitivity: int) -> int:
    r"""An integer t with :math:`\Pr[|Z| > t] \le \alpha`, proved and close to the smallest.

    For one term, and wherever noise of 70 / epsilon users stays below 4,096 lattice units, it is the smallest; else
    it may exceed the smallest by a hundredth of the standard deviation.

    Parameters
    ----------
    alpha : float
        Probability in (0, 1), not below 1e-25.
    terms, epsilon, sensitivity
        As for :func:`laplace_sum_tail`.

    Raises
    ------
    ParameterError
        A number is outside its range.
    """
    check(1e-25 <= alpha < 1, "alpha", "between 1e-25 and 1", alpha)
    count, rate = _parameters(terms, epsilon, sensitivity)
    if count == 1:
        return laplace_quantile(alpha, epsilon, sensitivity)
    return _quantile(float(alpha), count, rate)


@functools.lru_cache(maxsize=256)
def _quantile(alpha: float, terms: float, rate: float) -> int:
    """Search with few steps, whose bound is the looser, then with all."""
    fine = _split(terms, rate)
    low, high = -1, 1  # the bound of the tail is above alpha beyond low, and not beyond high
    for starts, masses in (_merge(*fine), fine):
        while 2 * _tail(high, terms, rate, starts, masses) > alpha:
            low, high = high, 2 * high
        if starts is fine[0]:
            low, step = high, max(1, high >> 8)  # the looser bound's quantile is little above this one's
            while low >= 0 and 2 * _tail(low, terms, rate, starts, masses) <= alpha:
                low, high, step = max(low - step, -1), low, 2 * step
        while high - low > max(1, high >> _TOLERANCE):
            middle = (low + high) // 2
            if 2 * _tail(middle, terms, rate, starts, masses) > alpha:
                low = middle
            else:
                high = middle
    return high


def _merge(starts: FloatArray, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Every sixteen steps as one."""
    first = np.arange(0, starts.size, 16)
    return starts[first], np.add.reduceat(masses, first)


def _parameters(terms: Fraction | float, epsilon: Fraction, sensitivity: int) -> tuple[float, float]:
    """Terms and rate as floats."""
    count, rate = float(terms), float(Fraction(epsilon) / sensitivity) if sensitivity > 0 else 0.0
    if not (0 < count < math.inf and rate > 0):
        raise ParameterError(
            f"terms, epsilon and sensitivity must be finite and above 0, got {float(terms):g}, {epsilon} and "
            f"{sensitivity}"
        )
    return count, rate


def _ratio(rate: float) -> float:
    r""":math:`\beta`, rounded up: noise a little wider than asked, by 2^-53 / rate at most."""
    return math.nextafter(math.exp(-rate), 2)


def _survival(beyond: FloatArray, terms: float, rate: float) -> FloatArray:
    r"""Pr[A > a] = :math:`I_\beta(a + 1, r)`."""
    from scipy.special import betainc, betaincc

    if rate < _NEAR_ONE:  # where no beta below 1 is near enough; many times slower
        return np.asarray(betaincc(terms, beyond + 1, -math.expm1(-rate)), dtype=np.float64)
    return np.asarray(betainc(beyond + 1, terms, _ratio(rate)), dtype=np.float64)


def _cumulative(up_to: FloatArray, terms: float, rate: float) -> FloatArray:
    """Pr[B <= b], the rest of the same law."""
    from scipy.special import betainc

    rest = -math.expm1(-rate) if rate < _NEAR_ONE else 1 - _ratio(rate)
    return np.asarray(betainc(terms, up_to + 1, rest), dtype=np.float64)


@functools.lru_cache(maxsize=16)
def _split(terms: float, rate: float) -> tuple[FloatArray, FloatArray]:
    """The starts of the steps of B, ascending from 0, and the probability of each; the last has no end."""
    high = _first(lambda b: _survival(b, terms, rate) <= _LEFT_OUT)
    low = _first(lambda b: _cumulative(b, terms, rate) > _LEFT_OUT)
    if high < 2 * _POINTS:
        starts = np.arange(high + 1.0)
    else:
        even = np.floor(np.linspace(low, high, _POINTS))
        crowded_at_0 = np.floor(np.geomspace(1, high, _POINTS))
        starts = np.unique(np.concatenate([[0.0], even, crowded_at_0[crowded_at_0 > low]]))
    # Each mass is a difference of the smaller tails, so that it keeps its digits.
    beyond = np.concatenate([[1.0], _survival(starts[1:] - 1, terms, rate), [0.0]])
    below = np.concatenate([[0.0], _cumulative(starts[1:] - 1, terms, rate), [1.0]])
    masses = np.where(beyond[:-1] < 0.5, beyond[:-1] - beyond[1:], below[1:] - below[:-1])
    return starts, masses


def _first(holds: Callable[[FloatArray], npt.NDArray[np.bool_]]) -> float:
    """A value, found to a thousandth, close before or at which a monotone condition begins to hold."""
    high = _LARGEST
    grid = np.concatenate([[0.0], np.floor(np.geomspace(1, high, 512))])
    for _ in range(2):
        at = int(np.argmax(holds(grid)))
        high = float(grid[at])
        grid = np.floor(np.linspace(grid[max(at - 1, 0)], high, 512))
    return high


def _tail(threshold: int, terms: float, rate: float, starts: FloatArray, masses: FloatArray) -> float:
    """The upper bound of Pr[Z > t]."""
    return float(masses @ _survival(threshold + starts, terms, rate)) * (1 + _SLACK)
