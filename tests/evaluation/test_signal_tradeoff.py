"""The trade-off of made-up measurements, intervals, tables."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapveil.attacks.signal_adversary import BlindGuess, SignalCodes
from mapveil.evaluation.collection_trials import PILOT_ONLY, PUBLIC_ONLY, REFERENCES
from mapveil.evaluation.coverage_trials import SUMS
from mapveil.evaluation.signal_choice import Constraint, unmeasured
from mapveil.evaluation.signal_tradeoff import (
    KNOBS,
    Tradeoff,
    points_of,
    read_points_table,
    tradeoff,
)
from mapveil.evaluation.signal_trials import privatize_split
from mapveil.geo.measurements import Measurements, MeasurementSplit
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS, find_privatizer
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

ADVERSARIES = (BlindGuess(), SignalCodes())


def made_up(rows: int = 240) -> Measurements:
    draw = np.random.default_rng(3)
    users = np.arange(rows, dtype=np.int64) % 4
    values = draw.normal(size=(rows, 4)) * [0.01, 0.01, 5, 1] + [35.5, 24.0, -80, 0] + 0.1 * users[:, None]
    at = np.arange(rows, dtype=np.int64)
    names = ("lat", "lon", "rss_dbm", "speed")
    return Measurements(values, names, users, tuple("abcd"), at, at, "made up")


ONE = next(iter(SUMS))


@pytest.fixture(autouse=True)
def one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epsilon of sums instead of four, of one trust model, and no curve: those have tests of their own."""
    monkeypatch.setattr("mapveil.evaluation.signal_tradeoff.SUMS_EPSILONS", (2.0,))
    monkeypatch.setattr("mapveil.evaluation.signal_tradeoff.SUMS", {ONE: SUMS[ONE]})
    monkeypatch.setattr("mapveil.evaluation.signal_tradeoff.curve_gains", lambda *given: {})


def run(**changes: Any) -> Any:
    asked: dict[str, Any] = {"trials": 2, "rows": 120, "adversaries": ADVERSARIES, "seed": 4, **changes}
    privatizers = asked.pop("privatizers", {"gaussian-noise": (0.2, 0.8), "codebook": (1.0,)})
    every = tradeoff(made_up(), privatizers, **asked).trials
    return tuple(each for each in every if each.privatizer in privatizers)


def test_every_privatizer_has_a_knob_that_it_takes() -> None:
    assert set(KNOBS) == {row.name for row in PRIVATIZERS}
    for name, knob in KNOBS.items():
        assert list(knob.values) == sorted(set(knob.values))
        for value in knob.values:
            assert getattr(find_privatizer(name).make({knob.name: value}), knob.name) == value


@pytest.mark.parametrize("how", ["random", "time", "user"])
def test_ways_to_part_the_pilot(how: str) -> None:
    pilot, rest = made_up().split(how, Randomness(1), pilot=0.75)
    assert len(pilot) + len(rest) == 240
    assert set(pilot.positions).isdisjoint(rest.positions)
    if how == "time":
        assert pilot.positions.max() < rest.positions.min()
    if how == "user":
        assert set(pilot.users).isdisjoint(rest.users)
    with pytest.raises(ParameterError, match="split must be one of random, time, user"):
        made_up().split("week", Randomness(1), pilot=0.75)


def test_more_noise_costs_more_and_trials_differ() -> None:
    trials = run()
    assert [(each.privatizer, each.value, each.trial) for each in trials] == [
        *(("gaussian-noise", 0.2, 0), ("gaussian-noise", 0.8, 0), ("codebook", 1.0, 0)),
        *(("gaussian-noise", 0.2, 1), ("gaussian-noise", 0.8, 1), ("codebook", 1.0, 1)),
    ]
    assert trials[1].distortion > 2 * trials[0].distortion
    assert trials[0].u1 != trials[3].u1
    # Two of four users report; one of them is unknown to the adversaries, who are judged on that one.
    runs = {score.runs for score in trials[0].attack.scores}
    assert len(runs) == 1
    assert 10 < runs.pop() < 40


def test_the_same_seed_gives_the_same_trials_for_any_number_of_processes() -> None:
    def plain(trials: Any) -> list[Any]:
        same = {"fit_s": 0, "privatize_s": 0, "attack_s": 0, "attack": None, "later_db": None}
        # Undefined numbers, such as errors on later days in a table of one day, are equal in writing alone.
        return [repr(each._replace(**same)) for each in trials]

    one = plain(run())
    assert plain(run(workers=2)) == one
    assert plain(run(seed=5)) != one


def test_a_privatizer_s_trial_is_its_own_whoever_else_is_compared() -> None:
    alone = run(privatizers={"codebook": (1.0,)})
    among = [each for each in run() if each.privatizer == "codebook"]
    assert [each.u for each in alone] == [each.u for each in among]


def test_runs_stay_whole_in_a_sample() -> None:
    trials = run(privatizers={"gaussian-noise": (0.5,)}, rows=60, length=5, trials=1)
    # Twelve runs of five; a random split parts them, and what is left of each user is cut into new runs.
    assert 1 <= trials[0].attack.scores[0].runs <= 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privatizers": {"blur": (1,)}}, "got 'blur'"),
        ({"privatizers": {"gaussian-noise": (-1,)}}, "sigma must be"),
        ({"options": {"codebook": {"width": 3}}}, "codebook has no option 'width'"),
        ({"options": {"gap": {"steps": 3}}}, "options must be of gaussian-noise, codebook, got 'gap'"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"pilot": 1.0}, "pilot must be a fraction"),
        ({"later": 0.8}, "later must be below"),
    ],
)
def test_what_cannot_be_run_is_refused_first(changes: dict[str, Any], said: str) -> None:
    def never(step: str, part: float) -> None:
        raise AssertionError(f"{step} began")

    with pytest.raises(ParameterError, match=said):
        run(**changes, progress=never)


def test_points_are_means_with_intervals() -> None:
    trials = run(trials=3, privatizers={"gaussian-noise": (0.2, 0.8)})
    points = points_of(trials)
    assert [(each.value, each.trials) for each in points] == [(0.2, 3), (0.8, 3)]
    own = [each.places_db for each in trials if each.value == 0.8]
    assert points[1].means["places_db"] == pytest.approx(np.mean(own))
    half = 4.302653 * np.std(own, ddof=1) / math.sqrt(3)  # Student's t of two degrees
    assert points[1].highs["places_db"] - points[1].means["places_db"] == pytest.approx(half, rel=1e-5)
    assert points_of(trials[:1])[0].lows["places_db"] == -math.inf  # one trial says nothing of the spread


def test_a_table_reads_back_what_was_written(tmp_path: Path) -> None:
    from mapveil.evaluation.signal_report import write_tradeoff

    trials = run(trials=1)
    points = points_of(trials)
    pytest.importorskip("matplotlib")
    write_tradeoff(Tradeoff(trials, points, {}), tmp_path)
    back = read_points_table(tmp_path / "points.csv")
    assert [each[:5] for each in back] == [each[:5] for each in points]
    for one, other in zip(back, points, strict=True):
        assert one.means == pytest.approx(other.means, nan_ok=True)
        assert one.lows["u1"] == -math.inf
        assert one.lows["epsilon"] == one.means["epsilon"]


@pytest.mark.parametrize(
    "text", [None, "", "a,b\n1,2\n", "group,privatizer,knob,value,trials,u1\ng,gap,rho,x,1,0\n"]
)
def test_a_table_that_is_none_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "points.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"points\.csv: (no such file|not the points)"):
        read_points_table(path)


def test_quick_is_one_trial_of_every_second_value() -> None:
    made = tradeoff(made_up(), ["gaussian-noise"], quick=True, rows=120, adversaries=ADVERSARIES)
    assert [each.value for each in made.trials if each.privatizer in KNOBS] == list(
        KNOBS["gaussian-noise"].values[::2]
    )
    assert [each[:5] for each in made.points] == [each[:5] for each in points_of(made.trials)]
    assert made.settings["trials"] == 1


def test_every_trade_off_has_the_maps_for_which_nothing_is_collected() -> None:
    made = tradeoff(made_up(), {"gaussian-noise": (0.2,)}, trials=1, rows=200, adversaries=ADVERSARIES)
    by_name = {(each.privatizer, each.value): each for each in made.points}
    assert [name for name, _ in by_name][:3] == list(REFERENCES)
    assert {value for name, value in by_name if name == ONE} == {2.0}
    alone = by_name[PILOT_ONLY, 0.0].means
    nothing = min(alone["places_db"], by_name[PUBLIC_ONLY, 0.0].means["places_db"])
    assert alone["gain_db"] == nothing - alone["places_db"]
    assert alone["epsilon"] == 0
    assert math.isnan(alone["u"])
    for each in made.points:  # a single day: places alone are judged
        assert math.isnan(each.means["later_db"])
        assert each.means["gain_db"] == pytest.approx(nothing - each.means["places_db"])
    assert "later days are not measured" in str(made.settings["notes"])


@pytest.mark.parametrize("name", ["gaussian-noise", "codebook"])
def test_rows_unlike_the_pilot_are_answered_empty_and_cost_no_utility(name: str) -> None:
    # Two users are the pilot; the other two report from 5.6 km farther north: all their rows are unlike the pilot.
    far = made_up()
    rows = far.rows.copy()
    rows[:, :2] = np.random.default_rng(5).normal(size=(len(far), 2)) * 0.001 + [35.5, 24.0]
    away = np.isin(far.users, [2, 3])
    rows[away, 0] += 0.05
    split = MeasurementSplit(replace(far, rows=rows).take(~away), replace(far, rows=rows).take(away))
    privatizer = find_privatizer(name).make({KNOBS[name].name: 0.1})
    plain, made = (
        privatize_split(split, privatizer, Randomness(1), null_code=each) for each in (False, True)
    )
    assert not plain.normalisation.empty(plain.rest.rows).any()
    # Of 120 rows each is answered all the same with probability .01: above 6 with probability 1e-4.
    assert made.normalisation.empty(made.rest.rows).sum() >= 114
    assert made.normalisation.empty(made.pilot.rows).sum() <= 12
    assert len(made.held_out) == len(split.held_out)  # adversaries are given empty reports too
    # Noise of a tenth of a deviation moves a row by .2; the stand-in of an empty report is 20 deviations away.
    if name == "gaussian-noise" and not math.isnan(made.utility.u1):
        assert made.utility.u1 > -2


def test_no_map_is_made_of_empty_reports() -> None:
    # The users of the table are 11 km apart: in a trial all reports may be on rows unlike the pilot.
    found = tradeoff(
        made_up(), {"gaussian-noise": (0.2,)}, trials=3, rows=120, adversaries=ADVERSARIES, seed=4
    )
    pilot = [each.places_db for each in found.trials if each.privatizer == PILOT_ONLY]
    noisy = [each for each in found.trials if each.privatizer == "gaussian-noise"]
    empty = [math.isnan(each.u1) for each in noisy]
    assert any(empty)
    for own, each in zip(pilot, noisy, strict=True):
        if math.isnan(each.u1):
            assert each.places_db == pytest.approx(own, rel=1e-3)


def test_a_privatizer_with_a_proof_answers_every_row() -> None:
    table = made_up()
    split = MeasurementSplit(table.take(table.users < 2), table.take(table.users >= 2))
    made = privatize_split(split, LocalGaussian(epsilon=1), Randomness(1), null_code=True)
    assert not made.normalisation.empty(made.rest.rows).any()


def test_no_user_error_is_told_of_users_whom_no_adversary_knows() -> None:
    # One day: all judged users are others than those whose reports adversaries are given.
    made = tradeoff(made_up(), {"gaussian-noise": (0.2,)}, trials=1, rows=200, adversaries=ADVERSARIES)
    for each in made.points:
        assert math.isnan(each.means["p1"])
        assert each.means["p"] == each.means["p2"]
    assert {each["p1"] for each in made.to_dict()["points"]} == {None}
    assert "P1 is not measured in 1 of 1 trials" in str(made.settings["notes"])
    bounds = [Constraint.named(name, 0.1) for name in ("user_error_at_least", "location_error_at_least")]
    assert unmeasured(made.points, bounds) == (bounds[0],)


def test_a_user_error_is_told_of_users_who_report_on_later_days() -> None:
    table = replace(made_up(), time=86_400_000_000 * (np.arange(240) // 40))
    made = tradeoff(table, {"gaussian-noise": (0.2,)}, trials=1, rows=200, adversaries=ADVERSARIES)
    assert all(0 <= each.means["p1"] <= 1 for each in made.points)
    assert "notes" not in made.settings
