"""Two grids over noisy sums, the second as fine as the first found people: Qardaji, Yang, Li (2013)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mapveil.distributed.mechanism import DistributedMechanism, ServerHalf
from mapveil.distributed.query import Query, Setting
from mapveil.inference.block_inference import block_inference
from mapveil.mechanisms.mechanism import Estimate
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.block_encoding import BlockEncoding, even_edges
from mapveil_client.epsilon import split_epsilon
from mapveil_client.morton import deinterleave


@dataclass(frozen=True, kw_only=True)
class AdaptiveGrid(DistributedMechanism):
    r"""Ask about a coarse grid, divide each of its blocks by its noisy count, ask again.

    .. math:: n = \left\lceil \sqrt{\frac{N' (1 - \alpha) \epsilon}{c_2}} \right\rceil

    where: a block of the first grid is divided into n x n parts, :math:`N'` is its noisy count, :math:`\epsilon` is
    ``epsilon``, :math:`\alpha` is ``alpha``, the first round's part of it, and :math:`c_2` is ``c2``. Both rounds are
    then combined by the constrained inference of Qardaji et al. (:mod:`mapveil.inference.block_inference`).

    Deviation: blocks are of whole sites, and those of a grid of 10 x 10 differ by one row or column. Deviation: n is
    rounded up as in the paper of 2013; the paper of 2022 does not say, and the lengths in its Table 1 are nearer to
    those of ``"floor"``. Deviation: negative estimates become zero.

    Source: Bagdasaryan et al. (2022), section 6.2; Qardaji, Yang, Li, "Differentially Private Grids for Geospatial
    Data" (ICDE 2013), section IV.

    Parameters
    ----------
    alpha : float
        Part of the budget for the first grid, in (0, 1).
    c2 : float
        The constant of the second grids, above 0.
    first : int
        Blocks per side of the first grid.
    whole : str
        How n becomes a whole number, at least 1: ``"ceil"`` or ``"floor"``.
    """

    name: ClassVar[str] = "adaptive-grid"
    summary: ClassVar[str] = "a coarse grid, each block divided by its noisy count, asked again"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 6.2; Qardaji et al., ICDE 2013"

    alpha: float = 0.5
    c2: float = 10.0
    first: int = 10
    whole: Literal["ceil", "floor"] = "ceil"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(0 < self.alpha < 1, "alpha", "a number between 0 and 1")
        self._check(self.c2 > 0 and math.isfinite(self.c2), "c2", "a number above 0")
        self._check(1 <= self.first <= 1 << 12, "first", "1 to 4096")
        self._check(self.whole in ("ceil", "floor"), "whole", "ceil or floor")

    def server(self, setting: Setting) -> ServerHalf:
        """Two queries; see :meth:`DistributedMechanism.server`."""
        coarse_epsilon, fine_epsilon = split_epsilon(self.budget, [self.alpha, 1 - self.alpha])
        sites = np.arange(setting.members.size)
        row, col = (axis[setting.members > 0] for axis in deinterleave(sites))
        rows = even_edges(int(row.min()), int(row.max()) + 1, self.first)
        columns = even_edges(int(col.min()), int(col.max()) + 1, self.first)
        shape = (rows.size - 1, columns.size - 1)

        every = BlockEncoding(setting.depth, rows, columns, np.ones(shape, dtype=np.int64))
        block_of_site = every.positions(sites)[:, 0]
        used = _held(block_of_site, setting.members, every.length) > 0
        coarse = BlockEncoding(setting.depth, rows, columns, used.reshape(shape).astype(np.int64))
        blocks = yield Query("first grid", coarse, coarse_epsilon)

        parts = np.zeros(used.size, dtype=np.int64)
        parts[used] = self.second_grids(blocks.values, float(fine_epsilon))
        fine = BlockEncoding(setting.depth, rows, columns, parts.reshape(shape))
        sums = yield Query("second grid", fine, fine_epsilon)

        part_of_site = fine.positions(sites)[:, 0]
        held = _held(part_of_site, setting.members, fine.length)
        block_number = np.cumsum(used) - 1
        values = np.zeros(fine.length)
        values[held > 0] = block_inference(
            blocks.values,
            sums.values[held > 0],
            block_number[fine.block[held > 0]],
            blocks.variance,
            sums.variance,
        )
        density = np.maximum(values, 0.0) / np.maximum(held, 1)
        return Estimate(
            np.where(part_of_site >= 0, density[part_of_site], 0.0) * setting.members,
            (
                blocks.measurement(np.where(block_of_site >= 0, block_number[block_of_site], -1)),
                sums.measurement(part_of_site),
            ),
            (),
        )

    def second_grids(self, noisy: FloatArray, epsilon: float) -> IntArray:
        """n, parts per side of each block of the first grid; ``epsilon`` is the second round's."""
        wanted = np.sqrt(np.maximum(noisy, 0.0) * epsilon / self.c2)
        whole = np.ceil(wanted) if self.whole == "ceil" else np.floor(wanted)
        return np.maximum(whole, 1).astype(np.int64)


def _held(group: IntArray, members: IntArray, groups: int) -> IntArray:
    """How many cells that can hold anybody lie in each group of sites."""
    inside = group >= 0
    return np.bincount(group[inside], members[inside], groups).astype(np.int64)
