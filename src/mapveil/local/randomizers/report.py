"""What the server adds up of reports."""

from __future__ import annotations

from dataclasses import dataclass

from mapveil_client.arrays import IntArray


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
