"""Blocks that are asked for in every window: what series of maps and of flows have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from mapveil.geo.windows import Windows
from mapveil.inference.window_shrinkage import WindowSums, shrink_windows
from mapveil.mechanisms.uniform_grid import COARSER, quartered
from mapveil.trust.queries import NoisySums, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import Checked
from mapveil_client.morton import PrefixTree

_MOST_SITES: Final = 1 << 22  # sites times windows that time is shrunk over at once: 32 MB each array

LEAST_SHARE: Final = 1e-4
"""Least share of a budget, for all windows together, for each of them or for margins."""

Q = TypeVar("Q")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OverWindows(Checked):
    r"""Parameters of a mechanism that measures all windows together, then blocks in every window.

    Blocks are quartered while

    .. math:: P(b) / W \ge 2 c\, s

    where: P(b) are the estimated users of the block in all W windows, s is the scale of the noise on a sum, and c is
    ``window_signal``.

    Parameters
    ----------
    windows : Windows
        The windows.
    windows_per_user : int, optional
        k: a user counts 1 in each of at most k windows, from 1 to W; 1 over all windows by default.
    pooled_share : float
        Fraction of the budget for all windows together, from 0.0001 to 0.9999.
    window_signal : float
        c, above 0.
    """

    windows: Windows
    windows_per_user: int | None = None
    pooled_share: float = 0.5
    window_signal: float = 8.0

    if TYPE_CHECKING:

        @property
        def budget(self) -> Fraction:
            """The whole budget, exactly; of the mechanism."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(isinstance(self.windows, Windows), "windows", "Windows")
        self.windows.check_per_user(self.windows_per_user)
        held = LEAST_SHARE <= self.pooled_share <= 1 - LEAST_SHARE
        self._check(held, "pooled_share", f"a number from {LEAST_SHARE} to {1 - LEAST_SHARE}")
        self._check_positive("window_signal")

    @property
    def contribution(self) -> int:
        """Users that one unit may count as."""
        return self.windows_per_user or 1

    @property
    def window_budget(self) -> Fraction:
        """The part of the budget for every window."""
        return split_epsilon(self.budget, [self.pooled_share, 1 - self.pooled_share])[1]

    def least_users(self, scale: float) -> float:
        """The users of all windows together from which a block is quartered, at a scale of the noise."""
        return 2 * self.window_signal * scale * self.windows.count


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
        least *= COARSER


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
