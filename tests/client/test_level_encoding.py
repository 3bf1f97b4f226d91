from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import LevelEncoding, level_members


@st.composite
def members_of_a_raster(draw):
    depth = draw(st.integers(0, 3))
    members = draw(st.lists(st.integers(0, 2), min_size=4**depth, max_size=4**depth))
    members[draw(st.integers(0, 4**depth - 1))] = 1  # somebody can be somewhere
    levels = draw(st.lists(st.integers(0, depth), min_size=1, max_size=4, unique=True))
    return depth, tuple(levels), np.array(members, dtype=np.int64)


def slowly(depth, levels, members):
    """The coordinate of each (place in ``levels``, node), numbered as they are met."""
    number = {}
    for index, level in enumerate(levels):
        for site in range(4**depth):
            if members[site] > 0:
                number.setdefault((index, site >> 2 * (depth - level)), len(number))
    return number


@given(members_of_a_raster())
def test_every_coordinate_is_that_of_a_plain_numbering(case):
    depth, levels, members = case
    encoding, number = LevelEncoding.of_members(depth, levels, members), slowly(*case)
    assert encoding.length == len(number)
    assert encoding.copies == len(levels)
    found = encoding.positions(np.arange(4**depth))
    for site in range(4**depth):
        nodes = [(index, site >> 2 * (depth - level)) for index, level in enumerate(levels)]
        wanted = [number[node] if members[site] > 0 else -1 for node in nodes]
        assert found[site].tolist() == wanted


@given(members_of_a_raster(), st.integers(0, 2**32))
def test_what_is_filled_in_is_what_was_summed(case, seed):
    depth, levels, members = case
    encoding = LevelEncoding.of_members(depth, levels, members)
    people = np.random.default_rng(seed).integers(0, 9, 4**depth) * (members > 0)
    where = encoding.positions(np.arange(4**depth))
    sums = np.zeros(encoding.length)
    for copy in range(encoding.copies):
        np.add.at(sums, where[where[:, copy] >= 0, copy], people[where[:, copy] >= 0])
    for index, level in enumerate(levels):
        np.testing.assert_array_equal(encoding.fill(index, sums), people.reshape(4**level, -1).sum(axis=1))
        groups = encoding.groups(index)
        inside = groups >= 0
        assert inside[members > 0].all()
        again = np.bincount(groups[inside], people[inside], encoding.codes(index).size)
        np.testing.assert_array_equal(again, sums[encoding.coordinates(index)])


@given(members_of_a_raster())
def test_members_of_levels_are_plain_sums(case):
    depth, _, members = case
    for level, found in enumerate(level_members(members)):
        assert found.tolist() == members.reshape(4**level, -1).sum(axis=1).tolist()
    assert len(level_members(members)) == depth + 1


def test_a_place_outside_the_raster_counts_nowhere():
    encoding = LevelEncoding.of_members(2, (0, 1, 2), np.ones(16, dtype=np.int64))
    assert (encoding.positions(np.array([-1, 16, 10**6])) == -1).all()


def test_the_record_stays_small_where_the_encoding_is_large():
    encoding = LevelEncoding.of_members(10, range(1, 11), np.ones(4**10, dtype=np.int64))
    assert encoding.length == sum(4**level for level in range(1, 11)) == 1_398_100  # section 6.2
    assert encoding.to_dict()["runs"] == [[0, 4**10]]


@pytest.mark.parametrize(
    ("depth", "levels", "runs"),
    [
        (-1, (0,), [[0, 1]]),
        (32, (0,), [[0, 1]]),
        (2, (), [[0, 16]]),
        (2, (3,), [[0, 16]]),
        (2, (-1,), [[0, 16]]),
        (2, (1,), [[0, 17]]),
        (2, (1,), [[-1, 3]]),
        (2, (1,), [[3, 3]]),
        (2, (1,), [[3, 5], [4, 8]]),
        (2, (1,), [[5, 3]]),
        (2, (1,), []),
        (2, (1,), [1, 2]),
    ],
)
def test_senseless_encodings_are_refused(depth, levels, runs):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        LevelEncoding(depth, levels, np.array(runs, dtype=np.int64))
