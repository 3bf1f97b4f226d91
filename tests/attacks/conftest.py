"""Worlds of privatized measurements whose best attack is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from mapveil.attacks.signal_evidence import SignalEvidence


def two_users(seed: int, runs: int, *, apart: float, noise: float = 1.0, length: int = 1) -> SignalEvidence:
    """Two users whose feature 2 is at -apart and at apart, under normal noise; places tell nothing.

    The best guess errs with probability Phi(-apart sqrt(length) / noise).
    """
    draw = np.random.default_rng(seed)
    users = draw.integers(0, 2, runs)
    observed = noise * draw.normal(size=(runs, length, 4))
    observed[..., 2] += apart * (2 * users - 1)[:, None]
    places = draw.normal(size=(runs, length, 2))
    return SignalEvidence(observed, users, places, 2, np.array([35.5, 24.0]), np.array([0.002, 0.004]))


def seen_places(seed: int, runs: int, *, noise: float) -> SignalEvidence:
    """Three users everywhere alike; the report is the place under normal noise.

    For a normal place and noise the best guess is the report over 1 + noise^2; it errs by a Rayleigh distance.
    """
    draw = np.random.default_rng(seed)
    users = draw.integers(0, 3, runs)
    places = draw.normal(size=(runs, 1, 2))
    observed = draw.normal(size=(runs, 1, 4))
    observed[..., :2] = places + noise * draw.normal(size=(runs, 1, 2))
    return SignalEvidence(observed, users, places, 3, np.array([35.5, 24.0]), np.array([0.002, 0.004]))


def best_p1(apart: float, length: int = 1) -> float:
    """The least P1 of :func:`two_users` at noise 1."""
    return 0.5 * math.erfc(apart * math.sqrt(length) / math.sqrt(2))


def best_p2(noise: float) -> float:
    """The least P2 of :func:`seen_places`: the mean of a Rayleigh distance."""
    return math.sqrt(noise**2 / (1 + noise**2)) * math.sqrt(math.pi / 2)


@pytest.fixture(scope="session")
def worlds() -> SimpleNamespace:
    """The functions above."""
    return SimpleNamespace(two_users=two_users, seen_places=seen_places, best_p1=best_p1, best_p2=best_p2)
