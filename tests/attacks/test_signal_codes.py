"""The best guess for every code: against a loop, and against what the law of the codes allows."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.attacks.signal_adversary import SignalAsReported, SignalCodes, geometric_median
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_score import score_guess
from mapveil_client.randomness.random import Randomness


def quiet(_step: str, _part: float) -> None:
    pass


def coded(runs: int, seed: int, length: int = 1) -> tuple[SignalEvidence, np.ndarray]:
    """Three codes whose users and places are known; returns the codes' law of users."""
    draw = np.random.default_rng(seed)
    law = np.array([[0.7, 0.2, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    code = draw.integers(3, size=runs)
    users = (draw.random(runs)[:, None] > law[code].cumsum(axis=1)).sum(axis=1)
    places = 2.0 * code[:, None, None] + draw.standard_normal((runs, length, 2))
    observed = np.repeat(np.eye(3)[code][:, None], length, axis=1)
    return SignalEvidence(observed, users, places, 3, np.zeros(2), np.ones(2)), law


@pytest.mark.parametrize("length", [1, 3])
def test_guesses_are_majority_and_geometric_median(length: int) -> None:
    known, _ = coded(900, 1, length)
    guess = SignalCodes().train(known, Randomness(2), quiet)(known.observed)
    for code in range(3):
        mine = (known.observed[:, 0] == np.eye(3)[code]).all(axis=1)
        assert (guess.users[mine].argmax(axis=1) == np.bincount(known.users[mine]).argmax()).all()
        for at in range(length):
            middle = geometric_median(known.places[mine, at])
            np.testing.assert_allclose(guess.places[mine, at], np.tile(middle, (mine.sum(), 1)), atol=1e-3)
    np.testing.assert_allclose(guess.users.sum(axis=1), 1)


def test_privacy_is_what_the_law_leaves() -> None:
    known, law = coded(30_000, 3)
    held_out, _ = coded(30_000, 4)
    score = score_guess(held_out, SignalCodes().train(known, Randomness(2), quiet)(held_out.observed))
    assert score.p1 == pytest.approx(1 - law.max(axis=1).mean(), abs=0.015)
    # The mean length of a standard normal of two dimensions.
    assert score.p2 == pytest.approx(np.sqrt(np.pi / 2), abs=0.03)


def test_a_code_never_seen_and_reports_that_are_no_codes_get_the_blind_guess() -> None:
    known, _ = coded(600, 5)
    trained = SignalCodes().train(known, Randomness(2), quiet)
    other = trained(np.full((1, 1, 3), 7.0))
    np.testing.assert_allclose(other.users[0], np.bincount(known.users) / 600, atol=1e-2)
    noisy = SignalEvidence(
        known.observed + np.random.default_rng(1).standard_normal(known.observed.shape),
        known.users,
        known.places,
        3,
        np.zeros(2),
        np.ones(2),
    )
    blind = SignalCodes().train(noisy, Randomness(2), quiet)(noisy.observed)
    assert len(np.unique(blind.places.reshape(-1, 2), axis=0)) == 1


def test_rounding_does_not_split_a_code() -> None:
    known, _ = coded(600, 6)
    trained = SignalCodes().train(known, Randomness(2), quiet)
    near = trained(known.observed + 1e-9)
    np.testing.assert_array_equal(near.users, trained(known.observed).users)


@pytest.mark.parametrize("length", [1, 2])
def test_a_place_that_is_reported_raw_is_believed_and_an_empty_report_is_not(length: int) -> None:
    draw = np.random.default_rng(4)
    count = 400
    places = draw.standard_normal((count, length, 2))
    observed = np.concatenate(
        [places + draw.normal(0, 0.01, places.shape), np.ones((count, length, 1))], axis=2
    )
    empty = draw.random(count) < 0.3
    observed[empty] = -3.0
    evidence = SignalEvidence(observed, draw.integers(3, size=count), places, 3, np.zeros(2), np.ones(2))
    known, held_out = evidence.take(np.arange(200)), evidence.take(np.arange(200, count))
    guess = SignalAsReported().train(known, Randomness(1), quiet)(held_out.observed)
    off = np.hypot(*np.moveaxis(guess.places - held_out.places, -1, 0)).mean(axis=1)
    assert off[~empty[200:]].max() < 0.06
    blind = geometric_median(known.places[empty[:200], 0])
    np.testing.assert_allclose(
        guess.places[empty[200:]][:, 0], np.tile(blind, (empty[200:].sum(), 1)), atol=1e-2
    )
    code = SignalAsReported().train(known.take(np.flatnonzero(empty[:200])), Randomness(1), quiet)
    assert np.isfinite(code(held_out.observed).places).all()
