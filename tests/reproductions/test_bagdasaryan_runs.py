from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mapveil.geo.counts import Counts
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.maps.measurement import Measurement
from mapveil_client.errors import ParameterError
from reproductions.bagdasaryan import runs as runs
from reproductions.bagdasaryan.data import Scene
from reproductions.bagdasaryan.runs import (
    COLUMN_L1,
    EPIDEMIC,
    PLAIN,
    SHARD_SIZE,
    Asked,
    Found,
    Job,
    column_l1,
    densities,
    run_job,
    spread,
)
from reproductions.results import Results

TILING = Quadtree(Region.without_georeference(16, 16), 4)
TRUTH = Counts(np.random.default_rng(8).integers(0, 60, TILING.size) ** 2, TILING, "made up")


@pytest.fixture(autouse=True)
def made_up_city(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampled(shared: Path, name: str, users: int | None, seed: int, trial: int) -> Scene:
        drawn = np.random.default_rng([seed, trial]).multivariate_hypergeometric(
            TRUTH.values, users or int(TRUTH.values.sum()), method="marginals"
        )
        return Scene(Counts(drawn, TILING, "sample"), TILING, drawn.astype(np.float64))

    monkeypatch.setattr(runs, "sampled", sampled)
    monkeypatch.setattr(runs, "read_image", lambda shared, name: TRUTH)


def job(*asked: Asked, users: int | None = 20_000, trial: int = 0, keep: bool = False) -> Job:
    return Job("made up", "made up", users, trial, asked, Path("."), 3, EPIDEMIC, keep)


def test_without_noise_and_sampling_the_finest_level_is_the_truth() -> None:
    flat = Asked("flat", "laplace", epsilon=Fraction(10**6))
    plain = Asked("plain", PLAIN, best_level=True)
    found = run_job(job(flat, plain, users=None)).found
    assert {row.users for row in found} == {int(TRUTH.values.sum())}
    for row in found:
        assert row.value == pytest.approx(0.0, abs=1e-12), row
    assert {row.length for row in found if row.label == "flat"} == {256}
    assert {row.length for row in found if row.label == "plain"} == {2}


def test_the_measures_are_those_of_the_kept_map() -> None:
    outcome = run_job(job(Asked("adaptive", "adaptive"), keep=True))
    truth, made = outcome.maps["made up", "truth"], outcome.maps["made up", "adaptive"]
    assert truth.sum() == pytest.approx(1.0)
    assert made.sum() == pytest.approx(1.0)
    value = {row.metric: row.value for row in outcome.found}
    assert value["mse"] == pytest.approx(((truth - made) ** 2).mean())
    assert value["l1"] == pytest.approx(np.abs(truth - made).sum())
    assert value[COLUMN_L1] == pytest.approx(np.linalg.norm(truth - made, 1))
    floor = truth[truth > 0].min()
    assert value["floored_mape"] == pytest.approx(
        (np.abs(truth - made) / np.where(truth > 0, truth, floor)).mean()
    )
    row = outcome.found[0]
    costs = outcome.costs["made up", "adaptive"]
    assert row.length == sum(cost.length for cost in costs)
    assert row.rounds == len(costs) == len(row.epsilons.split())
    assert sum(map(float, row.epsilons.split())) == pytest.approx(1.0, abs=1e-3)


def test_the_same_people_and_seed_give_the_same_rows() -> None:
    asked = Asked("adaptive", "adaptive")
    first, again, other = (run_job(job(asked, trial=trial)).found for trial in (0, 0, 1))
    assert [row[:-1] for row in first] == [row[:-1] for row in again]
    assert first[0].value != other[0].value


def test_the_truth_picks_the_best_level_and_the_best_round() -> None:
    rule = Asked("rule", "hierarchical")
    chosen = run_job(job(Asked("rule", "hierarchical", best_level=True))).found[0].value
    assert chosen <= run_job(job(rule)).found[0].value
    tried = run_job(job(Asked("rule", "hierarchical", levels=(1, 2, 3, 4)))).found[0].value
    assert tried == pytest.approx(chosen)
    fixed = (("threshold", 10), ("schedule", "even"))
    noisy = Fraction(1, 50)
    last = run_job(job(Asked("rounds", "adaptive", (*fixed, ("rounds", 4)), noisy))).found[0]
    best = run_job(job(Asked("rounds", "adaptive", fixed, noisy, best_of_rounds=4))).found[0]
    assert best.value < last.value
    assert best.rounds == last.rounds == 4


def test_a_clip_that_overflows_costs_accuracy_and_a_wide_one_nothing() -> None:
    plain, wide, narrow = (
        run_job(job(Asked("adaptive", "adaptive", clip_bits=bits))).found[0] for bits in (None, 30, 8)
    )
    assert wide.value == plain.value
    assert (wide.bits, narrow.bits) == (30, 8)
    assert narrow.value > 1.5 * plain.value


def test_dropouts_are_left_out() -> None:
    asked = Asked("flat", "laplace", (("tolerated_dropout", 0.1),), Fraction(10**6), dropout=0.1)
    outcome = run_job(job(asked, Asked("plain", PLAIN, dropout=0.1), keep=True))
    assert outcome.costs["made up", "flat"][0].included == 18_000
    plain = {row.metric: row.value for row in outcome.found if row.label == "plain"}
    whole = {row.metric: row.value for row in run_job(job(Asked("plain", PLAIN))).found}
    assert plain["mse"] > whole["mse"]


def test_the_papers_shards_and_no_provision() -> None:
    mechanism = Asked("x", "adaptive").mechanism()
    assert (mechanism.trust.shard_size, mechanism.trust.tolerated_dropout, mechanism.trust.corrupt) == (
        SHARD_SIZE,
        0,
        0,
    )
    part = Asked("x", "adaptive", best_of_rounds=10).mechanism(3)
    assert part.budget == Fraction(3, 10)
    with pytest.raises(ParameterError, match="no distributed method is called 'none'"):
        Asked("x", "none").mechanism()


def test_densities_and_spread() -> None:
    assert densities(np.array([-1.0, 3.0, 1.0])).tolist() == [0.0, 0.75, 0.25]
    assert densities(np.array([-1.0, 0.0])).tolist() == [0.5, 0.5]
    groups = np.where(np.arange(256) < 64, 0, np.where(np.arange(256) < 192, 1, -1))
    values = spread(Measurement(groups, np.array([64.0, 256.0]), Fraction(1), 1), TILING)
    assert values.tolist() == [1.0] * 64 + [2.0] * 128 + [0.0] * 64


def test_column_l1_is_a_matrix_norm() -> None:
    truth, estimate = np.random.default_rng(0).random((2, 5, 7))
    assert column_l1(truth, estimate) == pytest.approx(np.linalg.norm(truth - estimate, 1))


def row(label: str, trial: int, value: float, metric: str = "mse") -> Found:
    return Found("g", "i", 10, trial, label, "density", metric, value, 100 + trial, 14, 1, "1", 0.5)


def test_a_summary_is_of_the_rows_asked_for() -> None:
    rows = [row("a", trial, value) for trial, value in enumerate((1.0, 2.0, 3.0))] + [row("b", 0, 9.0)]
    found = Results(rows).of(label="a")
    assert (found.mean, found.trials, found.length) == (2.0, 3, 101.0)
    assert found.high - 2.0 == pytest.approx(2.4841, abs=1e-3)
    assert math.isinf(Results(rows).of(label="b").high)
    with pytest.raises(ParameterError, match="no row has mse of"):
        Results(rows).of(label="c")
