"""One round over a uniform grid, as fine as the number of users allows: the baseline that the paper lacks."""

import math
from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.queries import Estimate, NoisySums, Plan, Query, Setting
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.morton import PrefixTree

COARSER: Final = 2**0.25
"""Step by which a threshold grows until the blocks fit."""


class GridLevel(NamedTuple):
    """The level that a grid is measured at."""

    level: int
    budget: Fraction  # that is left
    total: tuple[NoisySums, ...]  # the noisy number of users, where it was bought


@dataclass(frozen=True, kw_only=True)
class GridMechanism(SumMechanism):
    """A mechanism that measures every cell of one level, chosen by the number of users.

    Parameters
    ----------
    depth : int, optional
        The level, instead of the rule's; at most the tiling's own.
    """

    depth: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.depth is None or 0 <= self.depth <= 23, "depth", "a level from 0 to 23, or none")

    @abstractmethod
    def level(self, setting: Setting, users: float, epsilon: Fraction) -> int:
        """The rule's level for so many users with so much budget."""

    def grid_level(self, setting: Setting) -> Generator[Query, NoisySums, GridLevel]:
        """The level: ``depth``, or the rule's after a query for the number of users where it is needed."""
        if self.depth is not None:
            return GridLevel(min(self.depth, setting.depth), self.budget, ())
        number = yield from self.number_of_users(setting)
        level = self.level(setting, number.users, number.rest)
        return GridLevel(level, number.rest, () if number.noisy is None else (number.noisy,))


def noise_deviation(setting: Setting, epsilon: float) -> float:
    """Standard deviation of the noise on one sum of a round, users, if nobody drops out."""
    return math.sqrt(2 * setting.noise_terms) / epsilon


def tree_at(setting: Setting, level: int) -> PrefixTree:
    """The nodes of one level where anybody can be."""
    codes = cells_at(setting, level)
    return PrefixTree.of_nodes(setting.depth, np.full(codes.shape, level), codes)


def held_at(setting: Setting, level: int) -> BoolArray:
    """Whether anybody can be in each node of one level, by its code."""
    return np.asarray(setting.members.reshape(1 << (2 * level), -1).any(axis=1))


def cells_at(setting: Setting, level: int) -> IntArray:
    """Codes of the nodes of one level where anybody can be, ascending."""
    return np.flatnonzero(held_at(setting, level))


def quartered(
    setting: Setting,
    users_of: Callable[[int, IntArray], FloatArray],
    level: int,
    least: float,
    deepest: int,
) -> PrefixTree:
    """Nodes inside those of a level with fewer users than ``least``, or of the deepest level; none inside another.

    ``users_of`` gives the users of nodes of a level, by their codes.
    """
    codes = cells_at(setting, level)
    levels, found = [], []
    while codes.size:
        again = (users_of(level, codes) >= least) & (level < deepest)
        found.append(codes[~again])
        levels.append(np.full(found[-1].size, level))
        level += 1
        codes = ((codes[again] << 2)[:, None] + np.arange(4)).ravel()
        if codes.size:
            codes = codes[held_at(setting, level)[codes]]
    return PrefixTree.of_nodes(setting.depth, np.concatenate(levels), np.concatenate(found))


def users_in_all(setting: Setting, *replies: NoisySums) -> float:
    """Users in the sums, from replies that count everybody once each: their mean by precision, 1 at least.

    The number of clients is only a bound, clients outside the region being in no sum; what a curator declares is none.
    """
    most = math.inf if setting.curator or setting.clients is None else setting.clients
    precision = np.array([1 / max(each.values.size * each.variance, 1e-280) for each in replies])
    found = float(precision @ [each.values.sum() for each in replies] / precision.sum())
    return max(min(found, most), 1.0)


def resolution_note(setting: Setting, low: int, high: int, below: str) -> str:
    """A note on the mean width of the cells that were measured at some levels, and on the map below them."""
    if setting.area_m2 is None:
        at = f"at level {low}" if low == high else f"at levels {low} to {high}, finer where more users are"
        return f"cells were measured {at}; within each the map is {below}"
    coarse, fine = (
        _length(math.sqrt(setting.area_m2 / max(cells_at(setting, level).size, 1))) for level in (low, high)
    )
    wide = (
        f"{coarse} wide" if low == high else f"between {fine} and {coarse} wide, finer where more users are"
    )
    return f"cells were measured {wide}; within each the map is {below}"


def _length(metres: float) -> str:
    rounded = float(f"{metres:.2g}")
    return f"{rounded:g} m" if rounded < 1000 else f"{rounded / 1000:g} km"


def nearest_level(setting: Setting, wanted: float) -> int:
    """The level whose number of cells is nearest to the wanted one, as a ratio; of equal ones the coarser."""
    counts = [max(cells_at(setting, level).size, 1) for level in range(setting.depth + 1)]
    return min(range(len(counts)), key=lambda level: abs(math.log(counts[level] / max(wanted, 1.0))))


def no_longer(setting: Setting, level: int, most: float) -> int:
    """The level, or the finest above it that has at most so many cells."""
    while level > 0 and cells_at(setting, level).size > most:
        level -= 1
    return level


@dataclass(frozen=True, kw_only=True)
class UniformGrid(GridMechanism):
    r"""Ask for every cell of one level at once; users are spread evenly inside a cell.

    The level is chosen before any data are seen: the one whose number of cells is nearest (as a ratio) to

    .. math:: m^2 = \frac{\sqrt 2\, n}{c\, \sigma}, \qquad \sigma = \frac{\sqrt{2 T}}{\epsilon}

    where: n is the number of devices asked, :math:`\sigma` the standard deviation of a sum's noise, T the discrete
    Laplace variables in it (the number of shards, if nothing is provisioned for), :math:`\epsilon` is ``epsilon`` and
    c is ``c``. With one shard this is the rule :math:`m^2 = n \epsilon / c` of Qardaji, Yang, Li, "Differentially
    Private Grids for Geospatial Data" (ICDE 2013), section IV: noise adds an error of :math:`\sigma m` over a query,
    and people who are not even inside a cell one of :math:`n / m`; their sum is least at
    :math:`m^2 \propto n / \sigma`. Their c = 10 is kept: on the image of Bagdasaryan et al. (2022) it picks the best
    level at 10,000, 100,000 and 1,000,000 users.

    Parameters
    ----------
    depth
        See :class:`GridMechanism`.
    c : float
        The rule's constant, above 0.
    clip : bool
        Whether negative sums become zero.
    """

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "one round over a uniform grid, as fine as the people asked allow"
    source: ClassVar[str] = "Qardaji et al., ICDE 2013, guideline 1, over noisy sums"

    c: float = 10.0
    clip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("c")

    def level(self, setting: Setting, users: float, epsilon: Fraction) -> int:
        """The rule's level for so many users with so much budget."""
        deviation = noise_deviation(setting, float(epsilon))
        return nearest_level(setting, math.sqrt(2) * users / (self.c * deviation))

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`."""
        level, budget, total = yield from self.grid_level(setting)
        tree = tree_at(setting, level)
        sums = yield Query(f"every cell of level {level}", NodeEncoding(tree), budget)
        values = np.maximum(sums.values, 0.0) if self.clip else sums.values
        owner = tree.owner(np.arange(setting.members.size))
        return Estimate(
            tree.spread(values, setting.members),
            (
                *(each.measurement(np.zeros(owner.size, dtype=np.int64)) for each in total),
                sums.measurement(owner),
            ),
            (f"a uniform grid at level {level}; people are even inside a cell",),
        )
