"""w-event privacy: no run of windows costs more than epsilon, and quiet windows are not published again."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.mechanisms import window_runs
from mapveil.mechanisms.live_series import LiveSeries
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.window_runs import PublicationBudget, distance
from mapveil.privacy.claim import Assumes, Unit
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

TILING = mv.Quadtree(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=3)
WEEKS = mv.Windows(every="1w", start="2026-01-05", until="2026-03-02")


def visits(week: int, users: int = 600, corner: bool = False, without: int | None = None) -> mv.Points:
    """A row of each user; the same places in every week, or all of them in the south-west."""
    rng, user = np.random.default_rng(5), np.arange(users)
    lon, lat = rng.uniform(-74.03, -73.90, users), rng.uniform(40.69, 40.83, users)
    if corner:
        lon, lat = (lon - 74.03 * 7) / 8, (lat + 40.69 * 7) / 8
    kept = user != without
    day = np.full(users, np.datetime64("2026-01-05") + 7 * week)
    return mv.Points.from_arrays(user[kept], lon[kept], lat[kept], time=day[kept])


@pytest.mark.parametrize("run", [1, 2, 3, 5])
def test_publications_of_any_run_cost_half_of_epsilon_at_most(run: int) -> None:
    rng = np.random.default_rng(run)
    for chance in (0.1, 0.5, 0.9, 1.0):
        spent: dict[int, Fraction] = {}
        for window in range(60):
            allowed = PublicationBudget(Fraction(2), run, spent).of(window)
            if allowed and rng.random() < chance:
                spent[window] = allowed
        for first in range(60):
            assert sum(spent.get(at, Fraction(0)) for at in range(first, first + run)) <= 1
        if chance == 1.0:
            assert sum(spent.values()) >= Fraction(60, run) - 1, "budget that nobody used is lost"


def test_quiet_windows_leave_their_budget_to_later_ones() -> None:
    after = PublicationBudget(Fraction(2), 4, {0: Fraction(1, 4)})
    assert [after.of(window) for window in (1, 2, 4, 40)] == [
        Fraction(1, 4),
        Fraction(1, 2),
        Fraction(1),
        Fraction(1),
    ]
    used = PublicationBudget(Fraction(2), 4, {4: Fraction(1)})
    assert [used.of(window) for window in (5, 7, 8)] == [0, 0, Fraction(1, 4)]


def test_a_user_moves_the_comparison_by_one_at_most() -> None:
    rng = np.random.default_rng(2)
    block = rng.integers(0, 6, 40)
    for _ in range(1000):
        before, crowd = rng.integers(0, 9 * UNIT, (2, 40))
        user = np.zeros(40, dtype=np.int64)
        user[rng.integers(0, 40, 5)] = UNIT // 5
        moved = distance(crowd + user, before, block) - distance(crowd, before, block)
        assert abs(moved) <= UNIT


def test_a_quiet_stream_is_published_once_and_a_change_is_seen(tmp_path: Path) -> None:
    series = LiveSeries.start(tmp_path / "city.series", "city", WEEKS, TILING, epsilon=6, w_event=3)
    # The third window absorbs what the two before left, so that the two after it have nothing.
    maps = [series.add(visits(week, corner=week > 5), WEEKS.names[week]) for week in range(2, 8)]
    for quiet in maps[1:4]:
        np.testing.assert_array_equal(quiet.values, maps[0].values)
        assert quiet.measurements == ()
        assert any("2026-W04 stands for this one" in note for note in quiet.notes)
    assert maps[4].values.max() > 4 * maps[0].values.max()
    np.testing.assert_array_equal(maps[5].values, maps[4].values)
    by = ["", *3 * ["; by the map of 2026-W04"], "", "; by the map of 2026-W08"]
    assert [heat.title for heat in maps] == [
        f"{title}{other}" for title, other in zip(WEEKS.titles[2:], by, strict=True)
    ]
    # Drawn as the map that it repeats, also after a file; but no question is answered by another window's sums.
    read = mv.read_map(_saved(maps[1], tmp_path))
    for stand_in in (maps[1], read):
        assert stand_in.stand_in == "2026-W04"
        drawn, own = stand_in.scene(), maps[0].scene()
        assert drawn.blocks is not None
        assert own.blocks is not None
        np.testing.assert_array_equal(drawn.blocks.of_cell, own.blocks.of_cell)
        assert drawn.reading == own.reading
        assert stand_in.interval() is None
        with pytest.raises(InputError, match="it carries no measurements: 2026-W04 stands for it; ask that"):
            stand_in.total()
    for heat in maps:
        promise = heat.guarantee
        assert (promise.unit, promise.epsilon) == (Unit.WINDOW_RUN, 6)
        assert Assumes.RUN_LENGTH(windows=3) in promise.assumptions
        assert promise.bound is not None
        assert promise.bound.value == 3
        assert mv.read_map(_saved(heat, tmp_path)).guarantee == promise
    words = maps[0].guarantee.in_words()
    assert "a window-run is all rows of one user in any 3 consecutive windows" in words
    assert (
        "the guarantee is for one window-run: the epsilons and deltas of several of one user add up" in words
    )


def _saved(heat: mv.DensityMap, folder: Path) -> Path:
    heat.save(folder / "map.parquet")
    return folder / "map.parquet"


@pytest.mark.parametrize("factor", [1, 2])
def test_what_is_drawn_costs_no_run_more_than_epsilon(
    factor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every draw's exact loss for one user, by the noise that it asks for; half the noise is caught."""
    lost: list[Fraction] = []
    draw, release = window_runs.discrete_laplace, Multiscale.release

    def drawn(count: int, epsilon: Fraction, sensitivity: int, *rest: object) -> object:
        lost[-1] += count * factor * epsilon * UNIT / sensitivity
        return draw(count, factor * epsilon, sensitivity, *rest)

    def released(self: Multiscale, points: UserSums, *given: object, **named: object) -> mv.DensityMap:
        assert isinstance(points, UserSums)
        lost[-1] += self.budget
        return release(self, points, *given, **named)

    monkeypatch.setattr(window_runs, "discrete_laplace", drawn)
    monkeypatch.setattr(Multiscale, "release", released)
    series = LiveSeries.start(tmp_path / "city.series", "city", WEEKS, TILING, epsilon=4, w_event=2)
    for week in range(4):
        lost.append(Fraction(0))
        series.add(visits(week, corner=week % 2 == 1))
    runs = [sum(lost[at : at + 2]) for at in range(3)]
    assert (max(runs) <= 4) == (factor == 1)


def test_delta_is_that_of_a_comparison_and_a_publication_in_each_window_of_a_run(tmp_path: Path) -> None:
    one = LiveSeries.start(
        tmp_path / "one.series", "city", WEEKS, TILING, epsilon=6, w_event=1, accept_large_epsilon=True
    )
    alone = one.add(visits(0, users=50))
    series = LiveSeries.start(tmp_path / "city.series", "city", WEEKS, TILING, epsilon=6, w_event=3)
    for week in range(2):
        delta = series.add(visits(week, users=50)).guarantee.delta
        assert delta == 3 * alone.guarantee.delta > 0


@pytest.mark.parametrize("run", [1, 2, 4])
def test_a_window_is_published_where_blocks_differ_by_more_than_the_noise_of_a_publication(
    run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the boundary, without noise on the comparison: 1 / epsilon of the publication for each block."""
    monkeypatch.setattr(window_runs, "discrete_laplace", lambda *given: np.zeros(1, dtype=np.int64))
    budget = PublicationBudget(Fraction(2), run, {0: Fraction(1, run)})
    published = SimpleNamespace(values=np.full(TILING.size, 3.0))
    for window in range(1, 5):
        boundary = np.full(TILING.size, 3 * UNIT)
        boundary[5] += TILING.size * UNIT / budget.of(window)  # blocks are cells, so few are there
        for more in (0, 1):
            boundary[5] += more
            sums = UserSums(boundary.copy(), TILING)
            assert window_runs.differs(sums, published, budget, window, Randomness(1)) == bool(more)


def test_the_account_is_charged_for_every_run(tmp_path: Path) -> None:
    ledger = mv.Ledger(tmp_path / "ledger.sqlite")
    account = mv.Account.open("city", budget=3, ledger=ledger.path)
    given = {"epsilon": 1, "ledger": ledger}
    LiveSeries.start(tmp_path / "city.series", "city", WEEKS, TILING, w_event=3, **given)
    assert account.spent == 3  # eight windows are in three runs of three
    heat = LiveSeries(tmp_path / "city.series").add(visits(0), ledger=ledger)
    assert heat.guarantee.account is not None
    assert heat.guarantee.account.after == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w_event": 9}, "w_event must be a whole number from 1 to 8"),
        ({"w_event": 2, "windows_per_user": 2}, "windows_per_user must be left out with w_event"),
        ({"w_event": 1, "epsilon": 6}, "accept_large_epsilon"),
    ],
)
def test_what_cannot_be_started_is_said(given: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=message):
        LiveSeries.start(tmp_path / "city.series", "city", WEEKS, TILING, **{"epsilon": 1, **given})
    assert list(tmp_path.iterdir()) == []
