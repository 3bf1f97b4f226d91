"""Numbers that are foreseen about flows, against flows that are released."""

from __future__ import annotations

import numpy as np

import mapveil as mv
from mapveil.analysis.flow_design import least_told
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil.privacy.weighted_noise import WeightedNoise

CELLS = mv.Grid(mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83), rows=4, columns=4)


def told(users: int, seeds: int) -> int:
    """In how many releases a pair of so many users is told from zero, where hardly anybody else travels."""
    rng = np.random.default_rng(0)
    start, end = np.zeros(users, dtype=np.int64), np.full(users, 9)
    others = rng.integers(0, 16, (2, 400))
    others = others[:, (others[0] != 0) | (others[1] != 9)]
    origin, destination = np.append(start, others[0]), np.append(end, others[1])
    lon, lat = CELLS.centres(np.arange(CELLS.size))
    points = mv.Points.from_arrays(
        np.arange(origin.size), lon[origin], lat[origin], to_lon=lon[destination], to_lat=lat[destination]
    )
    found = 0
    for seed in range(seeds):
        flows = FlowBlocks(epsilon=1, pair_signal=1e-9).release(points, CELLS, account=None, rng=seed)
        pair = (flows.origin == 0) & (flows.destination == 9)
        found += bool(flows.told_from_zero()[pair].any())
    return found


def test_a_pair_of_the_foreseen_size_is_told_about_every_other_time() -> None:
    """Of 20 releases, measured with all of epsilon: some margins cost a little of it."""
    noise = WeightedNoise(*(np.array([part]) for part in (1.0, 1.0, 1.0)))
    least = least_told(noise, CELLS.size)
    assert told(round(0.6 * least), 20) <= 6
    assert told(round(1.6 * least), 20) >= 17
