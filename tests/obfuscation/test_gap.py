"""The adversarial network: its losses against NumPy, its training, and what it sends."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.obfuscation.privatizers.gap import Gap, attacker_loss, batch_utility
from mapveil.obfuscation.utility import utility
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

torch = pytest.importorskip("torch")


def quiet(_step: str, _part: float) -> None:
    pass


def pilot(seed: int = 1, rows: int = 1_500) -> tuple[np.ndarray, np.ndarray]:
    """Three people at places of their own; signal depends on place, two more features on nothing."""
    draw = np.random.default_rng(seed)
    users = draw.integers(3, size=rows)
    place = np.array([[-1.2, 0.0], [0.6, 1.0], [0.6, -1.0]])[users] + 0.3 * draw.standard_normal((rows, 2))
    signal = place[:, :1] + 0.5 * draw.standard_normal((rows, 1))
    made = np.hstack([place, signal, draw.standard_normal((rows, 2))])
    return (made - made.mean(axis=0)) / made.std(axis=0), users.astype(np.int64)


@functools.cache
def trained(rho: float, noise: int = 4, seed: int = 3) -> dict[str, np.ndarray]:
    rows, users = pilot()
    made = Gap(rho=rho, noise=noise, steps=150, batch=250, width=48, rate=5e-3)
    return made.learn(rows, users, Randomness(seed), quiet)


def sent(rho: float, noise: int = 4, seed: int = 5) -> np.ndarray:
    made = Gap(rho=rho, noise=noise, width=48)
    return made.privatize(trained(rho, noise), pilot(seed=2)[0], Randomness(seed))


@given(st.integers(0, 2**32 - 1), st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=30)
def test_batch_utility_is_the_utility(seed: int, w1: float, w2: float) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.standard_normal((200, 6)) @ (np.eye(6) + 0.1 * draw.standard_normal((6, 6)))
    changed = rows + 0.5 * draw.standard_normal((200, 6))
    found = float(batch_utility(torch.tensor(rows), torch.tensor(changed), w1, w2))
    assert found == pytest.approx(utility(rows, changed, weights=(w1, w2)).total, rel=1e-3, abs=2e-3)


def test_batch_utility_stands_a_column_constant_in_the_batch() -> None:
    rows = torch.randn(50, 5, generator=torch.Generator().manual_seed(1))
    rows[:, 4] = 0.7
    changed = rows.clone().requires_grad_()
    batch_utility(rows, changed, 1.0, 1.0).backward()
    assert torch.isfinite(changed.grad).all()


def test_attacker_loss_by_hand() -> None:
    outputs = torch.tensor([[0.0, 0.0, 1.0, 1.0], [np.log(3.0), 0.0, 0.0, 2.0]])
    places = torch.tensor([[1.0, 1.0], [0.0, -1.0]])
    found = float(attacker_loss(outputs, torch.tensor([0, 1]), places, 2.0, 0.5))
    assert found == pytest.approx(2 * (np.log(2) + np.log(4)) / 2 + 0.5 * (0 + 3) / 2, rel=1e-5)


def test_utility_alone_keeps_the_rows_and_privacy_moves_the_places() -> None:
    rows = pilot(seed=2)[0]
    kept, hidden = sent(1.0), sent(0.1)
    assert utility(rows, kept).total > -0.8
    # The place that is sent says less about the true one.
    told = [np.corrcoef(rows[:, 0], changed[:, 0])[0, 1] for changed in (kept, hidden)]
    assert told[0] > 0.9 > abs(told[1])


def test_with_noise_two_privatizations_differ_and_without_they_do_not() -> None:
    assert np.abs(sent(0.1, seed=5) - sent(0.1, seed=6)).mean() > 1e-3
    np.testing.assert_array_equal(sent(0.1, noise=0, seed=5), sent(0.1, noise=0, seed=6))


def test_what_is_kept_is_single_precision_weights() -> None:
    state = trained(0.1)
    assert {name: array.shape for name, array in state.items()} == {
        "weight0": (9, 48),
        "bias0": (48,),
        "weight1": (48, 48),
        "bias1": (48,),
        "weight2": (48, 5),
        "bias2": (5,),
    }
    assert {array.dtype for array in state.values()} == {np.dtype(np.float32)}


def test_training_repeats_with_a_seed_and_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    rows, users = pilot(rows=300)
    made = Gap(steps=4, batch=100, width=8)
    first, again, other = (made.learn(rows, users, Randomness(seed), quiet) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(first["weight1"], again["weight1"])
    assert not np.array_equal(first["weight1"], other["weight1"])


def test_sequences_are_privatized_together() -> None:
    rows, users = pilot(rows=600)
    made = Gap(steps=6, batch=50, width=16, sequence=2, noise=3)
    runs = rows[np.argsort(users, kind="stable")].reshape(300, 10)
    told: list[float] = []
    state = made.learn(runs, np.sort(users)[::2], Randomness(1), lambda _step, part: told.append(part))
    assert state["weight0"].shape == (2 * 5 + 2 * 3, 16)
    assert made.privatize(state, runs, Randomness(2)).shape == (300, 10)
    # 300 runs are six batches of 50: six steps are one turn of each network.
    assert told == [1.0]


def test_a_pilot_smaller_than_a_batch_is_one_batch() -> None:
    rows, users = pilot(rows=40)
    state = Gap(steps=2, width=8).learn(rows, users, Randomness(1), quiet)
    assert np.isfinite(state["weight2"]).all()


def test_the_promise_claims_nothing() -> None:
    random, fixed = (Gap(noise=noise).promise({}, 5) for noise in (16, 0))
    assert random.epsilon is None
    assert "NOT differential privacy" in random.in_words()
    assert "undo" in fixed.in_words()
    assert "undo" not in random.in_words()


@pytest.mark.parametrize(
    "options",
    [
        {"rho": -0.1},
        {"rho": 1.1},
        {"rho": float("nan")},
        {"v1": -1.0},
        {"w2": float("inf")},
        {"noise": -1},
        {"noise": 1.5},
        {"epochs": 0},
        {"steps": 0},
        {"batch": 1},
        {"width": 0},
        {"rate": 0.0},
    ],
)
def test_parameters_outside_their_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        Gap(**options)  # type: ignore[arg-type]


def test_a_large_pilot_does_not_drive_it_away() -> None:
    # Five hundred batches in a pass: with turns as long as that it ended 4,000 deviations off.
    rows, users = pilot(rows=16_000)
    made = Gap(rho=0.4, steps=600, batch=32, width=48)
    changed = made.privatize(made.learn(rows, users, Randomness(3), quiet), rows, Randomness(4))
    assert np.linalg.norm(changed - rows, axis=1).mean() < 4
