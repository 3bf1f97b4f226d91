r"""Features that are names, as numbers or as text, such as an operator: privatized by randomized response.

.. math:: q(y \mid v) = \frac{A}{A + (k - 1) B} \text{ if } y = v, \quad \frac{B}{A + (k - 1) B} \text{ otherwise},
    \qquad A / B \le e^\epsilon

where: v is one of the k values, of which the last stands for every value that the pilot lacks, and A and B are whole
weights. A report never holds a number between two values.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from mapveil.geo.feature_kinds import MOST_VALUES
from mapveil.geo.measurements import Measurements
from mapveil.geo.text_categories import OTHER, TextNumbers
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import EpsilonLike, Odds, as_epsilon, odds
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness, uniform_below

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
    texts : tuple of str
        The text that each value stands for, where the column is of text.
    """

    column: int
    values: FloatArray
    epsilon: Fraction
    texts: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each text; none of a column of numbers."""
        return {text: int(value) for text, value in zip(self.texts, self.values, strict=False)}

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record for files, beside the values."""
        named = {"column": self.column, "epsilon": str(self.epsilon)}
        return named | ({"texts": self.numbers} if self.texts else {})

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


def learn_categories(pilot: Measurements, epsilon: EpsilonLike) -> tuple[Category, ...]:
    """Take the values of a pilot's categories, at an epsilon each. Run by: the curator, who makes the values public.

    Raises
    ------
    InputError
        More values than a category has.
    """
    made = []
    for column in pilot.categories:
        name, values = pilot.names[column], np.unique(pilot.rows[:, column])
        if len(values) > MOST_VALUES:
            raise InputError(
                f"column {name!r} has {len(values):,} values; expected a category of at most {MOST_VALUES:,}, so leave "
                "it out: it is an identifier"
            )
        texts: tuple[str, ...] = ()
        if name in pilot.texts:
            by_number = {number: text for text, number in pilot.texts[name].items()}
            values = values[values != OTHER]
            texts = tuple(by_number[int(value)] for value in values)
        made.append(Category(column, values, as_epsilon(epsilon, "category_epsilon"), texts))
    return tuple(made)


def check_texts(known: TextNumbers, measurements: Measurements) -> None:
    """Refuse rows whose texts are not numbered as a privatizer's.

    Raises
    ------
    InputError
        Of the first column.
    """
    for name, numbers in known.items():
        if not numbers.items() <= measurements.texts.get(name, {}).items():
            raise InputError(
                f"{measurements.source}: the texts of column {name!r} are not numbered as the privatizer's; expected "
                "rows read with its texts (read_measurements(..., texts=fitted.texts))"
            )
