r"""The exact privacy curve of Gaussian noise, alone and composed, in plain Python: a phone evaluates it too.

Noise on one report has the ratio r of its sensitivity to its deviation. Reports of ratios :math:`r_1, r_2, \dots`, each
of which may depend on those before, tell together what one of the ratio

.. math:: r = \sqrt{\textstyle\sum_i r_i^2}

does, exactly. Source: Dong, Roth, Su, "Gaussian differential privacy" (2022), corollary 3.3.
"""

import math
from collections.abc import Callable
from typing import Final

_MARGIN: Final = 2.0**-30  # far more than the rounding of the curve's evaluation
_FAR: Final = 35.0  # deviations beyond which the tail is below the least float: its series is exact to 1e-13


def gaussian_delta(epsilon: float, ratio: float) -> float:
    r"""The least :math:`\delta` of Gaussian noise at :math:`\epsilon`.

    .. math:: \delta(\epsilon) = \Phi\left(\frac{r}{2} - \frac{\epsilon}{r}\right)
        - e^{\epsilon} \Phi\left(-\frac{r}{2} - \frac{\epsilon}{r}\right), \qquad r = \Delta / \sigma

    where: r is ``ratio``, :math:`\Delta` the L2 sensitivity, :math:`\sigma` the deviation of the noise of every
    coordinate, and :math:`\Phi` the standard normal distribution function. Noise of that deviation is
    :math:`(\epsilon, \delta)`-DP if and only if :math:`\delta \ge \delta(\epsilon)`.

    Source: Balle, Wang, "Improving the Gaussian mechanism for differential privacy" (2018), theorem 8 (equation 6).
    """
    first = math.exp(_log_tail(epsilon / ratio - ratio / 2))
    second = math.exp(min(epsilon + _log_tail(epsilon / ratio + ratio / 2), 0.0))
    return max(first - second, 0.0)


def gaussian_deviation(epsilon: float, delta: float, sensitivity: float) -> float:
    r"""The least deviation :math:`\sigma` that is :math:`(\epsilon, \delta)`-DP, rounded up by a part in 2^30.

    Parameters
    ----------
    epsilon, delta : float
        Above 0; ``delta`` below 1.
    sensitivity : float
        L2.
    """
    ratio = _last_true(lambda r: gaussian_delta(epsilon, r) <= delta)
    return sensitivity / ratio * (1 + _MARGIN)


def gaussian_epsilon(delta: float, ratio: float) -> float:
    r"""The least :math:`\epsilon` at :math:`\delta`, for ``ratio`` r = sensitivity / deviation, rounded up likewise.

    Examples
    --------
    A hundred reports of epsilon 10 each, at delta 1e-5 in all, are not of epsilon 1,000:

    >>> each = 1 / gaussian_deviation(10, 1e-5, 1)
    >>> round(gaussian_epsilon(1e-5, 100**0.5 * each), 1)
    284.5
    """
    if gaussian_delta(0.0, ratio) <= delta:
        return 0.0
    return 1 / _last_true(lambda inverse: gaussian_delta(1 / inverse, ratio) <= delta) * (1 + _MARGIN)


def _log_tail(x: float) -> float:
    r"""The logarithm of :math:`\Phi(-x)`."""
    if x < _FAR:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    square = x * x
    series = 1 - 1 / square * (1 - 3 / square * (1 - 5 / square * (1 - 7 / square)))
    return -square / 2 - math.log(x * math.sqrt(2 * math.pi)) + math.log(series)


def _last_true(holds: Callable[[float], bool]) -> float:
    """The largest number above 0 at which a condition holds that holds up to some number, by bisection."""
    low = 1.0
    while not holds(low):
        low /= 2
    high = 2 * low
    while holds(high):
        low, high = high, 2 * high
    while (middle := low + (high - low) / 2) not in (low, high):
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
