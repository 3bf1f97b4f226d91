from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.engines import UNIT, user_sums
from mapveil.evaluation.sampled_people import CountedUsers, UserShares, population
from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.synthetic import city
from mapveil_client.errors import InputError, ParameterError

REGION = Region.from_bbox(-40.08, 40.0, -39.92, 40.12)


def some_points(rows: int, seed: int, weighted: bool) -> Points:
    rng = np.random.default_rng(seed)
    return Points.from_arrays(
        rng.integers(0, 7, rows),
        rng.uniform(-40.1, -39.9, rows),
        rng.uniform(39.98, 40.14, rows),
        weight=rng.integers(1, 5, rows).astype(float) if weighted else None,
    )


@settings(max_examples=15, deadline=None)
@given(st.integers(30, 80), st.integers(0, 1000), st.booleans())
def test_all_users_together_are_the_engines_sums(rows: int, seed: int, weighted: bool) -> None:
    points, tiling = some_points(rows, seed, weighted), Quadtree(REGION, 3)
    people = UserShares.from_points(points, tiling)
    expected = user_sums(points, tiling).sums
    np.testing.assert_array_equal(people.draw(None, np.random.default_rng(0)).sums().sums, expected)
    everybody = people.draw(people.users, np.random.default_rng(1)).sums()
    np.testing.assert_array_equal(everybody.sums, expected)


def test_a_sample_is_the_sum_of_whole_users() -> None:
    source = city(users=60, seed=1, region=REGION)
    people = UserShares.from_points(source, Quadtree(REGION, 4))
    assert people.users == 60
    totals = np.add.reduceat(people.shares, people.starts[:-1])
    assert (totals <= UNIT).all()
    assert (totals > UNIT - people.shares.size).all()
    drawn = people.draw(10, np.random.default_rng(3)).sums().sums
    assert 10 * UNIT - people.shares.size <= drawn.sum() <= 10 * UNIT
    chosen = np.random.default_rng(3).choice(60, size=10, replace=False)
    slow = np.zeros(people.tiling.size, dtype=np.int64)
    for user in chosen:
        for entry in range(people.starts[user], people.starts[user + 1]):
            slow[people.cells[entry]] += people.shares[entry]
    np.testing.assert_array_equal(drawn, slow)


def test_counts_are_drawn_without_replacement() -> None:
    counts = Counts(np.array([3, 0, 5, 2]), Grid(Region.without_georeference(2, 2), rows=2, columns=2))
    people = CountedUsers(counts)
    assert people.users == 10
    drawn = people.draw(9, np.random.default_rng(0)).sums().sums
    assert (drawn <= counts.values * UNIT).all()
    assert drawn.sum() == 9 * UNIT
    np.testing.assert_array_equal(
        people.draw(None, np.random.default_rng(0)).sums().sums, counts.values * UNIT
    )
    with pytest.raises(ParameterError, match="1 to 10 users"):
        people.draw(11, np.random.default_rng(0))


def test_what_cannot_be_used_is_said() -> None:
    counts = Counts(np.array([1, 2]), Grid(Region.without_georeference(2, 1), rows=1, columns=2))
    with pytest.raises(InputError, match="counts must be on the cells of quadtree:2"):
        population(counts, Quadtree(REGION, 2))
    with pytest.raises(InputError, match="needs a tiling"):
        population(some_points(3, 0, False))
    with pytest.raises(InputError, match="no row lies inside"):
        population(Points.from_arrays([1], [10.0], [10.0]), Quadtree(REGION, 2))
