r"""Mechanisms that measure levels of the quadtree, and the choice of the level to show, from the noise alone.

A level shown over a subregion divides each node's noisy sum evenly among its cells. Its expected squared error,
summed over the cells, is the noise it keeps and the detail it loses:

.. math:: R_l = \sum_v \frac{\sigma_l^2}{m_v} + \sum_x c_x^2 - \sum_v \frac{n_v^2}{m_v}, \qquad
    \hat{R}_l = \sum_v \frac{2 \sigma_l^2 - y_v^2}{m_v}

where: v are the nodes of level l in the subregion, :math:`n_v` is a node's true sum, :math:`y_v` its noisy one,
:math:`\sigma_l^2` the variance of the noise, :math:`m_v` the node's cells that can hold anybody and :math:`c_x` the
true count of cell x. Since :math:`\mathrm{E}[y_v^2] = n_v^2 + \sigma_l^2`, the estimate :math:`\hat{R}_l` is
unbiased up to :math:`\sum c_x^2`, the same for every level: the level of the least is chosen. The rule reads released
sums only, so it costs no privacy.

Subregions must be large for this: where few nodes are compared, the least estimate is mostly the one of the luckiest
noise. Source: Mallows (1973) and Stein (1981) for the unbiased estimate of risk.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil.maps.measurement import Measurement
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.queries import NoisySums, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray, quotient
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import LevelEncoding, level_members


class LevelSums(NamedTuple):
    """Noisy sums of all nodes of one level."""

    level: int
    sums: FloatArray  # users, in Morton order, shape (4**level,)
    variance: float  # of each, users squared


class AskedLevels(NamedTuple):
    """Replies to queries of one level each."""

    measured: list[LevelSums]
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, kw_only=True)
class LevelMechanism(SumMechanism):
    """A mechanism that measures levels of the quadtree and shows each subregion at one of them.

    Parameters
    ----------
    deepest : int, optional
        The finest level asked for; that of the sites (at most ``finest``) by default.
    level : int, optional
        Show this level everywhere, instead of the rule's.
    subregions : int
        A subregion is a node of this level: with 2 a sixteenth of the map, with 0 the whole.
    """

    coarsest: ClassVar[int] = 1
    finest: ClassVar[int] = 31

    deepest: int | None = None
    level: int | None = None
    subregions: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("deepest", "level"):
            given = getattr(self, name)
            self._check(
                given is None or given >= self.coarsest, name, f"a level of at least {self.coarsest}, or none"
            )
        self._check(self.subregions >= 0, "subregions", "a level of at least 0")

    def levels(self, setting: Setting) -> tuple[int, ...]:
        """The levels that are asked for, coarse before fine."""
        deepest = min(self.finest if self.deepest is None else self.deepest, setting.depth)
        levels = tuple(range(min(self.coarsest, deepest), deepest + 1))
        require_level(self.level, levels)
        return levels

    def chosen(self, measured: Sequence[LevelSums], setting: Setting) -> IntArray:
        """The level of each subregion: the one that ``level`` names, or the rule's."""
        if self.level is not None:
            return np.array([self.level])
        return choose_levels(measured, setting.members, self.subregions)


def ask_levels(
    setting: Setting, levels: Sequence[int], budgets: Sequence[Fraction]
) -> Generator[Query, NoisySums, AskedLevels]:
    """Ask for each level by a query of its own."""
    measured, measurements = [], []
    for level, budget in zip(levels, budgets, strict=True):
        encoding = LevelEncoding.of_members(setting.depth, (level,), setting.members)
        sums = yield Query(f"level {level}", encoding, budget)
        measured.append(LevelSums(level, encoding.fill(0, sums.values), sums.variance))
        measurements.append(sums.measurement(encoding.groups(0)))
    return AskedLevels(measured, tuple(measurements))


def require_level(level: int | None, levels: Sequence[int]) -> None:
    """Refuse a level that is not among those measured; raise ParameterError."""
    if level is not None and level not in levels:
        raise ParameterError(f"level must be from {min(levels)} to {max(levels)} on this map, got {level}")


def choose_levels(measured: Sequence[LevelSums], members: IntArray, subregions: int) -> IntArray:
    """The level of least estimated error in each subregion. Run by: the server.

    Parameters
    ----------
    measured : sequence of LevelSums
        One for each level, coarse before fine.
    members : ndarray of int64, shape (4**depth,)
        Cells that can hold anybody on each site, in Morton order.
    subregions : int
        A subregion is a node of this level (of the finest measured one, where this is finer); levels coarser than
        that are not chosen.

    Returns
    -------
    ndarray of int64, shape (4**subregions,)
        The coarser of equal levels.
    """
    held = level_members(members)
    cut = min(subregions, measured[-1].level)
    able = [each for each in measured if each.level >= cut]
    risks = []
    for each in able:
        risk = quotient(2 * each.variance - each.sums**2, held[each.level])
        risks.append(risk.reshape(1 << (2 * cut), -1).sum(axis=1))
    return np.asarray(np.array([each.level for each in able])[np.argmin(risks, axis=0)])


def show_levels(measured: Sequence[LevelSums], members: IntArray, chosen: IntArray) -> FloatArray:
    """Each site's part of the node it is shown at; negative nodes become zero. Run by: the server.

    Parameters
    ----------
    measured, members
        As for :func:`choose_levels`.
    chosen : ndarray of int64, shape (4**k,)
        The level of each subregion.

    Returns
    -------
    ndarray of float64, shape (4**depth,)
        Users per site, in Morton order.
    """
    held = level_members(members)
    values = np.zeros(members.size).reshape(chosen.size, -1)
    for each in measured:
        shown = chosen == each.level
        if not shown.any():
            continue
        density = quotient(np.maximum(each.sums, 0.0), held[each.level]).reshape(chosen.size, -1)[shown]
        values[shown] = density.repeat(values.shape[1] // density.shape[1], axis=1)
    return values.reshape(-1) * members
