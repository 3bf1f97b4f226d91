"""Attacks of a server on one device's frequencies: wider regions, the ladder, turned bands, differences of reports."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import mapveil as mv
from mapveil.attacks.localisation_scene import scene
from mapveil.attacks.pair_server import named_pairs
from mapveil.random_features.map_points import map_points
from mapveil.random_features.posterior import effective_places, expected_error
from mapveil.random_features.visits import all_places
from mapveil_client.errors import PromiseError
from mapveil_client.plane import closed_projection
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.random_features.frequencies import KeptFrequencies
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Device, Reports
from mapveil_client.randomness.random import Randomness

CITY = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
CONTINENT = mv.Region.from_bbox(-94.0, 18.0, -54.0, 58.0)
DEVICES = 40


def query_over(region: mv.Region, bandwidth: float) -> Query:
    where = map_points(mv.Grid(region, 8, 8))
    return Query((bandwidth, bandwidth), where.low, where.high, crs=where.crs)


QUERY = query_over(CITY, 150.0)
WHERE = map_points(mv.Grid(CITY, 64, 64))
PLACES = all_places(mv.synthetic.city(users=800, seed=2, region=CITY), mv.Grid(CITY, 64, 64))
PRIOR = scene(mv.Grid(CITY, 64, 64), PLACES).known


def new_device(policy: Policy, query: Query = QUERY, jitter_m: float = 0.0, seed: int = 1) -> Device:
    return Device(policy, KeptFrequencies.draw(policy, query, jitter_m, Randomness(seed)))


def degrees(place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lon, lat = WHERE.projection.unproject(*place)
    return lon, lat


def answered(device: Device, queries: list[Query], lon: float, lat: float) -> list[tuple[Query, Reports]]:
    """The answers of a device that refuses what it refuses."""
    found = []
    for query in queries:
        try:
            reports = device.answer(query, lon, lat)
        except PromiseError:
            continue
        if reports is not None:
            found.append((query, reports))
    return found


def located(policy: Policy, queries: list[Query]) -> tuple[float, float]:
    """Error and places left of a server that knows the density and multiplies what all answers allow."""
    lon, lat = degrees(PRIOR.places)
    errors, left = [], []
    for seed in range(DEVICES):
        here = degrees(PLACES[:, [7 * seed]])
        logs = np.log(PRIOR.probability)
        for query, reports in answered(new_device(policy, seed=seed), queries, *here):
            plane = closed_projection(query.crs)
            assert plane is not None
            offset = np.stack(plane.project(lon, lat)) - np.asarray(query.origin)[:, None]
            frequency = reports.frequencies[:, 0, 0]
            away = np.angle(reports.projections[0, 0]) - frequency @ offset
            away -= 2 * math.pi * np.rint(away / (2 * math.pi))
            across = (np.abs(frequency) * np.asarray(PRIOR.size)).sum() / 2  # of a cell
            logs = logs + np.where(np.abs(away) <= across, 0.0, -np.inf)
        weights = np.exp(logs - logs.max())[None]
        weights /= weights.sum()
        errors.append(expected_error(weights, PRIOR.spread, PRIOR)[0])
        left.append(np.log(effective_places(weights)[0]))
    return float(np.mean(errors)), math.exp(float(np.mean(left)))


def test_a_query_over_a_continent_says_no_more_of_a_city() -> None:
    """Lemmas 3 and 4 allow 43,950 m over 40 degrees: 293 times the bandwidth, on the same frequencies."""
    policy, wide = Policy((150.0, 150.0)), query_over(CONTINENT, 43_950.0)
    once, both = located(policy, [QUERY]), located(policy, [QUERY, wide])
    assert both == once
    # The same bandwidth over another region is another query too.
    with pytest.raises(PromiseError, match="region must be the one of this device's first query"):
        new_device(policy).answer(dataclasses.replace(QUERY, high=(QUERY.high[0] - 100, QUERY.high[1])), 0, 0)
    assert Policy((150.0, 150.0), ladder=True).refusal(wide) is None


def test_the_ladder_does_not_end_in_one_band() -> None:
    queries = [dataclasses.replace(QUERY, bandwidth=(20.0 * m, 20.0 * m)) for m in (1, 5, 9, 13, 17)]
    policy = Policy((20.0, 20.0), bands=1)
    assert located(policy, queries) == located(policy, queries[:1])  # off by default
    ladder = dataclasses.replace(policy, ladder=True)
    assert located(ladder, queries) == located(ladder, queries[:2])
    device = new_device(ladder)
    for query in queries[:2]:
        device.answer(query, -73.97, 40.76)
    with pytest.raises(PromiseError, match=r"Lemma 3\), got 900 \(answers at 1, 5, 9 times 20 say as much\)"):
        device.answer(queries[2], -73.97, 40.76)


def test_bands_are_not_turned_by_another_multiple_on_each_axis() -> None:
    policy = Policy((20.0, 20.0), bands=1, ladder=True)
    turned = dataclasses.replace(QUERY, bandwidth=(20.0, 100.0))
    assert "the same on each axis" in str(policy.refusal(turned))


def test_regions_that_a_device_is_outside_of_do_not_close_in_on_it() -> None:
    """A device far from the first region is pinned to it and stays silent: it is found by no row of boxes."""
    policy = Policy((20.0, 20.0))
    device = new_device(policy)
    boxes = [query_over(mv.Region.from_bbox(lon, 40.0, lon + 1.0, 41.0), 20.0) for lon in range(-90, -60)]
    assert not answered(device, boxes, -80.5, 40.5)
    # Silence is an answer, and answers are counted.
    device = new_device(dataclasses.replace(policy, answers=3), query=boxes[0])
    for _ in range(3):
        assert device.answer(boxes[0], -80.5, 40.5) is None
    with pytest.raises(PromiseError, match="answers must be at most 3 in this device's life"):
        device.answer(boxes[0], -89.5, 40.5)
    assert device.kept.answers == 3


@pytest.mark.parametrize("places", ["most-visited", "mean"])
def test_the_difference_of_two_phases_does_not_name_two_venues(places: str) -> None:
    """From a report at each of two venues, or one of both; 3,000 venues known exactly, an offset of 150 m."""
    chance = np.random.default_rng(3)
    low, high = (np.asarray(end)[:, None] for end in (QUERY.low, QUERY.high))
    venues = chance.uniform(low + 500, high - 500, (2, 3000))
    named = {}
    for jitter_m in (0.0, 150.0):
        found = 0
        for seed in range(DEVICES):
            pair = chance.choice(3000, 2, replace=False)
            device = new_device(Policy((150.0, 150.0)), jitter_m=jitter_m, seed=seed)
            lon, lat = degrees(venues[:, pair])
            if places == "mean":
                one = device.answer(QUERY, lon, lat)
                assert one is not None
                # |z| = |cos(difference / 2)|, whatever both have in common.
                difference = 2 * np.arccos(np.minimum(np.abs(one.projections[0, 0]), 1.0))
                told = named_pairs(one.frequencies[:, 0, 0], difference, venues, either=True, within=1e-8)
            else:
                one, other = (device.answer(QUERY, lon[k], lat[k]) for k in (0, 1))
                assert one is not None
                assert other is not None
                turn = np.angle(other.projections[0, 0] / one.projections[0, 0])
                told = named_pairs(one.frequencies[:, 0, 0], turn, venues)
            found += {tuple(sorted(each)) for each in told.tolist()} == {tuple(sorted(pair.tolist()))}
        named[jitter_m] = found / DEVICES
    assert named[0.0] > 0.8  # exact phases name them
    assert named[150.0] == 0


def test_a_place_is_one_point_however_often_it_is_reported() -> None:
    """Fixes of a phone that lies still do not average the offset out; another place has an offset of its own."""
    device = new_device(dataclasses.replace(Policy((150.0, 150.0)), answers=99), jitter_m=150.0)
    kept = device.kept
    middle = np.asarray(QUERY.low)[:, None] + 150.0 * np.array([[20.5], [30.5]])
    fixes = middle + np.random.default_rng(4).normal(0, 20, (2, 200)).clip(-74, 74)
    assert np.ptp(kept.moved(fixes), axis=1).tolist() == [0, 0]
    many = np.asarray(QUERY.low)[:, None] + 150.0 * (
        np.array([*itertools.product(range(60), repeat=2)]).T + 0.5
    )
    away = (kept.moved(many) - many) / 150.0
    assert abs(away.mean()) < 0.03
    assert away.std() == pytest.approx(1, abs=0.02)
    assert abs(np.corrcoef(away)[0, 1]) < 0.05
    assert abs(np.corrcoef(away[0, :-1], away[0, 1:])[0, 1]) < 0.05
