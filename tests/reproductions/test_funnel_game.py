"""The funnel's game: its certificate against a loop, its channel against the exact optimum of a linear program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from mapveil.obfuscation.privatizers.pilot_cells import nearest_centre, row_distances
from mapveil_client.randomness.random import Randomness
from reproductions.zhang.funnel import Channel, Funnel, certify, play_funnel


def quiet(_step: str, _part: float) -> None:
    pass


def people(rows: int, seed: int, users: int = 3, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    who = draw.integers(users, size=rows)
    at = np.random.default_rng(99).standard_normal((users, width)) * 1.2
    return at[who] + 0.8 * draw.standard_normal((rows, width)), who


def random_channel(seed: int, length: int = 1) -> Channel:
    draw = np.random.default_rng(seed)
    weights = draw.dirichlet(np.full(5, 0.4), size=7).astype(np.float32)
    return Channel(
        draw.standard_normal((7, 4 * length)).astype(np.float32),
        weights,
        draw.standard_normal((5, 4 * length)),
    )


@pytest.mark.parametrize("length", [1, 2])
def test_certificate_is_the_best_guess_for_every_code(length: int) -> None:
    rows, users = people(60, 1, width=4 * length)
    channel = random_channel(2, length)
    found = certify(channel, rows.astype(np.float32), users, length)
    sent = channel.weights[nearest_centre(rows, channel.centres)].astype(float)
    right = place = distortion = 0.0
    for code in range(5):
        right += max(sent[users == user, code].sum() for user in range(3))
        for step in range(length):
            columns = slice(4 * step, 4 * step + 2)

            def lost(guess: np.ndarray, code: int = code, columns: slice = columns) -> float:
                return float((sent[:, code] * np.linalg.norm(rows[:, columns] - guess, axis=1)).sum())

            place += minimize(lost, np.zeros(2), method="Nelder-Mead", tol=1e-8).fun / length
            whole = slice(4 * step, 4 * step + 4)
            off = np.linalg.norm(rows[:, whole] - channel.codes[code, whole], axis=1)
            distortion += float((sent[:, code] * off).sum()) / length
    assert found.user_error == pytest.approx(1 - right / 60, abs=1e-5)
    # For a run of two, the guesses are found for the run as a whole: never better than one by one.
    assert found.place_error == pytest.approx(place / 60, rel=2e-3 if length == 1 else 2e-2)
    assert found.distortion == pytest.approx(distortion / 60, rel=1e-4)


def test_channel_is_as_good_as_the_linear_program_for_its_codes() -> None:
    """With the codes fixed and only users to hide, the optimum is a linear program (Shokri et al. 2012)."""
    rows, users = people(1_200, 3)
    funnel = Funnel(rho=0.35, v2=0.0, w2=0.0, codes=12, cells=40, rounds=600)
    channel, _ = play_funnel(funnel, rows, users, Randomness(4), quiet)
    cells = nearest_centre(rows, channel.centres)
    count = len(channel.centres)
    mass = np.bincount(cells, minlength=count) / len(rows)
    who = np.zeros((count, 3))
    np.add.at(who, (cells, users), 1 / len(rows))
    off = np.zeros((count, 12))
    np.add.at(
        off, cells, row_distances(rows.astype(np.float32), channel.codes.astype(np.float32)) / len(rows)
    )

    def loss(weights: np.ndarray) -> float:
        return float(0.35 * (weights * off).sum() + 0.65 * (who.T @ weights).max(axis=0).sum())

    # Variables: q(c | a), then t_c >= what the best guess on c gets.
    size = count * 12
    cost = np.append(0.35 * off.ravel(), np.full(12, 0.65))
    bounds = np.zeros((36, size + 12))
    for code in range(12):
        for user in range(3):
            at = 3 * code + user
            bounds[at, code:size:12] = who[:, user]
            bounds[at, size + code] = -1
    sums = np.zeros((count, size + 12))
    for cell in range(count):
        sums[cell, 12 * cell : 12 * cell + 12] = 1
    best = linprog(cost, A_ub=bounds, b_ub=np.zeros(36), A_eq=sums, b_eq=np.ones(count)).fun
    blind = loss(np.tile(np.eye(12)[(mass @ off / mass.sum()).argmin()], (count, 1)))
    nearest = loss(np.eye(12)[(off / np.maximum(mass, 1e-9)[:, None]).argmin(axis=1)])
    found = loss(channel.weights)
    assert best <= found + 1e-6
    # The program sees all rows and the game seven in eight: a few percent of what there is to gain.
    assert found - best < 0.12 * (min(blind, nearest) - best)


def test_certificate_holds_on_other_people_of_the_same_law() -> None:
    rows, users = people(6_000, 5)
    channel, certificate = play_funnel(
        Funnel(rho=0.4, codes=24, cells=200, rounds=120), rows, users, Randomness(6), quiet
    )
    others, their_users = people(6_000, 7)
    fresh = certify(channel, others.astype(np.float32), their_users, 1)
    assert fresh.user_error == pytest.approx(certificate.user_error, abs=0.05)
    assert fresh.place_error == pytest.approx(certificate.place_error, abs=0.08)
    assert fresh.distortion == pytest.approx(certificate.distortion, abs=0.08)


def test_progress_ends_at_one_and_a_channel_is_a_law() -> None:
    rows, users = people(300, 8)
    told: list[float] = []
    channel, _ = play_funnel(
        Funnel(codes=6, rounds=10), rows, users, Randomness(1), lambda _step, part: told.append(part)
    )
    assert told[-1] == 1.0
    np.testing.assert_allclose(channel.weights.sum(axis=1), 1, atol=1e-5)
    assert (channel.weights >= 0).all()
