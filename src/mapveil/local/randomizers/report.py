"""What leaves a phone, and what the server adds up of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from mapveil_client.arrays import IntArray


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """Randomized reports: all that the server half of a mechanism ever sees of anybody.

    Parameters
    ----------
    values : ndarray
        One symbol each (int64, shape (reports,)); or one set of sites each, a bit per site, the first site in the
        highest bit of the first byte (uint8, shape (reports, bytes)).
    """

    values: npt.NDArray[Any]

    @property
    def count(self) -> int:
        """Number of reports."""
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        return f"Reports({self.count})"


@dataclass(frozen=True, eq=False, repr=False)
class Tally:
    """Reports added up.

    Parameters
    ----------
    counts : ndarray of int64
        How many reports were each symbol, or held each site.
    reports : int
        How many reports there were.
    """

    counts: IntArray
    reports: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.counts + other.counts, self.reports + other.reports)

    def __repr__(self) -> str:
        return f"Tally({self.reports} reports, {self.counts.size} counts)"
