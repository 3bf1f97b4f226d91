r"""How much each round may cost: just enough to see which nodes to split, and the rest for the last.

The noise of one sum is made of ``terms`` discrete Laplace variables: one for every shard, and more where it is
provisioned for devices that drop out or are corrupt. Their variances add, so a deviation :math:`\sigma` wanted of the
whole leaves :math:`\sigma / \sqrt{r}` to each of r of them.

Source: Bagdasaryan et al. (2022), section 5.4.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from mapveil_client.errors import ParameterError

TARGET_DEVIATIONS: Final = 2
"""The target of equation 7 is so many standard deviations, as in the authors' experiments."""

_DIGITS = 9


def laplace_deviation(epsilon: Fraction | float, sensitivity: int) -> float:
    r"""Standard deviation of a discrete Laplace variable, units.

    .. math:: \tau(\epsilon, \Delta) = \sqrt{2 \beta / (1 - \beta)^2}, \qquad \beta = e^{-\epsilon / \Delta}

    where: :math:`\epsilon` is ``epsilon`` and :math:`\Delta` is ``sensitivity``, units. Source: equation 5.

    Raises
    ------
    ParameterError
        Either is not above zero.

    Examples
    --------
    >>> round(laplace_deviation(Fraction(1), 1), 4)
    1.357
    """
    rate = float(epsilon) / sensitivity if sensitivity > 0 else math.nan
    if not rate > 0:
        raise ParameterError(
            f"epsilon {float(epsilon):g} at sensitivity {sensitivity}; expected numbers above 0"
        )
    return math.sqrt(2) * math.exp(-rate / 2) / -math.expm1(-rate)


def epsilon_of_deviation(deviation: float, sensitivity: int) -> float:
    r"""The epsilon whose noise has a given standard deviation: the inverse of :func:`laplace_deviation`.

    .. math:: \phi(\sigma) = -\Delta \ln \frac{\sigma^2 + 1 - \sqrt{2 \sigma^2 + 1}}{\sigma^2}
              = \Delta \ln \frac{r + 1}{r - 1}, \qquad r = \sqrt{2 \sigma^2 + 1}

    where: :math:`\sigma` is ``deviation``, units, and :math:`\Delta` is ``sensitivity``. The right-hand form loses no
    digits at either end. Source: equation 8.

    Raises
    ------
    ParameterError
        Either is not above zero.
    """
    if not (deviation > 0 and math.isfinite(deviation) and sensitivity > 0):
        raise ParameterError(
            f"deviation {deviation!r} at sensitivity {sensitivity}; expected finite numbers above 0"
        )
    root = math.hypot(1, math.sqrt(2) * deviation)
    # root - 1, without taking neighbours from each other.
    above = 2 * deviation * (deviation / (root + 1))
    return sensitivity * math.log1p(2 / above) if above > 0 else math.inf


def target_deviation(c: float, users: float, nodes: int, terms: float) -> float:
    r"""The deviation wanted of each discrete Laplace variable in a round's noise, users.

    .. math:: \tilde\sigma = \frac{c}{2} \frac{U}{T} \frac{1}{\sqrt{r}}

    where: c is ``c``, U is ``users`` asked, T is ``nodes`` that people are divided over and r is ``terms``, which
    is :math:`U / S_{max}` where nothing is provisioned for.

    Source: equation 7. Deviation: it prints :math:`\sqrt{\lceil S_{max} / U \rceil}`, which is 1 from one full shard
    on and so forgets that the noise of shards adds; read as :math:`\sqrt{S_{max} / U}`, the authors' budgets come
    out. They also take the target as two standard deviations (:data:`TARGET_DEVIATIONS`), as is done here; and r counts
    the noise that is really there.
    """
    return c / TARGET_DEVIATIONS * users / nodes / math.sqrt(terms)


def next_epsilon(remaining: Fraction, wanted: float, b: float) -> Fraction:
    r"""What the next round may cost.

    .. math:: \gamma(\epsilon_{rem}, \tilde\epsilon) = \begin{cases} \tilde\epsilon & b \tilde\epsilon \le
              \epsilon_{rem} \\ \epsilon_{rem} & \text{otherwise} \end{cases}

    where: :math:`\epsilon_{rem}` is ``remaining``, exact, :math:`\tilde\epsilon` is ``wanted``, rounded down to nine
    digits, and b is ``b``. Source: equation 9.
    """
    if not 0 < b * wanted <= float(remaining):
        return remaining
    rounded = rounded_down(wanted)
    # Where b is near 1 the float comparison above is not to be trusted with a promise.
    return rounded if 0 < rounded < remaining else remaining


def rounded_down(epsilon: float) -> Fraction:
    """The number cut to nine decimal digits, exactly."""
    places = _DIGITS - 1 - math.floor(math.log10(epsilon))
    grain = Fraction(10) ** places
    return math.floor(Fraction(epsilon) * grain) / grain
