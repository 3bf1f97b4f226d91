"""What a picture and a page say: the promise in one line, and numbers as a person writes them."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapveil.privacy.guarantee import Guarantee


def odds_factor(guarantee: Guarantee) -> str:
    """e to the epsilon, as a person writes it: how far one user can move the odds of an outcome."""
    factor = math.exp(min(_epsilon(guarantee), 700.0))
    return number_text(factor) if factor >= 1.1 else f"{factor:.4f}"


def _epsilon(guarantee: Guarantee) -> float:
    if guarantee.epsilon is None:
        raise AssertionError("what is not differentially private has no factor")
    return float(guarantee.epsilon)


def epsilon_text(guarantee: Guarantee) -> str:
    """``ε = 1``, or the words for its absence."""
    return guarantee.label if guarantee.epsilon is None else f"ε = {float(guarantee.epsilon):.6g}"


def guarantee_line(guarantee: Guarantee) -> str:
    """The promise in one line under a picture."""
    if guarantee.epsilon is None:
        return dataclasses.replace(guarantee, assumptions=(), seeded=False).in_words()
    kind = epsilon_text(guarantee) + (f", δ = {guarantee.delta:g}" if guarantee.delta else "")
    return (
        f"Differentially private for each {guarantee.unit} ({kind}, trust: {guarantee.trust}): one "
        f"{guarantee.unit}'s data change the odds of anything that this map shows by a factor of at most "
        f"{odds_factor(guarantee)}."
    )


def number_text(value: float) -> str:
    """A number in three digits, with thin spaces between thousands.

    Examples
    --------
    >>> number_text(2.718281828), number_text(0.0)
    ('2.72', '0')
    """
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text
