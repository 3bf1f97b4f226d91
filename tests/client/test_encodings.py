from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.encodings import LabelEncoding, NodeEncoding, SiteEncoding
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import LevelEncoding
from mapveil_client.morton import PrefixTree

DEPTH = 3
nodes = st.integers(0, DEPTH).flatmap(lambda level: st.tuples(st.just(level), st.integers(0, 4**level - 1)))
sites = st.lists(st.integers(-1, 4**DEPTH - 1), max_size=30)


def encoding_of(found):
    level, code = zip(*found, strict=True) if found else ((), ())
    return NodeEncoding(PrefixTree.of_nodes(DEPTH, level, code))


@given(st.sets(nodes, min_size=1, max_size=20), sites)
def test_a_place_counts_at_its_deepest_node(found, places):
    encoding = encoding_of(found)
    number = {node: i for i, node in enumerate(zip(encoding.tree.level, encoding.tree.code, strict=True))}
    assert encoding.length == len(found)
    assert encoding.copies == 1
    position = encoding.positions(np.array(places, dtype=np.int64))
    assert position.shape == (len(places), 1)
    for site, at in zip(places, position[:, 0].tolist(), strict=True):
        above = [(level, site >> 2 * (DEPTH - level)) for level in range(DEPTH, -1, -1)] if site >= 0 else []
        assert at == next((number[node] for node in above if node in number), -1)


def test_a_place_outside_every_node_counts_nowhere():
    # Neither at the first node nor at all of them.
    encoding = encoding_of({(1, 2), (3, 63)})
    assert encoding.positions(np.array([0, -1, 62, 32])).tolist() == [[-1], [-1], [-1], [0]]


@given(st.sets(nodes, min_size=1, max_size=20), st.integers(1, 5), st.data())
def test_labels_divide_each_coordinate(found, labels, data):
    places = data.draw(st.lists(st.tuples(st.integers(-1, 63), st.integers(-2, 7)), max_size=30))
    site, label = (
        (np.array(column, dtype=np.int64) for column in zip(*places, strict=True)) if places else ([], [])
    )
    site, label = np.asarray(site, dtype=np.int64), np.asarray(label, dtype=np.int64)
    inner = encoding_of(found)
    encoding = LabelEncoding(inner, labels)
    assert encoding.length == inner.length * labels
    position, plain = encoding.positions(site, label)[:, 0], inner.positions(site)[:, 0]
    for at, where, what in zip(position.tolist(), plain.tolist(), label.tolist(), strict=True):
        assert at == (where * labels + what if where >= 0 and 0 <= what < labels else -1)


def test_labels_keep_the_copies_of_their_places():
    inner = LevelEncoding.of_members(2, (1, 2), np.ones(16, dtype=np.int64))
    encoding = LabelEncoding(inner, 3)
    assert encoding.copies == 2
    assert encoding.positions(np.array([5]), np.array([2])).tolist() == [[3 * 1 + 2, 3 * (4 + 5) + 2]]


def test_labels_are_asked_for_by_name():
    inner = encoding_of({(0, 0)})
    with pytest.raises(ParameterError, match="label"):
        LabelEncoding(inner, 2).positions(np.array([0]))
    with pytest.raises(ParameterError, match="labels must be"):
        LabelEncoding(inner, 0)


@given(st.integers(0, 3), st.integers(1, 70))
def test_sites_by_label_are_sites_of_a_finer_raster(depth, labels):
    encoding = SiteEncoding(depth, labels)
    assert encoding.length == 4 ** (depth + encoding.levels)
    assert labels <= 4**encoding.levels < max(4 * labels, 2)
    site, label = (each.ravel() for each in np.indices((4**depth, labels)))
    position = encoding.positions(site, label)[:, 0]
    assert (np.diff(position) > 0).all()
    assert 0 <= position[0] <= position[-1] < encoding.length
    again = encoding.divided(position)
    assert (again[0].tolist(), again[1].tolist()) == (site.tolist(), label.tolist())


def test_a_site_without_a_label_that_there_is_counts_nowhere():
    encoding = SiteEncoding(1, 3)
    site, label = np.array([-1, 0, 3, 3]), np.array([1, -1, 3, 2])
    assert encoding.positions(site, label)[:, 0].tolist() == [-1, -1, -1, 14]
    with pytest.raises(ParameterError, match="a label of every location"):
        encoding.positions(site)
    with pytest.raises(ParameterError, match="labels must be a whole number of at least 1, got 0"):
        SiteEncoding(1, 0)
