"""Estimates of mutual information, where it is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from mapveil.attacks.signal_adversary import SignalGuess
from mapveil.attacks.signal_score import mutual_information, score_guess, user_entropy
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness


def normal_pair(
    seed: int, correlation: float, dimensions: int, count: int = 4000
) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x, z = draw.normal(size=(2, count, dimensions))
    return x, correlation * x + math.sqrt(1 - correlation**2) * z


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_normal_variables(correlation: float, dimensions: int) -> None:
    known = -0.5 * dimensions * math.log(1 - correlation**2)
    found = mutual_information(*normal_pair(1, correlation, dimensions), rng=1)
    assert found == pytest.approx(known, abs=0.06, rel=0.04)


def test_units_do_not_matter() -> None:
    x, y = normal_pair(2, 0.8, 2)
    assert mutual_information(1e6 * x + 5, 1e-3 * y, rng=1) == pytest.approx(
        mutual_information(x, y, rng=1), abs=1e-6
    )


def test_a_codebook_tells_which_code() -> None:
    draw = np.random.default_rng(3)
    code = draw.integers(0, 4, 3000)
    codes = draw.normal(size=(4, 2))
    assert mutual_information(codes[code], codes[code] + 3, rng=1) == pytest.approx(math.log(4), rel=0.05)


def test_what_users_give_away_is_bounded_by_the_best_posterior(worlds: SimpleNamespace) -> None:
    evidence = worlds.two_users(4, 20_000, apart=1.0)
    odds = 2 * evidence.observed[:, 0, 2]  # log odds of user 1 at noise 1
    chance = 1 / (1 + np.exp(-odds))
    best = SignalGuess(np.stack([1 - chance, chance], axis=1), np.zeros_like(evidence.places))
    found = score_guess(evidence, best, rng=Randomness(1))
    grid = np.linspace(-9, 9, 4001)
    density = np.exp(-0.5 * (grid - 1) ** 2) / math.sqrt(2 * math.pi)
    known = math.log(2) - float((density * np.log1p(np.exp(-2 * grid))).sum() * (grid[1] - grid[0]))
    assert found.user_nats == pytest.approx(known, abs=0.02)
    assert found.user_nats < user_entropy(evidence)
    assert found.place_nats is not None
    assert found.place_nats < 0.05  # the guess of the place is constant
    # A worse adversary shows less of it.
    poor = SignalGuess(0.5 * best.users + 0.25, best.places)
    worse = score_guess(evidence, poor, rng=Randomness(1)).user_nats
    assert worse is not None
    assert worse < 0.85 * found.user_nats


def test_samples_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="as many rows"):
        mutual_information(np.zeros((4, 1)), np.zeros((5, 1)))
    with pytest.raises(InputError, match="more than"):
        mutual_information(np.zeros((4, 1)), np.zeros((4, 1)))
    with pytest.raises(ParameterError, match="nearest"):
        mutual_information(np.zeros((9, 1)), np.zeros((9, 1)), nearest=0)
