"""Scores against formulas written out run by run; the strongest of several; the paper's common adversaries."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Geod

from mapveil.attacks.signal_adversary import BlindGuess, SignalGuess
from mapveil.attacks.signal_attack import attack_signal, signal_adversaries
from mapveil.attacks.signal_evidence import SignalEvidence
from mapveil.attacks.signal_neighbours import SignalNeighbours
from mapveil.attacks.signal_score import AdversaryScore, SignalAttack, score_guess, user_entropy
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness


def table(rows: int = 40, users: int = 3) -> Measurements:
    draw = np.random.default_rng(1)
    values = draw.normal(size=(rows, 4)) * [0.01, 0.02, 5, 1] + [35.5, 24.0, -80, 3]
    owners = np.arange(rows, dtype=np.int64) % users
    return Measurements(
        values,
        ("lat", "lon", "rss_dbm", "speed"),
        owners,
        tuple("abc"[:users]),
        np.arange(rows, dtype=np.int64)[::-1].copy(),
        np.arange(rows, dtype=np.int64),
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_scores_are_the_formulas_of_the_paper(worlds: SimpleNamespace, seed: int, length: int) -> None:
    draw = np.random.default_rng(seed)
    evidence = worlds.two_users(seed, 9, apart=1.0, length=length)
    chances = draw.dirichlet([1, 1], 9)
    guess = SignalGuess(chances, draw.normal(size=(9, length, 2)))
    found = score_guess(evidence, guess, weights=(0.8, 0.2))
    wrong = sum(int(np.argmax(chances[i]) != evidence.users[i]) for i in range(9)) / 9
    entropy = -sum(math.log(chances[i, evidence.users[i]]) for i in range(9)) / 9
    away = [math.dist(guess.places[i, j], evidence.places[i, j]) for i in range(9) for j in range(length)]
    assert found.p1 == pytest.approx(wrong)
    assert found.p1_cross_entropy == pytest.approx(entropy)
    assert found.p2 == pytest.approx(sum(away) / len(away))
    assert found.p == pytest.approx(0.8 * wrong + 0.2 * found.p2)
    assert found.runs == 9


def test_an_impossible_truth_costs_much_but_not_all(worlds: SimpleNamespace) -> None:
    evidence = worlds.two_users(1, 5, apart=1.0)
    certain = np.zeros((5, 2))
    certain[np.arange(5), 1 - evidence.users] = 1.0
    found = score_guess(evidence, SignalGuess(certain, evidence.places))
    assert found.p1 == 1
    assert 20 < found.p1_cross_entropy < 50


def test_metres_are_those_of_the_ellipsoid_to_a_percent(worlds: SimpleNamespace) -> None:
    evidence = worlds.two_users(1, 50, apart=1.0, length=2)
    guess = np.random.default_rng(2).normal(size=(50, 2, 2))
    true, other = (each * evidence.scale + evidence.middle for each in (evidence.places, guess))
    expected = Geod(ellps="WGS84").inv(true[..., 1], true[..., 0], other[..., 1], other[..., 0])[2]
    np.testing.assert_allclose(evidence.metres_from(guess), expected, rtol=0.01)
    assert np.isfinite(evidence.metres_from(guess * 1e6)).all()


@pytest.mark.parametrize("length", [1, 3])
def test_evidence_pairs_runs_with_their_truth(length: int) -> None:
    original = table()
    privatized = original.with_rows(original.rows + 1.0)
    scale = Normalisation.learn(original)
    evidence = SignalEvidence.of(original, privatized, scale, length=length)
    runs = original.sequences(length)
    assert evidence.length == length
    for at, run in enumerate(runs):
        assert {int(original.users[row]) for row in run} == {int(evidence.users[at])}
        np.testing.assert_allclose(evidence.observed[at], scale.standardise(privatized.rows[run]))
        np.testing.assert_allclose(evidence.places[at], scale.apply(original.rows[run])[:, :2])
        np.testing.assert_allclose(
            evidence.places[at] * evidence.scale + evidence.middle, original.rows[run][:, :2]
        )
    assert "SignalEvidence" in repr(evidence)
    assert "35" not in repr(evidence)  # no place


def test_runs_that_overlap_are_one_users_in_order_of_time() -> None:
    original = table(rows=47)
    scale = Normalisation.learn(original)
    found = SignalEvidence.of(original, original, scale, length=5, step=2)
    expected = []
    for user in range(3):
        own = np.flatnonzero(original.users == user)
        own = own[np.argsort(original.time[own])] if original.time is not None else own
        expected += [own[at : at + 5] for at in range(0, len(own) - 4, 2)]
    np.testing.assert_array_equal(found.users, [original.users[run[0]] for run in expected])
    np.testing.assert_allclose(found.observed, scale.apply(original.rows)[np.array(expected)], atol=1e-9)
    end_to_end = SignalEvidence.of(original, original, scale, length=5)
    np.testing.assert_array_equal(
        end_to_end.inputs, SignalEvidence.of(original, original, scale, length=5, step=5).inputs
    )
    with pytest.raises(InputError, match="no user has 50 rows"):
        SignalEvidence.of(original, original, scale, length=50, step=3)
    with pytest.raises(ParameterError, match="step must be 1 to the sequence length 5, got 6"):
        SignalEvidence.of(original, original, scale, length=5, step=6)


def test_tables_that_are_no_pair_are_refused(worlds: SimpleNamespace) -> None:
    original = table()
    scale = Normalisation.learn(original)
    with pytest.raises(InputError, match="40 rows of lat"):
        SignalEvidence.of(original, original.take(np.arange(5)), scale)
    with pytest.raises(InputError, match="no user has 50 rows"):
        SignalEvidence.of(original, original, scale, length=50)
    with pytest.raises(InputError, match="not finite"):
        replace(worlds.two_users(1, 4, apart=1.0), observed=np.full((4, 1, 4), np.nan))


def test_parts_are_apart_and_whole(worlds: SimpleNamespace) -> None:
    evidence = worlds.two_users(1, 30, apart=1.0)
    kept, chosen = evidence.parted(0.2, Randomness(1))
    assert (len(kept), len(chosen)) == (24, 6)
    assert len(np.unique(np.concatenate([kept.inputs, chosen.inputs]), axis=0)) == 30
    assert len(evidence.sample(7, Randomness(1))) == 7
    assert evidence.sample(70, Randomness(1)) is evidence
    with pytest.raises(ParameterError, match="most"):
        evidence.sample(0, Randomness(1))


def score(adversary: str, p1: float, p2: float, trained_on: str = "own") -> AdversaryScore:
    return AdversaryScore(adversary, trained_on, p1, p1, p2, 100 * p2, p1 + p2, 10)


def test_the_strongest_leaves_the_least_privacy() -> None:
    attack = SignalAttack((score("a", 0.5, 0.1), score("b", 0.2, 0.6), score("c", 0.3, 0.3)), (1.0, 1.0))
    assert attack.strongest.adversary == "a" or attack.strongest.p == pytest.approx(0.6)
    assert attack.strongest_by("p1").adversary == "b"
    assert attack.strongest_by("p2").adversary == "a"
    assert attack.floor == pytest.approx(0.2 + 0.1)
    assert attack.floor <= attack.strongest.p
    merged = attack.merged(SignalAttack((score("d", 0.0, 0.0, "aggregate"),), (1.0, 1.0)))
    assert merged.strongest.trained_on == "aggregate"
    assert len(merged.to_dict()["adversaries"]) == 4
    unknown: Any = "u"
    with pytest.raises(ParameterError, match="metric"):
        attack.strongest_by(unknown)


def test_blind_guesses_are_as_private_as_can_be(worlds: SimpleNamespace) -> None:
    evidence = worlds.two_users(1, 2000, apart=3.0)
    found = attack_signal(evidence, evidence, adversaries=[BlindGuess()], rng=1).strongest
    assert found.p1 == pytest.approx(1 - np.bincount(evidence.users).max() / 2000)
    assert found.p1_cross_entropy == pytest.approx(user_entropy(evidence), abs=1e-3)
    assert found.p2 == pytest.approx(math.sqrt(math.pi / 2), rel=0.05)  # of a normal place from its middle


def test_entropy_of_users(worlds: SimpleNamespace) -> None:
    evidence = worlds.two_users(1, 4, apart=1.0)
    even = SignalEvidence(
        evidence.observed, np.array([0, 1, 0, 1]), evidence.places, 2, evidence.middle, evidence.scale
    )
    assert user_entropy(even) == pytest.approx(math.log(2))


def test_progress_ends_at_one_and_never_falls(worlds: SimpleNamespace) -> None:
    told: list[float] = []
    attack_signal(
        worlds.two_users(1, 200, apart=1.0),
        worlds.two_users(2, 200, apart=1.0),
        adversaries=[BlindGuess(), SignalNeighbours(counts=(5,))],
        progress=lambda _step, part: told.append(part),
    )
    assert told == sorted(told)
    assert told[-1] == 1


def test_parts_that_do_not_belong_together_are_refused(worlds: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="the same"):
        attack_signal(worlds.two_users(1, 20, apart=1.0), worlds.two_users(2, 20, apart=1.0, length=2))
    with pytest.raises(ParameterError, match="adversaries is empty"):
        attack_signal(worlds.two_users(1, 20, apart=1.0), worlds.two_users(2, 20, apart=1.0), adversaries=[])


def test_every_score_says_what_reports_tell(worlds: SimpleNamespace) -> None:
    told = attack_signal(
        worlds.seen_places(1, 2000, noise=0.5),
        worlds.seen_places(2, 2000, noise=0.5),
        adversaries=[BlindGuess(), SignalNeighbours(counts=(30,))],
        rng=1,
    )
    blind, neighbours = told.scores
    assert blind.user_nats is not None
    assert blind.user_nats < 0.01
    assert blind.place_nats is not None
    assert blind.place_nats < 0.05
    # Two coordinates, each at a variance of signal over noise of 4: log(5)/2 nats.
    assert neighbours.place_nats == pytest.approx(math.log(5), abs=0.25)
    assert "place_nats" in told.to_dict()["adversaries"][0]


def test_codes_are_counted_whatever_else_attacks() -> None:
    for quick in (False, True):
        labels = [each.label for each in signal_adversaries(quick=quick, network=False)]
        assert labels == ["blind", "as reported", "codes", "trees", "neighbours"]
        assert [each.label for each in signal_adversaries(quick=quick)] == [*labels, "network"]
