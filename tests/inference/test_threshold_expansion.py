from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.inference.threshold_expansion import CutBoxes, ThresholdExpansion


def boxes(
    theta: np.ndarray,
    noise: np.ndarray,
    *,
    parent: float = 1000.0,
    share: float = 0.5,
    slope: np.ndarray | None = None,
    telling: np.ndarray | None = None,
    deviation: float = 1.0,
) -> CutBoxes:
    """Boxes of one parent's size whose first halves depart from the even part by theta."""
    count = theta.size
    return CutBoxes(
        np.full(count, parent),
        share * parent + theta + deviation * noise,
        np.full(count, deviation**2),
        np.full(count, share),
        np.zeros(count) if slope is None else slope,
        telling,
        1,
    )


def slow_halves(cut: CutBoxes) -> np.ndarray:
    """Box by box and octave by octave: the normal equations as they are written down."""
    count = cut.parent.size
    terms, rates, places = [], [], []
    for i in range(count):
        e = cut.measured[i] - cut.share[i] * cut.parent[i]
        square = e**2 / cut.variance[i]
        even = cut.share[i] * cut.parent[i]
        slope = min(max(cut.slope[i], -even), cut.parent[i] - even)
        terms.append(np.array([e, e * np.exp(-square / 12), slope]))
        rates.append(np.array([1.0, np.exp(-square / 12) * (1 - square / 6), 0.0]))
        signal = 4 * cut.share[i] * (1 - cut.share[i]) * cut.parent[i] / (2 * np.sqrt(cut.variance[i]))
        places.append(min(max(int(np.floor(np.log2(signal))) + 3, 0), 39))
    products = {place: np.zeros((3, 3)) for place in [*places, -1]}
    wanted = {place: np.zeros(3) for place in [*places, -1]}
    number = {place: places.count(place) for place in places}
    for i, place in enumerate(places):
        each = 1 / cut.variance[i]
        for of in (place, -1):
            products[of] += each * np.outer(terms[i], terms[i])
            wanted[of] += each * (terms[i] * terms[i][0] - cut.variance[i] * rates[i])

    def solved(matrix: np.ndarray, goal: np.ndarray) -> np.ndarray:
        seen = np.diag(matrix) > 1e-290
        weights = np.zeros(3)
        part = matrix[np.ix_(seen, seen)]
        weights[seen] = np.linalg.solve(part + 1e-3 * np.diag(np.diag(part)), goal[seen])
        return weights

    for goal in wanted.values():
        for term in (0, 1):  # a departure and its bent form have the sign of the truth, on average
            goal[term] = max(goal[term], 0.0)
    common = solved(products[-1], wanted[-1])
    found = []
    for i, place in enumerate(places):
        pull = 4 * np.diag(np.diag(products[place])) / number[place]
        weights = solved(products[place] + pull, wanted[place] + pull @ common)
        found.append(cut.share[i] * cut.parent[i] + weights @ terms[i])
    return np.array(found)


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_normal_equations_written_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 60
    parent = rng.lognormal(3, 1.5, count)
    share = rng.uniform(0.2, 0.8, count)
    variance = rng.uniform(0.5, 20, count)
    measured = (
        share * parent + rng.normal(0, 0.2, count) * parent + rng.normal(size=count) * np.sqrt(variance)
    )
    cut = CutBoxes(parent, measured, variance, share, rng.normal(0, 3, count), None, 1)
    np.testing.assert_allclose(ThresholdExpansion().halves(cut), slow_halves(cut), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("law", ["normal", "laplace", "sparse"])
def test_the_estimated_weights_are_nearly_as_good_as_the_truth_would_give(law: str) -> None:
    rng = np.random.default_rng(5)
    count = 20_000
    theta = {
        "normal": rng.normal(0, 2, count),
        "laplace": rng.laplace(0, 1.5, count),
        "sparse": np.where(rng.random(count) < 0.05, rng.normal(0, 12, count), 0.0),
    }[law]
    cut = boxes(theta, rng.normal(size=count))
    away = cut.measured - 500
    bent = away * np.exp(-(away**2) / 12)
    terms = np.stack([away, bent], axis=1)
    best = terms @ np.linalg.lstsq(terms, theta, rcond=None)[0]
    found = ThresholdExpansion().halves(cut) - 500
    least, mine = np.mean((best - theta) ** 2), np.mean((found - theta) ** 2)
    assert mine < 1.01 * least
    assert mine < 0.85 * np.mean((away - theta) ** 2)


def test_a_few_large_departures_are_kept_and_the_rest_drawn_in() -> None:
    rng = np.random.default_rng(1)
    theta = np.zeros(4000)
    theta[:100] = 30.0
    found = ThresholdExpansion().halves(boxes(theta, rng.normal(size=theta.size))) - 500
    assert np.abs(found[:100] - 30).mean() < 2
    assert np.mean(found[100:] ** 2) < 0.2  # the noise was 1


def test_pure_noise_is_taken_away_and_pure_signal_is_kept() -> None:
    rng = np.random.default_rng(2)
    nothing, noise = np.zeros(5000), rng.normal(size=5000)
    assert np.mean((ThresholdExpansion().halves(boxes(nothing, noise)) - 500) ** 2) < 0.02
    signal = rng.normal(0, 100, 5000)
    found = ThresholdExpansion().halves(boxes(signal, noise)) - 500
    assert np.mean((found - signal) ** 2) < 1.1


@pytest.mark.parametrize("allowed", [1.5, 3.0, 10.0])
def test_less_noise_than_was_allowed_for_turns_no_departure_round(allowed: float) -> None:
    noise = np.random.default_rng(4).normal(size=5000)
    cut = boxes(np.zeros(5000), noise)._replace(variance=np.full(5000, allowed))
    found = ThresholdExpansion().halves(cut) - 500
    assert np.mean(found**2) < 0.02
    assert np.mean(found * noise) > -1e-9


def test_what_the_slope_foretells_is_used_as_far_as_it_comes_true() -> None:
    rng = np.random.default_rng(3)
    slope = rng.normal(0, 3, 10_000)
    theta = 0.5 * slope + rng.normal(0, 0.3, slope.size)
    noise = rng.normal(size=slope.size)
    with_slope = ThresholdExpansion().halves(boxes(theta, noise, slope=slope)) - 500
    without = ThresholdExpansion().halves(boxes(theta, noise)) - 500
    assert np.mean((with_slope - theta) ** 2) < 0.12  # the posterior variance is 0.083
    assert np.mean((without - theta) ** 2) > 0.5


def test_a_slope_that_means_nothing_does_no_harm() -> None:
    rng = np.random.default_rng(4)
    theta, noise = rng.normal(0, 1, 10_000), rng.normal(size=10_000)
    useless = ThresholdExpansion().halves(boxes(theta, noise, slope=rng.normal(0, 50, theta.size))) - 500
    assert np.mean((useless - theta) ** 2) < 1.02 * 0.5


def test_what_was_not_measured_apart_goes_by_the_slope_of_the_rest() -> None:
    rng = np.random.default_rng(6)
    slope = rng.normal(0, 3, 4000)
    theta = 0.5 * slope
    telling = np.arange(slope.size) % 2 == 0
    measured = np.where(telling, theta + rng.normal(size=slope.size), 0.0)
    cut = boxes(measured, np.zeros(slope.size), slope=slope, telling=telling)
    found = ThresholdExpansion().halves(cut) - 500
    np.testing.assert_allclose(found[~telling], theta[~telling], atol=0.5)


def test_a_size_at_which_nothing_tells_goes_by_the_size_before() -> None:
    rng = np.random.default_rng(7)
    slope = rng.normal(0, 3, 4000)
    expansion = ThresholdExpansion()
    expansion.halves(boxes(0.5 * slope, rng.normal(size=slope.size), slope=slope))
    silent = np.zeros(slope.size, dtype=bool)
    found = expansion.halves(boxes(np.zeros(slope.size), silent * 1.0, slope=slope, telling=silent)) - 500
    np.testing.assert_allclose(found, 0.5 * slope, atol=0.3)


@given(
    parent=st.floats(0, 1e6),
    away=st.floats(-1e6, 1e6),
    share=st.floats(0.01, 0.99),
    variance=st.floats(0, 1e6),
    slope=st.floats(-1e6, 1e6),
)
def test_it_is_finite_and_exact_without_noise(
    parent: float, away: float, share: float, variance: float, slope: float
) -> None:
    cut = CutBoxes(*(np.array([x]) for x in (parent, share * parent + away, variance, share, slope)), None, 1)
    (found,) = ThresholdExpansion().halves(cut)
    assert np.isfinite(found)
    if variance == 0:
        assert found == cut.measured[0]


def test_a_box_of_nobody_stays_so_whatever_was_measured() -> None:
    cut = CutBoxes(*(np.array([x]) for x in (0.0, 1e9, 1e-9, 0.5, 0.0)), None, 1)
    assert abs(ThresholdExpansion().halves(cut)[0]) < 1.0
