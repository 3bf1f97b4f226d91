"""The trade-off of made-up measurements, intervals, choices under constraints against a slow search, tables."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.attacks.signal_adversary import BlindGuess, SignalCodes
from mapveil.evaluation.collection_trials import PILOT_ONLY, PUBLIC_ONLY, RAW, REFERENCES
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.coverage_trials import SUMS
from mapveil.evaluation.signal_tradeoff import (
    KNOBS,
    Constraint,
    Tradeoff,
    TradeoffPoint,
    choose_parameters,
    points_of,
    read_points_table,
    tradeoff,
    unbounded_verdict,
    unmeasured,
)
from mapveil.evaluation.signal_trials import privatize_split
from mapveil.geo.measurements import Measurements, MeasurementSplit
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import PRIVATIZERS, find_privatizer
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

ADVERSARIES = (BlindGuess(), SignalCodes())
MEASURES = (
    "u1",
    "u2",
    "u",
    "rmse_dbm",
    "p1",
    "p2",
    "p2_m",
    "p",
    "floor",
    "gain_db",
    "places_db",
    "later_db",
    "epsilon",
)


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


def point(name: str = "noise", value: float = 1.0, knob: str = "sigma", **means: float) -> TradeoffPoint:
    whole = {each: means.get(each, 1.0 if each == "gain_db" else 0.0) for each in MEASURES}
    return TradeoffPoint("g", name, knob, value, 3, whole, whole, whole)


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


def test_a_choice_worked_out_by_hand() -> None:
    # Privacy rises and utility falls along a line: a distortion of 3 is met half way, in logarithms at sqrt(10).
    points = [point(value=1, u1=-2, u=-2, p=1.0), point(value=10, u1=-4, u=-4, p=2.0)]
    at_most_3 = Constraint("u1", -3, False, "distortion at most 3")
    (choice,) = choose_parameters(points, [at_most_3])
    assert choice.value == pytest.approx(5.5, rel=0.01)
    assert choice.expected["p"] == pytest.approx(1.5, rel=0.01)
    log = [each._replace(privatizer="gaussian-noise") for each in points]
    assert choose_parameters(log, [at_most_3])[0].value == pytest.approx(math.sqrt(10), rel=0.02)
    # Where only privacy is asked for, the value with the largest gain that has it.
    falling = [each._replace(means={**each.means, "gain_db": 2 / each.value}) for each in points]
    (private,) = choose_parameters(falling, [Constraint("p", 1.5, False, "")])
    assert private.value == pytest.approx(5.5, rel=0.01)
    (none,) = choose_parameters(points, [Constraint("u1", -1, False, "")])
    assert none.value is None
    assert none.to_dict() == {"privatizer": "noise", "parameter": "sigma", "value": None, "keeps": False}


def test_a_named_bound_is_a_constraint_on_its_measure() -> None:
    assert Constraint.named("distortion_at_most", 3) == Constraint("u1", -3, False, "distortion at most 3")
    assert Constraint.named("rmse_at_most", 8) == Constraint("rmse_dbm", 8, True, "rmse at most 8")
    far = Constraint.named("location_error_at_least", 300)
    assert far == Constraint("p2_m", 300, False, "location error at least 300")


def test_quick_is_one_trial_of_every_second_value() -> None:
    made = tradeoff(made_up(), ["gaussian-noise"], quick=True, rows=120, adversaries=ADVERSARIES)
    assert [each.value for each in made.trials if each.privatizer in KNOBS] == list(
        KNOBS["gaussian-noise"].values[::2]
    )
    assert [each[:5] for each in made.points] == [each[:5] for each in points_of(made.trials)]
    assert made.settings["trials"] == 1


def test_the_best_come_first_and_those_that_cannot_last() -> None:
    points = [
        point("a", u1=-2, p=1.0),
        point("b", u1=-9, p=9.0),
        point("c", u1=-2.5, p=1.5),
    ]
    choices = choose_parameters(points, [Constraint("u1", -3, False, "")])
    assert [choice.privatizer for choice in choices] == ["c", "a", "b"]
    assert choices[-1].value is None
    with pytest.raises(ParameterError, match="constraints must hold"):
        choose_parameters(points, [])


@given(st.integers(0, 2**32 - 1), st.floats(-3, 3), st.floats(-3, 3))
def test_a_choice_keeps_its_constraints_and_no_measured_value_does_better(
    seed: int, u1: float, rmse: float
) -> None:
    draw = np.random.default_rng(seed)
    points = [
        point(value=float(value), **dict(zip(MEASURES, [*draw.normal(size=9), 1, 0, 0, 0], strict=True)))
        for value in draw.permutation(6)
    ]
    constraints = [Constraint("u1", u1, False, ""), Constraint("rmse_dbm", rmse, True, "")]
    (choice,) = choose_parameters(points, constraints)
    keeping = [
        each.means["p"] for each in points if each.means["u1"] >= u1 and each.means["rmse_dbm"] <= rmse
    ]
    if choice.value is None:
        assert not keeping
        return
    assert choice.expected["u1"] >= u1
    assert choice.expected["rmse_dbm"] <= rmse
    assert choice.expected["p"] >= max(keeping, default=-math.inf)


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


def test_not_to_collect_is_an_answer() -> None:
    points = [point("a", u1=-2, gain_db=-0.1), point("b", u1=-2, gain_db=math.nan), point(RAW, gain_db=9)]
    for bound, keeps in ((-3, True), (-1, False)):
        choices = choose_parameters(points, [Constraint("u1", bound, False, "")])
        assert [choice[:2] for choice in choices] == [("a", "sigma"), ("b", "sigma")]
        assert {(choice.value, choice.keeps) for choice in choices} == {(None, keeps)}
    assert unbounded_verdict(points).startswith("do not collect: no map is better")
    one = [point("a", gain_db=1.0)._replace(trials=1)]
    assert unbounded_verdict(one).startswith(
        "do not collect: one trial tells no gain from chance; --trials 8"
    )
    assert unbounded_verdict([point("a", gain_db=1.0)]).startswith(
        "collect: by a at sigma 1 the map gains 1 dB"
    )


def test_the_best_of_many_is_told_at_their_common_level() -> None:
    # Gains of four trials, all by chance: one choice in twenty may be told, not one in twenty for each value.
    draw = np.random.default_rng(8)
    told = 0
    for _ in range(300):
        gains = draw.normal(size=(20, 4))
        points = []
        for value, own in enumerate(gains):
            mean, low, high = interval_of_mean(own)
            made = point(value=float(value + 1), u1=-1, gain_db=mean, p=1.0)
            points.append(
                made._replace(
                    trials=4, lows={**made.lows, "gain_db": low}, highs={**made.highs, "gain_db": high}
                )
            )
        told += choose_parameters(points, [Constraint("u1", -3, False, "")])[0].told
    assert told <= 18  # P[binomial(300, 1/40) > 18] < 0.001


def test_a_told_value_is_taken_before_a_larger_mean() -> None:
    sure, large = point("a", u1=-1, gain_db=1.0, p=1.0), point("a", value=2.0, u1=-1, gain_db=5.0, p=9.0)
    points = [
        sure._replace(trials=4, lows={**sure.lows, "gain_db": 0.9}),
        large._replace(trials=4, lows={**large.lows, "gain_db": -40.0}),
    ]
    (choice,) = choose_parameters(points, [Constraint("u1", -3, False, "")])
    assert choice.told
    assert choice.expected["gain_db"] < 1.2


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
