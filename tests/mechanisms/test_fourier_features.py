"""The public set of features: which, how many, how strong, and the bound on a place's vector."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.mechanisms.fourier_features import FourierFeatures, choose_features, signal_bandwidth
from mapveil_client.errors import ParameterError

LOW, HIGH = (-3_000.0, 1_000.0), (9_000.0, 21_000.0)


def chosen(
    bandwidth: float = 900.0, epsilon: float = 1.0, users: float = 5_000.0, **more: int
) -> FourierFeatures:
    return choose_features(LOW, HIGH, bandwidth, epsilon=epsilon, users=users, **more)


def norms(features: FourierFeatures, places: np.ndarray) -> np.ndarray:
    phase = sum(
        2
        * math.pi
        * np.outer(places[axis] - features.origin[axis], features.index[axis])
        / features.period[axis]
        for axis in range(2)
    )
    return (np.abs(np.cos(phase)) + np.abs(np.sin(phase))) @ features.amplitude


@settings(max_examples=25, deadline=None)
@given(st.floats(300, 8_000), st.floats(0.01, 20), st.floats(1, 1e7))
def test_all_features_up_to_a_length_are_there_once(bandwidth: float, epsilon: float, users: float) -> None:
    features = chosen(bandwidth, epsilon, users)
    found = {tuple(pair) for pair in features.index.T.tolist()}
    assert len(found) == features.count <= 2048
    assert (0, 0) not in found
    assert not any((-m, -k) in found for m, k in found)
    reach = features.lengths[-1] * (1 - 1e-9)
    far = math.ceil(reach) + 1
    longer = max(features.period)
    for m in range(-far, far + 1):
        for k in range(-far, far + 1):
            length = math.hypot(m * longer / features.period[0], k * longer / features.period[1])
            square = (2 * math.pi * m / features.period[0]) ** 2 + (2 * math.pi * k / features.period[1]) ** 2
            if 0 < length < reach and math.exp(-(bandwidth**2) * square / 2) > 1.01e-6:
                assert ((m, k) in found) or ((-m, -k) in found)
    assert (np.diff(features.lengths) >= -1e-9).all()


def test_amplitudes_are_the_weights_to_two_thirds_and_no_others_have_less_noise() -> None:
    features = chosen(epsilon=1.0)
    share = features.weights ** (2 / 3)
    np.testing.assert_allclose(features.amplitude, features.amplitude.max() * share / share.max(), atol=0.5)

    def noise(amplitude: np.ndarray) -> float:
        return float(amplitude.sum() ** 2 * (np.square(features.weights) / np.square(amplitude)).sum())

    best = noise(features.amplitude)
    generator = np.random.default_rng(4)
    for _ in range(50):
        other = features.amplitude * np.exp(0.2 * generator.standard_normal(features.count))
        assert noise(other) > best
    assert noise(np.ones(features.count)) > 1.1 * best


def test_more_signal_or_a_narrower_kernel_takes_more_features() -> None:
    counts = [chosen(users=users).count for users in (50, 500, 5_000, 50_000, 500_000)]
    assert counts == sorted(counts)
    assert counts[0] * 5 < counts[-1]
    assert chosen(epsilon=10, users=500).count == pytest.approx(
        chosen(epsilon=1, users=5_000).count, rel=0.35
    )
    assert chosen(bandwidth=400, users=50_000).count > chosen(bandwidth=1600, users=50_000).count
    assert chosen(bandwidth=300, users=1e9, most=77).count <= 77


def test_the_limit_holds_nearly_everywhere_and_is_below_the_proved_bound() -> None:
    generator = np.random.default_rng(5)
    places = np.stack([generator.uniform(LOW[axis], HIGH[axis], 4_000) for axis in range(2)])
    for users in (30, 3_000, 300_000):
        features = chosen(users=users)
        found = norms(features, places)
        assert features.limit <= math.ceil(math.sqrt(2) * features.amplitude.sum() + features.count / 2)
        assert np.mean(found > features.limit) < 0.002
        assert found.max() < 1.02 * features.limit, "a scaled-down vector is nearly whole"
        assert found.max() > 0.93 * features.limit, "no noise is bought for norms that do not occur"


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
def test_the_lattice_is_much_finer_than_the_noise(epsilon: float) -> None:
    features = chosen(epsilon=epsilon)
    scale = features.limit / epsilon
    assert scale > 1 << 18
    assert scale < 1 << 24, "sums of many users fit the integers"


def test_the_default_bandwidth_follows_the_signal() -> None:
    found = [signal_bandwidth(LOW, HIGH, signal) for signal in (0.0, 1.0, 100.0, 12_800.0)]
    assert found[0] == found[1] == pytest.approx(0.5 * math.sqrt(12_000 * 20_000))
    assert found[2] / found[3] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bandwidth", {"bandwidth": 0.0}),
        ("bandwidth", {"bandwidth": float("nan")}),
        ("epsilon", {"epsilon": 0.0}),
        ("users", {"users": -1.0}),
    ],
)
def test_senseless_numbers_are_refused(name: str, arguments: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be"):
        chosen(**arguments)


def test_a_region_without_area_and_features_without_amplitude_are_refused() -> None:
    with pytest.raises(ParameterError, match="side must be"):
        choose_features((0.0, 0.0), (10.0, 0.0), 1.0, epsilon=1, users=5)
    one = np.array([[1], [0]])
    with pytest.raises(ParameterError, match="at least 1"):
        FourierFeatures(one, (0, 0), (1, 1), 1.0, np.array([0]), 1)
    with pytest.raises(ParameterError, match="amplitude each"):
        FourierFeatures(one, (0, 0), (1, 1), 1.0, np.array([1, 1]), 1)
