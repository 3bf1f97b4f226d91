"""The truncated Laplacian: its delta of a whole report, by an exact product of laws on a lattice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.truncated_laplacian import TruncatedLaplacian
from mapveil.privacy.sampling import SAMPLE, sampling_delta
from mapveil_client.randomness.random import Randomness

Tables = Callable[..., Measurements]


def fine_law(span: float, steps: int) -> np.ndarray:
    """The density on cells of 1 / steps of a scale, as probabilities; index 0 is the leftmost."""
    edges = np.arange(-round(span * steps), round(span * steps) + 1) / steps
    below = 0.5 + np.sign(edges) * np.expm1(-np.abs(edges)) / np.expm1(-span) / 2
    return np.diff(below)


def product_delta(laws: list[np.ndarray], shifts: list[int], epsilon: float) -> float:
    """The hockey-stick divergence of independent shifted noises, cell by cell: the slow, obvious oracle."""
    pairs = []
    for law, shift in zip(laws, shifts, strict=True):
        zeros = np.zeros(shift)
        pairs.append((np.concatenate([law, zeros]), np.concatenate([zeros, law])))
    first, second = np.ones(1), np.ones(1)
    for p, q in pairs:
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_the_delta_of_a_row_is_that_of_one_feature(epsilon: float) -> None:
    steps, features = 20, 3
    delta = 0.05
    made = TruncatedLaplacian(epsilon=epsilon, delta=delta, clip=1.0)
    span = round(float(made.span) * steps) / steps
    # The span on the oracle's lattice has a delta of its own, by the formula of one dimension.
    held = (math.expm1(epsilon)) / (2 * math.expm1(span))
    law = fine_law(span, steps)
    total = round(epsilon * steps)
    worst = 0.0
    for shifts in itertools.combinations_with_replacement(range(total + 1), features):
        if sum(shifts) == total and (shifts[0] == shifts[1] or shifts[0] == 0):
            worst = max(worst, product_delta([law] * features, list(shifts), epsilon))
    assert worst == pytest.approx(held, rel=1e-9)
    assert held == pytest.approx(delta, rel=0.1)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_the_paper_s_calibration_promises_enough_and_not_more_than_a_row_needs(epsilon: float) -> None:
    # Two features of an L2 ball: equal shifts strain the loss, one shift alone the support.
    made = TruncatedLaplacian(epsilon=epsilon, delta=0.02, calibration="paper", clip=1.0)
    state = made.learn(np.zeros((2, 2)), np.zeros(2, dtype=np.int64), Randomness(1), lambda *_: None)
    promise = made.promise(state, 2)
    assert promise.epsilon is not None
    assert float(promise.epsilon) == pytest.approx(math.sqrt(2) * epsilon, abs=1e-5)
    steps = 40
    law = fine_law(round(float(made.span) * steps) / steps, steps)
    angles = np.linspace(0, math.pi / 4, 9)
    found = []
    for angle in angles:
        shifts = [int(epsilon * steps * part) for part in (math.cos(angle), math.sin(angle))]
        found.append(product_delta([law] * 2, shifts, float(promise.epsilon)))
        assert found[-1] <= promise.delta * 1.05
    # What was asked for does not hold of the row: the claim had to grow.
    equal = [int(epsilon * steps / math.sqrt(2))] * 2
    assert product_delta([law] * 2, equal, epsilon) > 1.5 * 0.02


@given(st.fractions("1/10", 200), st.floats(-9, -2).map(lambda x: 10.0**x))
@settings(max_examples=30)
def test_scale_and_promise_follow_from_the_radius(epsilon: Fraction, delta: float) -> None:
    made = TruncatedLaplacian(epsilon=epsilon, delta=delta, clip=3.0)
    state = made.learn(np.zeros((2, 3)), np.zeros(2, dtype=np.int64), Randomness(1), lambda *_: None)
    assert float(state["scale"]) >= 6.0 / float(epsilon)
    assert float(state["scale"]) == pytest.approx(6.0 / float(epsilon), rel=1e-9)
    promise = made.promise(state, 3)
    sampled = sampling_delta(epsilon, 3 * SAMPLE)
    assert (promise.epsilon, promise.delta) == (epsilon, min(Fraction(str(delta)) + sampled, Fraction(1)))
    # The probability that one whole shift leaves the support is delta.
    reach = float(made.span)
    left = math.log(math.expm1(float(epsilon))) - math.log(2) - math.log(math.expm1(reach))
    assert left == pytest.approx(math.log(delta), abs=1e-9)


def test_less_noise_than_promised_changes_the_promise(made_up: Tables) -> None:
    fitted = TruncatedLaplacian(epsilon=1).fit(made_up(400))
    halved = {**fitted.state, "scale": fitted.state["scale"] / 2}
    promise = fitted.privatizer.promise(halved, 5)
    assert promise.epsilon is not None
    assert float(promise.epsilon) == pytest.approx(2, abs=1e-5)
    # The same cut in units of half the scale: delta of a shift twice as long.
    assert promise.delta == pytest.approx(1e-5 * math.expm1(2) / math.expm1(1), rel=1e-6)


def test_noise_never_goes_beyond_its_end(made_up: Tables) -> None:
    pilot = made_up(20_000)
    fitted = TruncatedLaplacian(epsilon=5, delta=1e-3).fit(pilot)
    normalised = fitted.normalisation.apply(pilot.rows)
    radius, scale = float(fitted.state["radius"]), float(fitted.state["scale"])
    clipped = normalised * np.minimum(1, radius / np.abs(normalised).sum(axis=1))[:, None]
    noise = fitted.normalisation.standardise(fitted.privatize(pilot.rows, rng=3)) - clipped
    end = float(TruncatedLaplacian(epsilon=5, delta=1e-3).span) * scale
    assert np.abs(noise).max() <= end + scale / 128
    # Mean absolute value of the law, within 6 standard errors; 30 % off would be 200 of them.
    span = end / scale
    expected = scale * (1 - span * math.exp(-span) / -math.expm1(-span))
    assert np.abs(noise).mean() == pytest.approx(
        expected, abs=6 * scale / math.sqrt(noise.size) + scale / 256
    )


def test_a_sequence_is_one_report(made_up: Tables) -> None:
    pilot = made_up(4_000)
    one = TruncatedLaplacian(epsilon=1).fit(pilot)
    five = TruncatedLaplacian(epsilon=1, sequence=5).fit(pilot)
    # Five measurements are about five times as long in L1, and so is the noise of each.
    assert float(five.state["scale"]) / float(one.state["scale"]) == pytest.approx(5, rel=0.3)
    assert five.guarantee().epsilon == 1
    assert "5 measurements" in five.guarantee().in_words()
