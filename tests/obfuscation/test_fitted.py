"""A table privatized in runs: every user's rows in order of time, the last run filled up, nothing mixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil.geo.measurements import Measurements
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.privatizers.normalisation import Normalisation
from mapveil.obfuscation.privatizers.privatizer import State
from mapveil_client.randomness.random import Randomness

Tables = Callable[..., Measurements]


@dataclass(frozen=True, kw_only=True)
class RunMean(GaussianNoise):
    """Replaces every measurement by the mean of its run: shows what was put together."""

    name: ClassVar[str] = "run-mean"

    def privatize(self, state: State, rows: np.ndarray, rng: Randomness) -> np.ndarray:
        """The mean of each run, for all of it."""
        parts = rows.reshape(len(rows), self.sequence, -1)
        return np.broadcast_to(parts.mean(axis=1, keepdims=True), parts.shape).reshape(rows.shape)


@given(st.integers(2, 60), st.integers(1, 7), st.integers(0, 9))
def test_runs_are_a_user_s_own_rows_in_order(made_up: Tables, rows: int, length: int, seed: int) -> None:
    pilot = made_up(200)
    shuffled = made_up(rows, seed=seed + 2).take(np.random.default_rng(seed).permutation(rows))
    fitted = RunMean(sigma=1, sequence=length).fit(pilot)
    found = fitted.privatize_measurements(shuffled, rng=1).rows
    # The slow, obvious oracle.
    cut = np.clip(shuffled.rows, fitted.normalisation.low, fitted.normalisation.high)
    expected = np.empty_like(found)
    assert shuffled.time is not None
    for user in set(shuffled.users.tolist()):
        own = sorted(np.flatnonzero(shuffled.users == user).tolist(), key=shuffled.time.__getitem__)
        for at in range(0, len(own), length):
            run = own[at : at + length]
            filled = run + [run[-1]] * (length - len(run))
            expected[run] = cut[filled].mean(axis=0)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_many_chunks_are_as_one(made_up: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = RunMean(sigma=1, sequence=3).fit(made_up(200))
    rows = made_up(300, seed=2).rows
    whole = fitted.privatize(rows)
    monkeypatch.setattr("mapveil.obfuscation.privatizers.privatizer._CHUNK", 10)
    assert (fitted.privatize(rows) == whole).all()


def test_normalising_and_back_keeps_what_lies_within(made_up: Tables) -> None:
    pilot = made_up(5_000)
    made = Normalisation.learn(pilot)
    normalised = made.apply(pilot.rows)
    assert np.abs(normalised.mean(axis=0)).max() < 1e-9
    assert normalised.std(axis=0) == pytest.approx(np.ones(5), rel=1e-9)
    within = ((pilot.rows >= made.low) & (pilot.rows <= made.high)).all(axis=1)
    assert within.mean() > 0.99
    assert made.undo(normalised)[within] == pytest.approx(pilot.rows[within], rel=1e-12)
    assert made.standardise(pilot.rows)[within] == pytest.approx(normalised[within], rel=1e-9, abs=1e-9)
