from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.inference.wilson import noisy_wilson, normal_quantile
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError

COUNT = st.floats(-50, 500)


def wilson(x: float, n: float, z: float) -> tuple[float, float]:
    """The interval of the textbook."""
    middle = (x / n + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(x / n * (1 - x / n) / n + z**2 / (4 * n**2))
    return middle - half, middle + half


def refutes(p: FloatArray, x: float, n: float, z: float, noise: float, labels: int, sampling: bool) -> Any:
    """Whether each p is refuted, as the definition has it."""
    people = z**2 * max(n, 0.0) * p * (1 - p) if sampling else 0.0
    return (x - p * n) ** 2 > people + noise**2 * ((1 - p) ** 2 + (labels - 1) * p**2)


@pytest.mark.parametrize(("alpha", "z"), [(0.05, 1.959964), (0.01, 2.575829), (0.3173105, 1.0)])
def test_the_quantile_is_the_textbooks(alpha: float, z: float) -> None:
    assert normal_quantile(alpha) == pytest.approx(z, rel=1e-6)


@pytest.mark.parametrize("alpha", [0, 1, -1, math.nan])
def test_an_alpha_that_is_no_probability_is_refused(alpha: float) -> None:
    with pytest.raises(ParameterError, match="between 0 and 1"):
        normal_quantile(alpha)


@given(n=st.integers(1, 10**9), part=st.floats(0, 1), z=st.floats(0.1, 6))
def test_without_noise_it_is_wilsons_interval(n: int, part: float, z: float) -> None:
    x = round(part * n)
    made = noisy_wilson(np.array([float(x)]), np.array([float(n)]), z, 0.0)
    assert (float(made.lower[0]), float(made.upper[0])) == pytest.approx(wilson(x, n, z), abs=1e-9)


@given(
    x=COUNT,
    others=COUNT,
    z=st.floats(0.1, 6),
    noise=st.floats(0, 60),
    labels=st.integers(2, 9),
    sampling=st.booleans(),
)
def test_it_holds_every_proportion_that_is_not_refuted(
    x: float, others: float, z: float, noise: float, labels: int, sampling: bool
) -> None:
    p, n = np.linspace(0, 1, 2001), x + others
    held = p[~refutes(p, x, n, z, noise, labels, sampling)]
    made = noisy_wilson(np.array([x]), np.array([n]), z, noise, labels, sampling=sampling)
    lower, upper = float(made.lower[0]), float(made.upper[0])
    assert 0 <= lower <= upper <= 1
    if held.size:
        assert lower <= held.min() + 1e-9
        assert upper >= held.max() - 1e-9
        if not (lower == 0 and upper == 1):
            assert held.min() - lower <= 1 / 2000 + 1e-9
            assert upper - held.max() <= 1 / 2000 + 1e-9


@given(x=st.floats(0, 500), others=st.floats(0, 500), noise=st.floats(0, 50), more=st.floats(0.1, 50))
def test_more_noise_never_narrows(x: float, others: float, noise: float, more: float) -> None:
    total = np.array([x + others])
    narrow, wide = (noisy_wilson(np.array([x]), total, 1.96, size) for size in (noise, noise + more))
    assert wide.lower[0] <= narrow.lower[0] + 1e-9
    assert wide.upper[0] >= narrow.upper[0] - 1e-9


@given(x=COUNT, others=COUNT, noise=st.floats(0, 60))
def test_two_labels_mirror_each_other(x: float, others: float, noise: float) -> None:
    total = np.array([x + others])
    one, other = (noisy_wilson(np.array([count]), total, 1.96, noise) for count in (x, others))
    assert one.lower[0] == pytest.approx(1 - other.upper[0], abs=1e-7)
    assert one.upper[0] == pytest.approx(1 - other.lower[0], abs=1e-7)


def test_a_group_that_the_noise_drowns_tells_nothing() -> None:
    made = noisy_wilson(np.array([3.0, 300.0]), np.array([5.0, 500.0]), 1.96, 10.0)
    assert (made.lower[0], made.upper[0]) == (0, 1)
    assert 0.5 < made.lower[1] < 0.6 < made.upper[1] < 0.7


def test_one_label_alone_has_no_proportion() -> None:
    with pytest.raises(ParameterError, match="at least 2"):
        noisy_wilson(np.zeros(1), np.zeros(1), 1.96, 1.0, 1)


class Trials:
    """Many groups of n people with a true p, counted with noise of r shards each."""

    def __init__(
        self, n: int, p: float, terms: int, epsilon: float, labels: int = 2, count: int = 20_000
    ) -> None:
        generator = np.random.default_rng([n, terms, labels, int(1000 * p), int(1000 * epsilon)])
        rest = np.full(labels - 1, (1 - p) / (labels - 1))
        self.true = generator.multinomial(n, np.concatenate([rest[:1], [p], rest[1:]]), count)
        stop = -math.expm1(-epsilon)
        above, below = (generator.negative_binomial(terms, stop, (count, labels)) for _ in range(2))
        noisy = (self.true + above - below).astype(np.float64)
        self.p = p
        self.measured = LabelMeasurement(
            np.arange(count),
            noisy.sum(axis=1),
            Fraction(epsilon),
            1,
            terms=labels * terms,
            by_label=noisy,
        )

    def missed(self, alpha: float = 0.05, narrower: float = 1.0) -> float:
        """Part of the groups whose bounds fail; with bounds moved towards their middle, if narrower."""
        made = self.measured.bounds(alpha, 1)
        middle, half = (made.lower + made.upper) / 2, (made.upper - made.lower) / 2 * narrower
        return float(np.mean(np.abs(self.p - middle) > half + 1e-12))

    def missed_among_counted(self, alpha: float = 0.05) -> float:
        """The same for the proportion of those counted."""
        made = self.measured.bounds(alpha, 1, sampling=False)
        part = self.true[:, 1] / self.true.sum(axis=1)
        return float(np.mean((part < made.lower - 1e-12) | (part > made.upper + 1e-12)))

    def missed_by_wilson(self, alpha: float = 0.05) -> float:
        """The same with the noise left out of the interval."""
        y = self.measured.by_label
        made = noisy_wilson(y[:, 1], y.sum(axis=1), normal_quantile(alpha), 0.0, y.shape[1])
        return float(np.mean((made.lower > self.p) | (made.upper < self.p)))


# Wilson's own coverage swings by a few percent where n p is small, whatever the noise.
@pytest.mark.parametrize("p", [0.0, 0.02, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("n", [5, 30, 200, 3000])
@pytest.mark.parametrize(("terms", "epsilon"), [(1, 1.0), (1, 0.1), (10, 0.3), (40, 1.0)])
def test_it_covers_the_truth(n: int, p: float, terms: int, epsilon: float) -> None:
    trials = Trials(n, p, terms, epsilon)
    assert trials.missed() < 0.065
    assert trials.missed(0.2) < 0.225
    assert trials.missed_among_counted() < 0.06


@pytest.mark.parametrize(
    ("n", "p", "terms", "epsilon"), [(3000, 0.1, 10, 0.3), (200, 0.5, 1, 1.0), (3000, 0.5, 1, 0.1)]
)
def test_it_is_no_wider_than_it_must_be(n: int, p: float, terms: int, epsilon: float) -> None:
    trials = Trials(n, p, terms, epsilon)
    assert trials.missed() > 0.035
    assert trials.missed(narrower=0.7) > 0.12


@pytest.mark.parametrize(("n", "p"), [(200, 0.02), (200, 0.1), (3000, 0.02)])
def test_leaving_the_noise_out_would_be_caught(n: int, p: float) -> None:
    assert Trials(n, p, 10, 0.3).missed_by_wilson() > 0.3


@pytest.mark.parametrize("labels", [3, 6])
@pytest.mark.parametrize(("n", "p"), [(200, 0.1), (3000, 0.02), (3000, 0.4)])
def test_it_covers_with_more_labels(n: int, p: float, labels: int) -> None:
    trials = Trials(n, p, 4, 0.5, labels)
    assert 0.02 < trials.missed() < 0.065
    assert trials.missed_among_counted() < 0.06
