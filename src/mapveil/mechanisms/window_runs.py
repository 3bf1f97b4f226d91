r"""w-event privacy of a stream by budget absorption: epsilon for a user's rows in any w consecutive windows.

Half of epsilon is spread over the windows to compare each with the last map that was published,

.. math:: \tilde d_i = \sum_b |c_i(b) - r(b)| + \nu, \qquad \nu \sim \mathrm{DLap}\Big(\frac{\epsilon}{2 w}\Big)

and half pays for publications. A window is published, with the epsilon :math:`\epsilon_i` that it can absorb, where
:math:`\tilde d_i / B > 1 / \epsilon_i`; otherwise the last map stands for it. Window i absorbs the units
:math:`\epsilon / 2 w` of the windows before that nobody used, w of them at most; as many windows after it as it
absorbed of others have none.

where: :math:`c_i(b)` are the users of block b in window i, r those of the last published map, B is the number of
blocks, and w that of the windows of a run. A user counts 1 in a window, so the comparison moves by at most 1. Over any
w consecutive windows comparisons cost :math:`\epsilon / 2` and publications at most as much.

Source: Kellaris, Papadopoulos, Xiao, Papadias, "Differentially Private Event Sequences over Infinite Streams" (2014),
section 4.2.2 (BA). Deviation: blocks of up to 16 x 16 sites are compared instead of single cells, most of which are
empty; the first window is always published.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from mapveil.engines import UNIT, UserSums
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.trust.queries import Raster
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness

_LEVEL: Final = 4
"""Level of the blocks that are compared, 256 of them: districts of a city. Chosen, not measured."""


class PublicationBudget(NamedTuple):
    """The epsilon of publications, exactly."""

    epsilon: Fraction  # of a run of windows
    run: int  # w
    spent: Mapping[int, Fraction]  # by the number of each window that was published

    @property
    def unit(self) -> Fraction:
        """Epsilon of the comparison of one window, and of its publication if it absorbs nothing."""
        return self.epsilon / (2 * self.run)

    def of(self, window: int) -> Fraction:
        """Epsilon that a later window's publication may cost; 0 where one before used it up."""
        free = window + 1
        if self.spent:
            last = max(self.spent)
            free = window - last - (int(self.spent[last] / self.unit) - 1)
        return self.unit * min(max(free, 0), self.run)


def differs(
    sums: UserSums, published: DensityMap, budget: PublicationBudget, window: int, rng: Randomness
) -> bool:
    """Whether a window is to be published, by a noisy comparison with the last map. Run by: the curator.

    Costs :attr:`PublicationBudget.unit`, also where nothing could be published.

    Parameters
    ----------
    sums : UserSums
        Exact sums of the window, each user 1 at most.
    published : DensityMap
        The last map, on the same cells.
    budget : PublicationBudget
        What publications cost before.
    window : int
        Number of the window.
    rng : Randomness
        The source of bits.
    """
    block = _blocks(sums)
    blocks = int(block.max()) + 1
    before = np.rint(published.values * UNIT).astype(np.int64)
    apart = distance(sums.sums, before, block)
    noisy = apart + int(discrete_laplace(1, budget.unit, UNIT, rng)[0])
    allowed = budget.of(window)
    return bool(allowed) and noisy / UNIT / blocks > 1 / float(allowed)


def distance(one: IntArray, other: IntArray, block: IntArray) -> int:
    """Sum over blocks of the absolute difference of two integer maps; one user's rows move it by UNIT at most.

    Parameters
    ----------
    one, other : ndarray of int64, shape (cells,)
        Sums in units.
    block : ndarray of int64, shape (cells,)
        Block of each cell.
    """
    sums = np.zeros(int(block.max()) + 1, dtype=np.int64)
    np.add.at(sums, block, one - other)
    return int(np.abs(sums).sum())


def _blocks(sums: UserSums) -> IntArray:
    """The block of each cell, numbered from 0."""
    raster = Raster.of(sums.tiling.lattice())
    shift = 2 * max(raster.depth - _LEVEL, 0)
    return np.asarray(np.unique(raster.site >> shift, return_inverse=True)[1].reshape(-1), dtype=np.int64)
