from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram
from mapveil.mechanisms.adaptive_rounds import Noise, thresholds
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.morton import PrefixTree, deinterleave
from tests.mechanisms.adaptive_play import Node, by_node, counted, noisy, play, random_sums, setting_of

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"
MANY = 10**9  # an epsilon that leaves no noise to speak of


class SlowTree:
    """Algorithm 2's tree, one node at a time, in a dictionary of prefixes."""

    def __init__(self, depth: int, nodes: list[Node]) -> None:
        self.depth, self.nodes = depth, set(nodes) | {(0, 0)}

    def owner(self, site: int) -> Node:
        return next(
            node
            for level in range(self.depth, -1, -1)
            if (node := (level, site >> 2 * (self.depth - level))) in self.nodes
        )

    def asked(self, members: IntArray) -> dict[Node, int]:
        """Nodes that stand for a site where anybody can be, and how many such sites."""
        found: dict[Node, int] = {}
        for site in np.flatnonzero(members).tolist():
            found[self.owner(site)] = found.get(self.owner(site), 0) + 1
        return found

    def update(self, users: dict[Node, float], asked: dict[Node, int], split: float, collapse: float) -> bool:
        grown = False
        for (level, code), count in users.items():
            if count > split and level < self.depth and asked[level, code] > 1:
                self.nodes |= {(level + 1, 4 * code + i) for i in range(4)}
                grown = True
            elif count <= collapse and level > 0:
                self.nodes.discard((level, code))
        return grown


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    holes=st.floats(0, 0.9),
    rule=st.sampled_from(["experiments", "equation-6", "algorithm-2", 10.0, 60.0]),
    shards=st.integers(1, 5),
    c=st.floats(0.02, 2),
)
def test_every_round_asks_the_tree_that_algorithm_2_makes(
    seed: int, holes: float, rule: Any, shards: int, c: float
) -> None:
    members = (np.random.default_rng(seed).random(256) >= holes).astype(np.int64)
    members[7] = 1
    setting = setting_of(members=members, shards=shards)
    mechanism = AdaptiveHistogram(epsilon=1, threshold=rule, c=c, rounds=9)
    played = play(mechanism, setting, random_sums(seed, 200))
    slow, remaining, grown = SlowTree(4, [(1, i) for i in range(4)]), mechanism.budget, True
    for number, (tree, sums) in enumerate(zip(played.trees, played.answers, strict=True)):
        asked = slow.asked(members)
        users = by_node(tree, sums.values)
        assert set(users) == set(asked)
        remaining -= sums.epsilon
        if number == len(played.queries) - 1:
            assert remaining == 0
            break
        assert grown
        target = c / 2 * setting.clients / len(asked) / sums.terms**0.5
        limits = thresholds(rule, 2.0, 0.25, Noise(sums.terms, 1, 1), sums.epsilon, remaining, target)
        grown = slow.update(users, asked, limits.split, limits.collapse)
    last = played.answers[-1].values
    users = by_node(played.trees[-1], last)
    area = slow.asked(members)
    for site in np.flatnonzero(members).tolist():
        node = slow.owner(site)
        assert played.made.values[site] == pytest.approx(max(users[node], 0.0) / area[node])
    assert (played.made.values[members == 0] == 0).all()


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    epsilon=st.fractions(Fraction(1, 10**5), 10**6),
    devices=st.integers(0, 10**8),
    c=st.floats(1e-4, 100),
    b=st.floats(1, 10),
    schedule=st.sampled_from(["calibrated", "even"]),
    rounds=st.none() | st.integers(1, 6),
    spread=st.floats(0, 1e9),
)
def test_whatever_comes_out_the_rounds_add_up_to_the_budget(
    seed: int,
    epsilon: Fraction,
    devices: int,
    c: float,
    b: float,
    schedule: Any,
    rounds: int | None,
    spread: float,
) -> None:
    mechanism = AdaptiveHistogram(epsilon=epsilon, c=c, b=b, schedule=schedule, rounds=rounds)
    played = play(mechanism, setting_of(devices=devices), random_sums(seed, spread))
    assert all(isinstance(cost, Fraction) and cost > 0 for cost in played.epsilons)
    assert sum(played.epsilons) == epsilon
    assert len(played.queries) <= (rounds or 4)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_queries_follow_from_the_sums_alone(seed: int) -> None:
    mechanism, setting = AdaptiveHistogram(epsilon=1), setting_of(5)
    first = play(mechanism, setting, random_sums(seed))
    stored = iter(first.answers)
    again = play(mechanism, setting, lambda query: next(stored).values)
    assert [query.encoding.to_dict() for query in again.queries] == [
        q.encoding.to_dict() for q in first.queries
    ]
    assert again.epsilons == first.epsilons
    np.testing.assert_array_equal(again.made.values, first.made.values)


@given(seed=st.integers(0, 2**32 - 1), depth=st.integers(0, 5), people=st.integers(0, 3000))
def test_without_noise_everybody_is_counted_once(seed: int, depth: int, people: int) -> None:
    generator = np.random.default_rng(seed)
    sites = (4**depth * generator.random(people) ** 3).astype(np.int64)
    played = play(AdaptiveHistogram(epsilon=1), setting_of(depth, people), counted(sites))
    for tree, sums in zip(played.trees, played.answers, strict=True):
        assert sums.values.sum() == people
        assert (tree.sites_owned() > 0).all()
    assert played.made.values.sum() == pytest.approx(people)
    (measured,) = played.made.measurements
    exact = np.bincount(measured.groups[sites], minlength=measured.noisy.size)
    np.testing.assert_array_equal(measured.noisy, exact)


@given(seed=st.integers(0, 2**32 - 1))
def test_with_much_budget_the_map_is_exact_where_people_are(seed: int) -> None:
    sites = np.random.default_rng(seed).choice(256, 12).repeat(50)
    played = play(AdaptiveHistogram(epsilon=MANY, threshold=0), setting_of(4, sites.size), counted(sites))
    np.testing.assert_allclose(played.made.values, np.bincount(sites, minlength=256), atol=1e-9)


def test_partial_nodes_and_orphans_come_and_go() -> None:
    # A crowd at one site: its path stays, its siblings collapse one by one, and ancestors become partial.
    sites = np.full(5000, 77)
    played = play(AdaptiveHistogram(epsilon=1, c=1.0), setting_of(6, 5000), counted(sites))
    last = played.trees[-1]
    assert (6, 77) in by_node(last, np.zeros(last.size))
    below = [last.find(last.level + 1, 4 * last.code + quarter) >= 0 for quarter in range(4)]
    assert not np.all(below, axis=0).any()
    orphans = (last.level > 0) & (last.find(last.level - 1, last.code >> 2) < 0)
    assert orphans.any()
    assert played.made.values[77] == pytest.approx(5000)


def test_the_root_is_never_collapsed() -> None:
    played = play(AdaptiveHistogram(epsilon=1, start=((0, 0),)), setting_of(), lambda query: np.zeros(1))
    assert played.trees[-1].level.tolist() == [0]
    emptied = play(
        AdaptiveHistogram(epsilon=1, threshold=5, rounds=3, start=((1, 0), (2, 15))),
        setting_of(),
        lambda query: np.where(np.arange(query.encoding.length) == 0, 1e4, -9.0),
    )
    assert all(tree.sites_owned().sum() == 256 for tree in emptied.trees)


def test_a_node_left_with_one_cell_is_not_divided() -> None:
    members = np.zeros(256, dtype=np.int64)
    members[[3, 200]] = (1, 5)
    played = play(
        AdaptiveHistogram(epsilon=1), setting_of(members=members), lambda q: np.full(q.encoding.length, 1e6)
    )
    assert [tree.size for tree in played.trees] == [2, 2]
    assert played.made.values[[3, 200]].tolist() == [1e6, 1e6]


def test_no_node_is_deeper_than_was_allowed() -> None:
    played = play(
        AdaptiveHistogram(epsilon=1, deepest=2, c=3), setting_of(), lambda q: np.full(q.encoding.length, 1e6)
    )
    assert max(int(tree.level.max()) for tree in played.trees) == 2
    assert [tree.size for tree in played.trees] == [4, 16]


def test_even_budgets_are_even_and_fixed_thresholds_fixed() -> None:
    mechanism = AdaptiveHistogram(epsilon=1, schedule="even", threshold=10, rounds=4, collapse=None)
    played = play(
        mechanism, setting_of(), lambda q: np.where(np.arange(q.encoding.length) % 4 == 0, 11.0, 10.0)
    )
    assert played.epsilons == [Fraction(1, 4)] * 4
    assert [tree.size for tree in played.trees] == [4, 4 + 3, 7 + 2 * 3, 13 + 4 * 3]


def test_nodes_that_never_collapse_only_grow() -> None:
    sums = random_sums(5)
    kept = play(AdaptiveHistogram(epsilon=1, collapse=None, c=1), setting_of(6), sums)
    for before, after in zip(kept.trees, kept.trees[1:], strict=False):
        np.testing.assert_array_equal(after.owner(np.arange(4**6)) >= 0, True)
        assert after.size >= before.size


def test_provisioned_noise_is_paid_for_and_counted() -> None:
    plain = play(
        AdaptiveHistogram(epsilon=1), setting_of(devices=10_000), lambda q: np.zeros(q.encoding.length)
    )
    spare = play(
        AdaptiveHistogram(epsilon=1),
        setting_of(devices=10_000, spare=1500),
        lambda q: np.zeros(q.encoding.length),
    )
    # The noise has 1 / 0.85 variables: the same deviation of the sum costs that much under a root more.
    assert float(spare.epsilons[0] / plain.epsilons[0]) == pytest.approx(0.85**-0.5, rel=1e-3)
    assert spare.made.measurements[0].terms == pytest.approx(1 / 0.85)


@pytest.mark.parametrize(
    "options",
    [
        {"c": 0},
        {"c": float("inf")},
        {"b": 0.5},
        {"k": -1},
        {"threshold": "equation-9"},
        {"threshold": -1},
        {"threshold": True},
        {"threshold": float("nan")},
        {"collapse": 2},
        {"schedule": "odd"},
        {"rounds": 0},
        {"deepest": 40},
    ],
)
def test_parameters_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        AdaptiveHistogram(epsilon=1, **options)


def test_a_hundred_thousand_nodes_take_less_than_a_second_a_round() -> None:
    depth, rng = 10, np.random.default_rng(1)
    code = rng.choice(4**9, 100_000, replace=False)
    mechanism = AdaptiveHistogram(epsilon=30).starting_from(
        PrefixTree.of_nodes(depth, np.full(code.shape, 9), code)
    )
    spent = -time.process_time()
    played = play(
        mechanism,
        setting_of(depth, 54_000_000, 5400),
        lambda query: rng.pareto(1.0, query.encoding.length) * 500,
    )
    spent += time.process_time()
    assert played.trees[-1].size > 400_000
    assert spent < len(played.queries)


@pytest.fixture(scope="module")
def image() -> FloatArray:
    """The luminosity of Manhattan, in Morton order."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared/data beside the repository")
    with np.load(SHARED / "manhattan_luminosity_1024.npz") as file:
        pixels = file["values"].astype(np.float64)
    where = deinterleave(np.arange(1 << 20))
    return np.asarray(pixels[where.row, where.col])


@pytest.mark.parametrize(
    ("users", "shards", "seeds", "error", "length", "budgets"),
    [
        (10_000, 1, 6, 7.88e-13, 340, (0.0113, 0.0453, 0.181, 0.763)),
        (100_000, 10, 3, 6.99e-13, 1290, (0.0036, 0.0143, 0.0572, 0.226, 0.699)),
    ],
)
def test_table_1_comes_out(
    image: FloatArray,
    users: int,
    shards: int,
    seeds: int,
    error: float,
    length: int,
    budgets: tuple[float, ...],
) -> None:
    """Sampled users of the paper's own image, epsilon 1, S_max 10,000, nobody drops out."""
    density, below = image / image.sum(), np.cumsum(image)
    errors, lengths = [], []
    for seed in range(seeds):
        drawn = np.random.default_rng(seed).random(users) * below[-1]
        sites = np.searchsorted(below, drawn, side="right")
        setting = setting_of(10, users, shards)
        played = play(AdaptiveHistogram(epsilon=1), setting, noisy(sites, shards, seed))
        made = played.made.values / played.made.values.sum()
        errors.append(np.mean((made - density) ** 2))
        lengths.append(played.length)
        assert [float(cost) for cost in played.epsilons] == pytest.approx(list(budgets), rel=0.02)
    assert np.mean(errors) == pytest.approx(error, rel=0.015)
    assert np.mean(lengths) == pytest.approx(length, rel=0.05)
