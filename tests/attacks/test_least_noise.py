"""The audit of collections: claims stand at the least noise allowed, and fall when shares are halved."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.attacks.audited_inputs import audited_devices, worst_neighbours
from mapveil.attacks.audited_runs import audited_runs, collect, opened
from mapveil.attacks.epsilon_audit import audit_epsilon
from mapveil.engines import UNIT
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram
from mapveil.mechanisms.methods import find_method
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.randomness.noise_shares import share_shape
from mapveil_client.randomness.random import Randomness

TILING = mv.Quadtree(mv.Region.without_georeference(4, 4), depth=2)


# The others are in test_long_audits; all are checked exactly in tests/contract.
def test_the_claim_stands_with_as_few_noise_shares_as_are_promised() -> None:
    mechanism = find_method("uniform", "distributed").make(1)
    report = audit_epsilon(mechanism, worst_neighbours(TILING)[:9], trials=1400, rng=1)
    assert report.holds
    assert report.epsilon_lower > 0.3, "the audit saw nothing, so it could not have seen a fault"


def test_halved_noise_shares_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(*arguments: Any) -> Fraction:
        return share_shape(*arguments) / 2

    monkeypatch.setattr("mapveil_client.method_parameters.share_shape", half)
    report = audit_epsilon(
        LaplaceHistogram(epsilon=1, clip=False, trust=SecureAggregation()),
        worst_neighbours(TILING)[1:2],
        trials=1400,
        rng=1,
    )
    assert not report.holds


def test_exactly_one_laplace_variable_of_noise_is_left() -> None:
    mechanism = LaplaceHistogram(epsilon=1, clip=False, trust=SecureAggregation(scale=1))
    side, rng = opened(mechanism, worst_neighbours(TILING)[1], False), Randomness(4)
    values = np.concatenate([collect(mechanism, side, rng).values for _ in range(400)])
    q = np.exp(-1.0)
    assert values.var() == pytest.approx(2 * q / (1 - q) ** 2, rel=0.12)


def test_the_devices_hold_what_the_pair_says() -> None:
    pair = worst_neighbours(TILING)[0]
    devices = audited_devices(TILING, pair.without, pair.with_one - pair.without)
    assert devices.starts is not None
    assert devices.weights is not None
    assert devices.starts[1] == 4
    assert devices.weights[:4].tolist() == [UNIT // 4] * 4
    assert (devices.sites[4:] >= 0).sum() == 5


@pytest.mark.parametrize("name", ["laplace", "thresholded", "local-laplace"])
def test_a_crowd_weakens_no_audit(name: str) -> None:
    # The server knows who dropped out, and sees a report that is private by itself apart from the others.
    mechanism, pair = find_method(name, "distributed").make(1), worst_neighbours(TILING)[40]
    runs = audited_runs(mechanism, pair, 400, Randomness(3))
    likelihood = runs.statistics[:, 0]
    mean = [float(likelihood[runs.present == side].mean()) for side in (True, False)]
    # Of Laplace noise at rate 1, E |Z + 1| - E |Z| = 1 / e.
    assert mean == [pytest.approx(np.exp(-1), abs=0.2), pytest.approx(-np.exp(-1), abs=0.2)]
