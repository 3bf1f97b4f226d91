"""The server half: the exact kernel density where there is no noise, known noise where there is, and shrinkage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mapveil.mechanisms import private_fourier_kde
from mapveil.mechanisms.fourier_features import FourierFeatures, choose_features, feature_vectors
from mapveil.mechanisms.private_fourier_kde import FeatureSums, server_density, shrink_factors
from mapveil.random_features.exact_density import direct_density
from mapveil_client.random_features.kernels import Gaussian

LOW, HIGH = (1_000.0, 2_000.0), (11_000.0, 9_000.0)
H = 800.0
USERS = 400
FINE = choose_features(LOW, HIGH, H, epsilon=1e4, users=1e9)
FEW = choose_features(LOW, HIGH, H, epsilon=1, users=USERS)


def people(seed: int = 1, margin: float = 0.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    low, high = np.array(LOW)[:, None] + margin, np.array(HIGH)[:, None] - margin
    middle = generator.uniform(low, high, (2, 5))
    drawn = middle[:, generator.integers(0, 5, 4 * USERS)] + generator.normal(0, 700.0, (2, 4 * USERS))
    inside = ((drawn >= low) & (drawn <= high)).all(axis=0)
    return np.ascontiguousarray(drawn[:, inside][:, :USERS])


def sums(places: np.ndarray, features: FourierFeatures, variance: float = 1e-12) -> FeatureSums:
    return FeatureSums(feature_vectors(places, features).sum(axis=0).astype(np.float64), variance)


def test_without_noise_it_is_the_kernel_density() -> None:
    # Kernels wrap around the box; away from its edges what comes around is nothing.
    places, at = people(margin=2_000.0), people(seed=2, margin=1_500.0)
    made = server_density(sums(places, FINE), places.shape[1], FINE, at)
    wanted = direct_density(places, None, at, Gaussian(), (H, H)) / (2 * math.pi * H * H)
    np.testing.assert_allclose(made.density, wanted, atol=2e-4 * wanted.max())
    other = direct_density(places, None, at, Gaussian(), (1.1 * H, 1.1 * H)) / (2 * math.pi * (1.1 * H) ** 2)
    assert np.abs(made.density - other).max() > 0.02 * wanted.max()


def test_at_the_edges_it_is_the_density_of_a_box_that_closes_on_itself() -> None:
    places, at = people(), people(seed=2)
    made = server_density(sums(places, FINE), places.shape[1], FINE, at)
    wanted = np.zeros(at.shape[1])
    for turn in np.ndindex(3, 3):
        moved = places + ((np.array(turn) - 1) * np.array(FINE.period))[:, None]
        wanted += direct_density(moved, None, at, Gaussian(), (H, H)) / (2 * math.pi * H * H)
    np.testing.assert_allclose(made.density, wanted, atol=2e-4 * wanted.max())


def test_the_noise_is_as_said_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        private_fourier_kde, "shrink_factors", lambda found, variance, features: np.ones(features.count)
    )
    generator = np.random.default_rng(3)
    at = np.stack([np.linspace(LOW[axis], HIGH[axis], 4) for axis in range(2)])
    scale, trials = 5e4, 1_500
    drawn = []
    for _ in range(trials):
        noisy = FeatureSums(generator.normal(0, scale, FEW.length), scale**2)
        made = server_density(noisy, 0.0, FEW, at)
        drawn.append(made.density)
    assert made.noise == made.unshrunk_noise
    for column in np.array(drawn).T:
        square = np.square(column / made.noise).sum()
        low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], trials)
        assert low < square < high
        assert not low < square / 0.7**2 < high
        assert not low < square / 1.3**2 < high


def test_factors_are_the_positive_part_of_signal_over_power_ring_by_ring() -> None:
    generator = np.random.default_rng(4)
    found = (generator.normal(size=FEW.count) + 1j * generator.normal(size=FEW.count)) * 900 / FEW.lengths
    variance = 4e4 * (1 + FEW.lengths)
    made = shrink_factors(found, variance, FEW)
    lower = 0.0
    while lower <= FEW.lengths[-1]:
        upper = max(lower + 1.0, lower * 1.15)
        ring = [m for m in range(FEW.count) if lower <= FEW.lengths[m] * (1 + 1e-9) < upper]
        if ring:
            noise = sum(FEW.weights[m] ** 2 * variance[m] for m in ring)
            power = sum(FEW.weights[m] ** 2 * abs(found[m]) ** 2 for m in ring)
            np.testing.assert_allclose(made[ring], max(0.0, 1 - noise / power), rtol=1e-12)
        lower = upper
    assert 0 < made.mean() < 1


def test_noise_alone_is_nearly_removed_and_signal_nearly_kept() -> None:
    generator = np.random.default_rng(5)
    at = people(seed=2)
    scale = 1e5
    alone = server_density(FeatureSums(generator.normal(0, scale, FEW.length), scale**2), 0.0, FEW, at)
    assert np.abs(alone.density).max() < 0.5 * alone.unshrunk_noise
    assert alone.noise < 0.5 * alone.unshrunk_noise
    places = people()
    exact = server_density(sums(places, FEW), USERS, FEW, at).density
    quiet = server_density(
        sums(places, FEW, variance=(0.02 * float(FEW.amplitude.max())) ** 2), USERS, FEW, at
    )
    np.testing.assert_allclose(quiet.density, exact, atol=1e-3 * exact.max())


def test_shrinkage_lowers_the_error() -> None:
    generator = np.random.default_rng(6)
    places, at = people(), people(seed=2)
    exact = sums(places, FEW)
    truth = server_density(exact, USERS, FEW, at).density
    scale = math.sqrt(2) * FEW.limit
    plain, shrunk = [], []
    for _ in range(40):
        noisy = FeatureSums(exact.values + generator.laplace(0, FEW.limit, FEW.length), scale**2)
        made = server_density(noisy, USERS, FEW, at)
        shrunk.append(np.square(made.density - truth).mean())
        plain.append(made.unshrunk_noise**2)
    assert np.mean(shrunk) < 0.8 * np.mean(plain)


def test_no_signal_at_all_is_flat() -> None:
    made = server_density(FeatureSums(np.zeros(FEW.length), 1.0), 30.0, FEW, people())
    np.testing.assert_allclose(made.density, 30.0 / math.prod(FEW.period))
