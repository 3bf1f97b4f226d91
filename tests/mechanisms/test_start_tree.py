from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.mechanisms.adaptive_histogram import expected_tree, start_tree
from mapveil_client.morton import PrefixTree, interleave

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def nodes(tree: PrefixTree) -> set[tuple[int, int]]:
    return set(zip(tree.level.tolist(), tree.code.tolist(), strict=True))


@pytest.mark.parametrize(
    ("depth", "deepest", "expected"),
    [(5, 5, {(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)}), (5, 0, {(0, 0)}), (0, 0, {(0, 0)})],
)
def test_without_anything_known_the_quadrants_are_asked(
    depth: int, deepest: int, expected: set[tuple[int, int]]
) -> None:
    assert nodes(start_tree(depth, deepest, None)) == expected


def test_nodes_too_deep_give_way_to_their_ancestors_and_the_root_catches_the_rest() -> None:
    made = start_tree(4, 2, [(4, 255), (4, 254), (1, 0), (2, 7)])
    assert nodes(made) == {(0, 0), (2, 15), (1, 0), (2, 7)}
    assert made.depth == 4


def divided(users: dict[int, float], depth: int, deepest: int, most: float) -> set[tuple[int, int]]:
    """The obvious way: one node at a time."""
    made, waiting = set(), [(0, 0)]
    while waiting:
        level, code = waiting.pop()
        held = sum(part for site, part in users.items() if site >> 2 * (depth - level) == code)
        if held > most and level < deepest:
            waiting += [(level + 1, 4 * code + i) for i in range(4)]
        else:
            made.add((level, code))
    return made


@given(seed=st.integers(0, 2**32 - 1), most=st.floats(0.5, 60), deepest=st.none() | st.integers(0, 6))
def test_nodes_are_divided_while_they_expect_people(seed: int, most: float, deepest: int | None) -> None:
    tiling = mv.Grid(REGION, columns=9, rows=5)
    users = np.random.default_rng(seed).pareto(1.0, tiling.size)
    lattice = tiling.lattice()
    of_site = dict(zip(interleave(lattice.row, lattice.col).tolist(), users.tolist(), strict=True))
    expected = divided(of_site, lattice.depth, min(lattice.depth, 99 if deepest is None else deepest), most)
    assert nodes(expected_tree(tiling, users, most, deepest)) == expected
