"""The study: one fleet under exact and private traffic, setting by setting."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil.navigation.congestion import VolumeDelay
from mapveil.synthetic import SEA_BOX
from mapveil_client.randomness.random import Randomness
from simulations.traffic.fleet import synthetic_fleet
from simulations.traffic.study import study_routes
from simulations.traffic.synthetic_roads import synthetic_roads
from simulations.traffic.world import make_world

GRAPH = synthetic_roads(spacing_m=1500)
FLEET = synthetic_fleet(GRAPH, 250, period_s=1500)
GRID = mv.Quadtree(mv.Region.from_bbox(*SEA_BOX), depth=3)
WORLD = make_world(GRAPH, FLEET, GRID, GRAPH.seconds, VolumeDelay(6), window_s=300)


def study(epsilons, thetas, **more):
    return study_routes(
        WORLD, FLEET, SubsetSelection(epsilon=1, estimator="norm-clip"), [Fraction(each) for each in epsilons], thetas,
        rng=Randomness(2), **more,
    )  # fmt: skip


def test_every_setting_has_a_row_and_keeps_its_budget() -> None:
    told: list[float] = []
    made = study(["1/2", 2], [10, 60.0], most=2, progress=lambda step, done: told.append(done))
    assert [(row.epsilon, row.theta_s) for row in made.rows] == [
        (Fraction(1, 2), 10.0), (2, 10.0), (Fraction(1, 2), 60.0), (2, 60.0)
    ]  # fmt: skip
    for row in made.rows:
        assert row.quality.most_updates <= 2
        assert row.quality.total_epsilon == pytest.approx(row.quality.updates * float(row.epsilon))
        assert row.quality.minutes_longer == pytest.approx(row.minutes - row.minutes_exact)
    assert made.rows[0].minutes_free == made.rows[3].minutes_free
    assert told == sorted(told)
    assert told[-1] == 1
    json.dumps([row.to_dict() for row in made.rows], allow_nan=False)


def test_fewer_updates_with_a_larger_theta() -> None:
    rows = study([1], [5, 40, 200], most=9).rows
    updates = [row.quality.updates for row in rows]
    assert updates[0] > updates[1] > updates[2]


def test_the_map_is_of_the_first_setting_and_promises_all_of_a_trip() -> None:
    made = study([1, 3], [20], most=4)
    assert made.traffic is not None
    assert made.traffic.guarantee.epsilon == 4
    assert made.traffic.guarantee.seeded
    probed = study([1], [20], most=4, reporting="probe")
    assert probed.traffic is not None
    assert probed.traffic.guarantee.epsilon == 1


def test_nobody_late_means_no_map_and_the_same_routes() -> None:
    made = study([1], [1e6])
    assert made.traffic is None
    assert made.rows[0].quality == (0.0, 0.0, 0.0, 0.0, 0, 0.0)
    assert made.rows[0].minutes == made.rows[0].minutes_free


def test_the_same_seed_gives_the_same_study() -> None:
    first, second = (study([1], [60], queries=2) for _ in range(2))
    assert first.rows == second.rows
    assert first.traffic is not None
    assert second.traffic is not None
    assert np.array_equal(first.traffic.values, second.traffic.values)


def test_a_row_does_not_hang_on_the_other_settings() -> None:
    several, alone = study([1, 2], [20, 60]), study([2], [60])
    assert several.rows[-1] == alone.rows[0]
