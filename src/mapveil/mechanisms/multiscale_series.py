"""Multiscale over time: the map of all windows together, then blocks of it in each window, shrunk over time."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import Parts, WindowedPoints, check_numbering, windowed
from mapveil.maps.counting import counting_note
from mapveil.maps.density_map import DensityMap
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.maps.round_cost import RoundCost
from mapveil.maps.series_map import SeriesMap, blocks_note
from mapveil.mechanisms.multiscale import Blocks, Multiscale
from mapveil.mechanisms.uniform_grid import noise_deviation
from mapveil.mechanisms.window_blocks import OverWindows, blocks_of_windows, blocks_over_time, widened
from mapveil.privacy.claim import Assumes, Share, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Estimate, NoisySums, Plan, Query, Raster, Setting
from mapveil_client.arrays import FloatArray, IntArray, quotient
from mapveil_client.encodings import LabelEncoding, NodeEncoding
from mapveil_client.epsilon import readable
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.morton import PrefixTree

# pooled_share 0.2 to 0.6 and window_signal 1 to 16 were tried on three tuning tables with time, at epsilon 0.5 to 8.


@dataclass(frozen=True, kw_only=True)
class MultiscaleSeries(OverWindows, Multiscale):
    r"""Measure the map of all windows together, then blocks of it in every window at once.

    A share of the budget makes the map of all windows (:class:`~mapveil.mechanisms.multiscale.Multiscale`). With the
    rest one query asks for each block in each window, quartered by the rule of
    :class:`~mapveil.mechanisms.window_blocks.OverWindows`. The map of each window follows by shrinkage over time
    (:mod:`mapveil.inference.window_shrinkage`); inside a block, users lie as on the map of all windows.

    A user's rows in all windows are one distribution over cells and windows: one discrete Laplace variable on each sum
    keeps epsilon for all windows together, whatever their number. With ``windows_per_user`` k a user counts 1 in each
    of at most k windows, chosen by a keyed hash, and the noise is k times as wide. With ``per`` "user-week" the promise
    is for the rows of one user in one week, and the account is charged epsilon for every week.

    Parameters
    ----------
    per : str
        The unit: ``"user"`` or ``"user-week"``.
    windows, windows_per_user, pooled_share, window_signal
        See :class:`~mapveil.mechanisms.window_blocks.OverWindows`; ``windows_per_user`` is for a curator only, and not
        with ``per`` "user-week".
    """

    name: ClassVar[str] = "multiscale-series"
    summary: ClassVar[str] = "a map of all windows, then blocks of it in each window, shrunk over time"

    per: Literal["user", "user-week"] = "user"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per == "user-week" and self.windows_per_user is not None:
            raise ParameterError(
                "windows_per_user must be left out with per user-week, whose unit counts 1 a week"
            )
        # Asking for the parts refuses windows that do not lie within weeks.
        if self.parts is not None and not isinstance(self.trust, Curator):
            raise ParameterError(
                "per user-week and windows_per_user (--windows-per-user) need trust central: each client of a secure "
                "sum divides 1 over all windows"
            )

    @property
    def parts(self) -> Parts | None:
        """The parts of the windows in which a user contributes 1 each; None for 1 over all."""
        if self.per == "user-week":
            return Parts(tuple(np.bincount(self.windows.week_of).tolist()))
        return None if self.windows_per_user is None else Parts(1, self.windows_per_user)

    @property
    def charged(self) -> Fraction:
        """Epsilon that a release costs every user: the budget, once for each week where the unit is a user-week."""
        return self.units_of_user * self.budget

    @property
    def units_of_user(self) -> int:
        """Units that one user's rows are in at most."""
        return int(self.windows.week_of.max()) + 1 if self.per == "user-week" else 1

    @property
    def divided_from(self) -> float:
        """Users over all windows together from which a curator measures each window in more than one block."""
        return self.least_users(self.contribution / float(self.window_budget))

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        return super().parameters() | {"windows": self.windows.to_dict()}

    def check_source(self, points: Any) -> None:
        """Refuse data without rows, which have no windows."""
        if not isinstance(points, WindowedPoints) and isinstance(points, Points | Counts):
            raise InputError(f"{points.source}: a series needs a table of points whose windows are numbered")
        check_numbering(points, self.windows, self.parts)

    def numbered(self, points: Points) -> WindowedPoints:
        """The points with the number of each row's window, and what bounds a user's contribution."""
        return windowed(points, self.windows, self.parts)

    def shape_of_sums(self, tiling: Tiling) -> tuple[int, ...]:
        """The shape of a curator's exact sums."""
        return (self.windows.count, tiling.size)

    def raster(self, tiling: Tiling) -> Raster:
        """The sites, in each window."""
        return dataclasses.replace(super().raster(tiling), labels=self.windows.count)

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        made = super().guarantee(shares, seeded=seeded)
        unit = Unit.USER_WEEK if self.per == "user-week" else Unit.USER
        assumptions = made.assumptions
        if unit is Unit.USER_WEEK:
            units = Assumes.UNITS_OF_USER(units=self.units_of_user)
            assumptions = (*assumptions, Assumes.COMPOSES(), units)
        bound = made.bound and made.bound.times(self.contribution)
        return dataclasses.replace(made, unit=unit, bound=bound, assumptions=assumptions)

    def level(self, setting: Setting, users: float, epsilon: Fraction) -> int:
        """The rule's level, where the noise is as wide as a unit's contribution makes it."""
        return super().level(setting, users, epsilon / self.contribution)

    def _depths(self, setting: Setting, blocks: Blocks, epsilon: float) -> IntArray:
        return super()._depths(setting, blocks, epsilon / self.contribution)

    def plan(self, setting: Setting) -> Plan:
        """The queries of the map of all windows, then one of every block in every window."""
        rest = self.window_budget
        part = self.budget - rest
        room = None if self.longest is None else max(self.longest // 2, 1)
        if setting.curator and (self.contribution > 1 or self.per == "user-week"):
            # A user counts in several windows: the sums' total is not the declared number.
            setting = setting._replace(clients=None)
        pooled = yield from widened(
            Multiscale.plan(dataclasses.replace(self, epsilon=part, longest=room), setting), self.contribution
        )
        tree = self._blocks_of_windows(setting, pooled.values, float(rest), room)
        encoding = LabelEncoding(NodeEncoding(tree), self.windows.count)
        purpose = f"blocks in {self.windows.count} windows"
        sums: NoisySums = yield Query(purpose, encoding, rest, contribution=self.contribution)
        noisy = sums.values.reshape(-1, self.windows.count)
        sites = np.arange(setting.members.size)
        measured = LabelMeasurement(
            tree.owner(sites),
            noisy.sum(axis=1),
            sums.epsilon,
            sums.scale,
            sums.terms * self.windows.count,
            sums.sensitivity,
            by_label=noisy,
        )
        by_window = _divided(setting, pooled.values, tree, sums._replace(values=noisy))
        notes = (blocks_note(tree.size), counting_note(self.parameters()), *self._whole_note())
        return Estimate(pooled.values, (*pooled.measurements, measured), (*pooled.notes, *notes), by_window)

    def _whole_note(self) -> tuple[str, ...]:
        """A note on what a user's rows in all weeks cost together, where the unit is a user-week."""
        if self.per != "user-week":
            return ()
        weeks = int(self.charged / self.budget)
        return (
            f"epsilon is for a user's rows in one week, and {readable(self.charged)} for all {weeks} "
            f"week{'s' if weeks > 1 else ''} together",
        )

    def _blocks_of_windows(
        self, setting: Setting, pooled: FloatArray, epsilon: float, longest: int | None
    ) -> PrefixTree:
        """The blocks that are asked for in every window."""
        # As of a curator, whose noise has the deviation sqrt(2) times its scale.
        least = self.least_users(noise_deviation(setting, epsilon / self.contribution) / math.sqrt(2))
        users = [pooled]
        for _ in range(setting.depth):
            users.append(users[-1].reshape(-1, 4).sum(axis=1))
        users.reverse()
        return blocks_of_windows(
            setting,
            lambda level, codes: users[level][codes],
            self.windows.count,
            least,
            None if setting.curator else longest,
        )

    def map_of(
        self,
        made: Estimate,
        tiling: Tiling,
        revealed: tuple[Share, ...],
        costs: tuple[RoundCost, ...],
        *,
        seeded: bool = False,
        raster: Raster | None = None,
    ) -> DensityMap:
        """Make a series of an estimate per site."""
        raster = raster or self.raster(tiling)
        heat = super().map_of(made, tiling, revealed, costs, seeded=seeded, raster=raster)
        by_window = raster.on_cells(made).by_window
        *pooled, measured = heat.measurements
        assert by_window is not None
        assert isinstance(measured, LabelMeasurement)
        heat = dataclasses.replace(heat, measurements=tuple(pooled))
        return SeriesMap.of(heat, self.windows, by_window, (measured,))


def _divided(setting: Setting, pooled: FloatArray, tree: PrefixTree, sums: NoisySums) -> FloatArray:
    """Users of each site in each window, shape (windows, sites)."""
    below = 1 << (2 * (setting.depth - int(tree.level.max(initial=0))))
    coarse = pooled.reshape(-1, below).sum(axis=1)
    each = quotient(pooled, np.repeat(coarse, below))
    return np.asarray(np.repeat(blocks_over_time(setting, coarse, tree, sums), below, axis=1) * each)
