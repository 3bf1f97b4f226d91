"""Flows from noisy sums: trips from and to every zone, then blocks of origins and destinations, shrunk together."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.geo.zone_order import ZoneOrder
from mapveil.inference.flow_shrinkage import (
    MeasuredBlocks,
    gravity_parent,
    settle_pairs,
    shrink_margin,
    shrink_pairs,
)
from mapveil.inference.shrinkage import pool
from mapveil.mechanisms.flow_mechanism import FlowMechanism, FlowPlan, Flows
from mapveil.mechanisms.measured_nodes import MeasuredNodes, note_on_declared
from mapveil.mechanisms.uniform_grid import COARSER, cells_at, nearest_level, quartered, tree_at, users_in_all
from mapveil.trust.queries import NoisySums, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import MarginsEncoding, NodeEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.morton import PrefixTree, deinterleave

_BLOCKS: Final = 0.8  # this and the defaults below, varied: benchmarks/flow_constants.py
_WHY_DECLARED: Final = "the blocks follow the declared number"


class Counted(NamedTuple):
    """The users that a plan starts from."""

    users: float
    root: tuple[MeasuredNodes, ...]  # their noisy number, where it was bought
    rest: Fraction  # budget that is left


@dataclass(frozen=True, kw_only=True)
class FlowBlocks(FlowMechanism):
    r"""Measure trips from and to every zone, then blocks of origins and destinations, finer where more trips are.

    A user's trips are one distribution over pairs (origin, destination), which counts 1 in all: every noisy sum carries
    one discrete Laplace variable (of a curator), and keeps epsilon whatever the number of trips. Zones lie on a line
    whose runs are districts (:func:`mapveil.geo.zone_order.zone_order`); a block is a run of origins and one of
    destinations, and has four parts: both runs halved. The queries are

    - the number of users, with ``users_share`` of a curator's budget;
    - where a pair of zones holds ``pair_signal`` w noise scales of users on average, every pair at once, and no other;
    - else every margin (trips from each zone, and to each zone) with ``margin_share`` of the rest, then the blocks of
      the level whose number is nearest to :math:`0.8 (n / s_1)^{2/3}` with ``block_share``, then leaves: a block is
      quartered while

      .. math:: E(b) \ge c\, s_2

    where: w is how many times larger the variance of a margin is as a sum of all its pairs, 1 at least, n is the number
    of users, :math:`s_1` and :math:`s_2` are the scales of the noise on a block and on a leaf, E are the estimated
    trips, and c is ``leaf_signal``. The estimate starts from a gravity model with the shrunken margins, and departs
    from it where the noisy sums of blocks, then of leaves, show it (:mod:`mapveil.inference.flow_shrinkage`).

    Parameters
    ----------
    epsilon, trust, longest, most, least, accept_large_epsilon
        See :class:`~mapveil.mechanisms.flow_mechanism.FlowMechanism`.
    margin_share, block_share : float
        Fractions of the budget for the margins and for the blocks, each from 0.0001, together at most 0.9999.
    leaf_signal : float
        c, above 0.
    pair_signal : float
        Noise scales of users of a pair, on average, from which every pair is measured; above 0.

    Source: the product of two quadtrees after Qardaji, Yang, Li (ICDE 2013); Wilson (1971) for the gravity model.
    """

    name: ClassVar[str] = "flow-blocks"

    margin_share: float = 0.2
    block_share: float = 0.2
    leaf_signal: float = 2.0
    pair_signal: float = 0.08

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = (self.margin_share, self.block_share, 1 - self.margin_share - self.block_share)
        self._check(min(shares) >= 1e-4, "margin_share", "0.0001 at least, as block_share and what is left")
        self._check_positive("leaf_signal")
        self._check_positive("pair_signal")

    def plan(self, setting: Setting, order: ZoneOrder) -> FlowPlan:
        """Ask for noisy sums of pairs of places, from the public setting on, and return an estimate."""
        counted = yield from self.counted(setting, self.budget)
        return (yield from self.flows_of(setting, order, counted))

    def counted(self, setting: Setting, budget: Fraction) -> Generator[Query, NoisySums, Counted]:
        """The number of users: as declared, or by a query."""
        if setting.clients is not None:
            return Counted(float(setting.clients), (), budget)
        part, rest = split_epsilon(budget, [setting.users_share, 1 - setting.users_share])
        tree = PrefixTree.uniform(setting.depth, 0)
        total = yield Query("number of users", NodeEncoding(tree), part)
        return Counted(users_in_all(setting, total), (MeasuredNodes(tree, total),), rest)

    def flows_of(self, setting: Setting, order: ZoneOrder, counted: Counted) -> FlowPlan:
        """The queries after the number of users."""
        users, _, budget = counted
        if not self.tells_pairs(setting, users, budget, self.pair_signal, self.margin_share):
            return (yield from self._by_blocks(setting, order, counted))
        tree = tree_at(setting, setting.depth)
        sums = yield Query("every pair of zones", NodeEncoding(tree), budget)
        return self.of_pairs(setting, order, counted, MeasuredNodes(tree, sums))

    @staticmethod
    def of_pairs(setting: Setting, order: ZoneOrder, counted: Counted, made: MeasuredNodes) -> Flows:
        """Flows of noisy sums of every pair."""
        sums = made.sums
        users = users_in_all(setting, *(each.sums for each in counted.root), sums)
        noisy = np.zeros((1 << setting.depth,) * 2)
        noisy[deinterleave(made.tree.code)] = sums.values
        zones = int(order.held.sum())
        variance, terms = zones * sums.variance, zones * sums.terms
        ends = [shrink_margin(noisy.sum(axis=axis), order.held, variance, terms, users) for axis in (1, 0)]
        parent = gravity_parent(ends[0], ends[1], order, users, _measured(made))
        blocks = (*counted.root, made)
        return Flows(
            settle_pairs(parent, _measured(made), users),
            blocks,
            None,
            note_on_declared(setting, blocks, _WHY_DECLARED),
        )

    def tells_pairs(
        self,
        setting: Setting,
        users: float,
        epsilon: Fraction,
        signal: float,
        margin_share: float,
        windows: int = 1,
    ) -> bool:
        """Whether sums of every pair, in each window, tell enough of the pairs, and of the margins too."""
        pairs = cells_at(setting, setting.depth).size
        if not setting.curator and pairs * windows > self.longest:
            return False
        # The variance of a margin as a sum of its pairs, over that of the margin's own noisy sum of sensitivity 2.
        widening = max(math.sqrt(pairs) * (margin_share / 2) ** 2, 1.0)
        return users >= signal * widening * pairs * windows * self.scale(setting, epsilon)

    def _by_blocks(self, setting: Setting, order: ZoneOrder, counted: Counted) -> FlowPlan:
        users, root, budget = counted
        shares = [self.margin_share, self.block_share, 1 - self.margin_share - self.block_share]
        margin, coarse, fine = split_epsilon(budget, shares)
        margins = yield Query("trips from and to every zone", MarginsEncoding(setting.depth), margin)
        side = 1 << setting.depth
        totals = [each.sums for each in root]
        totals += [margins._replace(values=each[order.held]) for each in np.split(margins.values, 2)]
        users = users_in_all(setting, *totals)
        ends = [
            shrink_margin(margins.values[part], order.held, margins.variance, margins.terms, users)
            for part in (slice(side, None), slice(0, side))
        ]
        level = nearest_level(setting, _BLOCKS * (users / self.scale(setting, coarse)) ** (2 / 3))
        while not setting.curator and level and cells_at(setting, level).size > self.longest / 4:
            level -= 1
        tree = tree_at(setting, level)
        blocks = MeasuredNodes(tree, (yield Query("blocks of zones", NodeEncoding(tree), coarse)))
        users = users_in_all(setting, *totals, blocks.sums)
        parent = gravity_parent(ends[0], ends[1], order, users, _measured(blocks))
        parent = shrink_pairs(parent, _measured(blocks), users)
        tree = self._leaves(setting, parent, level, fine, self.longest - tree.size)
        leaves = MeasuredNodes(tree, (yield Query("leaves of the blocks", NodeEncoding(tree), fine)))
        users = users_in_all(setting, *totals, blocks.sums, leaves.sums)
        made = settle_pairs(parent, _measured(leaves), users)
        replies = (*root, blocks, leaves)
        return Flows(made, replies, margins, note_on_declared(setting, replies, _WHY_DECLARED))

    def _leaves(
        self, setting: Setting, expected: FloatArray, level: int, epsilon: Fraction, room: int
    ) -> PrefixTree:
        """At most ``room`` nodes inside those of a level, with too few expected trips to be divided or single pairs."""

        def expected_of(level: int, codes: IntArray) -> FloatArray:
            return pool(expected, setting.depth - level)[deinterleave(codes)]

        least = self.leaf_signal * self.scale(setting, epsilon)
        while True:
            tree = quartered(setting, expected_of, level, least, setting.depth)
            if setting.curator or tree.size <= room:
                return tree
            least *= COARSER


def _measured(reply: MeasuredNodes) -> MeasuredBlocks:
    return MeasuredBlocks(reply.tree, reply.sums.values, reply.sums.variance, reply.sums.terms)
