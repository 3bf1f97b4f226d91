r"""Blocks of cells that the noisy sums tell from zero: the finest resolution at which a map may be drawn.

The cells lie on a square raster of a power of two; its quadtree's nodes are the blocks. The sum of a block is that of
the groups of one measurement that make it up, of the measurement whose noise is least. Blocks are tested from the
root down: the children of a supported block against the one-sided quantiles of their noise by Benjamini and Hochberg's
rule at level q within each family of siblings, which keeps the false discovery rate over the finest supported blocks at

.. math:: \mathrm{FDR} \le 2\, L\, \delta^* q, \qquad \delta^* \le 1.44,

where L is the number of levels below the whole map that were measured,
and a block whose sum would stand out among all blocks (level q over their number) is supported wherever it lies.
A supported block some of whose children are supported gives way to them; the rest of it is one block, if its sum too
is told from zero.

Blocks are chosen for their large sums, so that intervals that hold for any given block would miss too many of those
chosen. Theirs have the coverage

.. math:: 1 - \alpha R / m

where: R is the number of supported blocks and m that of the sums that were tested on the way to them; then a fraction
:math:`\alpha` of the R intervals is expected to miss. Which blocks are drawn depends on the noisy sums alone, so it
costs no privacy.

Source: Yekutieli (2008), "Hierarchical false discovery rate-controlling methodology", section 3, for the bound on outer
nodes; Benjamini and Yekutieli (2005), "False discovery rate-adjusted multiple confidence intervals", section 3, for the
intervals. Both assume independent tests, which a parent and its children are not where one measurement holds both, and
a number of tests m that is fixed, where here noise decides how far down they go:
``python -m benchmarks.pictures`` measures both rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from mapveil.maps.measurement import INTERVAL_ALPHA, Measurement
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.cells import Lattice
from mapveil_client.errors import check
from mapveil_client.morton import interleave

FALSE_RATE: Final = 0.05
"""Expected fraction of the supported blocks that hold nobody, at most."""

_BOUND: Final = 2.88  # 2 delta*
_MOST_GROUPS: Final = 1 << 40
_STEP: Final = (
    1.05  # numbers of summed groups are rounded up to powers of this: few quantiles, all on the safe side
)


class Blocks(NamedTuple):
    """Supported blocks, with the interval of each; of the cells, ``of_cell`` is -1 where nothing is told from zero."""

    of_cell: IntArray  # shape (cells,)
    noisy: FloatArray  # users, the sum of measurements, without bias; shape (blocks,)
    lower: FloatArray  # users, bounds of the true sum
    upper: FloatArray
    deviation: FloatArray  # of the noise, users
    testable: int  # blocks below the whole map whose sum is known

    @property
    def size(self) -> int:
        """Number of supported blocks."""
        return int(self.noisy.size)


class _Sums(NamedTuple):
    """The sum of each block of a level by one measurement: shape (blocks,)."""

    known: BoolArray  # whether the block is made up of whole groups
    noisy: FloatArray
    groups: IntArray


class _Level(NamedTuple):
    """The blocks of a level of the quadtree."""

    cell: IntArray  # block of each cell, shape (cells,)
    parent: IntArray  # block of the level above, shape (blocks,)
    sums: list[_Sums]  # by measurement


class _Best(NamedTuple):
    """The least noisy sum of each block, shape (blocks,); measurement -1 where there is none."""

    measurement: IntArray
    noisy: FloatArray
    groups: IntArray


def supported_blocks(
    measurements: Sequence[Measurement],
    lattice: Lattice,
    *,
    false_rate: float = FALSE_RATE,
    alpha: float = INTERVAL_ALPHA,
) -> Blocks:
    """Find the finest blocks whose noisy sums are told from zero. Run by: anybody who holds the map.

    Parameters
    ----------
    measurements : sequence of Measurement
        Noisy sums behind a map.
    lattice : Lattice
        Where the cells lie.
    false_rate : float
        Expected fraction of the supported blocks that hold nobody, at most; in (0, 1).
    alpha : float
        Expected fraction of the supported blocks whose interval misses their true sum, at most; in (0, 1).

    Raises
    ------
    ParameterError
        ``false_rate`` or ``alpha`` is outside (0, 1).
    """
    check(0 < false_rate < 1, "false_rate", "between 0 and 1", false_rate)
    check(0 < alpha < 1, "alpha", "between 0 and 1", alpha)
    if not measurements:
        nothing = np.zeros(0)
        return Blocks(np.full(lattice.row.size, -1, dtype=np.int64), nothing, nothing, nothing, nothing, 0)
    noise = _Noise(measurements)
    levels = _levels(measurements, lattice)
    best = [noise.best(level.sums) for level in levels]
    tested = sum(bool((each.measurement >= 0).any()) for each in best[1:])
    level_of_test = false_rate / (_BOUND * max(tested, 1))
    supported = _tested(levels, best, noise, level_of_test)
    found = _Found(lattice.row.size)
    _descend(levels, best, supported, noise, level_of_test, found)
    testable = sum(int((each.measurement >= 0).sum()) for each in best[1:])
    return found.blocks(noise, alpha, _tests(levels, best, supported), testable)


def whole_block(
    measurements: Sequence[Measurement], *, false_rate: float = FALSE_RATE, alpha: float = INTERVAL_ALPHA
) -> Blocks:
    """Find the whole map as one block, where its noisy sum is told from zero: of a map that was measured in no smaller.

    Run by: anybody who holds the map.

    Parameters
    ----------
    measurements : sequence of Measurement
        Noisy sums behind a map, at least one; that with the least noise on the sum of all its groups counts.
    false_rate : float
        Probability that the block is found although it holds nobody, at most; in (0, 1).
    alpha : float
        Probability that its interval misses its true sum, at most; in (0, 1).
    """
    best = min(measurements, key=lambda each: each.deviation(each.noisy.size))
    size, noisy = best.noisy.size, float(best.noisy.sum())
    half = best.half_width(alpha, size)
    told = noisy > best.half_width(2 * false_rate, size)
    of_cell = np.where((best.groups >= 0) & told, 0, -1)
    numbers = (noisy, max(noisy - half, 0.0), noisy + half, best.deviation(size))
    sums, lower, upper, deviation = (np.full(int(told), number) for number in numbers)
    return Blocks(of_cell, sums, lower, upper, deviation, 0)


class _Noise:
    """The law of the noise on sums of groups, by measurement."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self._half_width = cache(lambda at, groups, alpha: measurements[at].half_width(alpha, groups))
        self._deviation = cache(lambda at, groups: measurements[at].deviation(groups))

    def best(self, sums: list[_Sums]) -> _Best:
        """The least noisy of several sums of each block."""
        size = sums[0].known.size
        chosen, least = np.full(size, -1), np.full(size, np.inf)
        noisy, groups = np.zeros(size), np.zeros(size, dtype=np.int64)
        for at, each in enumerate(sums):
            spread = np.where(each.known, self._deviations(at, each.groups), np.inf)
            better = spread < least
            chosen[better], least[better] = at, spread[better]
            noisy[better], groups[better] = each.noisy[better], each.groups[better]
        return _Best(chosen, noisy, groups)

    def half_width(self, best: _Best, alpha: FloatArray | float) -> FloatArray:
        """Half the width of the two-sided interval around each sum; infinite where there is none."""
        safe = np.ceil(_STEP ** np.ceil(np.log(np.maximum(best.groups, 1)) / math.log(_STEP)) - 1e-9)
        levels, of_level = np.unique(np.asarray(alpha, dtype=np.float64), return_inverse=True)
        # One number for each case: unique rows take many times as long.
        key = (
            (best.measurement + 1) * _MOST_GROUPS + safe.astype(np.int64)
        ) * levels.size + of_level.reshape(np.shape(alpha))
        cases, back = np.unique(key, return_inverse=True)
        at, groups = np.divmod(cases // levels.size, _MOST_GROUPS)
        of_case = zip((at - 1).tolist(), groups.tolist(), levels[cases % levels.size].tolist(), strict=True)
        widths = [
            math.inf if which < 0 else self._half_width(which, count, level)
            for which, count, level in of_case
        ]
        return np.asarray(np.asarray(widths, dtype=np.float64)[back.reshape(-1)])

    def deviation(self, best: _Best) -> FloatArray:
        """Standard deviation of the noise of each sum, users."""
        found = np.zeros(best.noisy.size)
        for at in np.unique(best.measurement).tolist():
            mine = best.measurement == at
            found[mine] = self._deviations(at, best.groups[mine])
        return found

    def _deviations(self, at: int, groups: IntArray) -> FloatArray:
        distinct, back = np.unique(groups, return_inverse=True)
        found = np.array([self._deviation(at, each) for each in distinct.tolist()], dtype=np.float64)
        return np.asarray(found[back.reshape(-1)])


class _Found:
    """The blocks found so far."""

    def __init__(self, cells: int) -> None:
        self.rests = 0  # sums of what divided blocks leave that were tested
        self._of_cell = np.full(cells, -1, dtype=np.int64)
        self._parts: list[_Best] = []
        self._size = 0

    def add(self, best: _Best, block_of_cell: IntArray) -> None:
        """Take blocks; ``block_of_cell`` is -1 for cells of none of them."""
        mine = block_of_cell >= 0
        self._of_cell[mine] = self._size + block_of_cell[mine]
        self._parts.append(best)
        self._size += best.noisy.size

    def blocks(self, noise: _Noise, alpha: float, tests: int, testable: int) -> Blocks:
        """All of them, with their intervals, after so many tests of blocks."""
        best = _Best(
            np.concatenate([part.measurement for part in self._parts]),
            np.concatenate([part.noisy for part in self._parts]),
            np.concatenate([part.groups for part in self._parts]),
        )
        level = alpha * self._size / max(tests + self.rests, self._size, 1)
        half = noise.half_width(best, level)
        lower = np.maximum(best.noisy - half, 0.0)
        return Blocks(self._of_cell, best.noisy, lower, best.noisy + half, noise.deviation(best), testable)


def _levels(measurements: Sequence[Measurement], lattice: Lattice) -> list[_Level]:
    """The levels of the quadtree from the root down, with what each measurement says of their blocks."""
    code = interleave(lattice.row, lattice.col)
    inside = np.ones(code.size, dtype=np.bool_) if lattice.inside is None else lattice.inside
    extents = [_extent(each.groups, each.noisy.size, code) for each in measurements]
    levels: list[_Level] = []
    above = np.zeros(1, dtype=np.int64)
    for level in range(lattice.depth + 1):
        shift = 2 * (lattice.depth - level)
        codes, cell = np.unique(code >> shift, return_inverse=True)
        parent = np.searchsorted(above, codes >> 2) if level else np.zeros(codes.size, dtype=np.int64)
        sums = []
        for measurement, (low, high) in zip(measurements, extents, strict=True):
            used = high >= 0
            whole = used & (low >> shift == high >> shift)
            block = np.searchsorted(codes, low[whole] >> shift)
            count = np.bincount(block, minlength=codes.size)
            noisy = np.bincount(block, measurement.noisy[whole], minlength=codes.size).astype(np.float64)
            # A cell of a group that goes on elsewhere, or of none, makes its block unknown.
            apart = np.append(used & ~whole, True)[measurement.groups] & inside
            known = (np.bincount(cell[apart], minlength=codes.size) == 0) & (count > 0)
            sums.append(_Sums(known, noisy, count))
        levels.append(_Level(cell, parent, sums))
        above = codes
    return levels


def _extent(groups: IntArray, size: int, code: IntArray) -> tuple[IntArray, IntArray]:
    """The first and last site of each group on the Morton curve; -1 for groups without a cell."""
    low, high = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, dtype=np.int64)
    covered = groups >= 0
    np.minimum.at(low, groups[covered], code[covered])
    np.maximum.at(high, groups[covered], code[covered])
    return low, high


def _tested(levels: list[_Level], best: list[_Best], noise: _Noise, q: float) -> list[BoolArray]:
    """Which blocks of each level are told from zero."""
    tests = max(sum(int((each.measurement >= 0).sum()) for each in best), 1)
    supported: list[BoolArray] = []
    for level, each in zip(levels, best, strict=True):
        known = each.measurement >= 0
        stands_out = each.noisy > noise.half_width(each, 2 * q / tests)
        if not supported:
            supported.append(stands_out | (each.noisy > noise.half_width(each, 2 * q)))
            continue
        family = np.bincount(level.parent[known], minlength=supported[-1].size)[level.parent]
        passed = np.zeros(each.noisy.size, dtype=np.bool_)
        for rank in range(1, int(family.max(initial=0)) + 1):
            exceeds = known & (each.noisy > noise.half_width(each, 2 * q * rank / np.maximum(family, 1)))
            enough = np.bincount(level.parent[exceeds], minlength=supported[-1].size) >= rank
            # The last rank that holds decides; its threshold is the lowest.
            passed = np.where(enough[level.parent] & (rank <= family), exceeds, passed)
        supported.append(stands_out | (passed & supported[-1][level.parent]))
    return supported


def _tests(levels: list[_Level], best: list[_Best], supported: list[BoolArray]) -> int:
    """Number of blocks that were tested because their parent is supported, and of those that stand out otherwise."""
    count = int((best[0].measurement >= 0).sum())
    for at, level in enumerate(levels[1:], start=1):
        count += int(((best[at].measurement >= 0) & (supported[at - 1][level.parent] | supported[at])).sum())
    return count


def _descend(
    levels: list[_Level],
    best: list[_Best],
    supported: list[BoolArray],
    noise: _Noise,
    q: float,
    found: _Found,
) -> None:
    """Take the finest supported blocks, and the rest of each that was divided."""
    reaching = [each.copy() for each in supported]
    for at in range(len(levels) - 1, 0, -1):
        np.logical_or.at(reaching[at - 1], levels[at].parent[reaching[at]], True)
    for at, level in enumerate(levels):
        divided = np.zeros(level.parent.size, dtype=np.bool_)
        below = levels[at + 1] if at + 1 < len(levels) else None
        if below is not None:
            divided[below.parent[reaching[at + 1]]] = True
        # The whole map is no block: that somebody is somewhere says nothing of where.
        whole = supported[at] & ~divided & (at > 0)
        found.add(_take(best[at], whole), _number(whole)[level.cell])
        rest = supported[at] & divided
        if below is not None and rest.any():
            pairs = zip(level.sums, below.sums, strict=True)
            left = noise.best([_rest(mine, theirs, below, reaching[at + 1]) for mine, theirs in pairs])
            found.rests += int((rest & (left.measurement >= 0)).sum())
            kept = rest & (left.measurement >= 0) & (left.noisy > noise.half_width(left, 2 * q))
            out = ~reaching[at + 1][below.cell]
            found.add(_take(left, kept), np.where(out, _number(kept)[level.cell], -1))


def _rest(mine: _Sums, theirs: _Sums, below: _Level, reaching: BoolArray) -> _Sums:
    """The sums of blocks without those of their children that are drawn by themselves."""
    size = mine.known.size
    parent = below.parent[reaching]
    unknown = np.bincount(below.parent[reaching & ~theirs.known], minlength=size) > 0
    groups = mine.groups - np.bincount(parent, theirs.groups[reaching], minlength=size).astype(np.int64)
    noisy = mine.noisy - np.bincount(parent, theirs.noisy[reaching], minlength=size)
    return _Sums(mine.known & ~unknown & (groups > 0), noisy, groups)


def _take(best: _Best, kept: BoolArray) -> _Best:
    return _Best(best.measurement[kept], best.noisy[kept], best.groups[kept])


def _number(kept: BoolArray) -> IntArray:
    """Blocks that are kept numbered from 0, -1 for the others."""
    return np.where(kept, np.cumsum(kept) - 1, -1)
