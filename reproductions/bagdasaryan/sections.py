"""Amount of runs, and verdicts and formats of the reproduction of Bagdasaryan et al. (2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from reproductions.results import Summary

UNIT = 1e13
"""Mean squared errors of Manhattan are written in units of 1e-13, as in the paper."""


class Plan(NamedTuple):
    """How much of everything is run."""

    trials: int  # seeds of each row of a table and each point of a curve
    thin: bool  # every second point of a curve, no largest ones

    @classmethod
    def full(cls) -> Plan:
        """Twenty seeds everywhere."""
        return cls(20, False)

    @classmethod
    def quick(cls) -> Plan:
        """Three, and fewer points."""
        return cls(3, True)

    def points(self, every: Sequence[Any]) -> tuple[Any, ...]:
        """The points of a curve that are run."""
        return tuple(every[::2] if self.thin else every)


class Shown(NamedTuple):
    """How a mean is written."""

    unit: float = UNIT
    digits: int = 2

    def __call__(self, found: Summary) -> str:
        """The mean and half its 95 % interval."""
        half = (found.high - found.mean) * self.unit
        text = f"{found.mean * self.unit:.{self.digits}f}"
        # Rounding of the last digits is no spread.
        if not math.isfinite(half) or half <= 1e-9 * abs(found.mean) * self.unit:
            return text
        spread = f"{half:.{self.digits}f}"
        return f"{text} ± {spread if float(spread) > 0 else f'{half:.1g}'}"


def within(found: float, target: float, part: float) -> str:
    """The verdict on a figure that must come out within a part of the paper's."""
    return "holds" if abs(found / target - 1) <= part else "does not hold"


def at_most(found: float, bound: float) -> str:
    """The verdict on a figure that must not exceed a bound."""
    return "holds" if found <= bound else "does not hold"
