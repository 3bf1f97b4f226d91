"""Rank sets that hold together, and zones that are called above a number."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.inference.zone_results import ZoneTotals
from mapveil.maps.density_map import DensityMap
from mapveil_client.errors import ParameterError

TILING = mv.Quadtree(mv.Region.from_bbox(0.0, 0.0, 0.8, 0.8), depth=3)
USERS = np.random.default_rng(9).integers(0, 60, TILING.size)
ZONES = [
    shapely.box(*(float(side[0]) for side in TILING.bounds(np.array([cell])))) for cell in range(TILING.size)
]


def heat(epsilon: float, seed: int) -> DensityMap:
    sums = UserSums(USERS.astype(np.int64) * UNIT, TILING)
    return mv.mechanisms.LaplaceHistogram(epsilon=epsilon).release(sums, TILING, account=None, rng=seed)


def test_rank_sets_hold_the_true_ranks_together() -> None:
    """Simultaneous coverage of at least 95 %: of 120 releases more than 13 misses have a chance of .4 %."""
    missed = 0
    for seed in range(120):
        found = heat(0.3, seed).top(8, ZONES)
        true = USERS[found.zone]
        best = 1 + (true[:, None] < USERS).sum(axis=1)
        worst = (true[:, None] <= USERS).sum(axis=1)
        # A tied zone may take any rank of its tie.
        missed += not ((found.first <= worst) & (best <= found.last)).all()
    assert missed <= 13


def test_rank_sets_narrow_with_epsilon() -> None:
    loose, sharp = heat(0.2, 1).top(5, ZONES), heat(50, 1).top(5, ZONES)
    assert (sharp.last - sharp.first).sum() < (loose.last - loose.first).sum()
    assert USERS[sharp.zone[0]] == USERS.max()
    rows = sharp.rows()
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["zone"] == str(1 + int(sharp.zone[0]))


def test_users_that_area_placed_call_no_zone() -> None:
    """A quarter of the fullest cell shows more users than a whole cell of few, but may hold none of them."""
    full, few = int(np.argmax(USERS)), int(np.argmin(np.where(USERS > 0, USERS, 99)))
    west, south = (float(side[0]) for side in TILING.bounds(np.array([full]))[:2])
    zones = [shapely.box(west, south, west + 0.05, south + 0.05), ZONES[few]]
    ranked = heat(50, 1).top(2, zones)
    assert ranked.zone[0] == 0
    assert (ranked.first.tolist(), ranked.last.tolist()) == ([1, 1], [2, 2])
    limit = USERS.max() / 4 - 5
    assert heat(50, 1).above([*zones, ZONES[full]], limit).above.tolist() == [False, False, True]


def test_a_zone_that_cuts_one_cell_of_two_is_not_called_by_what_lies_there() -> None:
    """Nine tenths of a cell of 900 are placed beside a whole cell of 1,000: it may hold 1,000 to 1,900."""
    users = np.zeros(TILING.size, dtype=np.int64)
    west, south, _, _ = TILING.bounds()
    both = [int(np.flatnonzero((abs(west - x) < 0.01) & (abs(south) < 0.01))[0]) for x in (0.0, 0.1)]
    users[both] = 900, 1000
    released = mv.mechanisms.LaplaceHistogram(epsilon=2).release(
        UserSums(users * UNIT, TILING), TILING, account=None, rng=1
    )
    zones = [shapely.box(0.01, 0.0, 0.2, 0.1), shapely.box(0.1, 0.0, 0.2, 0.1)]
    assert released.above(zones, 1300).above.tolist() == [False, False]
    assert released.above(zones, 950).above.tolist() == [True, True]
    assert released.top(2, zones).last.tolist() == [2, 2]


def test_two_drawings_of_one_zone_share_their_ranks() -> None:
    """Corners along an edge change the overlay's fractions by rounding alone."""
    one = shapely.box(0.03, 0.03, 0.47, 0.33)
    found = heat(1, 1).top(2, [one, shapely.segmentize(one, 0.01)])
    assert (found.first.tolist(), found.last.tolist()) == ([1, 1], [2, 2])
    first, second = (heat(1, 1).total(each) for each in (one, shapely.segmentize(one, 0.01)))
    assert (first - second).interval() == (0, 0)
    ratio = first / second
    assert ratio.low <= 1 <= ratio.high


def test_intervals_of_zones_that_noise_chose_miss_no_more_often() -> None:
    """The busiest of zones that are all alike: intervals for given zones miss half of them and more."""
    alike = UserSums(np.full(TILING.size, 20 * UNIT, dtype=np.int64), TILING)
    made = mv.mechanisms.LaplaceHistogram(epsilon=0.2)
    missed, given = 0, 0
    for seed in range(60):
        released = made.release(alike, TILING, account=None, rng=seed)
        found = released.top(5, ZONES)
        missed += sum(not row["low"] <= 20 <= row["high"] for row in found.rows())
        given += sum(not low <= 20 <= high for low, high in _bounds(released.totals(ZONES), found.zone))
    assert missed <= 25  # of 300; more than 25 have a chance of 1 % where a twentieth misses
    assert given > 60


def test_intervals_of_zones_that_are_not_named_are_those_of_totals() -> None:
    """Also of reports, whose calls take a larger variance than an interval."""
    points = mv.synthetic.city(users=2000, seed=1, region=TILING.region)
    released = mv.release(points, TILING, epsilon=2, trust="local", account=None, rng=1)
    found, given = released.top(3, ZONES), released.totals(ZONES)
    rest = np.setdiff1d(np.arange(len(ZONES)), found.zone)
    assert found.totals.low[rest].tolist() == given.low[rest].tolist()
    assert (found.totals.low[found.zone] < given.low[found.zone]).all()


def _bounds(found: ZoneTotals, chosen: np.ndarray) -> list[tuple[float, float]]:
    return list(zip(found.low[chosen].tolist(), found.high[chosen].tolist(), strict=True))


def test_zones_are_called_above_and_below_without_error() -> None:
    missed, called = 0, 0
    for seed in range(10):
        found = heat(0.5, seed).above(ZONES, 30)
        missed += bool((found.above & (USERS <= 30)).any() or (found.below & (USERS > 30)).any())
        called += int(found.above.sum())
        assert not (found.above & found.below).any()
        assert len(found.names) == found.above.sum()
    assert missed <= 2
    assert called > 10 * 0.5 * (USERS > 30).sum()


def test_questions_outside_their_range_are_refused() -> None:
    with pytest.raises(ParameterError, match="count must be a whole number from 1 to 64"):
        heat(1, 1).top(65, ZONES)
    with pytest.raises(ParameterError, match="limit must be a number of users of at least 0"):
        heat(1, 1).above(ZONES, -1)
