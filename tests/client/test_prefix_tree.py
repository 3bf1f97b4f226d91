from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.morton import PrefixTree

DEPTH = 3
SITES = 4**DEPTH

NODE = st.integers(0, DEPTH).flatmap(lambda level: st.tuples(st.just(level), st.integers(0, 4**level - 1)))
NODES = st.lists(NODE, max_size=30)


def tree_of(nodes: list[tuple[int, int]], depth: int = DEPTH) -> PrefixTree:
    return PrefixTree.of_nodes(depth, [level for level, _ in nodes], [code for _, code in nodes])


def pairs(tree: PrefixTree) -> list[tuple[int, int]]:
    return list(zip(tree.level.tolist(), tree.code.tolist(), strict=True))


def longest_match(nodes: list[tuple[int, int]], site: int, depth: int = DEPTH) -> tuple[int, int] | None:
    """The obvious way: cut digits off the site's code until what is left is a node."""
    known = dict.fromkeys(nodes)
    for level in range(depth, -1, -1):
        node = (level, site >> 2 * (depth - level))
        if node in known:
            return node
    return None


def owners(tree: PrefixTree, sites: range = range(SITES)) -> list[tuple[int, int] | None]:
    found = tree.owner(np.array(sites)).tolist()
    return [None if owner < 0 else pairs(tree)[owner] for owner in found]


@given(nodes=NODES)
def test_the_owner_is_the_longest_matching_prefix(nodes: list[tuple[int, int]]) -> None:
    assert owners(tree_of(nodes)) == [longest_match(nodes, site) for site in range(SITES)]


@given(nodes=NODES)
def test_few_sites_are_looked_up_as_many_are(nodes: list[tuple[int, int]]) -> None:
    tree = tree_of(nodes)
    many = np.random.default_rng(1).integers(0, SITES, 2000).astype(np.int32)  # by a table
    np.testing.assert_array_equal(tree.owner(many), tree.owner(np.arange(SITES))[many])
    assert tree.owner(many.reshape(2, -1)).shape == (2, 1000)


def test_a_deep_tree_needs_no_table_of_its_sites() -> None:
    depth = 31
    nodes = [(0, 0), (31, 4**31 - 1), (16, 4**16 - 1), (30, 5)]
    tree = tree_of(nodes, depth)
    for site in (0, 19, 20, 23, 24, 4**31 - 1, 4**31 - 2, 4**31 - 4**15 - 1):
        index = int(tree.owner(np.array([site]))[0])
        assert pairs(tree)[index] == longest_match(nodes, site, depth)
    assert tree.sites_owned().tolist() == [4**31 - 4**15 - 4, 4, 4**15 - 1, 1]


@given(nodes=NODES)
def test_nodes_are_kept_once_in_the_order_of_their_first_site(nodes: list[tuple[int, int]]) -> None:
    tree = tree_of(nodes)
    assert pairs(tree) == sorted(set(nodes), key=lambda node: (node[1] << 2 * (DEPTH - node[0]), node[0]))
    assert tree.size == len(set(nodes))
    again = PrefixTree.of_nodes(DEPTH, tree.level, tree.code)
    assert pairs(again) == pairs(tree)


@given(nodes=NODES, seed=st.integers(0, 2**32 - 1))
def test_areas_and_spreads_equal_counting_site_by_site(nodes: list[tuple[int, int]], seed: int) -> None:
    tree, generator = tree_of(nodes), np.random.default_rng(seed)
    members = generator.integers(0, 3, SITES)
    values = generator.normal(10, 5, tree.size)
    held = owners(tree)
    for weight in (np.ones(SITES, dtype=np.int64), members):
        area = [sum(int(weight[x]) for x in range(SITES) if held[x] == node) for node in pairs(tree)]
        given_members = None if weight is not members else members
        assert tree.sites_owned(given_members).tolist() == area
        spread = tree.spread(values, given_members)
        index = {node: i for i, node in enumerate(pairs(tree))}
        slow = [
            0.0
            if (node := held[x]) is None or area[index[node]] == 0
            else values[index[node]] / area[index[node]] * weight[x]
            for x in range(SITES)
        ]
        np.testing.assert_allclose(spread, slow, atol=1e-12)


@given(nodes=NODES)
def test_finds_its_nodes_and_no_others(nodes: list[tuple[int, int]]) -> None:
    tree = tree_of(nodes)
    all_nodes = [(level, code) for level in range(DEPTH + 1) for code in range(4**level)]
    found = tree.find(np.array([n[0] for n in all_nodes]), np.array([n[1] for n in all_nodes]))
    for node, index in zip(all_nodes, found.tolist(), strict=True):
        assert (index >= 0) == (node in nodes)
        if index >= 0:
            assert pairs(tree)[index] == node


@given(nodes=NODES, seed=st.integers(0, 2**32 - 1))
def test_split_adds_the_missing_children(nodes: list[tuple[int, int]], seed: int) -> None:
    tree = tree_of(nodes)
    chosen = (np.random.default_rng(seed).random(tree.size) < 0.5) & (tree.level < DEPTH)
    made = tree.split(chosen)
    added = {
        (level + 1, 4 * code + i)
        for (level, code), yes in zip(pairs(tree), chosen, strict=True)
        if yes
        for i in range(4)
    }
    assert set(pairs(made)) == set(nodes) | added


def test_a_site_cannot_be_split() -> None:
    with pytest.raises(ParameterError, match="0 to 3"):
        tree_of([(3, 5)]).split(np.array([True]))


@given(nodes=NODES, seed=st.integers(0, 2**32 - 1))
def test_a_node_that_is_dropped_leaves_its_people_to_the_node_above(
    nodes: list[tuple[int, int]], seed: int
) -> None:
    tree = tree_of(nodes)
    kept = np.random.default_rng(seed).random(tree.size) < 0.5
    left = [node for node, yes in zip(pairs(tree), kept, strict=True) if yes]
    assert owners(tree.take(kept)) == [longest_match(left, site) for site in range(SITES)]


@given(nodes=NODES, seed=st.integers(0, 2**32 - 1))
def test_only_nodes_that_stand_for_somebody_are_asked(nodes: list[tuple[int, int]], seed: int) -> None:
    tree = tree_of(nodes)
    members = (np.random.default_rng(seed).random(SITES) < 0.3).astype(np.int64)
    made = tree.owning(members)
    assert (made.sites_owned(members) > 0).all()
    before, after = owners(tree), owners(made)
    assert all(before[x] == after[x] for x in range(SITES) if members[x])


@given(level=st.integers(0, DEPTH))
def test_a_uniform_tree_has_equal_nodes(level: int) -> None:
    tree = PrefixTree.uniform(DEPTH, level)
    assert tree.sites_owned().tolist() == [4 ** (DEPTH - level)] * 4**level
    np.testing.assert_array_equal(tree.owner(np.arange(SITES)), np.arange(SITES) >> 2 * (DEPTH - level))


@pytest.mark.parametrize(
    ("depth", "level", "code", "words"),
    [
        (3, [4], [0], "0 to 3"),
        (3, [-1], [0], "0 to 3"),
        (3, [1], [4], "codes must be"),
        (3, [1], [-1], "codes must be"),
        (3, [1, 2], [1], "as many"),
        (32, [1], [1], "0 to 31"),
        (-1, [], [], "0 to 31"),
    ],
)
def test_nodes_out_of_range_are_refused(depth: int, level: list[int], code: list[int], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        PrefixTree.of_nodes(depth, level, code)


def test_the_empty_tree_owns_nothing() -> None:
    tree = tree_of([])
    assert owners(tree) == [None] * SITES
    assert tree.spread(np.empty(0)).tolist() == [0.0] * SITES
    assert tree.find(np.array([0]), np.array([0])).tolist() == [-1]
    assert tree.sites_owned().size == 0
