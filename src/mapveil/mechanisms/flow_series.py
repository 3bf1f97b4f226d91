"""Flows over time: those of all windows together, then margins and blocks of pairs in each window, shrunk over time."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import Parts, WindowedPoints, check_numbering, windowed
from mapveil.geo.zone_order import ZoneOrder
from mapveil.inference.shrinkage import pool
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.maps.flow_sums import FlowSums
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.mechanisms.flow_blocks import Counted, FlowBlocks
from mapveil.mechanisms.flow_mechanism import FlowPlan, Flows
from mapveil.mechanisms.measured_nodes import MeasuredNodes, off_raster
from mapveil.mechanisms.uniform_grid import tree_at
from mapveil.mechanisms.window_blocks import (
    LEAST_SHARE,
    OverWindows,
    blocks_of_windows,
    blocks_over_time,
    widened,
)
from mapveil.privacy.claim import Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.curator import Curator
from mapveil.trust.queries import NoisySums, Query, Raster, Setting
from mapveil_client.arrays import FloatArray, IntArray, quotient
from mapveil_client.encodings import Encoding, LabelEncoding, MarginsEncoding, NodeEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import ParameterError
from mapveil_client.morton import PrefixTree, deinterleave, interleave

_MOST_SITES: Final = 1 << 27  # pairs of places in all windows, whose exact sums are 1 GiB
# pooled_share 0.35 to 0.65, window_margin_share 0.2 to 0.6 and window_signal 1 to 8 were tried on a tuning table.


class _InWindows(NamedTuple):
    """Replies about every window, and what the pairs of places are in each."""

    tree: PrefixTree  # blocks that were measured
    blocks: NoisySums  # of every block in every window
    margins: NoisySums | None  # none where every pair was measured
    pairs: FloatArray  # users of each site of the deepest block, shape (windows, sites)


@dataclass(frozen=True, kw_only=True)
class FlowSeries(OverWindows, FlowBlocks):
    r"""Measure the flows of all windows together, then margins and blocks of pairs in every window.

    A share of the budget makes the flows of all windows (:class:`~mapveil.mechanisms.flow_blocks.FlowBlocks`). With the
    rest one query asks for the trips from and to every zone in each window, and one for each block of origins and
    destinations in each window, quartered by the rule of :class:`~mapveil.mechanisms.window_blocks.OverWindows`.
    Blocks of a window follow by shrinkage over time (:mod:`mapveil.inference.window_shrinkage`);
    inside a block pairs lie as in all windows. The margins make the intervals of outflows and inflows; fitted to them,
    the flows of windows were further from the true ones on a table of the tune role.

    Where on average a pair of zones holds half of ``window_signal`` noise scales of the windows' budget in a window,
    and w times as many (as for :class:`~mapveil.mechanisms.flow_blocks.FlowBlocks`), the only query after the number of
    users is for every pair in every window, with the whole budget: of few zones its sums tell the margins better.
    Blocks and the flows of all windows are then sums of pairs; a block of m pairs is quartered as if its users were
    :math:`\sqrt{m / 4}` times fewer, since the noise of its quarters is as many times wider.

    A user's trips in all windows are one distribution over origins, destinations and windows: one discrete Laplace
    variable on each sum keeps epsilon for all windows together. With ``windows_per_user`` k a user counts 1 in each of
    at most k windows, chosen by a keyed hash, and the noise is k times as wide. Clients of secure sums and of two
    operators divide their trips themselves; ``longest`` then bounds what they send about blocks of all windows
    together, about blocks in every window, and about margins, each by itself.

    Parameters
    ----------
    windows, windows_per_user, pooled_share, window_signal
        See :class:`~mapveil.mechanisms.window_blocks.OverWindows`; a trip lies in the window of its row's time, and
        ``windows_per_user`` is for a curator only.
    window_margin_share : float
        Fraction of the windows' budget for the margins, from 0.0001 to 0.9999.
    """

    name: ClassVar[str] = "flow-series"

    window_margin_share: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.window_margin_share
        held = LEAST_SHARE <= share <= 1 - LEAST_SHARE
        self._check(held, "window_margin_share", f"a number from {LEAST_SHARE} to {1 - LEAST_SHARE}")
        if self.windows_per_user is not None and not isinstance(self.trust, Curator):
            raise ParameterError(
                "windows_per_user (--windows-per-user) needs trust central: each client of a secure sum divides 1 over "
                "all windows"
            )

    @property
    def block_budget(self) -> Fraction:
        """The part of the budget for the blocks in every window."""
        return self._window_budgets[1]

    @property
    def _window_budgets(self) -> tuple[Fraction, ...]:
        """The parts for the margins and for the blocks in every window."""
        return split_epsilon(self.window_budget, [self.window_margin_share, 1 - self.window_margin_share])

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        return super().parameters() | {"windows": self.windows.to_dict()}

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        made = super().guarantee(shares, seeded=seeded)
        return dataclasses.replace(made, bound=made.bound and made.bound.times(self.contribution))

    def scale(self, setting: Setting, epsilon: Fraction) -> float:
        """The scale of the noise on a sum, users, as wide as a user's contribution makes it."""
        return super().scale(setting, epsilon / self.contribution)

    def numbered(self, trips: Points) -> WindowedPoints:
        """The trips with the number of each row's window, and what bounds a user's contribution."""
        parts = None if self.windows_per_user is None else Parts(1, self.windows_per_user)
        check_numbering(trips, self.windows, parts)
        return trips if isinstance(trips, WindowedPoints) else windowed(trips, self.windows, parts)

    def shape_of_sums(self, zones: Tiling) -> tuple[int, ...]:
        """The shape of a curator's exact sums."""
        return (self.windows.count, zones.size**2)

    def check_zones(self, zones: Tiling) -> None:
        """Refuse zones, or pairs of their places in all windows, that are too many."""
        super().check_zones(zones)
        depth = (zones.size - 1).bit_length()
        if self.windows.count << 2 * depth > _MOST_SITES:
            most = 1 << ((_MOST_SITES // self.windows.count).bit_length() - 1) // 2
            raise ParameterError(
                f"zones must be at most {most} for flows in each of {self.windows.count} windows, got {zones.size}; "
                "give fewer zones or windows"
            )
        ends = self.windows.count * MarginsEncoding(depth).length
        if not isinstance(self.trust, Curator) and ends > self.longest:
            raise ParameterError(
                f"both ends of trips in {self.windows.count} windows of {zones.size} zones are {ends} coordinates of "
                f"each device, and longest allows {self.longest}; give fewer zones or windows, or raise longest"
            )

    def raster(self, order: ZoneOrder) -> Raster:
        """Pairs of places, in each window."""
        return dataclasses.replace(super().raster(order), labels=self.windows.count)

    def plan(self, setting: Setting, order: ZoneOrder) -> FlowPlan:
        """The queries of the flows of all windows, then margins and blocks in every window."""
        rest = self.window_budget
        if self.contribution > 1:
            # The sums count a user in each of several windows: their total is not the number of users.
            setting = setting._replace(clients=None)
        counted = yield from widened(self.counted(setting, self.budget - rest), self.contribution)
        count, depth = self.windows.count, setting.depth
        about = self.window_signal / 2, self.window_margin_share, count
        if self.tells_pairs(setting, counted.users, rest, *about):
            return (yield from self._by_pairs(setting, order, counted))
        pooled = yield from widened(self.flows_of(setting, order, counted), self.contribution)
        margin, fine = self._window_budgets
        margins = yield from self._in_windows("trips from and to every zone", MarginsEncoding(depth), margin)
        tree = self._blocks_of_windows(setting, pooled.values, fine)
        blocks = yield from self._in_windows("blocks", NodeEncoding(tree), fine)
        pairs = _over_time(setting, pooled.values, tree, blocks)
        return pooled._replace(in_windows=_InWindows(tree, blocks, margins, pairs))

    def _by_pairs(self, setting: Setting, order: ZoneOrder, counted: Counted) -> FlowPlan:
        """The same from sums of every pair in every window alone: they tell margins, and all windows together, too."""
        tree, whole = tree_at(setting, setting.depth), counted.rest + self.window_budget
        sums = yield from self._in_windows("every pair of zones", NodeEncoding(tree), whole)
        count = self.windows.count
        together = sums._replace(
            values=sums.values.sum(axis=1), variance=count * sums.variance, terms=count * sums.terms
        )
        pooled = self.of_pairs(setting, order, counted, MeasuredNodes(tree, together))
        coarse = self._blocks_of_windows(setting, pooled.values, whole, added=True)
        block = coarse.owner(tree.code)
        values = np.zeros((coarse.size, count))
        np.add.at(values, block, sums.values)
        added = np.bincount(block, minlength=coarse.size)
        pairs = _over_time(setting, pooled.values, coarse, sums._replace(values=values), added)
        return pooled._replace(in_windows=_InWindows(tree, sums, None, pairs))

    def _in_windows(
        self, what: str, encoding: Encoding, epsilon: Fraction
    ) -> Generator[Query, NoisySums, NoisySums]:
        """Noisy sums of an encoding in every window, of shape (coordinates, windows)."""
        count = self.windows.count
        reply = yield Query(
            f"{what} in {count} windows",
            LabelEncoding(encoding, count),
            epsilon,
            contribution=self.contribution,
        )
        return reply._replace(values=reply.values.reshape(-1, count))

    def _blocks_of_windows(
        self, setting: Setting, pooled: FloatArray, epsilon: Fraction, *, added: bool = False
    ) -> PrefixTree:
        """The blocks that are asked for in every window, or whose pairs' noisy sums are ``added`` up."""
        least = self.least_users(self.scale(setting, epsilon))

        def users_of(level: int, codes: IntArray) -> FloatArray:
            users = pool(pooled, setting.depth - level)[deinterleave(codes)]
            if not added:
                return users
            pairs = (setting.members.reshape(1 << (2 * level), -1) > 0).sum(axis=1)[codes]
            return np.asarray(
                users / np.sqrt(np.maximum(pairs / 4, 1))
            )  # the noise of a part grows by as much

        longest = None if setting.curator else self.longest
        return blocks_of_windows(setting, users_of, self.windows.count, least, longest)

    def map_of(self, made: Flows, zones: Tiling, order: ZoneOrder, claim: Guarantee) -> FlowMap:
        """Make a series of the plan's result."""
        flows = super().map_of(made, zones, order, claim)
        found = made.in_windows
        assert isinstance(found, _InWindows)
        by_window, totals = _listed(
            made.values, found, order.place[flows.origin], order.place[flows.destination]
        )
        parts: tuple[LabelMeasurement, ...] = ()
        if found.margins is not None:
            halves = np.split(found.margins.values, 2)[::-1]
            parts = tuple(_labelled(order.place, half, found.margins) for half in halves)
        sums = FlowSums(
            order.place,
            found.tree,
            (_labelled(np.arange(found.tree.size), found.blocks.values, found.blocks),),
            parts,
        )
        blocks = f"{found.tree.size} block{'s' * (found.tree.size > 1)}"
        ends = "by the trips from and to every zone"
        note = f"each window was measured in {blocks} of origins and destinations, and {ends}"
        if found.margins is None:
            note = "every pair of zones was measured in each window"
        pooled = [f"all windows together: {each}" for each in flows.notes]
        flows = dataclasses.replace(flows, notes=(*pooled, note))
        rest = np.maximum(totals - by_window.sum(axis=1), 0.0)
        return FlowSeriesMap.of(flows, self.windows, by_window, rest, sums)


def _labelled(groups: IntArray, by_label: FloatArray, sums: NoisySums) -> LabelMeasurement:
    return LabelMeasurement(
        groups,
        by_label.sum(axis=1),
        sums.epsilon,
        sums.scale,
        sums.terms * by_label.shape[1],
        sums.sensitivity,
        by_label=by_label,
    )


def _over_time(
    setting: Setting, pooled: FloatArray, tree: PrefixTree, sums: NoisySums, added: IntArray | None = None
) -> FloatArray:
    """Users of each site of the deepest block in each window, shape (windows, sites)."""
    coarse = off_raster(pool(pooled, setting.depth - int(tree.level.max(initial=0))))
    return blocks_over_time(setting, coarse, tree, sums, added)


def _listed(
    pooled: FloatArray, found: _InWindows, row: IntArray, col: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Users of the listed pairs of places in each window, which add up to the pooled ones; and of all pairs."""
    down = (pooled.size // found.pairs.shape[1]).bit_length() // 2
    site = interleave(row >> down, col >> down)
    each = quotient(pooled[row, col], off_raster(pool(pooled, down))[site])
    return found.pairs[:, site] * each, found.pairs.sum(axis=1)
