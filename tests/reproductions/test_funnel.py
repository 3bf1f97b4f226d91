"""The funnel as a privatizer: its law, its ends, its promise, and attackers that are trained on it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import stats

from mapveil.obfuscation.privatizers.pilot_cells import nearest_centre
from mapveil.obfuscation.utility import linear_parameters, utility
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from reproductions.zhang.funnel import Funnel

State = dict[str, np.ndarray]


def quiet(_step: str, _part: float) -> None:
    pass


def people(rows: int, seed: int, length: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Four people around places of their own; signal falls with longitude, one feature gives the person away."""
    draw = np.random.default_rng(seed)
    who = draw.integers(4, size=rows)
    home = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])[np.repeat(who, length)]
    place = home + 0.5 * draw.standard_normal((rows * length, 2))
    signal = -0.7 * place[:, 1:] + 0.4 * draw.standard_normal((rows * length, 1))
    phone = np.repeat(who, length)[:, None] + 0.7 * draw.standard_normal((rows * length, 1))
    made = np.hstack([place, signal, phone, draw.standard_normal((rows * length, 1))])
    made = (made - made.mean(axis=0)) / made.std(axis=0)
    return made.reshape(rows, -1), who.astype(np.int64)


@functools.cache
def fitted(rho: float, w2: float = 1.0) -> State:
    rows, users = people(5_000, 1)
    made = Funnel(rho=rho, w2=w2, codes=32, cells=250, rounds=120)
    return made.learn(rows, users, Randomness(2), quiet)


def test_codes_are_sent_by_the_channel_of_the_cell() -> None:
    state = fitted(0.4)
    rows = people(200, 3)[0]
    laws = state["weights"][nearest_centre(rows, state["centres"])]
    at = int(laws.max(axis=1).argmin())  # a row that several codes stand for
    row, law = rows[at : at + 1], laws[at].astype(float)
    assert law.max() < 0.6
    sent = Funnel().privatize(state, np.repeat(row, 30_000, axis=0), Randomness(4))
    counts = (np.abs(sent[:, None] - state["codes"]).max(axis=2) < 1e-12).sum(axis=0)
    assert counts.sum() == 30_000
    seen = law > 1e-4
    assert counts[~seen].sum() < 60
    claimed = law[seen] / law[seen].sum()
    assert stats.chisquare(counts[seen], counts[seen].sum() * claimed).pvalue > 1e-6
    bent = np.where(np.arange(len(claimed)) == claimed.argmax(), 1.3 * claimed, claimed)
    assert stats.chisquare(counts[seen], counts[seen].sum() * bent / bent.sum()).pvalue < 1e-6


def test_many_rows_are_drawn_like_few() -> None:
    rows = people(400, 3)[0]
    whole = Funnel().privatize(fitted(0.4), rows, Randomness(4))
    stream = Randomness(4)
    parts = [Funnel().privatize(fitted(0.4), rows[at : at + 50], stream) for at in range(0, 400, 50)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_utility_alone_sends_the_nearest_codes_and_privacy_alone_sends_nothing() -> None:
    rows = people(3_000, 5)[0]
    useful, private = (Funnel().privatize(fitted(rho), rows, Randomness(6)) for rho in (1.0, 0.0))
    assert utility(rows, useful).u1 > 0.7 * utility(rows, private).u1
    user_error, place_error, _ = fitted(0.0)["certificate"]
    # Four people alike in number, places of deviation 1 in two directions.
    assert user_error > 0.70
    assert place_error > 1.25
    assert fitted(1.0)["certificate"][0] < 0.35


def test_no_attacker_trained_on_its_output_beats_the_certificate() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    state = fitted(0.4)
    rows, users = people(6_000, 7)
    others, their_users = people(6_000, 8)
    sent, seen = (Funnel().privatize(state, part, Randomness(9)) for part in (rows, others))
    trees = ensemble.RandomForestClassifier(40, random_state=0).fit(sent, users)
    wrong = float((trees.predict(seen) != their_users).mean())
    user_error, place_error, _ = state["certificate"]
    assert wrong > user_error - 0.04
    forest = ensemble.RandomForestRegressor(20, random_state=0, min_samples_leaf=20).fit(sent, rows[:, :2])
    off = float(np.linalg.norm(forest.predict(seen) - others[:, :2], axis=1).mean())
    assert off > place_error - 0.06
    # And it is far from what the rows themselves betray.
    raw = ensemble.RandomForestClassifier(40, random_state=0).fit(rows, users)
    assert float((raw.predict(others) != their_users).mean()) < user_error - 0.2


def test_the_server_fits_the_pilots_linear_model() -> None:
    pilot = people(5_000, 1)[0]
    rows = people(5_000, 5)[0]
    model = linear_parameters(pilot)
    kept, free = (
        linear_parameters(Funnel().privatize(fitted(0.4, w2), rows, Randomness(6))) for w2 in (1.0, 0.0)
    )
    assert np.abs(kept - model).sum() < 0.1
    assert np.abs(free - model).sum() > 3 * np.abs(kept - model).sum()


def test_codes_on_dependent_features_give_up_their_residuals() -> None:
    """Two features that are almost one: any residual would throw their parameters far apart."""
    rows, users = people(3_000, 1)
    twin = rows[:, 3:4] + 0.02 * np.random.default_rng(4).standard_normal((3_000, 1))
    pilot = np.hstack([rows, (twin - twin.mean()) / twin.std()])
    made = Funnel(rho=0.4, codes=32, cells=150, rounds=60)
    state = made.learn(pilot, users, Randomness(2), quiet)
    model = linear_parameters(pilot)
    sent = linear_parameters(made.privatize(state, pilot, Randomness(3)))
    assert np.abs(sent - model).sum() < 0.3


def test_sequences_share_one_code() -> None:
    rows, users = people(1_500, 1, length=3)
    made = Funnel(sequence=3, codes=16, cells=80, rounds=40)
    state = made.learn(rows, users, Randomness(2), quiet)
    sent = made.privatize(state, rows, Randomness(3))
    assert sent.shape == (1_500, 15)
    assert len(np.unique(sent, axis=0)) <= 16
    model, sent_model = (linear_parameters(part.reshape(-1, 5)) for part in (rows, sent))
    assert np.abs(sent_model - model).sum() < 0.2


def test_a_fit_repeats_with_its_seed() -> None:
    rows, users = people(400, 1)
    made = Funnel(codes=8, rounds=10)
    first, again, other = (made.learn(rows, users, Randomness(seed), quiet) for seed in (1, 1, 2))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["codes"], other["codes"])


def test_a_pilot_of_two_rows_is_enough() -> None:
    rows, users = people(2, 1)
    made = Funnel(codes=4, rounds=4)
    state = made.learn(rows, users, Randomness(1), quiet)
    assert np.isfinite(made.privatize(state, rows, Randomness(2))).all()


def test_the_promise_states_what_was_measured() -> None:
    state = fitted(0.4)
    promise = Funnel(rho=0.4).promise(state, 5)
    assert promise.epsilon is None
    assert [each.value for each in promise.measured] == state["certificate"][:2].tolist()
    assert "32 codes" in promise.in_words()


@pytest.mark.parametrize(
    "options",
    [
        {"rho": -0.1},
        {"rho": 2.0},
        {"v1": -1.0},
        {"w1": float("nan")},
        {"codes": 0},
        {"cells": 1.5},
        {"rounds": 1},
    ],
)
def test_parameters_outside_their_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        Funnel(**options)  # type: ignore[arg-type]
