"""The figures of the page on budgets follow from the size of a sketch and the share that is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path

from scipy.stats import binom

from mapveil.privacy.population import SAMPLE, SHARED

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "budgets.md"
ROW = re.compile(r"^\| ([\d,]+) \| ([\d,]+) \| (\d+) % \| ([\d.]+) % \|$", re.MULTILINE)


def test_shares_of_tables_that_are_seen() -> None:
    rows = [[float(part.replace(",", "")) for part in row] for row in ROW.findall(PAGE.read_text("utf-8"))]
    assert len(rows) == 6
    for account, table, percent, seen in rows:
        sampled = SAMPLE / account  # of the people, who are compared
        least = math.ceil(SHARED * min(SAMPLE, table * sampled))
        chance = 100 * binom.sf(least - 1, table * percent / 100, sampled)
        # As many digits as the page has.
        assert abs(chance - seen) <= (0.5 if seen == round(seen) else 0.005), (account, table, chance)
