r"""The noise of a whole sum, drawn at once: what the shares of its clients add up to.

.. math:: Z = X - Y, \qquad X, Y \sim \mathrm{NB}(r, \beta), \qquad \beta = e^{-\epsilon / \Delta}

where: :math:`r` is ``terms``, the summed shapes of all shares (:mod:`mapveil_client.randomness.noise_shares`);
:math:`\epsilon` is ``epsilon`` and :math:`\Delta` is ``sensitivity``. r is cut into equal parts, each so narrow that
one table of integers holds its law; a sample is the sum of the parts'. The law's generating function gives, with
:math:`p_k = \Pr[Z = k]` for a part of :math:`\rho` terms,

.. math:: \beta (k - 1 + \rho)\, p_{k-1} = (1 + \beta^2)\, k\, p_k - \beta (k + 1 - \rho)\, p_{k+1},

which is stable from the tail towards 0 (Miller's algorithm). Each part is within :math:`2^{-63}` of its law in total
variation. Where one term is too wide for a table, whole terms are discrete Laplace variables
(:mod:`mapveil.privacy.discrete_laplace`), and the rest is a share.

Source: Bagdasaryan et al. (2022), Theorem 4.1, for the law; Olver, "Numerical solution of second-order linear
difference equations" (1967), for the algorithm.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.privacy.discrete_laplace import discrete_laplace, laplace_variance
from mapveil.privacy.laplace_sum import laplace_sum_quantile
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.logarithmic import DIGITS, TAIL, SlotTable, draw_slots, slot_table
from mapveil_client.randomness.noise_shares import as_shape, noise_shares
from mapveil_client.randomness.random import Randomness

_CHUNK = 1 << 16
_FARTHEST = 1 << 12  # the largest value of a table
_DEVIATIONS = 9.0  # which a table must reach at least
_WIDEST = 50  # scales of one term that a table must reach
_SETTLED = 84.0  # Miller's start is forgotten to exp(-84), some 2^-121


class _Cut(NamedTuple):
    table: SlotTable  # of one part
    parts: int


@functools.lru_cache(maxsize=64)
def _cut(terms: Fraction, epsilon: Fraction, sensitivity: int) -> _Cut:
    """Cut the terms into parts, and lay out the table of one."""
    deviation = math.sqrt(terms * laplace_variance(epsilon, sensitivity))
    parts = max(1, math.ceil((deviation * _DEVIATIONS / _FARTHEST) ** 2))
    while (reach := laplace_sum_quantile(float(TAIL), terms / parts, epsilon, sensitivity)) > _FARTHEST:
        parts += -(-parts // 4)
    if reach == 0:
        return _Cut(slot_table([Decimal(1)], [0]), 1)
    with decimal.localcontext(DIGITS):
        rate = Decimal(epsilon.numerator) / Decimal(epsilon.denominator * sensitivity)
        shape = Decimal(terms.numerator) / Decimal(terms.denominator * parts)
        beta = (-rate).exp()
        law = [Decimal(0), Decimal(1)]  # from the tail towards 0, unnormalised
        for k in range(_start(reach, float(shape), float(rate)), 0, -1):
            ahead = (1 + beta * beta) * k * law[-1] - beta * (k + 1 - shape) * law[-2]
            law.append(ahead / (beta * (k - 1 + shape)))
        half = law[: -reach - 2 : -1]
    return _Cut(slot_table(half + half[1:], [*range(reach + 1), *range(-1, -reach - 1, -1)]), parts)


def _start(reach: int, shape: float, rate: float) -> int:
    """Where to begin: so far beyond that the other solution has died away when k comes down to reach."""
    settled, k = 0.0, reach
    while settled < _SETTLED:
        k += 1
        # The two solutions grow by these roots from k to k - 1.
        middle = math.cosh(rate) * k / (k - 1 + shape)
        root = math.sqrt(middle**2 - (k + 1 - shape) / (k - 1 + shape))
        settled += math.log((middle + root) / max(abs(middle - root), 1e-300))
    return k


def noise_totals(
    length: int, terms: Fraction | float, epsilon: Fraction, sensitivity: int, rng: Randomness
) -> npt.NDArray[np.int64]:
    """Draw the summed noise of many clients, dense. Run by: a simulation of ideal sums.

    The law is in the module's header.

    Parameters
    ----------
    length : int
        Coordinates.
    terms : Fraction or float
        Summed shape, not negative: that of a share times the clients whose input is in the sums.
    epsilon : Fraction
        The exact privacy parameter, above zero.
    sensitivity : int
        The L1 sensitivity, in units of the lattice, above zero.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int64, shape (length,)
        In units of the lattice.

    Raises
    ------
    ParameterError
        A number is outside its range.

    Examples
    --------
    >>> noise_totals(4, 5747, Fraction(1), 1, Randomness(seed=1)).shape
    (4,)
    """
    if length < 0:
        raise ParameterError(f"length is {length}; expected 0 or more")
    if sensitivity < 1 or epsilon <= 0:
        raise ParameterError(
            f"epsilon {epsilon} at sensitivity {sensitivity}; expected numbers above 0 for both"
        )
    shape = as_shape(terms) if terms else Fraction(0)
    total = np.zeros(length, dtype=np.int64)
    if not shape or not length:
        return total
    if epsilon * _FARTHEST >= _WIDEST * sensitivity:
        table, parts = _cut(shape, Fraction(epsilon), int(sensitivity))
        _add(total, parts, lambda size: draw_slots(table, size, rng))
        return total
    whole, rest = divmod(shape, 1)
    _add(total, whole, lambda size: discrete_laplace(size, epsilon, sensitivity, rng))
    if rest:
        noise = noise_shares(1, length, rest, epsilon, sensitivity, rng)
        np.add.at(total, noise.position, noise.value)
    return total


def _add(
    total: npt.NDArray[np.int64], count: int, draw: Callable[[int], npt.NDArray[np.signedinteger]]
) -> None:
    """Add ``count`` draws to every coordinate, a cache's worth at a time."""
    for start in range(0, total.size, _CHUNK):
        part = total[start : start + _CHUNK]
        rows = _CHUNK // part.size
        for first in range(0, count, rows):
            some = min(rows, count - first)
            part += draw(some * part.size).reshape(some, -1).sum(axis=0, dtype=np.int64)
