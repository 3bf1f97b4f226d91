r"""Groups of sites by the length of the prefix that they share with a place, and where best to cut.

With thresholds :math:`\beta_1 > \dots > \beta_m` (bits), group :math:`G_j(x)` holds the sites that share at least
:math:`\beta_j` bits of their code with x, and fewer than :math:`\beta_{j-1}`. The sites that share :math:`\beta_j` bits
are an interval of the sorted codes, a *block*. Blocks nest: a group is a block without a smaller one. The thresholds
maximise the paper's objective over the whole domain,

.. math:: \sum_x \sum_{j=1}^m \beta_j\, |G_j(x)| = \sum_{j=1}^m \beta_j\, (N(\beta_j) - N(\beta_{j-1}))

where: :math:`N(\beta)` is the number of ordered pairs of sites that share at least :math:`\beta` bits, with
:math:`N(\beta_0) = 0`. A dynamic programme over the lengths of the code's levels (two bits each) is exact. The last
threshold is the prefix of the whole domain, so that every site has a group.

Deviation: the paper's Algorithm 1 leaves sites with a shorter prefix than :math:`\beta_m` without a group.

The probabilities of group j fall in equal steps from :math:`c\, \alpha_{\min}(x)` to :math:`\alpha_{\min}(x)`
(equations 3 and 4), which is a mixture of uniform laws: with :math:`n_j(x)` the size of x's block at threshold j,

.. math:: q(y \mid x) = \frac{(m - 1) B + A\, (m - j)}{W(x)}, \quad y \in G_j(x), \qquad
    W(x) = (m - 1)\, d\, B + A\, N(x), \quad N(x) = \sum_{j < m} n_j(x)

where: :math:`c = 1 + A / B` with whole numbers A and B, d is the number of sites and m that of groups. Blocks are
uneven, so W differs from place to place. Of one report y,

.. math:: \frac{\max_x q(y \mid x)}{\min_x q(y \mid x)} =
    \max_j \frac{w_j}{\min_{x \in B_j(y)} W(x)} \cdot \max_j \frac{\max_{x \notin B_{j-1}(y)} W(x)}{w_j}

where: :math:`w_j` is the numerator above and :math:`B_j(y)` y's block at threshold j, since "y is in group j of x" is
symmetric and :math:`w_j` falls with j. The ratio needs only the extremes of N over blocks and their complements. The
constant c is the largest with which it is at most :math:`e^\epsilon`.

Deviation: Theorem 3.3 bounds the ratio by the product of the extremes over the whole domain, and the published c is
about :math:`e^\epsilon`, with which the real epsilon of uneven domains is up to two thirds more than the claimed one.

Source: Wang et al. (2022), sections 3.2 and 3.3, Definition 3.2, equations 3 and 4, Theorem 3.3.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import keeps, power
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Codes

Number = TypeVar("Number", np.float64, np.int64)


class Blocks(NamedTuple):
    """The blocks of one threshold, in the order of the codes."""

    first: IntArray  # rank of each block's first site, shape (blocks,)
    size: IntArray  # sites of each block
    of_rank: IntArray  # block of the site of each rank, shape (sites,)

    def sums(self, values: FloatArray) -> FloatArray:
        """Each block's sum of values in the order of the codes, shape (blocks,)."""
        return np.asarray(np.add.reduceat(values, self.first))

    def spread(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Each site's value of its block, shape (sites,)."""
        return np.repeat(values, self.size)


def blocks_at(codes: Codes, threshold: int) -> Blocks:
    """The blocks of sites that share ``threshold`` bits.

    Examples
    --------
    >>> rank = np.arange(4)
    >>> blocks_at(Codes(np.array([0, 1, 2, 12]), rank, rank, 4), 2).size.tolist()
    [3, 1]
    """
    prefix = codes.code >> max(codes.bits - threshold, 0)
    new = np.concatenate([[True], np.diff(prefix) != 0])
    first = np.flatnonzero(new)
    return Blocks(first, np.diff(np.append(first, prefix.size)), np.cumsum(new) - 1)


def code_levels(codes: Codes) -> dict[int, int]:
    """The useful lengths of prefixes, longest first, each with its number of ordered pairs of sites, :math:`N`.

    The whole code, and every even length that some pair shares without the next two bits.
    """
    found = {codes.bits: codes.code.size}
    before = codes.code.size
    for length in range(codes.bits - 2, -1, -2):
        size = blocks_at(codes, length).size
        pairs = int(size @ size)
        if pairs > before:
            found[length] = pairs
            before = pairs
        if pairs == codes.code.size**2:
            break
    return found


def best_thresholds(codes: Codes, groups: int, *, own_group: bool = True) -> tuple[int, ...]:
    """The thresholds of the module's header, by dynamic programming.

    Parameters
    ----------
    codes : Codes
        Codes of the domain.
    groups : int
        m; at most the number of useful lengths.
    own_group : bool
        Whether the first group is the place alone (the whole code), without which no estimate is unbiased. The
        objective alone prefers coarser groups.
    """
    pairs = code_levels(codes)
    lengths = list(pairs)
    m = max(2, min(groups, len(lengths)))
    last = len(lengths) - 1
    # value[i] of the best thresholds so far that end with lengths[i]; came[j][i]: the one before.
    value: dict[int, int] = {
        i: lengths[i] * pairs[lengths[i]] for i in range(last + 1) if i == 0 or not own_group
    }
    came: list[dict[int, int]] = []
    for _ in range(m - 1):
        following: dict[int, int] = {}
        step: dict[int, int] = {}
        for i in range(1, last + 1):
            for before in (k for k in value if k < i):
                worth = value[before] + lengths[i] * (pairs[lengths[i]] - pairs[lengths[before]])
                if i not in following or worth > following[i]:
                    following[i], step[i] = worth, before
        value = following
        came.append(step)
    chosen = [last]
    for step in reversed(came):
        chosen.append(step[chosen[-1]])
    return tuple(lengths[i] for i in reversed(chosen))


def check_thresholds(codes: Codes, thresholds: Sequence[int]) -> tuple[int, ...]:
    """The given thresholds, if every site has a group.

    Raises
    ------
    ParameterError
        Fewer than two, not descending, longer than a code, or the last is longer than the prefix of all sites.
    """
    given = tuple(thresholds)
    whole = codes.bits
    descending = all(above > below for above, below in itertools.pairwise(given))
    if len(given) < 2 or not descending or given[0] > whole or given[-1] < 0:
        raise ParameterError(
            f"thresholds must be two or more, descending from at most {whole} bits, got {list(given)}"
        )
    if blocks_at(codes, given[-1]).first.size > 1:
        shared = whole - int(codes.code[0] ^ codes.code[-1]).bit_length()
        raise ParameterError(
            f"the last threshold must be {shared} at most, the bits that all sites share, got {given[-1]}: some "
            "would have no group"
        )
    return given


_NEAR = 1e-11  # relative; double precision may order closer ratios wrongly
_STEPS = 80  # bisections of c
_GRAIN_BITS = 40  # of B


class Steps(NamedTuple):
    """c = 1 + more / less, in whole numbers."""

    more: int  # A
    less: int  # B

    @property
    def ratio(self) -> Fraction:
        """c."""
        return 1 + Fraction(self.more, self.less)


class Extremes(NamedTuple):
    """The extremes of N that the worst case depends on, one row for each kind of report."""

    least: IntArray  # least N in the block at each threshold, the last of all sites; shape (kinds, m)
    most: IntArray  # largest N outside the block before, -1 where nothing is outside; shape (kinds, m)
    sites: int
    groups: int


def nested_sizes(blocks: list[Blocks], size: int) -> IntArray:
    """N of every place: the sum of the sizes of its blocks, shape (sites,)."""
    n = np.zeros(size, dtype=np.int64)
    for level in blocks:
        n += level.spread(level.size)
    return n


def block_extremes(blocks: list[Blocks], size: int) -> Extremes:
    """The extremes of N over the blocks of each report and outside them.

    Parameters
    ----------
    blocks : list of Blocks
        Blocks of all thresholds but the last.
    size : int
        Number of sites, d.
    """
    n = nested_sizes(blocks, size)
    until = np.maximum.accumulate(n)
    since = np.maximum.accumulate(n[::-1])[::-1]
    columns = [np.minimum.reduceat(n, level.first)[level.of_rank] for level in blocks]
    columns.append(np.full(size, n.min()))
    columns.append(np.full(size, n.max()))
    for level in blocks:
        stop = level.first + level.size
        before = np.where(level.first > 0, until[np.maximum(level.first - 1, 0)], -1)
        after = np.where(stop < size, since[np.minimum(stop, size - 1)], -1)
        columns.append(np.maximum(before, after)[level.of_rank])
    kinds = _kinds(columns)
    rows = np.stack([column[kinds] for column in columns], axis=1)
    m = len(blocks) + 1
    return Extremes(rows[:, :m], rows[:, m:], size, m)


def _kinds(columns: list[IntArray]) -> IntArray:
    """One place of each combination of values there is."""
    key = np.zeros(columns[0].size, dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    for column in columns:
        number = np.unique(column, return_inverse=True)[1]
        # Numbers of combinations stay below the number of places, so that products fit.
        _, first, key = np.unique(
            key * (int(number.max()) + 1) + number, return_index=True, return_inverse=True
        )
    return np.asarray(first)


def staircase_ratio(extremes: Extremes, steps: Steps) -> Fraction:
    """The largest ratio of one report's probabilities under two sites, exactly, for a constant c."""
    found = _ratios(extremes, float(steps.ratio - 1))
    worst = np.flatnonzero(found.ratio >= found.ratio.max() * (1 - _NEAR))
    pairs = {
        (int(found.up[k]), int(found.down[k]), int(found.least[k]), int(found.most[k]))
        for k in worst.tolist()
    }
    base = (extremes.groups - 1) * steps.less

    def weight(j: int) -> int:
        return base + steps.more * (extremes.groups - 1 - j)

    def total(n: int) -> int:
        return base * extremes.sites + steps.more * n

    return max(
        Fraction(weight(up) * total(most), weight(down) * total(least)) for up, down, least, most in pairs
    )


class _Ratios(NamedTuple):
    ratio: FloatArray  # of each kind of report
    up: IntArray  # group whose probability is largest
    down: IntArray
    least: IntArray  # N of the place from which it is
    most: IntArray


def _ratios(extremes: Extremes, step: float) -> _Ratios:
    m = extremes.groups
    weight = 1 + step * np.arange(m - 1, -1, -1) / (m - 1)
    # Totals over (m - 1) d B.
    scale = step / ((m - 1) * extremes.sites)
    high = weight / (1 + scale * extremes.least)
    low = np.where(extremes.most >= 0, weight / (1 + scale * extremes.most), np.inf)
    up, down = high.argmax(axis=1), low.argmin(axis=1)
    row = np.arange(up.size)
    return _Ratios(
        high[row, up] / low[row, down], up, down, extremes.least[row, up], extremes.most[row, down]
    )


def calibrate(extremes: Extremes, epsilon: Fraction, bits: int) -> Steps:
    """The largest c whose exact worst case is at most e^epsilon.

    Parameters
    ----------
    extremes : Extremes
        Extremes of the domain.
    epsilon : Fraction
        Privacy parameter of a report.
    bits : int
        A and B are below 2**bits; where that does not permit the whole c, less than epsilon is spent.
    """
    target = float(min(power(epsilon), Fraction(1 << 300)))
    low, high = 0.0, min(target, 2.0**bits) - 1
    # c is at most e^epsilon: the report y = x alone has that ratio where W is constant, and more elsewhere.
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if float(_ratios(extremes, middle).ratio.max()) <= target:
            low = middle
        else:
            high = middle
    grain = max(0, min(_GRAIN_BITS, bits - 1 - int(low + 1).bit_length()))
    more = int(low * (1 << grain))
    while more > 0 and not keeps(staircase_ratio(extremes, Steps(more, 1 << grain)), epsilon):
        more -= 1
    return Steps(more, 1 << grain)
