"""The device's half: when an update is due, and that the budget of a trip is never exceeded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil_client.errors import BudgetExceeded, InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from simulations.traffic.location_updates import LocationUpdates, UpdateRule

REGION = mv.Region.from_bbox(-40.08, 40.0, -39.92, 40.12)
DOMAIN = Domain(mv.Grid(REGION, rows=4, columns=4))


def updates_of(most: int, devices: int, epsilon: object = 1) -> LocationUpdates:
    randomizer = GeneralizedRandomizedResponse(epsilon=epsilon).on(DOMAIN)
    return LocationUpdates(randomizer, most, devices)


@given(
    st.floats(-1e4, 1e4), st.integers(0, 9), st.floats(0.1, 1e3), st.integers(1, 9)
)  # fmt: skip
def test_one_is_due_when_late_by_more_than_theta_and_some_are_left(
    late: float, sent: int, theta: float, most: int
) -> None:
    assert bool(UpdateRule(theta, most).due(late, sent)) == (late > theta and sent < most)


@given(st.integers(1, 4), st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=12))
def test_no_device_ever_sends_more_than_lambda(most: int, rounds: list[set[int]]) -> None:
    phones = updates_of(most, devices=6, epsilon="0.3")
    counted = np.zeros(6, dtype=int)
    for chosen in rounds:
        who = sorted(chosen)
        if (counted[who] >= most).any():
            before = phones.sent
            with pytest.raises(BudgetExceeded, match=f"{most} location updates of epsilon 0.3 each"):
                phones.send(who, np.zeros(len(who), dtype=int), Randomness(1))
            assert (phones.sent == before).all(), "a refusal must not be counted"
            continue
        reports = phones.send(who, np.zeros(len(who), dtype=int), Randomness(1))
        assert reports.count == len(who)
        counted[who] += 1
    assert (phones.sent == counted).all()
    assert counted.max() <= most


def test_what_is_sent_is_randomized_by_the_claimed_epsilon() -> None:
    devices = 200_000
    phones = updates_of(1, devices)
    values = phones.send(np.arange(devices), np.full(devices, 5), Randomness(7)).values
    kept = np.exp(1.0) / (np.exp(1.0) + DOMAIN.size - 1)
    share = float((values == 5).mean())
    deviation = np.sqrt(kept * (1 - kept) / devices)
    assert abs(share - kept) < 6 * deviation
    # An epsilon 30 % off would be seen.
    for wrong in (0.7, 1.3):
        other = np.exp(wrong) / (np.exp(wrong) + DOMAIN.size - 1)
        assert abs(share - other) > 6 * deviation


def test_a_cell_outside_the_domain_is_refused_and_not_counted() -> None:
    phones = updates_of(1, devices=2)
    with pytest.raises(InputError):
        phones.send([0], [16], Randomness(1))
    assert phones.sent.tolist() == [0, 0]


def test_the_count_cannot_be_changed_from_outside() -> None:
    phones = updates_of(1, devices=1)
    phones.send([0], [1], Randomness(1))
    phones.sent[:] = 0
    assert phones.sent.tolist() == [1]


@pytest.mark.parametrize("theta", [0, -1, np.nan, np.inf])
def test_theta_must_be_above_zero(theta: float) -> None:
    with pytest.raises(ParameterError, match="theta_s must be"):
        UpdateRule(theta, 3)


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_lambda_must_be_at_least_one(most: object) -> None:
    with pytest.raises(ParameterError, match="integer of at least 1"):
        UpdateRule(40, most)  # type: ignore[arg-type]


def test_a_device_twice_is_refused() -> None:
    with pytest.raises(ParameterError, match="distinct"):
        updates_of(2, devices=2).send([1, 1], [0, 0], Randomness(1))
