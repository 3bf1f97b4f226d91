"""Choices under constraints against a slow search, the level at which a gain is told, and the verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.evaluation.collection_trials import RAW
from mapveil.evaluation.comparison import interval_of_mean
from mapveil.evaluation.signal_choice import Constraint, choose_parameters, unbounded_verdict
from mapveil.evaluation.signal_tradeoff import MEASURES, TradeoffPoint
from mapveil_client.errors import ParameterError


def point(name: str = "noise", value: float = 1.0, knob: str = "sigma", **means: float) -> TradeoffPoint:
    whole = {each: means.get(each, 1.0 if each == "gain_db" else 0.0) for each in MEASURES}
    return TradeoffPoint("g", name, knob, value, 3, whole, whole, whole)


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
