"""Measured cells of two maps: whole leaves of both, wholly inside a zone; with other leaves and other depths too."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.zones import Zones
from mapveil.inference.common_cells import measured_in_both
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(0.0, 0.0, 0.8, 0.8)
BOXES = [
    shapely.box(x, y, x + side, y + side)
    for x, y, side in np.random.default_rng(3).uniform(0, 0.45, (40, 3)).tolist()
]


def _map(depth: int, seed: int) -> mv.DensityMap:
    tiling = mv.Quadtree(REGION, depth=depth)
    lon, lat = tiling.centres()
    mean = 4000 * np.exp(-((lon - 0.1 * seed) ** 2 + (lat - 0.3) ** 2) / 0.01) / tiling.size + 0.2
    users = np.random.default_rng(seed).poisson(mean)
    sums = UserSums(users.astype(np.int64) * UNIT, tiling)
    return mv.mechanisms.Multiscale(epsilon=1).release(sums, tiling, account=None, rng=seed)


@pytest.mark.parametrize("depths", [(5, 5), (5, 4), (4, 5)])
def test_what_is_compared_is_one_set_of_cells_inside_the_zone(depths: tuple[int, int]) -> None:
    one, two = (ZoneOverlay.of(_map(depth, seed), Zones.read(BOXES)) for seed, depth in enumerate(depths, 1))
    fine = max((one, two), key=lambda each: each.heat.tiling.size)
    at = fine.heat.tiling.centres()
    whole = ZoneOverlay.of(_laplace(5), Zones.read(BOXES)).inside.toarray() > 0
    covered = []
    for overlay, weights in zip((one, two), measured_in_both(one, two), strict=True):
        leaf = overlay.sums.leaf[overlay.heat.tiling.locate(*at)]
        covered.append(weights.toarray()[:, leaf] > 0)
    first, second = covered
    assert (first == second).all()
    assert (first <= whole).all()
    assert 0 < first.any(axis=1).sum() < len(BOXES)
    # And nothing is left out: a zone's other cells share a leaf of either map with cells outside it.
    for zone in range(len(BOXES)):
        rest = whole[zone] & ~first[zone]
        for _ in range(fine.heat.tiling.size if rest.any() else 0):
            before = rest.sum()
            for overlay in (one, two):
                leaf = overlay.sums.leaf[overlay.heat.tiling.locate(*at)]
                outside = np.unique(leaf[~rest])
                rest &= ~np.isin(leaf, outside)
            if rest.sum() == before:
                break
        assert not rest.any()


def _laplace(depth: int) -> mv.DensityMap:
    tiling = mv.Quadtree(REGION, depth=depth)
    sums = UserSums(np.zeros(tiling.size, dtype=np.int64), tiling)
    return mv.mechanisms.LaplaceHistogram(epsilon=1).release(sums, tiling, account=None, rng=1)


def test_cells_that_do_not_divide_each_other_are_refused() -> None:
    tilings = [mv.Grid(REGION, rows=rows, columns=rows) for rows in (8, 9)]
    overlays = [
        ZoneOverlay.of(
            mv.mechanisms.LaplaceHistogram(epsilon=1).release(
                UserSums(np.zeros(tiling.size, dtype=np.int64), tiling), tiling, account=None, rng=1
            ),
            Zones.read(BOXES),
        )
        for tiling in tilings
    ]
    with pytest.raises(InputError, match="different cells"):
        measured_in_both(*overlays)
