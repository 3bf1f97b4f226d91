"""Every encoding travels as a small record, and a record that was tampered with is refused by name."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.announcement import read_encoding
from mapveil_client.encodings import BlockEncoding, Encoding, LabelEncoding, MarginsEncoding, NodeEncoding
from mapveil_client.errors import InputError
from mapveil_client.level_encoding import LevelEncoding, SketchEncoding
from mapveil_client.morton import PrefixTree

MEMBERS = np.array([1, 1, 0, 2] * 4 + [0] * 48, dtype=np.int64)
NODES = NodeEncoding(PrefixTree.of_nodes(3, [0, 1, 3], [0, 2, 63]))
ENCODINGS: dict[str, Encoding] = {
    "nodes": NODES,
    "no nodes": NodeEncoding(PrefixTree.of_nodes(3, [], [])),
    "labels": LabelEncoding(NODES, 3),
    "levels": LevelEncoding.of_members(3, (0, 2, 3), MEMBERS),
    "labelled levels": LabelEncoding(LevelEncoding.of_members(3, (2,), MEMBERS), 2),
    "sketch": SketchEncoding(3, (1, 3), 7, 2, "a key"),
    "blocks": BlockEncoding(3, np.array([0, 3, 7]), np.array([1, 8]), np.array([[2], [0]])),
    "margins": MarginsEncoding(3),
}
SITES = np.arange(-1, 64)
LABELS = SITES % 3
OF_ENCODING = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS.keys())


@OF_ENCODING
def test_comes_back_from_json_as_it_was(encoding: Encoding) -> None:
    text = json.dumps(encoding.to_dict())
    again = read_encoding(json.loads(text))
    assert type(again) is type(encoding)
    assert (again.length, again.copies) == (encoding.length, encoding.copies)
    np.testing.assert_array_equal(again.positions(SITES, LABELS), encoding.positions(SITES, LABELS))
    assert json.dumps(again.to_dict()) == text


@OF_ENCODING
def test_positions_are_coordinates_or_nowhere(encoding: Encoding) -> None:
    position = encoding.positions(SITES, LABELS)
    assert position.shape == (SITES.size, encoding.copies)
    assert position.min() >= -1
    assert position.max() < encoding.length
    assert (position[0] == -1).all()  # outside the region
    held = position[(position >= 0).all(axis=1)]
    assert all(np.unique(row).size == row.size for row in held), "a copy of a place meets another"


@OF_ENCODING
def test_one_place_or_many_are_the_same(encoding: Encoding) -> None:
    together = encoding.positions(SITES, LABELS)
    alone = [encoding.positions(SITES[i : i + 1], LABELS[i : i + 1])[0] for i in range(SITES.size)]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(encoding.positions(SITES.astype(np.int32), LABELS), together)


@pytest.mark.parametrize(
    "record", [{}, {"kind": "trees"}, {"kind": ["nodes"]}, {"kind": None}, None, 7, [], "nodes"]
)
def test_an_unknown_kind_is_refused(record: Any) -> None:
    with pytest.raises(InputError, match="expected one of nodes, labels, levels, sketch, blocks, margins"):
        read_encoding(record)


def test_labels_of_labels_are_refused_however_deep() -> None:
    record: dict[str, Any] = NODES.to_dict()
    for _ in range(5000):
        record = {"kind": "labels", "labels": 2, "places": record}
    with pytest.raises(InputError, match="labels of labels"):
        read_encoding(record)


def paths(record: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value of a record is."""
    inner = (
        record.items() if isinstance(record, dict) else enumerate(record) if isinstance(record, list) else ()
    )
    return [path, *(found for key, value in inner for found in paths(value, (*path, key)))]


WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.text(max_size=3),
    st.lists(st.one_of(st.integers(-3, 70), st.floats(), st.text(max_size=2), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(max_examples=400)
@given(st.sampled_from(sorted(ENCODINGS)), st.data())
def test_a_record_that_was_tampered_with_is_refused_or_sound(name: str, data: st.DataObject) -> None:
    record = copy.deepcopy(ENCODINGS[name].to_dict())
    path = data.draw(st.sampled_from(paths(record)[1:]))
    target = record
    for key in path[:-1]:
        target = target[key]
    if data.draw(st.booleans()):
        target[path[-1]] = data.draw(WRONG)
    else:
        del target[path[-1]]
    try:
        encoding = read_encoding(record)
    except InputError:
        return
    assert json.loads(json.dumps(encoding.to_dict())) == encoding.to_dict()
    if encoding.length < 10**6:
        made = encoding.to_dict()
        depth = made.get("places", made)["depth"]
        known = np.arange(-1, min(4**depth, 64))  # a device has no others
        position = encoding.positions(known, known % 3)
        assert -1 <= position.min() <= position.max() < encoding.length
