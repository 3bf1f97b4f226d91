r"""The noisy blocks of a first round, and cells of one size for the second where people are spread over the whole map.

People are spread over it, for a curator, where at least 64 blocks hold n users, 1.5 noise scales of them each on
average or more, and

.. math:: \frac{A}{n^2} \sum_b \frac{\hat x_b^2}{a_b} \le 1.5, \qquad
    \frac{A}{n} \max_b \frac{\hat x_b}{a_b} \le 3, \qquad A = \sum_b a_b

where: :math:`\hat x_b` is the estimated number of users of block b, and :math:`a_b` its number of cells. The second
round then asks for the level whose number of cells is nearest (as a ratio) to :math:`n \epsilon^2 / 2.5`, where
:math:`\epsilon` is its budget, but for no coarser one than the first. So the number of users in a cell is the variance
of the noise on its sum, :math:`2 / \epsilon^2`, within a factor of about two: noise and the chance of who is there move
a cell alike. Smaller cells show noise, and larger ones hide where nobody is.

The decision reads noisy sums only, and costs no privacy. Run by: whoever holds them.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.mechanisms.uniform_grid import nearest_level
from mapveil.trust.queries import Setting
from mapveil_client.arrays import FloatArray, IntArray

# Chosen on flat, rough and hot-spot maps of 500 to 60,000 users, drawn with seeds that no set of the benchmarks has,
# and on the sets of the role tune.
_CONCENTRATION: Final = 1.5  # flat and rough maps have 1.0 to 1.5 here, skewed ones 2.6 or more
_DENSEST: Final = 3.0  # mean densities: with a spot of 5 % of the users one of 64 blocks has 3.7 or more, on flat maps 2.7 at most
_FEWEST: Final = (
    64  # blocks: 16 would hide a spot of 13 % of the users, for it has 1 + f (B - 1) mean densities
)
_TOLD: Final = 1.5  # noise scales of users per block: with fewer, noise hid skewed maps of 200 to 800 users
_CELL: Final = (
    2.5  # users in a cell times the square of epsilon; 2 to 2.8 choose alike, 1 and 5.6 lose either metric
)
_LEAST: Final = 1e-12  # users squared


class Blocks(NamedTuple):
    """The first answer, on the raster of its level."""

    level: int
    codes: IntArray  # of the cells asked for
    weights: npt.NDArray[Any]  # of the raster of sites: their members, mixed with a prior, shape (side, side)
    held: IntArray  # members of the level, shape (cells, cells)
    shrunk: FloatArray
    floor: float  # users per member
    exponent: float

    @property
    def concentration(self) -> float:
        """The density around an average user over the average density, at least 1."""
        there = self.held > 0
        users, cells = self.shrunk[there], self.held[there].astype(np.float64)
        return float((users**2 / cells).sum() * cells.sum() / max(float(users.sum()) ** 2, _LEAST))


def even_depth(setting: Setting, blocks: Blocks, scale: float, epsilon: float) -> int | None:
    """Times that every block is quartered, where a curator's blocks say that people are spread out; else None.

    Parameters
    ----------
    setting : Setting
        The public setting.
    blocks : Blocks
        The first answer.
    scale : float
        Scale of the noise on a block's sum, users.
    epsilon : float
        Budget of the second round.
    """
    there = blocks.held > 0
    users, held = blocks.shrunk[there], blocks.held[there]
    total = float(users.sum())
    if users.size < _FEWEST or total < _TOLD * scale * users.size:
        return None
    densest = float((users / held).max()) * float(held.sum())
    if blocks.concentration > _CONCENTRATION or densest > _DENSEST * total:
        return None
    return max(nearest_level(setting, total * epsilon**2 / _CELL) - blocks.level, 0)
