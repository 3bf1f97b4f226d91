"""Runs of the reproduction: what they measure, against what is known without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mapveil.random_features.posterior import blind_error
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from reproductions.results import Summary
from reproductions.zong.data import synthetic_scene
from reproductions.zong.line import LineJob, run_line
from reproductions.zong.runs import (
    Job,
    PriorJob,
    noise_hiding,
    prior_of,
    query_of,
    rank_correlation,
    run_job,
    run_prior_job,
    scene_of,
)
from reproductions.zong.sections import (
    AGAINST_EXACT,
    AGAINST_TRUTH,
    ERROR,
    EXACT,
    NOISE,
    PROJECTION,
    SILENCE,
    Point,
    Results,
    at_same_privacy,
)

NOWHERE = Path("/nowhere")


def job(users: int = 400, **more: object) -> Job:
    given = {"features": (1, 3, 40), "epsilons": (0.5, 50.0), "scored": 30, **more}
    return Job("a", users, 0, shared=NOWHERE, seed=5, **given)  # type: ignore[arg-type]


def test_rank_correlation_is_spearmans() -> None:
    first, second = np.random.default_rng(1).random((2, 20, 20)).round(1)
    assert rank_correlation(first, second) == pytest.approx(stats.spearmanr(first.ravel(), second.ravel())[0])
    assert rank_correlation(first, np.exp(first)) == pytest.approx(1.0)
    assert rank_correlation(first, -first) == pytest.approx(-1.0)
    assert rank_correlation(first, np.full(first.shape, 3.0)) == 0.0


def test_a_job_measures_every_answer_and_tends_to_the_exact_one() -> None:
    outcome = run_job(job(keep_maps=True))
    results = Results(outcome.found, outcome.maps)
    error = [results.of(ERROR, method=PROJECTION, level=level).mean for level in (1, 3, 40)]
    assert error[0] > 1.3 * error[1] > 2.5 * error[2]
    assert results.of(ERROR, method=NOISE, level=50.0).mean < 0.02
    assert results.of(AGAINST_EXACT, method=NOISE, level=50.0).mean > 0.99
    assert results.of(AGAINST_TRUTH, method=EXACT).mean > 0.9
    score = {level: results.of("score", method=PROJECTION, level=level).mean for level in (1, 3, 40)}
    silent = results.of("score", method=SILENCE).mean
    assert silent == pytest.approx(2.25, abs=0.3)
    assert 0.7 * silent < score[1] < 1.2 * silent
    assert score[1] > score[3] > score[40]
    # The nearest point of the grid is where an exact kernel is highest.
    assert results.of("score", method=EXACT).mean < 0.04
    assert results.of("score", method=NOISE, level=0.5).mean > 1.5
    assert results.of("score as printed", method=PROJECTION, level=1).mean < 0.3 * score[1]
    assert set(outcome.maps) >= {
        ("a", "truth"),
        ("a", EXACT),
        ("a", f"{PROJECTION} 1"),
        ("a", f"{NOISE} 0.5"),
    }
    assert all(values.shape == (100, 100) and values.min() >= 0 for values in outcome.maps.values())


def test_the_same_seed_gives_the_same_rows_and_more_features_begin_with_fewer() -> None:
    first, again = run_job(job()), run_job(job())
    assert first.found == again.found
    fewer = run_job(job(features=(1, 3)))
    wanted = {row for row in fewer.found if row.method == PROJECTION and row.metric == AGAINST_EXACT}
    assert wanted <= set(first.found)
    assert run_job(job()._replace(trial=1)).found != first.found


def test_nobody_is_scored_where_it_is_not_asked() -> None:
    found = run_job(job(scored=0, features=(), epsilons=(1.0,))).found
    assert not [row for row in found if "score" in row.metric]
    assert {row.method for row in found} == {"scene", EXACT, NOISE}


def test_people_are_drawn_anew_in_each_trial() -> None:
    one, two = (scene_of("b", 50, NOWHERE, 1, trial) for trial in (0, 1))
    assert not np.array_equal(one.places, two.places)
    with pytest.raises(ParameterError, match="no people are called 'Atlantis'"):
        scene_of("Atlantis", None, NOWHERE, 1, 0)


def test_the_prior_is_the_density_over_equal_boxes() -> None:
    scene = synthetic_scene("a", 3_000, Randomness(2))
    known = prior_of(scene)
    assert known.probability.sum() == pytest.approx(1.0)
    assert known.probability.size == 64 * 64
    found = prior_of(scene._replace(truth=None))
    assert rank_correlation(known.probability, found.probability) > 0.95
    np.testing.assert_allclose(known.size, 5 / 64)


def test_noise_hides_nothing_or_all_at_its_ends() -> None:
    scene = synthetic_scene("a", 100, Randomness(2))
    prior = prior_of(scene)
    near, places = noise_hiding(scene, prior, 1_000.0, 40, Randomness(3))
    assert near < 1.5 * prior.size[0]
    assert places < 2
    far, places = noise_hiding(scene, prior, 1e-4, 40, Randomness(3))
    assert far == pytest.approx(blind_error(prior), rel=1e-3)
    assert places > 2_000
    between = [noise_hiding(scene, prior, epsilon, 40, Randomness(3))[0] for epsilon in (0.5, 2.0, 8.0)]
    assert near < between[2] < between[1] < between[0] < far


def test_a_server_with_a_prior_finds_three_features_and_not_one() -> None:
    results = Results(run_prior_job(PriorJob("a", (1, 3), (1.0,), 40, NOWHERE, 5)).found, {})
    silent = results.of("posterior error", method=SILENCE).mean
    assert results.of("posterior error", method=PROJECTION, level=1).mean > 0.6 * silent
    assert results.of("posterior error", method=PROJECTION, level=3).mean < 0.05 * silent
    assert results.of("places left", method=PROJECTION, level=1).mean > 20
    assert results.of("posterior error", method=EXACT).mean == 0


def test_the_query_is_the_scenes() -> None:
    scene = synthetic_scene("b", 10, Randomness(2))
    query = query_of(scene, 4)
    assert (query.features, query.bandwidth, query.low) == (4, (0.55, 0.55), (-6.0, -6.0))
    assert query.grid == scene.grid


def test_errors_on_a_line_fall_with_people_and_features() -> None:
    outcome = run_line(LineJob(0, 3))
    error = {(row.users, row.level): row.value for row in outcome.found}
    assert error[500, 1] > 1.5 * error[500, 10]
    assert error[500, 1] > 1.5 * error[5_000, 1]
    assert error[5_000, 10] < 0.3 * error[500, 1]
    assert outcome.maps["figure 3", "exact 500"].shape == (1000,)
    assert not run_line(LineJob(1, 3)).maps


def test_points_and_summaries() -> None:
    outcome = run_job(job())
    points = Results(outcome.found, {}).points("a", PROJECTION, AGAINST_EXACT)
    assert [point.level for point in points] == [1, 3, 40]
    steps = [Point(1, 4.0, 0.2), Point(2, 2.0, 0.6)]
    assert at_same_privacy(steps, 3.0) == pytest.approx(0.4)
    assert at_same_privacy(steps, 9.0) == 0.2
    assert at_same_privacy(steps, 0.0) == 0.6
    with pytest.raises(ParameterError, match="no row has score of"):
        Results(outcome.found).of("score", method="none")
    assert Summary(0.5, 0.4, 0.6, 9).shown() == "0.500 ± 0.1"
    assert Summary(0.5, -np.inf, np.inf, 1).shown(1) == "0.5"
