r"""The number of windows that a budget allows at an error.

.. math:: t = \frac{n}{\epsilon} \ln \frac{2}{\alpha (1 + q)}, \qquad q = e^{-\epsilon / (n u)}

is the half width of the 95 % interval around one noisy sum of users, where epsilon is divided into n equal parts, or
the noise is n times as wide: n windows of a user, or of a live series. There u is the number of units of one user,
and alpha is .05.
"""

from __future__ import annotations

import math
from fractions import Fraction

from mapveil.engines import UNIT
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.privacy.discrete_laplace import laplace_quantile
from mapveil_client.epsilon import readable
from mapveil_client.errors import ParameterError, check


def sum_error(epsilon: Fraction) -> float:
    """Half the width of the 95 % interval around a curator's noisy sum, users."""
    return laplace_quantile(INTERVAL_ALPHA, epsilon, UNIT) / UNIT


def allowed_windows(epsilon: Fraction, error: float) -> int:
    """The largest number of equal parts of epsilon whose sums keep an error, users; 0 where not even one does."""
    guess = int(error / sum_error(epsilon))
    # The quantile is whole units, so that the quotient may be off by a part.
    return max((n for n in range(max(guess - 1, 1), guess + 2) if sum_error(epsilon / n) <= error), default=0)


def check_error(epsilon: Fraction, windows: int, error: float, *, fix: str) -> None:
    """Refuse more windows than the budget allows at an error, before any charge.

    Parameters
    ----------
    epsilon : Fraction
        Budget of the sums of all windows.
    windows : int
        Number of windows that divide it, or that a user counts in.
    error : float
        Largest half width of the 95 % interval around one window's noisy sum, users.
    fix : str
        Remedy beside fewer windows, where a user counts in several.

    Raises
    ------
    ParameterError
        There are more than that, or the error is no number above 0; the message says how many it allows.
    """
    check(0 < error < math.inf, "window_error (--window-error)", "a number of users above 0", error)
    reached = sum_error(epsilon / windows)
    if reached > error:
        most = allowed_windows(epsilon, error)
        few = f"allows {most} window{'s' * (most != 1)}" if most else "allows none, not even one window"
        remedy = "raise epsilon (--epsilon), or allow a larger error (--window-error)"
        if most:
            remedy = f"ask for fewer windows, or {fix}"
        raise ParameterError(
            f"window_error (--window-error) {error:g} at epsilon {readable(epsilon)} for the sums of windows {few}, "
            f"got {windows}, whose sums would be within {reached:.3g} users (95 %); {remedy}"
        )
