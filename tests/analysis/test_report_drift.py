"""Drift of reports: the false-alarm rate is kept, however alike the reports of a day are, and a change is found."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.analysis.report_drift import drift
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError


def day(draw: np.random.Generator, shift: float = 0.0, empty: int = 0) -> FloatArray:
    """Sixty reports that share the place of their day: dependent, as a phone's are."""
    rows = draw.normal(shift, 1, 2) + 0.2 * draw.normal(size=(60, 2))
    rows[:empty] = np.nan
    return rows


def test_false_alarms_are_as_rare_as_stated() -> None:
    draw = np.random.default_rng(1)
    trials = 300
    alarms = sum(
        drift(day(draw), [day(draw) for _ in range(9)], false_alarm=0.2, rng=at).drifted
        for at in range(trials)
    )
    # 0.2 of 300 trials, within four standard errors.
    assert alarms / trials == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / trials) ** 0.5)


def test_other_places_and_empty_reports_are_drift() -> None:
    draw = np.random.default_rng(2)
    before = [np.concatenate([day(draw) for _ in range(8)]) for _ in range(19)]
    same = drift(np.concatenate([day(draw) for _ in range(8)]), before, rng=1)
    moved = drift(np.concatenate([day(draw, 6.0) for _ in range(8)]), before, rng=1)
    unlike = drift(np.concatenate([day(draw, empty=50) for _ in range(8)]), before, rng=1)
    assert moved.drifted
    assert unlike.drifted
    assert moved.p_value == pytest.approx(1 / 20)
    assert moved.distance > moved.usual + 0.2
    assert unlike.empty == pytest.approx(50 / 60)
    assert same.empty == 0
    assert moved.to_dict()["drifted"] is True


def test_too_few_days_for_the_rate_are_refused() -> None:
    draw = np.random.default_rng(3)
    with pytest.raises(InputError, match=r"3 days before; a false-alarm rate of 0\.05 needs at least 19"):
        drift(day(draw), [day(draw) for _ in range(3)])
    with pytest.raises(InputError, match="a day has no reports"):
        drift(day(draw), [np.empty((0, 2))], false_alarm=0.5)
