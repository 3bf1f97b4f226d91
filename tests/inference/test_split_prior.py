from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from mapveil.inference.split_prior import CONCENTRATIONS, PUBLIC_WEIGHTS, SplitPrior


def posterior_half(
    parent: float, measured: float, deviation: float, weights: np.ndarray, terms: int = 0
) -> float:
    """Posterior mean of an even box's half by plain numerical integration: the slow, obvious oracle."""
    ends = 0.5 + 0.5 * np.tanh(np.linspace(-20, 20, 40_001))
    theta = (ends[1:] + ends[:-1]) / 2
    mass = np.zeros(theta.size)
    for weight, concentration in zip(weights, CONCENTRATIONS, strict=True):
        mass += weight * np.diff(beta.cdf(ends, concentration, concentration))
    mass *= np.exp(-(((measured - parent * theta) / deviation) ** 2) / 2)  # noise of many terms is normal
    return float(parent * (mass * theta).sum() / mass.sum())


def halves(prior: SplitPrior, parent: float, measured: float, deviation: float, share: float = 0.5) -> float:
    one = [np.array([value]) for value in (parent, measured, deviation**2, share)]
    return float(prior.halves(*one, telling=np.zeros(1, dtype=np.bool_), sites=8)[0])


@pytest.mark.parametrize("parent", [0.7, 5.0, 40.0, 700.0, 9000.0])
@pytest.mark.parametrize("part", [-0.05, 0.0, 0.02, 0.2, 0.5, 0.7, 0.99, 1.1])
def test_the_table_agrees_with_plain_integration(parent: float, part: float) -> None:
    measured = float(np.clip(part * parent, -4, parent + 4))
    found = halves(SplitPrior(terms=16), parent, measured, 1.3)
    weights = np.array(PUBLIC_WEIGHTS) / sum(PUBLIC_WEIGHTS)
    expected = posterior_half(parent, measured, 1.3, weights)
    assert found == pytest.approx(expected, abs=0.15 * 1.3, rel=0.01)


@pytest.mark.parametrize("share", [0.001, 0.03, 0.2, 0.5, 0.6, 0.97])
def test_without_information_a_half_is_its_share(share: float) -> None:
    assert halves(SplitPrior(), 10.0, 3.0, 1e6, share) == pytest.approx(10 * share, rel=1e-6)


@pytest.mark.parametrize("share", [0.001, 0.03, 0.2, 0.5, 0.6, 0.97])
def test_without_noise_a_half_is_what_was_measured(share: float) -> None:
    assert halves(SplitPrior(), 10.0, 3.0, 0.0, share) == pytest.approx(3.0)
    assert halves(SplitPrior(), 1e6, 2e5, 1.0, share) == pytest.approx(2e5, rel=1e-3)


@pytest.mark.parametrize("share", [0.03, 0.2, 0.5])
def test_both_halves_make_the_whole(share: float) -> None:
    first = halves(SplitPrior(), 20.0, 4.0, 2.0, share)
    second = halves(SplitPrior(), 20.0, 16.0, 2.0, 1 - share)
    assert first + second == pytest.approx(20.0, rel=1e-9)


@pytest.mark.parametrize("component", [0, 3, 6])
def test_the_weights_of_one_law_are_learned_from_its_draws(component: int) -> None:
    rng = np.random.default_rng(component)
    concentration = CONCENTRATIONS[component]
    count = 4000
    parent = np.full(count, 300.0)
    true = parent * rng.beta(concentration, concentration, count)
    measured = true + rng.normal(scale=3.0, size=count)
    prior = SplitPrior(terms=16)
    found = prior.halves(parent, measured, np.full(count, 9.0), np.full(count, 0.5), None, sites=1)
    near = slice(max(component - 1, 0), component + 2)
    assert prior.weights[near].sum() > 0.8
    assert ((found - true) ** 2).mean() < ((measured - true) ** 2).mean()
