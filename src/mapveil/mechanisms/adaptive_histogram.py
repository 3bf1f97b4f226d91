"""A histogram that learns where to look: Algorithm 2 of Bagdasaryan et al. (2022)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.adaptive_rounds import (
    RULES,
    Noise,
    SplitRule,
    epsilon_of_deviation,
    next_epsilon,
    rounded_down,
    target_deviation,
    thresholds,
)
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.mechanisms.uniform_grid import resolution_note
from mapveil.trust.queries import Estimate, NoisySums, Plan, Query, Setting
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.encodings import Encoding, NodeEncoding
from mapveil_client.errors import check
from mapveil_client.morton import PrefixTree, children, interleave

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap

_DEEPEST = 31


class RoundState(NamedTuple):
    """State of the server half after a round's sums are in."""

    asked: PrefixTree  # nodes of the vector
    sums: NoisySums
    noise: Noise  # of a node's count
    remaining: Fraction  # epsilon that is left
    target: float  # deviation aimed at for each discrete Laplace variable, users


class Verdict(NamedTuple):
    """Fate of each node asked, shape (nodes,)."""

    split: BoolArray
    collapse: BoolArray


@dataclass(frozen=True, kw_only=True)
class AdaptiveHistogram(SumMechanism):
    r"""Ask coarsely for little, divide where people are, ask again; spend the rest on the last tree, Algorithm 2.

    .. math:: \epsilon_q = \gamma\left(\epsilon_{rem},\; \phi\left(\tfrac{c}{2} \tfrac{U}{T} r^{-1/2}\right)\right),
              \qquad \text{split where } \tilde{n}_i > t, \qquad
              \text{collapse where } \tilde{n}_i \le t / 4, \qquad
              \hat{n}_x = \max(0, \tilde{n}_i) / a_i

    where: round q asks T nodes of a prefix tree for the users :math:`\tilde{n}_i` that stand at each and at none
    below it; U is the number of clients asked, r the number of discrete Laplace variables in a sum's noise,
    :math:`\phi` and :math:`\gamma` are equations 8 and 9, t is one of the paper's three thresholds
    (:mod:`mapveil.mechanisms.adaptive_rounds`), and :math:`a_i` is the area (cells) that node i stands for. A split
    adds a node's four children, a collapse deletes it: nodes with some children, or with a grandchild only, are as
    good as any. The round after one that split nothing takes the rest of the budget, and so does the last of
    ``rounds``; the map is that of the last round's sums.

    The epsilons depend on earlier answers. For pure epsilon-DP that is sound as long as they add up to at
    most the budget whatever comes out, which is checked before each round. Run by: the server.

    The noise is that of ``setting.noise_terms`` variables, as many as there are shards where nothing is
    provisioned for and more where dropouts and corrupt devices are: wherever the paper writes
    :math:`\sqrt{U / S_{max}}` the root of that number stands.

    Deviation: the area of a node divides its count, as in section 6.1; the published code divides by its side.
    Deviation: the root is never collapsed, so that everybody counts somewhere. Deviation: nodes left without a cell
    of the tiling are not asked, and those left with one are not divided.

    Source: Bagdasaryan et al. (2022), Algorithm 2, sections 5.2 to 5.6.

    Parameters
    ----------
    c : float
        Calibration, equation 7: larger means more rounds and bolder splits.
    b : float
        Expansion, equation 9: a round that would leave less than b - 1 times its cost takes all; at least 1.
    k : float
        Standard deviations that count as more than noise, equation 6.
    threshold : str or float
        When to split: ``"experiments"`` (the authors' experiments), ``"equation-6"``, ``"algorithm-2"``, or a fixed
        number of users.
    collapse : float, optional
        Nodes collapse at this fraction of the threshold, from 0 to 1: a quarter, as in Algorithm 2; never if None.
    schedule : str
        ``"calibrated"`` (equations 7 to 9), or ``"even"``: the budget over ``rounds`` in equal parts.
    rounds : int, optional
        Rounds at most; by default as many as there are levels from the start to the deepest.
    deepest : int, optional
        Level of the finest nodes; the raster's own depth by default.
    start : sequence of (level, code), optional
        Nodes of the first round, as :meth:`starting_from` makes them; the four quadrants by default.

    Examples
    --------
    >>> from mapveil.trust.queries import Setting
    >>> members = np.ones(4**5, dtype=np.int64)
    >>> plan = AdaptiveHistogram(epsilon=1).plan(Setting(5, members, 10_000, 1, Fraction(1, 10_000), 1))
    >>> query = next(plan)
    >>> query.encoding.length, round(float(query.epsilon), 4)
    (4, 0.0113)
    """

    name: ClassVar[str] = "adaptive"
    summary: ClassVar[str] = "rounds that divide the map where people are, each as dear as it must be"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, Algorithm 2"

    c: float = 0.1
    b: float = 2.0
    k: float = 2.0
    threshold: SplitRule | float = "experiments"
    collapse: float | None = 0.25
    schedule: Literal["calibrated", "even"] = "calibrated"
    rounds: int | None = None
    deepest: int | None = None
    start: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("c")
        self._check(self.b >= 1 and math.isfinite(self.b), "b", "a number of at least 1")
        self._check(self.k >= 0 and math.isfinite(self.k), "k", "a number of at least 0")
        fixed = isinstance(self.threshold, (int, float)) and not isinstance(self.threshold, bool)
        held = float(self.threshold) >= 0 if fixed else self.threshold in RULES
        self._check(held, "threshold", f"{', '.join(RULES)}, or a number of users of at least 0,")
        self._check(
            self.collapse is None or 0 <= self.collapse <= 1, "collapse", "a part from 0 to 1, or none"
        )
        self._check(
            self.rounds is None or self.rounds >= 1, "rounds", "a whole number of at least 1, or none"
        )
        self._check(
            self.deepest is None or 0 <= self.deepest <= _DEEPEST, "deepest", "a level from 0 to 31, or none"
        )
        if self.start is not None:
            object.__setattr__(self, "start", _pairs(self.start))

    def starting_from(self, earlier: DensityMap | PrefixTree, users: float | None = None) -> Self:
        r"""The same mechanism, beginning where an earlier map or tree left off (section 7: prior information).

        From a map, of any mechanism or of public data, on the tiling that will be asked about, every node is divided
        that expects more than :math:`k \sigma(\epsilon)` users: the threshold of the last round if it had the whole
        budget. The fewer rounds are needed to get there, the more is left for the counts. If the map is wrong the tree
        adapts; the answers' privacy does not depend on it. Run by: the server, before anybody is asked.

        Parameters
        ----------
        earlier : DensityMap or PrefixTree
            What is known already; a released map or a public one.
        users : float, optional
            Devices that will be asked; by default as many as ``earlier`` has users, or ``sample`` where it is less.
        """
        if isinstance(earlier, PrefixTree):
            tree = earlier
        else:
            known = float(np.maximum(earlier.values, 0.0).sum())
            expected = self.trust.asked(known) if users is None else users
            unit = self.trust.scale or 1
            most = self.k * Noise(self.trust.noise_terms(expected), unit, unit).deviation(self.budget)
            tree = expected_tree(earlier.tiling, earlier.normalised() * expected, most, self.deepest)
        pairs = zip(tree.level.tolist(), tree.code.tolist(), strict=True)
        return dataclasses.replace(self, start=tuple(pairs))

    def plan(self, setting: Setting) -> Plan:
        """Rounds until the budget is spent; see :meth:`SumMechanism.plan`."""
        deepest = setting.depth if self.deepest is None else min(self.deepest, setting.depth)
        tree = start_tree(setting.depth, deepest, self.start)
        users = yield from self.number_of_users(setting)
        remaining, final, number = users.rest, False, 0
        most = self.rounds
        while True:
            number += 1
            asked = tree.owning(setting.members)
            if most is None:
                most = max(1, deepest - int(asked.level.min(initial=deepest)) + 1)
            encoding = self._encoding(asked)
            noise = self._noise(encoding, setting)
            target = target_deviation(self.c, max(users.users, 1), max(asked.size, 1), noise.terms)
            final = final or number == most
            epsilon = remaining if final else self._epsilon(remaining, target, noise, most)
            sums = yield Query(f"round {number}: {asked.size} nodes", encoding, epsilon)
            remaining -= epsilon
            if remaining == 0:
                made = self._estimate(asked, sums, setting)
                before = users.measurements(setting.members.size)
                return made._replace(measurements=(*before, *made.measurements))
            found = noise._replace(terms=self._parts * sums.terms)
            verdict = self._verdict(RoundState(asked, sums, found, remaining, target))
            sites = asked.sites_owned((setting.members > 0).astype(np.int64))
            splittable = (asked.level < deepest) & (sites > 1)
            split = verdict.split & splittable
            tree = _updated(tree, asked, split, verdict.collapse & ~split)
            final = not split.any()

    @property
    def _parts(self) -> int:
        """Coordinates that a node's people are the sum of."""
        return 1

    def _encoding(self, asked: PrefixTree) -> Encoding:
        return NodeEncoding(asked)

    def _noise(self, encoding: Encoding, setting: Setting) -> Noise:
        moves = setting.sensitivity(encoding)
        return Noise(self._parts * max(setting.noise_terms, float(setting.alpha)), moves, setting.scale)

    def _epsilon(self, remaining: Fraction, target: float, noise: Noise, rounds: int) -> Fraction:
        if self.schedule == "even":
            return min(remaining, rounded_down(float(self.budget) / rounds))
        return next_epsilon(remaining, epsilon_of_deviation(target * noise.scale, noise.sensitivity), self.b)

    def _verdict(self, state: RoundState) -> Verdict:
        spent = state.sums.epsilon
        limits = thresholds(
            self.threshold, self.k, self.collapse, state.noise, spent, state.remaining, state.target
        )
        return Verdict(state.sums.values > limits.split, state.sums.values <= limits.collapse)

    def _estimate(self, asked: PrefixTree, sums: NoisySums, setting: Setting) -> Estimate:
        values = asked.spread(np.maximum(sums.values, 0.0), setting.members)
        measured = sums.measurement(asked.owner(np.arange(setting.members.size)))
        if not asked.size:
            return Estimate(values, (measured,))
        levels = int(asked.level.min()), int(asked.level.max())
        return Estimate(values, (measured,), (resolution_note(setting, *levels, "uniform"),))


def start_tree(depth: int, deepest: int, nodes: tuple[tuple[int, int], ...] | None) -> PrefixTree:
    """The tree of the first round on a raster of ``depth``: the four quadrants, or the ``nodes`` given; and the root.

    The root counts whoever stands at none of the nodes. Nodes deeper than ``deepest`` give way to their ancestors
    there.
    """
    if nodes is None:
        tree = PrefixTree.uniform(depth, min(1, deepest))
        level, code = tree.level, tree.code
    else:
        given, code = np.asarray(nodes, dtype=np.int64).T
        level, code = np.minimum(given, deepest), code >> 2 * np.maximum(given - deepest, 0)
    return PrefixTree.of_nodes(depth, np.append(level, 0), np.append(code, 0))


def expected_tree(tiling: Tiling, users: FloatArray, most: float, deepest: int | None = None) -> PrefixTree:
    """Divide every node that expects more than ``most`` users, down to ``deepest``: the leaves.

    Parameters
    ----------
    tiling : Tiling
        The cells.
    users : ndarray of float64, shape (tiling.size,)
        Users expected in each cell, none negative.
    most : float
        Number of users.
    deepest : int, optional
        A level; that of the tiling's lattice by default.
    """
    lattice = tiling.lattice()
    depth = lattice.depth if deepest is None else min(deepest, lattice.depth)
    site = interleave(lattice.row, lattice.col)
    finest = np.bincount(site >> 2 * (lattice.depth - depth), users, 1 << 2 * depth)
    sums = [np.asarray(finest, dtype=np.float64)]
    for _ in range(depth):
        sums.append(sums[-1].reshape(-1, 4).sum(axis=1))
    levels, codes = [], []
    reached = np.zeros(1, dtype=np.int64)
    for level, expected in enumerate(reversed(sums)):
        divided = (expected[reached] > most) & (level < depth)
        codes.append(reached[~divided])
        levels.append(np.full(codes[-1].size, level))
        reached = children(reached[divided]).reshape(-1)
    return PrefixTree.of_nodes(lattice.depth, np.concatenate(levels), np.concatenate(codes))


def _updated(tree: PrefixTree, asked: PrefixTree, split: BoolArray, collapse: BoolArray) -> PrefixTree:
    """Algorithm 2's UpdateTree: children for the split nodes, then the collapsed ones gone, but for the root."""
    divided = np.zeros(tree.size, dtype=np.bool_)
    divided[tree.find(asked.level[split], asked.code[split])] = True
    grown = tree.split(divided)
    kept = np.ones(grown.size, dtype=np.bool_)
    kept[grown.find(asked.level[collapse], asked.code[collapse])] = False
    return grown.take(kept | (grown.level == 0))


def _pairs(start: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    """The nodes as plain pairs, checked."""
    try:
        nodes = np.asarray([tuple(pair) for pair in start])
    except (TypeError, ValueError):
        nodes = np.empty(0)
    held = nodes.size > 0 and nodes.ndim == 2 and nodes.shape[1] == 2 and nodes.dtype.kind in "iu"
    held = held and int(nodes[:, 0].min()) >= 0 and int(nodes[:, 0].max()) <= _DEEPEST
    check(held, "start", f"pairs of a level from 0 to {_DEEPEST} and a Morton code of that level", start)
    level = nodes[:, 0]
    tree = PrefixTree.of_nodes(int(level.max()), level, nodes[:, 1])
    return tuple(zip(tree.level.tolist(), tree.code.tolist(), strict=True))
