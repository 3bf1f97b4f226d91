"""Trials until a row is decided: after each look the undecided rows alone are repeated, by the methods in question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.heldout_tables import Standing
from mapveil.evaluation.comparison import Row

ERROR: Final = 0.05
"""Probability that a row without a difference is ever decided, at all looks together (Bonferroni)."""


class Looks(NamedTuple):
    """Numbers of trials after which rows are judged: each twice the one before, up to the last."""

    totals: tuple[int, ...]

    @classmethod
    def up_to(cls, trials: int, most: int) -> Looks:
        """Looks from so many trials on.

        Examples
        --------
        >>> Looks.up_to(3, 20).totals, Looks.up_to(3, 3).totals
        ((3, 6, 12, 20), (3,))
        """
        totals = [trials]
        while totals[-1] < most:
            totals.append(min(2 * totals[-1], most))
        return cls(tuple(totals))

    @property
    def level(self) -> float:
        """Confidence of the intervals at each look."""
        return 1 - ERROR / len(self.totals)


Rows = dict[tuple[str, float, str], Standing]
"""Standings by trust model, epsilon and metric."""


def judged(before: Rows, now: Sequence[Standing]) -> Rows:
    """The rows after a look: what was decided before stays."""
    found = dict(before)
    for each in now:
        key = each.trust, each.epsilon, each.metric
        if key not in found or found[key].verdict == "tie":
            found[key] = each
    return found


def epsilons_in_question(rows: Rows, trust: str, method: str) -> tuple[float, ...]:
    """The epsilons at which an undecided row has the method for its default, or as one not clearly worse than that."""
    undecided = (
        row for row in rows.values() if (row.trust, row.verdict) == (trust, "tie") and row.best_other
    )
    return tuple(sorted({row.epsilon for row in undecided if method in (row.default, *row.unbeaten)}))


def of_first_look(rows: Sequence[Row], looks: Looks) -> tuple[Row, ...]:
    """The rows of the trials that every method ran."""
    return tuple(row for row in rows if row.trial < looks.totals[0])
