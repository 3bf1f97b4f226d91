"""Sums of users and of their signal's residual, on several levels: what a coverage map is made of."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from mapveil.engines import UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.inference.tree_least_squares import tree_least_squares
from mapveil.maps.density_map import DensityMap
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.mechanisms.mechanism import check_tiling
from mapveil.mechanisms.uniform_grid import GridMechanism, held_at, nearest_level, noise_deviation
from mapveil.privacy.claim import Assumes, Share, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Estimate, Execution, NoisySums, Plan, Query, Raster, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import LabelEncoding
from mapveil_client.errors import InputError
from mapveil_client.level_encoding import LevelEncoding

if TYPE_CHECKING:
    from mapveil_client.contribution import Devices

WEAK, STRONG = 0, 1
"""Labels of a contribution: its residual divides its weight between the two."""

COVERAGE_UNITS: Final = (Unit.USER, Unit.DAY, Unit.TRACE)
"""Units that a guarantee of coverage can be about."""

FINEST_LEVEL: Final = 5
"""Finest level of nodes: a correction costs the cube of their number."""

_LABELS: Final = 2


def check_residuals(points: Points | Counts | UserSums | Devices) -> None:
    """Refuse data without residuals.

    Raises
    ------
    InputError
        Counts, or a table without labels.
    """
    if isinstance(points, Counts) or (isinstance(points, Points) and points.columns.label is None):
        raise InputError(f"{points.source} has no residuals: coverage needs measurements of signal strength")


@dataclass(frozen=True, kw_only=True)
class SignalSums(GridMechanism):
    r"""Ask for the weight of users, and for that of their residuals, in every node of some levels.

    A unit (``unit``) divides a weight of 1 over the cells it measured, and the weight w of a cell between two labels:

    .. math:: w^{\mathrm{strong}} = \frac{w}{2} \Big(1 + \frac{r}{B}\Big), \qquad
              w^{\mathrm{weak}} = \frac{w}{2} \Big(1 - \frac{r}{B}\Big)

    where: r is the mean of the unit's residuals in the cell, each clipped to :math:`\pm B` dB
    (:mod:`mapveil.analysis.coverage_contributions`). The sum of both labels counts users, and B times their difference
    is the sum of clipped residuals: bounded counts and sums of dBm, at the L1 norm of a count alone. Both are asked for
    in every node of the last ``levels`` levels down to the finest, and of the root: with as many copies the noise of
    each is that of a query of its own at an even part of the budget. The finest level is the one whose number of nodes
    is nearest to

    .. math:: m^2 = \frac{\sqrt 2\, n}{c\, \sigma}

    where: n is the number of units, :math:`\sigma` the standard deviation of the noise on a sum, c is ``c``.

    Source: the rule is that of Qardaji, Yang, Li (ICDE 2013), guideline 1; the levels are those of Bagdasaryan et al.
    (2022), section 5.1.

    Parameters
    ----------
    depth
        See :class:`~mapveil.mechanisms.uniform_grid.GridMechanism`.
    levels : int
        Levels asked for besides the root, at least 1.
    c : float
        The rule's constant, above 0; not tuned.
    unit : str
        What the guarantee is about: ``"user"``; or ``"user's day"`` or ``"trace"``, where a user has several of them,
        whose epsilons add up.
    """

    name: ClassVar[str] = "signal-sums"
    summary: ClassVar[str] = "how many measured each place, and how far from a published map: coverage"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 5.1 and appendix B, with residuals for labels"

    levels: int = 2
    c: float = 8.0
    unit: str = "user"

    def __post_init__(self) -> None:
        super().__post_init__()
        deep = self.depth is not None and self.depth > FINEST_LEVEL
        self._check(not deep, "depth", f"a level from 0 to {FINEST_LEVEL}, or none")
        self._check(1 <= self.levels <= 16, "levels", "a whole number from 1 to 16")
        self._check_positive("c")
        self._check(self.unit in COVERAGE_UNITS, "unit", f"one of {', '.join(COVERAGE_UNITS)}")

    def check_source(self, points: Points | Counts | UserSums | Devices) -> None:
        """Refuse data without residuals."""
        super().check_source(points)
        check_residuals(points)

    def level(self, setting: Setting, users: float, epsilon: Fraction) -> int:
        """The finest level for so many units with so much budget."""
        deviation = noise_deviation(setting, float(epsilon))
        return min(nearest_level(setting, math.sqrt(2) * users / (self.c * deviation)), FINEST_LEVEL)

    def raster(self, tiling: Tiling) -> Raster:
        """See :meth:`SumMechanism.raster`: locations are weak or strong."""
        return Raster.of(tiling.lattice(), _LABELS)

    def asked_levels(self, finest: int) -> tuple[int, ...]:
        """The root, and the last levels down to the finest."""
        return tuple(sorted({0, *range(max(finest - self.levels + 1, 0), finest + 1)}))

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`."""
        finest, budget, total = yield from self.grid_level(setting)
        levels = self.asked_levels(finest)
        encoding = LevelEncoding.of_members(setting.depth, levels, setting.members)
        sums = yield Query("users and residuals by level", LabelEncoding(encoding, _LABELS), budget)
        by_label = sums.values.reshape(-1, _LABELS)
        counts = by_label.sum(axis=1)
        variance = _LABELS * sums.variance
        return Estimate(
            _users(setting, encoding, counts, variance),
            (
                *(each.measurement(np.zeros(setting.members.size, dtype=np.int64)) for each in total),
                *(_level(sums, encoding, index, by_label) for index in range(len(levels))),
            ),
            (f"users and residuals were asked for at levels {', '.join(map(str, levels))}",),
        )

    def rehearse(self, tiling: Tiling) -> None:
        """Refuse what the plan would refuse, on cells without anybody."""
        check_tiling(tiling)

    def execute(
        self, points: Points | Counts | UserSums | Devices, cells: Tiling, execution: Execution
    ) -> DensityMap:
        """Answer the plan; a curator sums the table by label first."""
        if isinstance(points, Points) and self.trust.name == "central":
            points = user_sums(points, cells, progress=execution.progress, labels=_LABELS)
        return super().execute(points, cells, execution)

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release, about one ``unit``."""
        made = super().guarantee(shares, seeded=seeded)
        made = dataclasses.replace(made, assumptions=(*made.assumptions, Assumes.PILOT_PUBLIC()))
        unit = Unit(self.unit)
        if unit is Unit.USER:
            return made
        return dataclasses.replace(made, unit=unit, assumptions=(Assumes.COMPOSES(), *made.assumptions))


def _level(sums: NoisySums, encoding: LevelEncoding, index: int, by_label: FloatArray) -> LabelMeasurement:
    own = encoding.coordinates(index)
    return LabelMeasurement(
        encoding.groups(index),
        by_label[own].sum(axis=1),
        sums.epsilon,
        sums.scale,
        _LABELS * sums.terms,
        sums.sensitivity,
        by_label=by_label[own],
    )


def _users(setting: Setting, encoding: LevelEncoding, counts: FloatArray, variance: float) -> FloatArray:
    """Users per site: consistent over the levels, even inside the finest nodes, none below zero."""
    finest = max(encoding.levels)
    noisy = [np.zeros(1 << (2 * level)) for level in range(finest + 1)]
    spread = [math.inf] * (finest + 1)
    for index, level in enumerate(encoding.levels):
        noisy[level], spread[level] = encoding.fill(index, counts), variance
    empty = [~held_at(setting, level) for level in range(finest + 1)]
    users = np.maximum(tree_least_squares(noisy, spread, empty)[-1], 0.0)
    members = setting.members.reshape(1 << (2 * finest), -1)
    held: IntArray = members.sum(axis=1)
    even = np.divide(users, held, out=np.zeros(users.shape), where=held > 0)
    return np.asarray((members * even[:, None]).reshape(-1), dtype=np.float64)
