"""Server halves driven by hand: sums made with NumPy, no devices, no noise unless asked for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

import mapveil as mv
from mapveil.engines import user_sums
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.discrete_laplace import laplace_variance
from mapveil.trust.queries import Estimate, NoisySums, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray


class Played(NamedTuple):
    """What a server half asked, what it was told, and what it made of it."""

    queries: list[Query]
    answers: list[NoisySums]
    made: Estimate


Player = Callable[..., Played]


def exact_sums(query: Query, people: IntArray) -> FloatArray:
    """The plain sums of a query: every site's people at each of the site's coordinates, one by one."""
    found = np.zeros(query.encoding.length)
    where = query.encoding.positions(np.arange(people.size))
    for copy in range(query.encoding.copies):
        held = where[:, copy] >= 0
        np.add.at(found, where[held, copy], people[held])
    return found


def played(
    mechanism: SumMechanism,
    people: IntArray,
    members: IntArray | None = None,
    *,
    shards: int = 1,
    seed: int | None = None,
    devices: int | None = None,
) -> Played:
    """Drive a server half with the sums of ``people`` per site; with noise where there is a seed."""
    depth = (people.size.bit_length() - 1) // 2
    everywhere = np.ones(people.size, dtype=np.int64) if members is None else members
    asked = int(people.sum()) if devices is None else devices
    setting = Setting(depth, everywhere, asked, shards, Fraction(shards, max(asked, 1)), 1)
    generator = None if seed is None else np.random.default_rng(seed)
    server, queries, answers = mechanism.plan(setting), [], []
    try:
        query = next(server)
        while True:
            values, moves = exact_sums(query, people), setting.sensitivity(query.encoding)
            if generator is not None:
                stop = -np.expm1(-float(query.epsilon / moves))
                above, below = (generator.negative_binomial(shards, stop, values.size) for _ in range(2))
                values = values + above - below
            variance = 0.0 if generator is None else shards * laplace_variance(query.epsilon, moves)
            sums = NoisySums(values, variance, float(shards), query.epsilon, moves, 1, asked)
            queries.append(query)
            answers.append(sums)
            query = server.send(sums)
    except StopIteration as stop:
        return Played(queries, answers, stop.value)


@pytest.fixture
def play() -> Player:
    return played


@pytest.fixture
def crowd() -> Callable[..., IntArray]:
    """People on the sites of a square raster, in Morton order: few places crowded, most empty."""

    def made(depth: int, users: int, seed: int = 0, members: IntArray | None = None) -> IntArray:
        generator = np.random.default_rng(seed)
        weights = generator.pareto(0.7, 1 << (2 * depth)) + 1e-6
        if members is not None:
            weights = weights * (members > 0)
        return generator.multinomial(users, weights / weights.sum()).astype(np.int64)

    return made


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The exact sums behind every map that the curator's default releases."""
    found: list[np.ndarray] = []
    release = Multiscale.release

    def watched(self: Multiscale, points: mv.Points, tiling: mv.Quadtree, **given: object) -> mv.DensityMap:
        found.append(user_sums(points, tiling).sums)
        return release(self, points, tiling, **given)

    monkeypatch.setattr(Multiscale, "release", watched)
    return found
