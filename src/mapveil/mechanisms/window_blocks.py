"""Blocks that are asked for in every window: what series of maps and of flows have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Final, TypeVar

import numpy as np

from mapveil.inference.window_shrinkage import WindowSums, shrink_windows
from mapveil.mechanisms.uniform_grid import quartered
from mapveil.trust.queries import NoisySums, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.morton import PrefixTree

_MOST_SITES: Final = 1 << 22  # sites times windows that time is shrunk over at once: 32 MB each array
_COARSER: Final = 2**0.25  # step of the search for blocks that fit

Q = TypeVar("Q")
T = TypeVar("T")


def widened(plan: Generator[Q, NoisySums, T], contribution: int) -> Generator[Query, NoisySums, T]:
    """A plan of all windows together, to which a unit contributes as much as to the windows."""
    try:
        query = next(plan)
        while True:
            assert isinstance(query, Query)
            query = plan.send((yield dataclasses.replace(query, contribution=contribution)))
    except StopIteration as stop:
        made: T = stop.value
        return made


def blocks_of_windows(
    setting: Setting,
    users_of: Callable[[int, IntArray], FloatArray],
    windows: int,
    least: float,
    longest: int | None,
) -> PrefixTree:
    """The blocks of all windows together with ``least`` users or more quartered; of a curator ``longest`` is None."""
    deepest = setting.depth
    while deepest and windows << (2 * deepest) > _MOST_SITES:
        deepest -= 1
    while True:
        tree = quartered(setting, users_of, 0, least, deepest)
        if longest is None or tree.size == 1 or tree.size * windows <= longest:
            return tree
        least *= _COARSER


def blocks_over_time(
    setting: Setting, coarse: FloatArray, tree: PrefixTree, sums: NoisySums, added: IntArray | None = None
) -> FloatArray:
    """Users of each site of the deepest block in each window, shape (windows, sites), from those in all windows."""
    below = setting.members.size // coarse.size
    held = setting.members.reshape(-1, below).sum(axis=1) > 0
    block = np.where(held, tree.owner(np.arange(coarse.size) * below), -1)
    return shrink_windows(
        WindowSums(sums.values.T, sums.variance, sums.terms, block, added), np.where(held, coarse, 0.0)
    )
