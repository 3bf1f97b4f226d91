"""User sums: against a plain loop over rows, and one user's influence, exactly."""

from __future__ import annotations

import string
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.engines.contributions import user_cells
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
QUADTREE = mv.Quadtree(REGION, depth=3)
SETTINGS = settings(max_examples=25, deadline=None)


def slowly(rows, tiling):
    """The definition, row by row, in whole numbers: rows are (user, lon, lat, weight in millionths)."""
    users, lon, lat, weights = zip(*rows, strict=True)
    cells = tiling.locate(np.array(lon), np.array(lat))
    totals = defaultdict(int)
    for user, cell, weight in zip(users, cells, weights, strict=True):
        if cell >= 0:
            totals[user] += weight
    sums = np.zeros(tiling.size, dtype=np.int64)
    for user, cell, weight in zip(users, cells, weights, strict=True):
        if cell >= 0 and weight > 0:
            sums[cell] += weight * UNIT // totals[user]
    return sums


def points(rows, weighted=True):
    users, lon, lat, weights = zip(*rows, strict=True)
    weight = np.array(weights) / 1e6 if weighted else None
    return mv.Points.from_arrays(list(users), np.array(lon), np.array(lat), weight=weight)


# One place in five is outside; few places and users, so that rows repeat.
places = st.tuples(
    st.sampled_from([-74.02, -74.0, -73.97, -73.93, -73.5]),
    st.sampled_from([40.7, 40.72, 40.75, 40.80, 40.82]),
)
weights = st.one_of(st.sampled_from([1, 1_000_000]), st.integers(1, 10**15))
rows = st.lists(
    st.tuples(st.integers(0, 5), places, weights).map(lambda row: (row[0], *row[1], row[2])),
    min_size=1,
    max_size=40,
)


def counts_anybody(table, tiling):
    return slowly(table, tiling).any()


@SETTINGS
@given(rows)
def test_weighted_rows_give_what_a_plain_loop_gives(table):
    if not counts_anybody(table, QUADTREE):
        return
    np.testing.assert_array_equal(user_sums(points(table), QUADTREE).sums, slowly(table, QUADTREE))


@SETTINGS
@given(rows)
def test_without_weights_every_row_counts_alike(table):
    table = [(user, lon, lat, 1) for user, lon, lat, _ in table]
    if not counts_anybody(table, QUADTREE):
        return
    np.testing.assert_array_equal(
        user_sums(points(table, weighted=False), QUADTREE).sums, slowly(table, QUADTREE)
    )


@SETTINGS
@given(rows)
def test_leaving_one_user_out_moves_the_sums_by_one_user_at_most(table):
    if not counts_anybody(table, QUADTREE):
        return
    whole = user_sums(points(table), QUADTREE).sums
    for user in {table[0][0], table[-1][0]}:
        rest = [row for row in table if row[0] != user]
        without = (
            user_sums(points(rest), QUADTREE).sums if rest and counts_anybody(rest, QUADTREE) else 0 * whole
        )
        assert np.abs(whole - without).sum() <= UNIT
        assert (whole >= without).all()


@SETTINGS
@given(rows)
def test_each_user_alone_counts_one_but_for_the_rounding_of_their_rows(table):
    for user in {table[0][0], table[-1][0]}:
        alone = [row for row in table if row[0] == user]
        if counts_anybody(alone, QUADTREE):
            total = int(user_sums(points(alone), QUADTREE).sums.sum())
            assert UNIT - len(alone) < total <= UNIT


TILINGS = [
    QUADTREE,
    mv.Grid(REGION, columns=7, rows=5),
    mv.WebMercatorTiles(REGION, zoom=13),
    mv.Hexagons(REGION, resolution=7),
    mv.Places(np.array([-74.0, -73.95]), np.array([40.72, 40.80]), region=REGION),
]


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: tiling.spec.split(":")[0])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_tiling_by_sql_or_by_function(tiling, weighted):
    generator = np.random.default_rng(4)
    table = [
        (int(user), float(lon), float(lat), int(weight) if weighted else 1)
        for user, lon, lat, weight in zip(
            generator.integers(0, 40, 900),
            generator.uniform(-74.06, -73.87, 900),
            generator.uniform(40.67, 40.85, 900),
            generator.integers(1, 3_000_000, 900),
            strict=True,
        )
    ]
    np.testing.assert_array_equal(user_sums(points(table, weighted), tiling).sums, slowly(table, tiling))


@pytest.mark.parametrize("tiling", TILINGS[:3], ids=lambda tiling: tiling.spec.split(":")[0])
def test_the_function_path_equals_the_sql_path(tiling, monkeypatch):
    generator = np.random.default_rng(5)
    table = mv.Points.from_arrays(
        generator.integers(0, 500, 20_000),
        generator.uniform(-74.06, -73.87, 20_000),
        generator.uniform(40.67, 40.85, 20_000),
    )
    by_sql = user_sums(table, tiling).sums
    assert tiling.locate_sql("lon", "lat") is not None
    monkeypatch.setattr(type(tiling), "locate_sql", lambda self, lon, lat: None)
    np.testing.assert_array_equal(user_sums(table, tiling).sums, by_sql)


def test_ids_of_any_type_tell_users_apart():
    lon, lat = np.full(3, -73.95), np.full(3, 40.75)
    one_user_twice = UNIT // 2 * 2
    for ids in (["a", "a", "b"], [1, 1, 2], [2**60, 2**60, 2**60 + 1], ["1", "1", " 1"], ["a", "a", "A"]):
        made = user_sums(mv.Points.from_arrays(ids, lon, lat), QUADTREE).sums
        assert made.sum() == one_user_twice + UNIT


def test_a_heavy_user_loses_little_and_counts_no_more_than_one():
    rows = 200_000
    table = mv.Points.from_arrays(np.zeros(rows, dtype=int), np.full(rows, -73.95), np.full(rows, 40.75))
    total = int(user_sums(table, QUADTREE).sums.sum())
    assert Fraction(999, 1000) * UNIT < total <= UNIT


def test_extreme_weights_do_not_overflow():
    table = [(1, -73.95, 40.75, 10**18), (1, -74.0, 40.7, 1), (2, -73.95, 40.75, 10**18), (3, -74.0, 40.7, 1)]
    np.testing.assert_array_equal(user_sums(points(table), QUADTREE).sums, slowly(table, QUADTREE))


def test_rows_on_the_borders_are_counted_once():
    west, south, east, north = REGION.bbox
    lon, lat = np.meshgrid(np.linspace(west, east, 17), np.linspace(south, north, 17))
    table = [(i, x, y, 1_000_000) for i, (x, y) in enumerate(zip(lon.ravel(), lat.ravel(), strict=True))]
    for tiling in TILINGS[:2]:
        made = user_sums(points(table), tiling).sums
        assert made.sum() == len(table) * UNIT
        np.testing.assert_array_equal(made, slowly(table, tiling))


def test_the_source_and_the_order_of_rows_do_not_matter(tmp_path):
    generator = np.random.default_rng(6)
    frame = {
        "user_id": ["".join(generator.choice(list(string.ascii_lowercase), 3)) for _ in range(3000)],
        "lon": generator.uniform(-74.03, -73.90, 3000),
        "lat": generator.uniform(40.69, 40.83, 3000),
    }
    table = pyarrow.table(frame)
    turned = table.take(generator.permutation(3000))
    pyarrow.parquet.write_table(turned, tmp_path / "turned.parquet", row_group_size=100)
    np.testing.assert_array_equal(
        user_sums(mv.read_points(table), QUADTREE).sums,
        user_sums(mv.read_points(tmp_path / "turned.parquet"), QUADTREE).sums,
    )


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_inside_gives_sums_of_zero(rows):
    table = mv.Points.from_arrays([1] * rows, [2.35] * rows, [48.85] * rows)
    assert not user_sums(table, QUADTREE).sums.any()


def test_counts_are_users_in_one_cell_each():
    counts = mv.Counts(np.arange(64, dtype=np.int64), QUADTREE)
    made = user_sums(counts, QUADTREE)
    np.testing.assert_array_equal(made.sums, np.arange(64) * UNIT)
    assert user_sums(made, QUADTREE) is made
    again = mv.Quadtree(mv.Region.from_bbox(*REGION.bbox), depth=3)
    np.testing.assert_array_equal(user_sums(counts, again).sums, made.sums)


def test_counts_of_other_cells_are_refused():
    counts = mv.Counts(np.ones(64, dtype=np.int64), QUADTREE)
    sums = UserSums(np.ones(64, dtype=np.int64), QUADTREE)
    for other in (mv.Quadtree(REGION, depth=2), mv.Grid(REGION, columns=8, rows=8)):
        for source in (counts, sums):
            with pytest.raises(InputError, match="counts must be on the cells of"):
                user_sums(source, other)


def test_more_users_than_fit_are_refused():
    values = np.zeros(64, dtype=np.int64)
    values[3] = (1 << 62) // UNIT + 1
    with pytest.raises(InputError, match="users fit 63-bit sums, got more"):
        user_sums(mv.Counts(values, QUADTREE), QUADTREE)


def test_progress_is_told():
    told = []
    user_sums(
        mv.Points.from_arrays([1], [-73.95], [40.75]),
        QUADTREE,
        progress=lambda step, done: told.append((step, done)),
    )
    assert told == [("sum users per cell", 0.0), ("sum users per cell", 1.0)]


def test_an_overflow_tells_nobodys_sum():
    table = mv.Points.from_arrays([1] * 20, np.full(20, -73.95), np.full(20, 40.75), weight=np.full(20, 1e12))
    with pytest.raises(InputError, match="out of range") as caught:
        user_cells(table, QUADTREE)
    assert "2000000" not in str(caught.value)
