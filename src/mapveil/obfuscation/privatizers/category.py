r"""Features that are names in the form of numbers, such as an operator's code: privatized by randomized response.

.. math:: q(y \mid v) = \frac{A}{A + (k - 1) B} \text{ if } y = v, \quad \frac{B}{A + (k - 1) B} \text{ otherwise},
    \qquad A / B \le e^\epsilon

where: v is one of the k values, of which the last stands for every value that the pilot lacks, and A and B are whole
weights. A report never holds a number between two values.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import Odds, odds
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness, uniform_below

MOST_VALUES: Final = 1 << 12
"""Values of a category at most; columns of more are identifiers."""

_BITS: Final = 30  # of a weight: totals stay below 2^53


@dataclass(frozen=True, eq=False)
class Category:
    """One column of categories, and its randomized response.

    Parameters
    ----------
    column : int
        Number of the column among all features.
    values : ndarray of float64, shape (values,)
        The pilot's values, ascending; whatever is none of them is "other", which is reported as NaN.
    epsilon : Fraction
        Of one value, exact.
    """

    column: int
    values: FloatArray
    epsilon: Fraction

    @classmethod
    def learn(cls, column: int, given: FloatArray, epsilon: Fraction, name: str) -> Category:
        """Take the pilot's values. Run by: the curator of the pilot, whose values are then public.

        Raises
        ------
        InputError
            More values than a category has.
        """
        values = np.unique(given)
        if len(values) > MOST_VALUES:
            raise InputError(
                f"column {name!r} has {len(values):,} values; expected a category of at most {MOST_VALUES:,}, so leave "
                "it out: it is an identifier"
            )
        return cls(column, values, epsilon)

    @property
    def size(self) -> int:
        """Number of values, "other" among them (k)."""
        return len(self.values) + 1

    @cached_property
    def weights(self) -> Odds:
        """A and B."""
        return odds(self.epsilon, _BITS, _BITS)

    @property
    def total(self) -> int:
        """A + (k - 1) B: a draw is a whole number below it."""
        return self.weights.more + (self.size - 1) * self.weights.less

    def draws(self, count: int, rng: Randomness) -> IntArray:
        """Uniform whole numbers below :attr:`total`, shape (count,)."""
        return uniform_below(count, self.total, rng)

    def respond(self, given: FloatArray, drawn: IntArray) -> FloatArray:
        """Reported values, NaN for "other", shape (rows,). Run by: the client."""
        at = np.minimum(np.searchsorted(self.values, given), len(self.values) - 1)
        known = self.values[at] == given
        true = np.where(known, at, len(self.values))
        surplus = drawn - (self.weights.more - self.weights.less)
        # Draws beyond the surplus are any value, the true one among them.
        said = np.where(surplus < 0, true, surplus // self.weights.less)
        return np.append(self.values, np.nan)[said]
