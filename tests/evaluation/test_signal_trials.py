"""One trial: what is measured on which rows, with adversaries whose answer is known."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from mapveil.attacks.signal_adversary import BlindGuess, SignalCodes
from mapveil.evaluation.signal_trials import (
    SignalTask,
    held_out_rmse_dbm,
    privatize_split,
    run_signal_task,
    trial_record,
)
from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.codebook import Codebook
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil_client.randomness.random import Randomness

ADVERSARIES = (BlindGuess(), SignalCodes())


def made_up(rows: int = 400) -> Measurements:
    """Four users around places of their own; signal is a plane in latitude and longitude."""
    draw = np.random.default_rng(3)
    users = np.arange(rows, dtype=np.int64) % 4
    place = [35.5, 24.0] + 0.01 * users[:, None] + draw.normal(size=(rows, 2)) * 0.004
    strength = -80 + 300 * (place[:, 0] - 35.5) - 200 * (place[:, 1] - 24.0)
    further = draw.normal(size=rows)
    return Measurements(
        np.column_stack([place, strength, further]),
        ("lat", "lon", "rss_dbm", "speed"),
        users,
        tuple("abcd"),
        np.arange(rows, dtype=np.int64),
        np.arange(rows, dtype=np.int64),
        "made up",
    )


def task(privatizer: Any = None, **changes: Any) -> SignalTask:
    split = made_up().split("random", Randomness(1), pilot=0.7)
    given = SignalTask("made up", split, privatizer, "", 0.0, 0, 5, ADVERSARIES)
    return given._replace(**changes)


def test_what_is_sent_as_it_is_costs_nothing() -> None:
    trial = run_signal_task(task())
    assert trial.privatizer == "none"
    assert (trial.u1, trial.u2, trial.u) == (0, 0, 0)
    assert trial.rmse_dbm < 0.2  # signal is linear in the place, but for the outliers that are cut
    # Raw rows take no value twice: counting codes is blind, and three of four users are not the likeliest.
    assert trial.p1 == pytest.approx(0.75, abs=0.06)


def test_noise_costs_what_it_adds() -> None:
    made = privatize_split(task().split, GaussianNoise(sigma=0.5), Randomness(2))
    # The mean length of four normals of deviation 1/2.
    assert -made.utility.u1 == pytest.approx(0.5 * np.sqrt(np.pi / 2) * 1.5, rel=0.08)
    again = privatize_split(task().split, GaussianNoise(sigma=0.65), Randomness(2))
    assert -again.utility.u1 > 1.2 * -made.utility.u1
    assert made.rmse_dbm > 0.1


def test_the_held_out_rows_are_never_learnt_from() -> None:
    split = task().split
    moved = split._replace(held_out=split.held_out.with_rows(split.held_out.rows + 1.0))
    one, other = (privatize_split(each, Codebook(size=9), Randomness(2)) for each in (split, moved))
    np.testing.assert_array_equal(one.pilot.rows, other.pilot.rows)
    np.testing.assert_array_equal(one.normalisation.mean, other.normalisation.mean)


def test_the_error_of_a_fitted_map_against_least_squares_written_out() -> None:
    draw = np.random.default_rng(1)
    privatized, others = draw.normal(size=(200, 4)), draw.normal(size=(50, 4))
    design = np.column_stack([np.ones(200), privatized[:, [0, 1, 3]]])
    weights = np.linalg.lstsq(design, privatized[:, 2], rcond=None)[0]
    predicted = np.column_stack([np.ones(50), others[:, [0, 1, 3]]]) @ weights
    expected = 7.0 * np.sqrt(np.mean((predicted - others[:, 2]) ** 2))
    assert held_out_rmse_dbm(privatized, others, 7.0) == pytest.approx(expected)


def test_the_strongest_adversary_is_reported() -> None:
    # Each code is sent from few places only: who counts codes sees more than who looks at nothing.
    trial = run_signal_task(task(Codebook(size=21, mu=20.0)))
    assert trial.strongest == "codes"
    scores = {score.adversary: score.p for score in trial.attack.scores}
    assert trial.p == scores["codes"] < scores["blind"]
    assert trial.floor <= trial.p


def test_the_same_task_gives_the_same_trial_in_another_process() -> None:
    given = task(GaussianNoise(sigma=0.5), knob="sigma", value=0.5)
    one = run_signal_task(given)
    other = run_signal_task(pickle.loads(pickle.dumps(given)))  # noqa: S301 (our own bytes)
    untimed = {"fit_s": 0.0, "privatize_s": 0.0, "attack_s": 0.0}
    assert one._replace(**untimed) == other._replace(**untimed)
    assert run_signal_task(given._replace(seed=6)).u1 != one.u1
    assert run_signal_task(given._replace(trial=1)).u1 != one.u1


def test_runs_are_attacked_together() -> None:
    alone, together = (run_signal_task(task(GaussianNoise(sigma=0.5), length=n)) for n in (1, 5))
    assert together.attack.scores[0].runs < alone.attack.scores[0].runs / 4
    assert together.u1 == alone.u1


def test_a_record_is_flat_and_leaves_single_adversaries_out() -> None:
    record = trial_record(run_signal_task(task(label="as it is")))
    assert record["privatizer"] == "as it is"
    assert "attack" not in record
    assert all(isinstance(value, str | int | float) for value in record.values())
