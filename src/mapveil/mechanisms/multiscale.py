"""Multiscale: noisy sums of blocks, then of their parts, shrunk at all scales and shifts, sloping inside cells."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil.inference.empty_cells import emptied
from mapveil.inference.interpolation import Known, interpolate, slope_exponent
from mapveil.inference.local_dimension import local_dimension
from mapveil.inference.shrinkage import multiscale_shrinkage, pool, spread
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.measured_nodes import (
    MeasuredNodes,
    consistent,
    leaf_nodes,
    measurements_of,
    note_on_declared,
    off_raster,
    on_raster,
    row_by_row,
    shrink_replies,
    weights_of,
)
from mapveil.mechanisms.mechanism import PriorMechanism
from mapveil.mechanisms.sum_mechanism import UserNumber
from mapveil.mechanisms.uniform_grid import (
    COARSER,
    GridMechanism,
    cells_at,
    nearest_level,
    no_longer,
    noise_deviation,
    resolution_note,
    tree_at,
)
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Estimate, NoisySums, Plan, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import NodeEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.morton import PrefixTree, deinterleave

# Chosen on six maps together; docs/reference/mechanism-constants.md varies each on others.
# In noise deviations of a cell: below it no difference counts. 0.25 or 1: 0.5 % of the error at most.
_FLOOR = 0.5
# Quarterings of a block, which bounds the second vector; 4 is as good for maps of 128 x 128 cells, 2 is not.
_DEEPEST = 6
_BLOCKS, _BLOCKS_OF_CURATOR = 1.6, 0.8  # beta
# Of blocks: flat tuning maps have 1.0, Manhattan 1.6 to 1.8, skewed ones 4.7 or more.
_UNIFORM_CONCENTRATION = 2.5
_UNIFORM_BLOCKS = 256  # of fewer blocks, one with a hot spot may seem like the others
_LEAST = 1e-12  # users squared
_UNIFORM = "people are spread over the whole map, so the second round asked for cells of one size"
_FIRST_SHARE, _LEAF_SIGNAL = 0.15, 1.4  # of secure sums: fraction of the budget for the first round, and c
_OF_AIM = {
    None: 0.3,
    "totals": 0.5,
}  # of a curator: the first; what it gains and costs: benchmarks/curator_designs.py
_LEAF_SIGNAL_OF_CURATOR = 2.0
_SHIFTS, _SHIFTS_OF_CURATOR = 8, 4
_CHECK = 0.02  # of the budget: a noisy number of users beside the declared one, as where none is declared
_FOLLOWED, _NOT_FOLLOWED = (f"{who} followed the declared number" for who in ("cells and blocks", "no block"))
_FAR = 2.5  # noise scales between both from which the noisy one is believed: by chance once in 12 maps
_FULL = 3.0  # noise scales of users per site from which a curator measures every site at once


class Blocks(NamedTuple):
    """The first answer, on the raster of its level."""

    level: int
    codes: IntArray  # of the cells asked for
    weights: npt.NDArray[Any]  # of the raster of sites: their members, mixed with a prior, shape (side, side)
    held: IntArray  # members of the level, shape (cells, cells)
    shrunk: FloatArray
    floor: float  # users per member
    exponent: float


@dataclass(frozen=True, kw_only=True)
class Multiscale(PriorMechanism, GridMechanism):
    r"""Measure every block of one level, then finer blocks where users are, and shrink the noisy sums.

    The first of two ``rounds``, with ``first_share`` of the budget, asks for the level whose number of blocks is
    nearest (as a ratio) to

    .. math:: B = \beta\, (k\, n / s)^{2/3}, \qquad s = \sqrt{2 T / \epsilon^2 + 1}

    A block where :math:`\hat x` users are expected is quartered

    .. math:: d = \operatorname{round} \left( \frac{1}{\alpha} \log_2 \frac{\hat x}{c\, s_2} \right),
        \qquad 0 \le d \le 6

    times for the second. All replies, the number of users among them, are combined by least squares and shrunk
    together (:mod:`mapveil.inference.nested_rounds`). With one round, :math:`B = k\, n / s`: about where a block holds
    one deviation of noise and sampling.

    where: n is the number of users (declared, or bought by the curator), T the discrete Laplace variables in a sum
    (the number of shards, if nothing is provisioned for), :math:`\epsilon` is ``epsilon`` (less what n cost), k is
    ``concentration``, c is ``leaf_signal``, and :math:`s_2` is s with the second round's budget. Over secure sums
    :math:`\beta = 1.6` and :math:`\alpha = 2`. For a curator :math:`\beta = 0.8`, s is the noise's scale alone,
    :math:`1 / \epsilon`, and :math:`\alpha` is the local dimension of the noisy blocks
    (:mod:`mapveil.inference.local_dimension`): 2 where a block is like its surroundings, less where it stands out, so
    that a hot spot is divided deeper than a crowded district. Where a site is expected to hold 3 noise scales of users,
    a curator measures every site in one round, and where nearly all are empty leaves fewer users on those
    (:mod:`mapveil.inference.empty_cells`).

    What follows the queries is post-processing and costs nothing:

    - sums are shrunk at all scales and shifts (:mod:`mapveil.inference.shrinkage`): a curator's by a prior on how
      blocks split, others by an expansion whose weights minimise the estimated error
      (:mod:`mapveil.inference.threshold_expansion`);
    - with ``slope``, users inside a block follow the slope of the blocks around it
      (:mod:`mapveil.inference.interpolation`).

    Over secure sums the first reply decides whether people are spread over the whole map, as on flat ones and the image
    of Bagdasaryan et al. (2022):

    .. math:: \sum_b \frac{\hat x_b^2}{a_b} \sum_b a_b \Big/ \Big( \sum_b \hat x_b \Big)^2 \le 2.5

    where: :math:`a_b` is the number of cells of block b. If so, of 256 blocks at least, and no block would be divided
    more than one level beyond it, the second round asks for every cell of the level that one round with its budget
    would choose, and both replies are inferred as one round's.

    Parameters
    ----------
    rounds : int
        Number of queries, 1 or 2. One round takes half the messages and waits once for every client.
    aim : str, optional
        Use of a curator's map: ``"totals"`` of districts. The aim sets the default of ``first_share`` and leaves the
        promise as it is. None, a compromise, by default.
    depth
        Level of the first query; see :class:`~mapveil.mechanisms.uniform_grid.GridMechanism`.
    concentration : float
        k, at least 1: the density around an average user over the average density, from public data such as a
        census (``mean(x**2) / mean(x)**2`` of its density x); 1 where nothing is known.
    longest : int, optional
        Coordinates that a device sends over secure sums, in both rounds together, at most: 65,536 by default, about
        200 kB. Not for a curator, nor for a given ``depth``.
    of : str
        Map that secure sums make: ``"population"``, of all users of whom the clients are a sample, so that sampling
        error is smoothed as noise is; or ``"devices"``, of the clients asked and nobody else.
    first_share : float, optional
        Fraction of the budget for the first of two rounds, from 0.0001 to 0.9999; 0.3 for a curator (0.5 with the
        aim of totals) and 0.15 otherwise by default.
    leaf_signal : float, optional
        c, above 0: number of users in a leaf of the second round, in deviations; 2 for a curator and
        1.4 otherwise by default.
    slope : bool, optional
        Whether users inside a block follow the slope around it; not for a curator, by default.
    shifts : int, optional
        Boxes of so many cells a side are cut at every offset, larger ones at as many; at least 1; 4 for a curator and 8
        otherwise by default.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = Multiscale(epsilon=1, depth=3).release(city, mv.Quadtree(city.region, depth=6), rng=1)
    >>> [share.purpose for share in heat.guarantee.shares]
    ['every cell of level 3', 'leaves of the blocks']
    """

    name: ClassVar[str] = "multiscale"
    summary: ClassVar[str] = "noisy blocks, divided where people are, shrunk at all scales and shifts"
    source: ClassVar[str] = (
        "Mapveil, after Coifman and Donoho 1995, Blu and Luisier 2007 and Qardaji et al. 2013"
    )

    rounds: int = 2
    aim: Literal["totals"] | None = None
    concentration: float = 1.0
    longest: int | None = 1 << 16
    of: Literal["population", "devices"] = "population"
    first_share: float | None = None
    leaf_signal: float | None = None
    slope: bool | None = None
    shifts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.rounds in (1, 2), "rounds", "1 or 2")
        self._check(
            self.concentration >= 1 and math.isfinite(self.concentration), "concentration", "a number from 1"
        )
        self._check(self.longest is None or self.longest >= 1, "longest", "a whole number from 1, or none")
        if self.first_share is not None:
            self._check_share("first_share")
        if self.leaf_signal is not None:
            self._check_positive("leaf_signal")
        self._check(
            self.shifts is None or self.shifts >= 1, "shifts", "a whole number of at least 1, or none"
        )
        curator = isinstance(self.trust, Curator)
        self._check(self.aim is None or curator, "aim", f"none under trust {self.trust.name}")

    def informed(self, setting: Setting, tiling: Tiling) -> Setting:
        """The setting with the prior on its sites."""
        if self.prior is None:
            return setting
        raster = self.raster(tiling)
        fractions = self.prior.on(tiling).fractions[raster.inside]
        on_sites = np.bincount(raster.site[raster.inside], fractions, setting.members.size)
        return setting._replace(prior=np.asarray(on_sites, dtype=np.float64))

    def shown(self, heat: DensityMap) -> DensityMap:
        """The map, with a note on the prior."""
        if self.prior is None:
            return heat
        return replace(heat, notes=(*heat.notes, self.prior.note(heat.tiling)))

    def number_of_users(self, setting: Setting) -> Generator[Query, NoisySums, UserNumber]:
        """The number of users; one that was declared to a curator gives way where a noisy one is far from it."""
        if not setting.curator or setting.clients is None:
            return (yield from super().number_of_users(setting))
        found = yield from super().number_of_users(setting._replace(clients=None, users_share=_CHECK))
        assert found.noisy is not None
        return found if _refutes(found.noisy, setting) else found._replace(users=float(setting.clients))

    @property
    def curators_last_budget(self) -> Fraction:
        """Epsilon of the sums of a curator's last round, where the number of users is bought too."""
        bought = Setting._field_defaults["users_share"]
        rest = split_epsilon(self.budget, [bought, 1 - bought])[1]
        first = self.first_share or _OF_AIM[self.aim]
        return split_epsilon(rest, [first, 1 - first])[1]

    def level(self, setting: Setting, users: float, epsilon: Fraction) -> int:
        """The rule's level for so many users with so much budget; each round asks for every block at least once."""
        wanted = self._cells_of_one_round(setting, users, float(epsilon))
        if self.rounds == 2:
            wanted = (_BLOCKS_OF_CURATOR if setting.curator else _BLOCKS) * math.pow(wanted, 2 / 3)
        level = nearest_level(setting, wanted)
        sites = cells_at(setting, setting.depth).size
        if setting.curator and self.concentration * users * float(epsilon) >= _FULL * sites:
            level = setting.depth
        return no_longer(setting, level, self._longest(setting) / self.rounds)

    def _cells_of_one_round(self, setting: Setting, users: float, epsilon: float) -> float:
        return min(self.concentration * users / _deviation(setting, epsilon), self._longest(setting))

    def _longest(self, setting: Setting) -> float:
        """Coordinates that a device sends in all rounds, at most."""
        return math.inf if setting.curator or self.longest is None else self.longest

    def plan(self, setting: Setting) -> Plan:
        """One query or two, after one for the number of users where it is needed; see :meth:`SumMechanism.plan`."""
        level, budget, total = yield from self.grid_level(setting)
        why = _NOT_FOLLOWED if any(_refutes(each, setting) for each in total) else _FOLLOWED
        single = self.rounds == 1 or level == setting.depth or self._longest(setting) < 2
        first, second = self._budgets(setting, budget, single)
        tree = tree_at(setting, level)
        sums = yield Query(f"every cell of level {level}", NodeEncoding(tree), first, row_by_row(tree))
        measured = [MeasuredNodes(PrefixTree.uniform(setting.depth, 0), each) for each in total]
        measured.append(MeasuredNodes(tree, sums))
        blocks = self._blocks(setting, level, measured)
        below = "interpolated" if self._sloped(setting) else "uniform"
        if single:
            made = self._inside(setting, blocks)
            note = resolution_note(setting, level, level, below)
            return Estimate(
                off_raster(made), measurements_of(measured), (note, *note_on_declared(setting, measured, why))
            )
        depths = self._depths(setting, blocks, float(second))
        even = self._uniform_level(setting, blocks, depths, float(second))
        if even is not None:
            tree = tree_at(setting, even)
            sums = yield Query(f"every cell of level {even}", NodeEncoding(tree), second, row_by_row(tree))
            measured.append(MeasuredNodes(tree, sums))
            made = self._inside(setting, self._blocks(setting, even, consistent(*measured[-2:])))
            notes = resolution_note(setting, even, even, below), _UNIFORM
            return Estimate(off_raster(made), measurements_of(measured), notes)
        leaves = leaf_nodes(setting, level, blocks.codes, depths[deinterleave(blocks.codes)])
        again = yield Query("leaves of the blocks", NodeEncoding(leaves), second, row_by_row(leaves))
        measured.append(MeasuredNodes(leaves, again))
        made = self._combine(setting, blocks, depths, measured)
        note = resolution_note(setting, level, level + int(depths.max(initial=0)), below)
        return Estimate(
            off_raster(made), measurements_of(measured), (note, *note_on_declared(setting, measured, why))
        )

    def _inside(self, setting: Setting, blocks: Blocks) -> FloatArray:
        """Users per site of cells of one level, shape (side, side)."""
        if not self._sloped(setting):
            return spread(blocks.shrunk, blocks.weights)
        return interpolate(blocks.shrunk, blocks.weights, blocks.exponent, blocks.floor)

    def _uniform_level(
        self, setting: Setting, blocks: Blocks, depths: IntArray, epsilon: float
    ) -> int | None:
        """The level of one round, where secure sums of the blocks say that people are spread out; else None."""
        if setting.curator or setting.clients is None or blocks.codes.size < _UNIFORM_BLOCKS:
            return None
        there = blocks.held > 0
        users, held = blocks.shrunk[there], blocks.held[there].astype(np.float64)
        concentration = float((users**2 / held).sum() * held.sum() / max(float(users.sum()) ** 2, _LEAST))
        level = nearest_level(setting, self._cells_of_one_round(setting, float(setting.clients), epsilon))
        level = no_longer(setting, level, self._longest(setting) - blocks.codes.size)
        evenly = concentration <= _UNIFORM_CONCENTRATION
        deepest = blocks.level + int(depths.max(initial=0))
        return level if evenly and blocks.level < level and deepest <= level + 1 else None

    def _sloped(self, setting: Setting) -> bool:
        return not setting.curator if self.slope is None else self.slope

    def _sampled(self, setting: Setting) -> bool:
        return not setting.curator and self.of == "population"

    def _shifts(self, setting: Setting) -> int:
        return self.shifts or (_SHIFTS_OF_CURATOR if setting.curator else _SHIFTS)

    def _budgets(self, setting: Setting, budget: Fraction, single: bool) -> tuple[Fraction, Fraction]:
        if single:
            return budget, budget
        share = self.first_share or (_OF_AIM[self.aim] if setting.curator else _FIRST_SHARE)
        first, second = split_epsilon(budget, [share, 1 - share])
        return first, second

    def _blocks(self, setting: Setting, level: int, measured: Sequence[MeasuredNodes]) -> Blocks:
        """The blocks, from their own sums and those before."""
        codes, sums = measured[-1].tree.code, measured[-1].sums
        members = on_raster(setting.members)
        held = pool(members, setting.depth - level)
        floor = _FLOOR * math.sqrt(sums.variance) * codes.size / max(int(held.sum()), 1)
        weights = weights_of(setting, level, members, measured)
        noisy = np.zeros(held.shape)
        noisy[deinterleave(codes)] = sums.values
        if setting.curator:
            shrunk = self._shrink(setting, level, weights, measured)
            if level == setting.depth and setting.prior is None:
                shrunk = emptied(shrunk, noisy, sums.laplace_scale, held > 0)
        else:
            shrunk = multiscale_shrinkage(
                noisy,
                sums.variance,
                pool(weights, setting.depth - level),
                shifts=self._shifts(setting),
                rule="expansion",
                sampled=self._sampled(setting),
            )
        exponent = 0.0
        if self._sloped(setting):
            exponent = slope_exponent(noisy, shrunk, sums.variance, held, floor)
        return Blocks(level, codes, weights, held, shrunk, floor, exponent)

    def _depths(self, setting: Setting, blocks: Blocks, epsilon: float) -> IntArray:
        """d of each block, of the shape of the blocks."""
        least = self.leaf_signal or (_LEAF_SIGNAL_OF_CURATOR if setting.curator else _LEAF_SIGNAL)
        leaf = least * _deviation(setting, epsilon)
        dimension = local_dimension(blocks.shrunk, blocks.held) if setting.curator else 2.0
        most = min(setting.depth - blocks.level, _DEEPEST)
        room, there = self._longest(setting) - blocks.codes.size, blocks.held > 0
        while True:
            signal = np.log2(np.maximum(blocks.shrunk / leaf, 1.0))
            depths = np.where(there, np.clip(np.rint(signal / dimension), 0, most), 0).astype(np.int64)
            if not depths.any() or (4.0 ** depths[there]).sum() <= room:
                return depths
            leaf *= COARSER  # fewer leaves, each of more users, until they fit

    def _shrink(
        self, setting: Setting, level: int, weights: npt.NDArray[Any], measured: Sequence[MeasuredNodes]
    ) -> FloatArray:
        """Users per site of a level's raster; see :func:`shrink_replies`."""
        shifts, sampled = self._shifts(setting), self._sampled(setting)
        return shrink_replies(setting, level, weights, measured, shifts=shifts, sampled=sampled)

    def _combine(
        self, setting: Setting, blocks: Blocks, depths: IntArray, measured: Sequence[MeasuredNodes]
    ) -> FloatArray:
        """Users per site, shape (side, side), from all replies."""
        down = int(depths.max(initial=0))
        level = blocks.level + down
        weights = weights_of(setting, level, on_raster(setting.members), measured)
        square = self._shrink(setting, level, weights, measured)
        if not self._sloped(setting):
            return spread(square, weights)
        # A leaf's floor: its noise over its members.
        leaves, sums = measured[-1]
        parts = np.zeros(depths.shape)
        np.add.at(parts, deinterleave(leaves.code >> (2 * (leaves.level - blocks.level))), 1)
        floor = _FLOOR * math.sqrt(sums.variance) * parts / np.maximum(blocks.held, 1)
        return interpolate(pool(square, down), weights, blocks.exponent, floor, known=Known(square, depths))


def _refutes(found: NoisySums, setting: Setting) -> bool:
    """Whether a noisy number of users is so far from the declared one that it is believed instead."""
    declared = setting.clients
    return declared is not None and abs(float(found.values[0]) - declared) > _FAR / float(found.epsilon)


def _deviation(setting: Setting, epsilon: float) -> float:
    """s, users: the deviation of noise and sampling; the noise's scale for a curator."""
    return 1 / epsilon if setting.curator else math.hypot(noise_deviation(setting, epsilon), 1.0)
