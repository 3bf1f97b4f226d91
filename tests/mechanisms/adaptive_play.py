"""Adaptive histograms driven by hand: trees and sums of a plan, and sums of users at given sites."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram
from mapveil.trust.queries import Estimate, NoisySums, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.morton import PrefixTree

Node = tuple[int, int]


class Played(NamedTuple):
    queries: list[Query]
    answers: list[NoisySums]
    made: Estimate

    @property
    def trees(self) -> list[PrefixTree]:
        found = []
        for query in self.queries:
            assert isinstance(query.encoding, NodeEncoding)
            found.append(query.encoding.tree)
        return found

    @property
    def epsilons(self) -> list[Fraction]:
        return [query.epsilon for query in self.queries]

    @property
    def length(self) -> int:
        return sum(query.encoding.length for query in self.queries)


def setting_of(
    depth: int = 4, devices: int = 1000, shards: int = 1, members: IntArray | None = None, spare: int = 0
) -> Setting:
    everywhere = np.ones(4**depth, dtype=np.int64) if members is None else members
    return Setting(depth, everywhere, devices, shards, Fraction(1, max(devices // shards - spare, 1)), 1)


def play(mechanism: AdaptiveHistogram, setting: Setting, answer: Callable[[Query], FloatArray]) -> Played:
    server, queries, answers = mechanism.plan(setting), [], []
    terms = float(setting.alpha * setting.clients)
    try:
        query = next(server)
        while True:
            queries.append(query)
            sums = NoisySums(answer(query), 1.0, terms, query.epsilon, 1, 1, setting.clients)
            answers.append(sums)
            query = server.send(sums)
    except StopIteration as stop:
        return Played(queries, answers, stop.value)


def counted(sites: IntArray) -> Callable[[Query], FloatArray]:
    """The plain sums of people at these sites."""

    def answer(query: Query) -> FloatArray:
        where = query.encoding.positions(sites)[:, 0]
        return np.bincount(where[where >= 0], minlength=query.encoding.length).astype(np.float64)

    return answer


def noisy(sites: IntArray, shards: int, seed: int) -> Callable[[Query], FloatArray]:
    """The sums of people with discrete Laplace noise of each shard."""
    plain, generator = counted(sites), np.random.default_rng(seed)

    def answer(query: Query) -> FloatArray:
        values, stop = plain(query), -np.expm1(-float(query.epsilon))
        above, below = (generator.negative_binomial(shards, stop, values.size) for _ in range(2))
        return values + above - below

    return answer


def random_sums(seed: int, spread: float = 300) -> Callable[[Query], FloatArray]:
    generator = np.random.default_rng(seed)
    return lambda query: generator.normal(20, spread, query.encoding.length)


def by_node(tree: PrefixTree, values: FloatArray) -> dict[Node, float]:
    return dict(zip(zip(tree.level.tolist(), tree.code.tolist(), strict=True), values.tolist(), strict=True))
