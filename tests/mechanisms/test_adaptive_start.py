from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.geo.counts import Counts
from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram, expected_tree, start_tree
from mapveil.mechanisms.methods import find_method
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.errors import ParameterError
from mapveil_client.morton import PrefixTree, interleave
from tests.mechanisms.adaptive_play import by_node, play, setting_of

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


class TestWarmStart:
    def test_a_tree_is_asked_as_it_is_with_the_root_for_the_rest(self) -> None:
        tree = PrefixTree.of_nodes(4, [2, 4], [5, 255])
        mechanism = AdaptiveHistogram(epsilon=1).starting_from(tree)
        assert mechanism.start == ((2, 5), (4, 255))
        played = play(mechanism, setting_of(), lambda q: np.zeros(q.encoding.length))
        assert sorted(by_node(played.trees[0], np.zeros(3))) == [(0, 0), (2, 5), (4, 255)]

    def test_an_earlier_map_saves_rounds_and_error(self) -> None:
        tiling = mv.Quadtree(mv.Region.without_georeference(64, 64), depth=6)
        weights = np.random.default_rng(3).pareto(0.8, tiling.size)
        truth = weights / weights.sum()
        yesterday, today = (
            Counts(np.random.default_rng(seed).multinomial(50_000, truth).astype(np.int64), tiling)
            for seed in (1, 2)
        )
        cold = AdaptiveHistogram(epsilon=1, trust=SecureAggregation())
        error, rounds = {}, {}
        before = cold.release(yesterday, rng=1)
        for name, mechanism in (("cold", cold), ("warm", cold.starting_from(before))):
            maps = [mechanism.release(today, rng=seed) for seed in range(5)]
            error[name] = np.mean([((heat.normalised() - truth) ** 2).sum() for heat in maps])
            rounds[name] = max(len(heat.rounds) for heat in maps)
        assert rounds["warm"] < rounds["cold"]
        assert error["warm"] < error["cold"]

    def test_an_exported_or_public_map_will_do(self) -> None:
        tiling = mv.Quadtree(mv.Region.without_georeference(16, 16), depth=4)
        heat = AdaptiveHistogram(epsilon=1, trust=SecureAggregation()).release(
            Counts(np.full(256, 40), tiling), rng=1
        )
        public = type(heat)(np.ones(256), tiling, heat.guarantee, "public raster")
        fine = AdaptiveHistogram(epsilon=1, trust=SecureAggregation()).starting_from(public, users=100_000)
        coarse = AdaptiveHistogram(epsilon=1, trust=SecureAggregation()).starting_from(public, users=30)
        assert fine.start == tuple((4, code) for code in range(256))
        assert coarse.start is not None
        assert max(level for level, _ in coarse.start) < 3
        assert (
            AdaptiveHistogram(epsilon=1, trust=SecureAggregation(sample=30)).starting_from(public).start
            == coarse.start
        )

    def test_parameters_are_json_and_make_it_again(self) -> None:
        mechanism = AdaptiveHistogram(epsilon="1/3", start=((2, 5), (1, 0)), threshold=7.5, collapse=None)
        record = json.loads(json.dumps(mechanism.parameters()))
        assert find_method("adaptive").make(record.pop("epsilon"), record) == mechanism
        assert mechanism.start == ((1, 0), (2, 5))

    @pytest.mark.parametrize(
        "start",
        [[], [(1,)], [(1, 4)], [(-1, 0)], [(32, 0)], [(1.5, 0)], "quadrants", [("1", "0")], 3, [(1, 0, 0)]],
    )
    def test_what_is_no_list_of_nodes_is_refused(self, start: Any) -> None:
        with pytest.raises(ParameterError, match=r"accepted|level"):
            AdaptiveHistogram(epsilon=1, start=start)
