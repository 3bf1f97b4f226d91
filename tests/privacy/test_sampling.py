"""The samplers' distance from their laws: counted into delta, and never left by a release."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.mechanisms.methods import METHODS
from mapveil.privacy import discrete_laplace as sampler
from mapveil.privacy.sampling import RELEASE, SAMPLE, sampling_delta
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.noise_shares import MOST_ROUNDS, check_round, shares_distance

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
CENTRAL = [method for method in METHODS if method.trust == "central"]


@given(st.fractions(Fraction(1, 1000), 30), st.integers(20, 90).map(lambda bits: Fraction(1, 1 << bits)))
def test_delta_is_rounded_up_to_three_digits(epsilon: Fraction, distance: Fraction) -> None:
    found = sampling_delta(epsilon, distance)
    exact = (1 + math.exp(float(epsilon))) * float(distance)
    assert min(exact * (1 - 1e-12), 1) <= float(found) <= exact * 1.0101
    assert float(found) == 1 or float(f"{float(found):.3g}") == float(found)


def test_delta_is_at_most_one() -> None:
    assert sampling_delta(Fraction(500)) == 1
    assert sampling_delta(Fraction(1), Fraction(0)) == 0


@pytest.mark.parametrize("method", CENTRAL, ids=[method.name for method in CENTRAL])
def test_no_curator_draws_more_than_four_samples_a_site(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = 0
    real = sampler.draw_slots

    def counted(table: Any, count: int, rng: Any) -> Any:
        nonlocal drawn
        drawn += count
        return real(table, count, rng)

    monkeypatch.setattr(sampler, "draw_slots", counted)
    # A table of one sample has a leading digit and up to three low ones: samples are at most the draws.
    widths: list[int] = []
    sampled = sampler._sampler

    def recorded(epsilon: Fraction, sensitivity: int) -> Any:
        made = sampled(epsilon, sensitivity)
        widths.append(len(made.widths))
        return made

    monkeypatch.setattr(sampler, "_sampler", recorded)
    tiling = mv.Quadtree(REGION, depth=5)
    users = np.random.default_rng(1).poisson(3.0, tiling.size)
    heat = method.make(5).release(mv.Counts(users, tiling), rng=1)
    assert drawn > 0
    assert drawn / (1 + min(widths)) <= 4 * tiling.size
    assert (
        heat.guarantee.delta
        == sampling_delta(Fraction(5), RELEASE)
        >= sampling_delta(Fraction(5), drawn * SAMPLE)
    )


def test_noise_shares_depart_by_their_events() -> None:
    length, alpha, epsilon, sensitivity = 4096, Fraction(1, 850), Fraction(1), 1024
    found = shares_distance(length, alpha, epsilon, sensitivity)
    events = -2 * length * math.log(-math.expm1(-1 / 1024))
    assert float(found) == pytest.approx(events * 2.0**-60 + 850 * 2.0**-64, rel=1e-3)
    assert shares_distance(length, Fraction(1), epsilon, sensitivity) <= found


def test_a_collection_stays_within_its_distance() -> None:
    fine = (4**10, Fraction(1, 8500), Fraction(1), 1024)
    check_round(MOST_ROUNDS, *fine)
    assert MOST_ROUNDS * shares_distance(*fine) <= RELEASE
    with pytest.raises(ParameterError, match="at most 16 rounds, got round 17"):
        check_round(17, *fine)
    with pytest.raises(ParameterError, match="too many samples"):
        check_round(1, 4**12, *fine[1:])
