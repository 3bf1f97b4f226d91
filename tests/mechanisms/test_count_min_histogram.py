from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.mechanisms.count_min_histogram import CountMinHistogram, sketch_estimates
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import SketchEncoding


def sketch_of(encoding, people):
    """The exact sketch of people per site, row by row."""
    sums = np.zeros(encoding.length)
    where = encoding.positions(np.arange(people.size))
    for copy in range(encoding.copies):
        np.add.at(sums, where[:, copy], people)
    return sums


def estimates_slowly(encoding, index, sums, node, estimator):
    """The formulas of the docstring for one node."""
    rows = sums.reshape(-1, encoding.rows, encoding.width)[index].tolist()
    total = sum(sum(row) for row in rows) / encoding.rows
    answers = []
    for number, row in enumerate(rows):
        counter = row[int(encoding.columns(index, number, np.array([node]))[0])]
        debiased = (encoding.width * counter - total) / (encoding.width - 1)
        answers.append(counter if estimator == "min" else debiased)
    answers.sort()
    if estimator == "min":
        return answers[0]
    if estimator == "mean":
        return sum(answers) / len(answers)
    middle = len(answers) // 2
    return answers[middle] if len(answers) % 2 else (answers[middle - 1] + answers[middle]) / 2


@pytest.mark.parametrize("estimator", ["median", "mean", "min"])
@pytest.mark.parametrize("rows", [1, 4, 5])
def test_the_estimates_are_those_of_the_formulas(crowd, estimator, rows):
    encoding = SketchEncoding(4, (2, 4), 30, rows, "rows")
    sums = sketch_of(encoding, crowd(4, 500)) + np.random.default_rng(1).normal(0, 3, encoding.length)
    nodes = np.array([0, 17, 255])
    found = sketch_estimates(encoding, 1, sums, nodes, estimator)
    for node, value in zip(nodes.tolist(), found.values.tolist(), strict=True):
        assert value == pytest.approx(estimates_slowly(encoding, 1, sums, node, estimator))


def test_without_noise_the_minimum_is_never_below_the_truth(crowd):
    people = crowd(5, 2000)
    encoding = SketchEncoding(5, (5,), 200, 5, "above")
    found = sketch_estimates(encoding, 0, sketch_of(encoding, people), np.arange(1024), "min")
    assert (found.values >= people).all()
    assert np.mean(found.values == people) > 0.5
    assert found.values.sum() > people.sum()  # it is not exact: strangers share coordinates


@pytest.mark.parametrize("estimator", ["median", "mean"])
def test_strangers_are_taken_off(crowd, estimator):
    # Over many keys the mean of a node's estimates is the truth; without taking strangers off it would be far above.
    people = crowd(4, 3000, seed=2)
    people[7] = 50
    found, raw = [], []
    for key in range(300):
        encoding = SketchEncoding(4, (4,), 40, 3, str(key))
        sums = sketch_of(encoding, people)
        found.append(sketch_estimates(encoding, 0, sums, np.array([7]), estimator).values[0])
        raw.append(sums[encoding.columns(0, 0, np.array([7]))[0]])
    spread = np.std(raw) / np.sqrt(300)
    if estimator == "mean":
        assert abs(np.mean(found) - 50) < 6 * spread
    else:  # the median of few skewed answers is a little below
        assert abs(np.mean(found) - 50) < abs(np.mean(raw) - 50)
    assert np.mean(raw) - 50 > 6 * spread


@pytest.mark.parametrize("estimator", ["median", "mean", "min", "best"])
@pytest.mark.parametrize("noise", [1.0, 5.0, 100.0])
def test_the_sketch_knows_how_wrong_it_is(crowd, estimator, noise):
    # The truth is 0 where nobody is, so the error there can be seen; the estimate of it must follow within 30 %.
    people = crowd(6, 4000, seed=3)
    encoding = SketchEncoding(6, (6,), 500, 7, f"knows {noise}")
    sums = sketch_of(encoding, people) + np.random.default_rng(4).laplace(0, noise, encoding.length)
    found = sketch_estimates(encoding, 0, sums, np.flatnonzero(people == 0), estimator)
    seen = np.square(found.values).mean()
    assert 0.75 * seen < found.variance < 1.3 * seen
    assert seen > 0


def test_the_best_way_follows_the_noise(crowd):
    people = crowd(6, 4000, seed=3)
    encoding = SketchEncoding(6, (6,), 2000, 7, "best")
    exact = sketch_of(encoding, people)
    nodes = np.arange(4096)
    for noise, way in ((0.0, "min"), (100.0, "median")):
        sums = exact + np.random.default_rng(5).laplace(0, noise, encoding.length)
        best = sketch_estimates(encoding, 0, sums, nodes, "best")
        alone = sketch_estimates(encoding, 0, sums, nodes, way)
        np.testing.assert_array_equal(best.values, alone.values)
        for other in ("median", "mean", "min"):
            assert best.variance <= sketch_estimates(encoding, 0, sums, nodes, other).variance


def test_one_query_of_the_papers_size(play, crowd):
    made = play(CountMinHistogram(epsilon=1), crowd(3, 1000), seed=1)
    (query,) = made.queries
    assert query.epsilon == 1
    assert query.encoding.length == 3 * 40_000
    assert query.encoding.copies == 60
    assert made.answers[0].variance == pytest.approx(laplace_variance(Fraction(1), 60))


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_without_noise_it_is_the_plain_map(play, crowd, depth):
    people = crowd(depth, 5000)
    made = play(CountMinHistogram(epsilon=1), people)
    np.testing.assert_allclose(made.made.values, people)


def test_a_level_is_shown_where_it_is_asked_for(play, crowd):
    people = crowd(4, 100_000)
    members = np.ones(256, dtype=np.int64)
    members[people == 0] = 0
    made = play(CountMinHistogram(epsilon=1, level=2, rows=3), people, members, seed=2).made
    values = made.values.reshape(16, 16)
    held = members.reshape(16, 16)
    for node in range(16):
        assert np.unique(values[node][held[node] > 0].round(6)).size == 1
    np.testing.assert_allclose(values.sum(axis=1), people.reshape(16, 16).sum(axis=1), atol=150)
    assert not made.values[members == 0].any()


def test_its_measurements_are_sums_of_the_sites_that_share_a_coordinate(play, crowd):
    people = crowd(4, 1000)
    made = play(CountMinHistogram(epsilon=1, width=30, rows=3), people).made
    assert len(made.measurements) == 4
    for measured in made.measurements:
        np.testing.assert_array_equal(np.bincount(measured.groups, people, 30), measured.noisy)
        assert measured.sensitivity == 12


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 1},
        {"rows": 0},
        {"estimator": "max"},
        {"deepest": 0},
        {"level": 0},
        {"subregions": -1},
        {"key": "k" * 65},
    ],
)
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        CountMinHistogram(epsilon=1, **wrong)
