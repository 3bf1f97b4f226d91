r"""Choose the resolution of a flow map and its randomizer from public numbers alone.

The unbiased estimate of the trips of one pair, from n pairs of reports of which each end has :math:`\epsilon / 2`, has
a standard deviation of about

.. math:: \sigma = \varphi \sqrt{n}, \qquad \varphi = \frac{4 e^{\epsilon / 2}}{(e^{\epsilon / 2} - 1)^2}

however many sites there are (that of unary encodings and Hadamard responses, squared, because there are two ends).
With c cells the largest flows are about n / c trips; they are twice their deviation where

.. math:: c = \frac{\sqrt n}{2 \varphi}

Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (2017), for the
variances and for where generalized randomized response has the smaller one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from mapveil_client.errors import ParameterError

_DEEPEST: Final = 6  # 4,096 cells


def best_depth(trips: int, epsilon: Fraction) -> int:
    """Depth of the quadtree whose number of cells is nearest the module's c, from 1 to 6. Run by: the server.

    Parameters
    ----------
    trips : int
        n, which the server counts.
    epsilon : Fraction
        Of a pair of reports.

    Raises
    ------
    ParameterError
        There is no trip, or epsilon is not above 0.

    Examples
    --------
    >>> [best_depth(trips, Fraction(3)) for trips in (1_000, 30_000, 1_000_000)]
    [2, 3, 4]
    """
    if trips < 1 or epsilon <= 0:
        raise ParameterError(f"{trips} trips and epsilon {epsilon}; expected at least one, and above 0")
    half = min(float(epsilon) / 2, 350.0)
    # Logarithms to the base 4 of sqrt(n) / (2 phi), kept apart: phi overflows for tiny epsilons.
    log_phi = math.log(4) + half - 2 * math.log(math.expm1(half))
    cells = (math.log(trips) / 2 - math.log(2) - log_phi) / math.log(4)
    return min(max(round(cells), 1), _DEEPEST)


def best_randomizer(sites: int, epsilon: Fraction) -> str:
    r"""``"grr"`` where its variance is the smaller one, :math:`d < 3 e^{\epsilon / 2} + 2`; else ``"hr"``.

    Parameters
    ----------
    sites : int
        d.
    epsilon : Fraction
        Of a pair of reports.

    Examples
    --------
    >>> best_randomizer(4, Fraction(3)), best_randomizer(256, Fraction(3))
    ('grr', 'hr')
    """
    return "grr" if sites < 3 * math.exp(min(float(epsilon) / 2, 350.0)) + 2 else "hr"
