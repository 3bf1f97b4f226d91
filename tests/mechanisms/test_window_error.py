"""More windows than a budget allows at an error are refused, and the refusal says how many it allows."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UserSums
from mapveil.mechanisms.live_series import LiveSeries
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from mapveil.mechanisms.window_error import allowed_windows, sum_error
from mapveil_client.errors import BudgetExceeded, ParameterError

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=3)
WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-02-02")
VISITS = mv.Points.from_arrays(
    np.arange(8), np.full(8, -73.95), np.full(8, 40.75), time=np.full(8, np.datetime64("2026-01-08"))
)


@given(st.fractions(Fraction(1, 8), 8), st.floats(0.05, 300))
def test_one_window_more_would_break_the_error(epsilon: Fraction, error: float) -> None:
    most = allowed_windows(epsilon, error)
    assert most == 0 or sum_error(epsilon / most) <= error
    assert sum_error(epsilon / (most + 1)) > error


def test_the_error_is_that_of_the_sums_that_are_released() -> None:
    mechanism = MultiscaleSeries(epsilon=2, windows=WEEKS, windows_per_user=3)
    sums = UserSums(np.zeros((4, TILING.size), dtype=np.int64), TILING)
    made = mechanism.release(sums, rng=1, account=None)
    assert isinstance(made, mv.SeriesMap)
    width = made.window(0).measurements[0].half_width(0.05)
    assert width == pytest.approx(sum_error(mechanism.window_budget / 3), rel=1e-6)
    mechanism = Multiscale(epsilon=2)
    single = mechanism.release(UserSums(np.zeros(TILING.size, dtype=np.int64), TILING), rng=1, account=None)
    width = single.measurements[-1].half_width(0.05)
    assert width == pytest.approx(sum_error(mechanism.curators_last_budget), rel=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"windows_per_user": 4, "window_error": 6.0},
            "allows 2 windows, got 4, whose sums would be within 12 users",
        ),
        (
            {"window_error": 1.0},
            r"allows none, not even one window, got 1, whose .* within \S+ users \(95 %\); "
            "raise epsilon, or allow a larger error$",
        ),
        (
            {"windows_per_user": 3, "window_error": 1.0},
            "allows none, not even one window, got 3, .*; raise epsilon, or allow a larger error$",
        ),
        ({"window_error": float("inf")}, "window_error must be a number of users above 0"),
        ({"window_error": -1.0}, "window_error must be a number of users above 0"),
        ({"window_error": 9.0, "trust": "local"}, "window_error must be left out without a curator"),
    ],
)
def test_a_series_says_how_many_windows_the_budget_allows(given: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        mv.release_series(VISITS, WEEKS, TILING, epsilon=2, account=None, **given)
    mv.release_series(
        VISITS, WEEKS, TILING, epsilon=2, windows_per_user=2, window_error=6.0, account=None, rng=1
    )


def test_a_live_series_says_how_many_windows_the_budget_allows(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"allows 2 windows, got 4, .*a smaller windows_per_user"):
        LiveSeries.start(tmp_path / "a.series", "city", WEEKS, TILING, epsilon=2, window_error=4.5)
    assert list(tmp_path.iterdir()) == []
    LiveSeries.start(
        tmp_path / "a.series", "city", WEEKS, TILING, epsilon=2, window_error=4.5, windows_per_user=2
    )


def test_an_account_says_how_many_weeks_it_allows(tmp_path: Path) -> None:
    account = mv.Account.open("city", budget=3, ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(BudgetExceeded) as found:
        mv.release_series(VISITS, WEEKS, TILING, epsilon=Fraction(4, 5), per="user-week", account=account)
    assert "each of the 4 weeks costs 0.8, and the account allows 3 of them" in found.value.__notes__
    assert account.spent == 0
