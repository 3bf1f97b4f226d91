"""Verdicts: by the interval of paired differences, at a confidence for all comparisons of a row."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.data_sets import DataSet
from benchmarks.heldout_tables import NO_LONGER, Measured, Standing, count_verdicts, standings
from benchmarks.heldout_text import result_text
from mapveil.evaluation.comparison import Row
from mapveil.evaluation.trials import UNIFORM

DATA = DataSet("here", "test", "", "here")


def rows(method: str, values: list[float], metric: str = "kl", length: int = 0) -> list[Row]:
    return [Row(method, 1.0, trial, metric, value, 0.0, length) for trial, value in enumerate(values)]


def measured(*groups: list[Row]) -> Measured:
    return Measured(DATA, "central", tuple(row for group in groups for row in group))


def result_text_of(found: list[Standing]) -> str:
    settings = {"epsilons": [1.0], "trials": 2, "max_cells": 16, "counted": {"tables": "", "rasters": ""}}
    sets = [{"name": "here", "role": "test", "users": 40}]
    return result_text({"settings": settings, "data_sets": sets, "verdicts": count_verdicts(found), "means": [],
                        "left_out": [], "refused": []}, found)  # fmt: skip


def test_differences_are_paired_and_judged_by_their_interval() -> None:
    mine = [1.0, 2.0, 3.0, 4.0]
    even = rows(UNIFORM, [9.0] * 4)
    for theirs, metric, verdict in (
        ([value + 0.5 + noise for value, noise in zip(mine, (0, 0.1, 0, 0.1), strict=True)], "kl", "win"),
        (
            [value + 0.5 + noise for value, noise in zip(mine, (0, 0.1, 0, 0.1), strict=True)],
            "similarity",
            "loss",
        ),
        ([4.0, 1.0, 3.0, 2.5], "kl", "tie"),
        (mine, "kl", "tie"),
    ):
        found = standings(measured(rows("a", mine, metric), rows("b", theirs, metric), even), "a")
        assert [each.verdict for each in found if each.metric == metric] == [verdict]
    (one,) = standings(measured(rows("a", [1.0]), rows("b", [2.0])), "a")
    assert one.verdict == "tie"  # one trial has no interval


def test_a_row_without_any_difference_is_decided_with_a_probability_of_five_percent_at_most() -> None:
    count, names = 1500, [f"m{at}" for at in range(12)]
    drawn = np.random.default_rng(5).normal(1.0, 0.1, (count, len(names), 5))
    decided = sum(
        standings(measured(*(rows(name, list(each)) for name, each in zip(names, row, strict=True))), "m0")[0].verdict
        != "tie"
        for row in drawn
    )  # fmt: skip
    assert 0 < decided <= stats.binom.ppf(1 - 1e-4, count, 0.05)


def test_a_win_is_over_every_other_method_and_not_over_the_best_mean_alone() -> None:
    mine, steady, noisy = [1.0, 1.1, 1.2], [1.5, 1.62, 1.71], [0.6, 1.2, 3.4]
    (found,) = standings(measured(rows("a", mine), rows("steady", steady)), "a")
    assert found.verdict == "win"
    (found,) = standings(measured(rows("a", mine), rows("steady", steady), rows("noisy", noisy)), "a")
    assert (found.best_other, found.verdict, found.unbeaten) == ("steady", "tie", ("noisy",))


@pytest.mark.parametrize(("trials", "verdict"), [(2, "tie"), (4, "tie"), (5, "win")])
def test_few_differences_that_are_all_alike_decide_nothing(trials: int, verdict: str) -> None:
    (found,) = standings(measured(rows("a", [0.0] * trials), rows("b", [0.5] * trials)), "a")
    assert found.verdict == verdict


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_trial_without_a_finite_value_failed(bad: float, order: str) -> None:
    of = {"a": [1.0, 1.1, 1.2], "b": [2.0, bad, 2.3]}
    (found,) = standings(measured(*(rows(name, of[name]) for name in order), rows("c", [3.0, 3.2, 3.1])), "a")
    assert (found.best_other, found.verdict) == ("c", "tie")
    (found,) = standings(measured(*(rows(name, of[name]) for name in order), rows("c", [3.0, 3.2, 3.1])), "b")
    assert found.verdict != "win"


def test_a_default_that_did_not_run_loses_and_one_without_rivals_ties() -> None:
    for metric, shown in (("kl", ["kl"]), ("density_mse", ["density_mse", NO_LONGER])):
        others = rows("b", [1.0, 1.1], metric), rows("c", [2.0, 2.1], metric)
        found = standings(measured(*others), "a")
        assert [(each.metric, each.best_other, each.verdict) for each in found] == [
            (name, "b", "loss") for name in shown
        ]
        assert not found[0].near_the_best
        assert "a not run" in result_text_of(found)
        alone = standings(measured(rows("a", [1.0, 1.1], metric)), "a")
        assert [each.verdict for each in alone] == ["tie"] * len(shown)


def test_a_default_loses_where_no_method_ran() -> None:
    asked = measured(rows("a", [1.0, 1.1]), rows("b", [2.0, 2.12]))._replace(asked=((1.0, "kl"), (9.0, "kl")))
    found = standings(asked, "a")
    assert [(each.epsilon, each.verdict, each.near_the_best) for each in found] == [
        (1.0, "win", True), (9.0, "loss", False),
    ]  # fmt: skip
    assert "a not run; no other" in result_text_of(found)


def test_a_default_clearly_under_the_uniform_baseline_loses_whatever_the_others() -> None:
    groups = rows("a", [2.0, 2.02]), rows("b", [3.0, 3.03])
    for baseline, verdict in ((1.0, "loss"), (2.01, "win"), (9.0, "win")):
        (found,) = standings(measured(*groups, rows(UNIFORM, [baseline] * 2)), "a")
        assert found.verdict == verdict
    near = [0.5, 0.5 + 1e-12]  # one map, added up in another order
    (found,) = standings(measured(rows("a", near), rows(UNIFORM, [0.5 - 1e-12] * 2)), "a")
    assert (found.verdict, found.over_uniform) == ("tie", "tie")


def test_the_best_other_is_by_direction_and_the_baseline_is_none_of_them() -> None:
    of = {"a": [0.5, 0.501], "b": [0.4, 0.4], "c": [0.6, 0.6]}
    groups = [rows(name, values, "similarity") for name, values in of.items()]
    (found,) = standings(measured(*groups, rows(UNIFORM, [0.9] * 2, "similarity")), "a")
    assert (found.best_other, found.verdict, found.over_uniform) == ("c", "loss", "loss")


@pytest.mark.parametrize(
    ("metric", "value", "near"),
    [("kl", 1.04, True), ("kl", 1.06, False), ("similarity", 0.96, True), ("similarity", 0.94, False)],
)
def test_near_the_best_is_within_five_percent_of_it(metric: str, value: float, near: bool) -> None:
    found = standings(measured(rows("a", [value] * 2, metric), rows("b", [1.0] * 2, metric)), "a")
    assert found[0].near_the_best == near


def test_mean_squared_error_is_also_judged_beside_vectors_that_are_no_longer() -> None:
    groups = [
        rows(name, values, "density_mse", length)
        for name, values, length in (
            ("a", [2.0, 2.1], 100),
            ("long", [1.0, 1.12], 101),
            ("b", [3.0, 3.12], 100),
        )
    ]
    whole, short = standings(measured(*groups), "a")  # fmt: skip
    assert (whole.best_other, whole.verdict, whole.other_length) == ("long", "loss", 101)
    assert (short.metric, short.best_other, short.verdict) == (NO_LONGER, "b", "win")


def test_roles_are_counted_apart() -> None:
    of_test = measured(rows("a", [1.0, 1.1]), rows("b", [2.0, 2.12]))
    of_tune = of_test._replace(
        data=DATA._replace(role="tune"), rows=tuple(rows("a", [3.0, 3.1]) + rows("b", [2.0, 2.12]))
    )
    counted = count_verdicts([*standings(of_test, "a"), *standings(of_tune, "a")])
    assert [record["metric"] for record in counted] == ["kl", "all"]
    apart = {"tie": 0, "rows": 1, "over_uniform": 0, "under_uniform": 0}
    assert counted[0]["test"] == {"win": 1, "loss": 0, "near_the_best": 1, **apart}
    assert counted[0]["tune"] == {"win": 0, "loss": 1, "near_the_best": 0, **apart}
