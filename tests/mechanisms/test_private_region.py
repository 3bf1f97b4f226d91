"""A region chosen under noise: it finds a city, spends what it says, and never fails after noise was drawn."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.mechanisms.private_region import FoundRegion, find_region
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Execution
from mapveil_client.errors import PromiseError
from mapveil_client.randomness.random import Randomness

CITY = (139.4, 35.5, 139.9, 35.9)


@pytest.fixture(scope="module")
def city() -> mv.Points:
    return mv.synthetic.city(users=5000, seed=1, region=mv.Region.from_bbox(*CITY))


def choose_region(points: mv.Points, epsilon: Fraction, rng: Randomness) -> FoundRegion:
    return find_region(points, Curator(), epsilon, Execution(rng))


@pytest.mark.parametrize("seed", range(5))
def test_finds_a_city_and_spends_at_most_its_budget(city: mv.Points, seed: int) -> None:
    found = choose_region(city, Fraction(1), Randomness(seed))
    west, south, east, north = found.region.bbox
    assert west < 139.6
    assert east > 139.7
    assert south < 35.65
    assert north > 35.75
    assert max(east - west, north - south) < 1.5
    assert Fraction(99, 100) < sum(share.epsilon for share in found.shares) <= 1


def test_one_person_far_away_does_not_stretch_it(city: mv.Points) -> None:
    rows = city.arrays()
    more = mv.Points.from_arrays(
        np.append(rows.users, -1), np.append(rows.lon, -70.0), np.append(rows.lat, -30.0)
    )
    for seed in range(5):
        found = choose_region(more, Fraction(1), Randomness(seed))
        assert found.region.bbox == choose_region(city, Fraction(1), Randomness(seed)).region.bbox


def test_too_few_people_are_not_found() -> None:
    lonely = mv.synthetic.city(users=3, seed=1)
    with pytest.raises(PromiseError, match="name one by region"):
        choose_region(lonely, Fraction(1, 10), Randomness(1))


def test_a_box_that_holds_nobody_is_no_error() -> None:
    # Little budget draws wide noise: whatever it chooses, the answer is a region or the broken promise.
    two = mv.Points.from_arrays(["ann", "bob"], [-120.0, 120.0], [-50.0, 50.0])
    outcomes = set()
    for seed in range(60):
        try:
            choose_region(two, Fraction(1, 1000), Randomness(seed))
            outcomes.add("region")
        except PromiseError:
            outcomes.add("promise")
    assert "promise" in outcomes
