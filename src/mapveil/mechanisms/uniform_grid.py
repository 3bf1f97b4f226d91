"""One round over a uniform grid as fine as the people asked allow: the baseline that the paper lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.maps.density_map import Measurement
from mapveil.mechanisms.mechanism import Estimate
from mapveil.mechanisms.plan import Plan, Query, Setting
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil_client.arrays import IntArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.morton import PrefixTree


def noise_deviation(setting: Setting, epsilon: float) -> float:
    """Standard deviation of the noise on one sum of a round, users, if nobody drops out and a place counts once."""
    return math.sqrt(2 * setting.least_terms) / epsilon


def cells_at(setting: Setting, level: int) -> IntArray:
    """Codes of the nodes of one level where anybody can be, ascending."""
    held = setting.members.reshape(1 << (2 * level), -1).any(axis=1)
    return np.flatnonzero(held)


def nearest_level(setting: Setting, wanted: float) -> int:
    """The level whose number of cells is nearest to the wanted one, as a ratio; of equal ones the coarser."""
    counts = [max(cells_at(setting, level).size, 1) for level in range(setting.depth + 1)]
    return min(range(len(counts)), key=lambda level: abs(math.log(counts[level] / max(wanted, 1.0))))


@dataclass(frozen=True, kw_only=True)
class UniformGrid(SumMechanism):
    r"""Ask for every cell of one level at once; people are even inside a cell.

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
    depth : int, optional
        The level, instead of the rule's; at most the tiling's own.
    c : float
        The rule's constant, above 0.
    clip : bool
        Whether negative sums become zero.
    """

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "one round over a uniform grid, as fine as the people asked allow"
    source: ClassVar[str] = "Qardaji et al., ICDE 2013, guideline 1, over noisy sums"

    depth: int | None = None
    c: float = 10.0
    clip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.depth is None or 0 <= self.depth <= 23, "depth", "a level from 0 to 23, or none")
        self._check(self.c > 0 and math.isfinite(self.c), "c", "a number above 0")

    def level(self, setting: Setting, users: float, epsilon: Fraction) -> int:
        """The level that is asked for, of so many users with so much budget."""
        return nearest_level(
            setting, math.sqrt(2) * users / (self.c * noise_deviation(setting, float(epsilon)))
        )

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`."""
        level, budget = self.depth, self.budget
        before: tuple[Measurement, ...] = ()
        if level is None:
            number = yield from self.number_of_users(setting)
            level, budget = self.level(setting, number.users, number.rest), number.rest
            before = number.measurements(setting.members.size)
        level = min(level, setting.depth)
        codes = cells_at(setting, level)
        tree = PrefixTree.of_nodes(setting.depth, np.full(codes.shape, level), codes)
        sums = yield Query(f"every cell of level {level}", NodeEncoding(tree), budget)
        values = np.maximum(sums.values, 0.0) if self.clip else sums.values
        owner = tree.owner(np.arange(setting.members.size))
        return Estimate(
            tree.spread(values, setting.members),
            (*before, sums.measurement(owner)),
            (f"a uniform grid at level {level}; people are even inside a cell",),
        )
