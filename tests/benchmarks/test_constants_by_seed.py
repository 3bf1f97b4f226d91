"""The pages of constants: scenes that share people or a seed count as one in an interval."""

from __future__ import annotations

import numpy as np

import mapveil as mv
from benchmarks.estimator_constants import SEEDS, by_seed
from benchmarks.flow_constants import Scene, by_table

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_collections_of_one_seed_count_once() -> None:
    seeds = np.arange(len(SEEDS))
    assert np.array_equal(
        by_seed(np.concatenate([seeds, seeds + 2, -seeds, -seeds])), np.full(seeds.size, 0.5)
    )


def test_scenes_of_one_table_count_once() -> None:
    trips, zones = mv.synthetic.city(users=3, seed=1), mv.Quadtree(REGION, depth=1)
    made = [Scene(name, trips, zones, np.zeros(16)) for name in ("york", "york", "bay", "york")]
    assert by_table(made, np.array([1.0, 2.0, 7.0, 3.0])).tolist() == [2.0, 7.0]
