from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil_client.contribution import Devices
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
QUADTREE = mv.Quadtree(REGION, depth=3)
GRID = mv.Grid(REGION, rows=5, columns=3)


def site_of(tiling):
    lattice = tiling.lattice()
    return interleave(lattice.row, lattice.col)


def as_lists(devices):
    """What each device knows: its (site, weight, label), in order."""
    starts = np.arange(devices.count + 1) if devices.starts is None else devices.starts
    found = []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        weight = [1] * (last - first) if devices.weights is None else devices.weights[first:last].tolist()
        label = [0] * (last - first) if devices.labels is None else devices.labels[first:last].tolist()
        found.append(list(zip(devices.sites[first:last].tolist(), weight, label, strict=True)))
    return found


@st.composite
def many_devices(draw):
    lengths = draw(st.lists(st.integers(0, 4), max_size=8))
    if draw(st.booleans()):
        lengths = [1] * len(lengths)
    places = sum(lengths)
    numbers = st.lists(st.integers(0, 50), min_size=places, max_size=places).map(np.array)
    one_each = set(lengths) <= {1} and draw(st.booleans())
    starts = None if one_each else np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Devices(
        draw(numbers).astype(np.int32),
        starts,
        draw(st.one_of(st.none(), numbers)),
        draw(st.one_of(st.none(), numbers)),
    )


@given(many_devices(), st.data())
def test_taking_devices_takes_all_they_know(devices, data):
    chosen = data.draw(st.lists(st.integers(0, max(devices.count - 1, 0)), max_size=10 * bool(devices.count)))
    everybody = as_lists(devices)
    taken = devices.take(np.array(chosen, dtype=np.int64))
    assert as_lists(taken) == [everybody[i] for i in chosen]
    first = data.draw(st.integers(0, devices.count))
    last = data.draw(st.integers(first, devices.count))
    assert as_lists(devices.between(first, last)) == everybody[first:last]
    assert devices.device().tolist() == [i for i, places in enumerate(everybody) for _ in places]


@pytest.mark.parametrize("labelled", [False, True])
def test_shuffling_is_taking_all_of_them_in_random_order(labelled):
    some = Devices(np.arange(500, dtype=np.int32), labels=np.arange(500) if labelled else None)
    shuffled = some.shuffled(np.random.default_rng(1))
    order = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(shuffled.sites, order)
    assert shuffled.sites.dtype == np.int32
    assert not np.array_equal(shuffled.sites, some.sites)
    assert (shuffled.labels is not None) == labelled
    if labelled:
        np.testing.assert_array_equal(shuffled.labels, order)


def test_every_unit_of_a_count_is_a_device_at_one_place():
    values = np.random.default_rng(1).integers(0, 4, GRID.size)
    devices = devices_of(Counts(values, GRID), GRID)
    assert devices.starts is None
    wanted = Counter(dict(zip(site_of(GRID).tolist(), values.tolist(), strict=True)))
    assert Counter(devices.sites.tolist()) == +wanted


rows = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([-74.02, -73.97, -73.93, -73.5]),  # the last is outside
        st.sampled_from([40.7, 40.75, 40.82]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=30)
@given(rows, st.booleans(), st.booleans())
def test_every_user_of_a_table_is_a_device(table, weighted, labelled):
    table = [*table, (9, -74.0, 40.71, 2)]  # somebody is inside
    users, lon, lat, number = (list(column) for column in zip(*table, strict=True))
    points = mv.Points.from_arrays(
        users,
        np.array(lon),
        np.array(lat),
        weight=np.array(number) / 2 if weighted else None,
        label=np.array(number) % 2 if labelled else None,
    )
    devices = devices_of(points, QUADTREE)
    cell = QUADTREE.locate(np.array(lon), np.array(lat))
    site = np.where(cell >= 0, site_of(QUADTREE)[cell], -1).tolist()
    wanted = []
    for user in sorted(set(users)):
        held = Counter()
        for who, where, n in zip(users, site, number, strict=True):
            if who == user:
                label = n % 2 if labelled else 0
                held[where, label] += n * 500_000 if weighted else 1
        wanted.append({key: weight for key, weight in held.items() if weight > 0})
    found = [{(where, label): weight for where, weight, label in places} for places in as_lists(devices)]
    assert found == wanted
    assert (devices.labels is not None) == labelled


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        ([1, 1, 1], [1, 1, 1]),  # nobody is 0: still no other number
        ([True, False, True], [1, 0, 1]),
        ([2.0, np.nan, 0.5], [2, -1, -1]),
        (["well", "ill", "well"], [1, 0, 1]),
    ],
)
def test_a_label_is_the_number_it_is(labels, codes):
    points = mv.Points.from_arrays([0, 1, 2], np.full(3, -74.0), np.full(3, 40.71), label=np.array(labels))
    assert devices_of(points, QUADTREE).labels.tolist() == codes


def test_a_client_with_nothing_inside_is_a_client():
    points = mv.Points.from_arrays(["a"], np.array([10.0]), np.array([50.0]))
    assert as_lists(devices_of(points, QUADTREE)) == [[(-1, 1, 0)]]


def test_counts_of_another_tiling_are_refused():
    with pytest.raises(InputError, match="counts must be on the cells of"):
        devices_of(Counts(np.ones(GRID.size, dtype=np.int64), GRID), QUADTREE)


def test_devices_stay_as_they_are_and_show_no_place():
    devices = Devices(np.array([3, 14], dtype=np.int32))
    assert devices_of(devices, QUADTREE) is devices
    assert repr(devices) == "Devices(2)"
    assert "14" not in str(devices)
