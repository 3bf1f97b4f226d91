"""Devices from a table or counts: whole users, in chunks, inside the region only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines.contributions import CHUNK, count_users
from mapveil.random_features.visits import all_places, visits_of
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
GRID = mv.Grid(REGION, 16, 16)
POLYGON = mv.Region.from_polygon(
    {"type": "Polygon", "coordinates": [[[-74.03, 40.69], [-73.90, 40.69], [-74.03, 40.83], [-74.03, 40.69]]]}
)


def table(users=60, seed=1, *, weighted=False):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 9, users)
    user = np.repeat(rng.permutation(users), rows)
    lon, lat = rng.uniform(-74.06, -73.87, user.size), rng.uniform(40.66, 40.86, user.size)
    weight = rng.integers(1, 4, user.size).astype(float) if weighted else None
    order = rng.permutation(user.size)
    parts = (user[order], lon[order], lat[order])
    return parts, None if weight is None else weight[order]


def by_hand(parts, weight, region):
    """Places and weights of each user inside the region, one user at a time."""
    user, lon, lat = parts
    weight = np.ones(user.size) if weight is None else weight
    kept = region.contains(lon, lat)
    x, y = region.project(lon, lat)
    made = []
    for one in np.unique(user):
        mine = kept & (user == one)
        if mine.any():
            made.append(sorted(zip(x[mine], y[mine], weight[mine], strict=True)))
    return made


def as_lists(chunks):
    made = []
    for visits in chunks:
        for start, stop in zip(visits.starts[:-1], visits.starts[1:], strict=True):
            mine = slice(start, stop)
            made.append(sorted(zip(*visits.places[:, mine], visits.weights[mine], strict=True)))
    return made


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 50, 1 << 20])
@pytest.mark.parametrize("region", [REGION, POLYGON], ids=["box", "polygon"])
def test_every_user_is_one_device_with_their_rows_inside(weighted, chunk, region):
    parts, weight = table(weighted=weighted)
    points = mv.Points.from_arrays(*parts, weight=weight)
    made = as_lists(visits_of(points, mv.Grid(region, 16, 16), chunk=chunk))
    wanted = by_hand(parts, weight, region)
    assert len(made) == len(wanted)
    for found, expected in zip(sorted(made), sorted(wanted), strict=True):
        np.testing.assert_allclose(found, expected)


def test_chunks_hold_about_as_many_rows_as_asked():
    parts, _ = table(users=2000)
    sizes = [v.places.shape[1] for v in visits_of(mv.Points.from_arrays(*parts), GRID, chunk=500)]
    assert len(sizes) > 5


@settings(max_examples=12)
@given(st.integers(0, 10**6))
def test_the_most_visited_cell_is_the_one_with_most_weight(seed):
    parts, weight = table(users=12, seed=seed, weighted=True)
    points = mv.Points.from_arrays(*parts, weight=weight)
    found = all_places(points, GRID)
    wanted = []
    for rows in by_hand(parts, weight, REGION):
        x, y, counted = (np.array(column) for column in zip(*rows, strict=True))
        cell = GRID.locate(*REGION.unproject(x, y))
        totals = {c: counted[cell == c].sum() for c in set(cell.tolist())}
        best = max(totals.values())
        # Any of the cells that tie will do.
        wanted.append(
            [
                np.average([x[cell == c], y[cell == c]], axis=1, weights=counted[cell == c])
                for c in totals
                if totals[c] == best
            ]
        )
    assert found.shape == (2, len(wanted))
    left = found.T.tolist()
    for choices in wanted:
        match = next(at for at, place in enumerate(left) if any(np.allclose(place, each) for each in choices))
        left.pop(match)


@pytest.mark.parametrize("chunk", [1, 3, 10, 1000])
def test_counts_are_devices_in_the_middle_of_their_cells(chunk):
    values = np.random.default_rng(2).poisson(0.3, GRID.size)
    made = list(visits_of(mv.Counts(values, GRID), GRID, chunk=chunk))
    assert all(visits.devices <= chunk for visits in made)
    places = np.concatenate([visits.places for visits in made], axis=1)
    np.testing.assert_array_equal(
        GRID.locate(*REGION.unproject(*places)), np.repeat(np.arange(GRID.size), values)
    )
    lon, lat = GRID.centres()
    np.testing.assert_allclose(places, np.repeat(REGION.project(lon, lat), values, axis=1))
    assert count_users(mv.Counts(values, GRID), GRID) == values.sum()


def test_the_number_of_devices_is_that_of_users_inside():
    parts, weight = table(weighted=True)
    points = mv.Points.from_arrays(*parts, weight=weight)
    assert count_users(points, GRID) == len(by_hand(parts, weight, REGION))
    assert count_users(points, mv.Grid(POLYGON, 16, 16)) == len(by_hand(parts, weight, POLYGON))


def test_the_order_of_rows_does_not_matter():
    parts, _ = table()
    shuffle = np.random.default_rng(9).permutation(parts[0].size)
    first, second = (
        next(visits_of(mv.Points.from_arrays(*rows), GRID))
        for rows in (parts, [part[shuffle] for part in parts])
    )
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nobody_inside_is_an_error():
    points = mv.Points.from_arrays([1, 2], [10.0, 11.0], [50.0, 51.0])
    with pytest.raises(InputError, match="no row lies inside the region"):
        count_users(points, GRID)
    with pytest.raises(InputError, match="no row lies inside"):
        count_users(mv.Counts(np.zeros(GRID.size, dtype=np.int64), GRID), GRID)
    assert all_places(points, GRID).shape == (2, 0)


def test_bad_rows_and_other_tilings_are_errors():
    with pytest.raises(InputError, match="row 2"):
        list(visits_of(mv.Points.from_arrays([1, 2], [-73.95, np.nan], [40.7, 40.7]), GRID))
    with pytest.raises(InputError, match="counts must be on the cells of"):
        list(visits_of(mv.Counts(np.ones(4, dtype=np.int64), mv.Grid(REGION, 2, 2)), GRID))


def test_a_user_longer_than_a_chunk_stays_one_device():
    user = np.array([1] * 50 + [2])
    made = list(
        visits_of(mv.Points.from_arrays(user, np.full(51, -73.95), np.full(51, 40.75)), GRID, chunk=4)
    )
    assert sum(visits.devices for visits in made) == 2
    assert max(np.diff(visits.starts).max() for visits in made) == 50
    assert CHUNK >= 1 << 20  # what a release uses
