r"""Groups of sites by the length of the prefix that they share with a place, and where best to cut.

With thresholds :math:`\beta_1 > \dots > \beta_m` (bits), group :math:`G_j(x)` holds the sites that share at least
:math:`\beta_j` bits of their code with x, and fewer than :math:`\beta_{j-1}`. The sites that share :math:`\beta_j` bits
are an interval of the sorted codes, a *block*, and blocks nest: a group is a block without a smaller one.

The thresholds maximise the paper's objective over the whole domain,

.. math:: \sum_x \sum_{j=1}^m \beta_j\, |G_j(x)| = \sum_{j=1}^m \beta_j\, (N(\beta_j) - N(\beta_{j-1}))

where: :math:`N(\beta)` is the number of ordered pairs of sites that share at least :math:`\beta` bits, with
:math:`N(\beta_0) = 0`: exactly, by a dynamic programme over the lengths of the code's levels (two bits each). The
last threshold is the prefix of the whole domain, so that every site has a group.

Deviation: the paper's Algorithm 1 leaves sites with a shorter prefix than :math:`\beta_m` without a group.

Source: Wang et al. (2022), section 3.2, Definition 3.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
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


def pairs_sharing(codes: Codes, threshold: int) -> int:
    """Ordered pairs of sites that share ``threshold`` bits, each site with itself included."""
    size = blocks_at(codes, threshold).size
    return int(size @ size)


def code_levels(codes: Codes) -> dict[int, int]:
    """The lengths of prefixes worth being thresholds, longest first, each with the pairs that share so much.

    The whole code (each site by itself); every even length that some pair shares and no more of the next two bits.
    """
    found = {codes.bits: codes.code.size}
    before = codes.code.size
    for length in range(codes.bits - 2, -1, -2):
        pairs = pairs_sharing(codes, length)
        if pairs > before:
            found[length] = pairs
            before = pairs
        if pairs == codes.code.size**2:
            break
    return found


def best_thresholds(codes: Codes, groups: int, *, own_group: bool = True) -> tuple[int, ...]:
    """The thresholds of the module's header, by dynamic programming. Run by: anybody, of the public domain.

    Parameters
    ----------
    codes : Codes
        The domain's.
    groups : int
        m; as many as there are lengths where that is fewer.
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
    """Thresholds as given, if every site has a group.

    Raises
    ------
    ParameterError
        Fewer than two, not descending, longer than a code, or the last is longer than what all sites share.
    """
    given = tuple(thresholds)
    whole = codes.bits
    descending = all(above > below for above, below in itertools.pairwise(given))
    if len(given) < 2 or not descending or given[0] > whole or given[-1] < 0:
        raise ParameterError(
            f"thresholds are {list(given)}; two or more, descending from at most {whole} bits"
        )
    if blocks_at(codes, given[-1]).first.size > 1:
        shared = whole - int(codes.code[0] ^ codes.code[-1]).bit_length()
        raise ParameterError(
            f"the last threshold is {given[-1]}, but the sites share only {shared} bits: some would have no group; "
            f"{shared} or fewer is accepted"
        )
    return given
