r"""The privacy curve of Gaussian noise, exactly, and its two inverses.

.. math:: \delta(\epsilon) = \Phi\left(\frac{r}{2} - \frac{\epsilon}{r}\right)
    - e^{\epsilon} \Phi\left(-\frac{r}{2} - \frac{\epsilon}{r}\right), \qquad r = \Delta / \sigma

where: :math:`\Delta` is the L2 sensitivity, :math:`\sigma` the deviation of the noise of every coordinate, and
:math:`\Phi` the standard normal distribution function. Noise of that deviation is :math:`(\epsilon, \delta)`-DP if
and only if :math:`\delta \ge \delta(\epsilon)`.

Source: Balle, Wang, "Improving the Gaussian mechanism for differential privacy" (2018), theorem 8 (equation 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable

_MARGIN = 2.0**-30  # far more than the rounding of the curve's evaluation


def gaussian_delta(epsilon: float, ratio: float) -> float:
    r"""The least :math:`\delta` at :math:`\epsilon`, for ``ratio`` r = sensitivity / deviation."""
    from scipy.special import log_ndtr, ndtr

    first = float(ndtr(ratio / 2 - epsilon / ratio))
    second = math.exp(epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio)))
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
    r"""The least :math:`\epsilon` at :math:`\delta`, for ``ratio`` r = sensitivity / deviation, rounded up likewise."""
    if gaussian_delta(0.0, ratio) <= delta:
        return 0.0
    return 1 / _last_true(lambda inverse: gaussian_delta(1 / inverse, ratio) <= delta) * (1 + _MARGIN)


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
