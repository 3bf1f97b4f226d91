"""Two grids, the second as fine as the first found people: Qardaji, Yang, Li (2013)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mapveil.inference.nested_rounds import block_inference
from mapveil.maps.measurement import Measurement
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.queries import Estimate, Plan, Query, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.encodings import BlockEncoding, even_edges
from mapveil_client.epsilon import split_epsilon
from mapveil_client.morton import deinterleave

_LEAST = 10
_MOST_PARTS = 1 << 24  # per side of a block: more than any raster has
_DEVICES_C2 = 10.0


@dataclass(frozen=True, kw_only=True)
class AdaptiveGrid(SumMechanism):
    r"""Measure a coarse grid, divide each of its blocks by its noisy count, measure again.

    .. math:: m_1 = \max\left(10, \left\lceil \tfrac{1}{4} \left\lceil \sqrt{N \epsilon / c} \right\rceil
              \right\rceil\right), \qquad
              m_2 = \left\lceil \sqrt{N' (1 - \alpha) \epsilon / c_2} \right\rceil

    where: N is the number of users (declared, or bought by the curator), :math:`\epsilon` is ``epsilon`` (less what N
    cost), c is ``c``, :math:`c_2` is ``c2``, :math:`\alpha` is ``alpha``, :math:`N'` is a block's noisy count of the
    first grid. Both counts of a block are combined by least squares (:mod:`mapveil.inference.nested_rounds`).

    Deviation: the paper uses the true N. Deviation: blocks are of whole sites, and those of one grid differ by one row
    or column. Deviation: over secure sums the first grid is 10 x 10, as in Bagdasaryan et al.; they do not say how
    :math:`m_2` is rounded, and the lengths in their Table 1 are nearer to those of ``"floor"``. Deviation: negative
    estimates become zero.

    Source: Qardaji, Yang, Li, "Differentially Private Grids for Geospatial Data" (ICDE 2013), section IV;
    Bagdasaryan et al. (2022), section 6.2.

    Parameters
    ----------
    alpha : float
        Fraction of the budget for the first grid, from 0.0001 to 0.9999.
    c : float
        The constant of the first grid, above 0.
    c2 : float, optional
        The constant of the second grids, above 0; by default c / 2 for a curator (2013) and 10 for secure sums (2022).
    first : int, optional
        Blocks per side of the first grid; by default :math:`m_1` for a curator and 10 for secure sums.
    whole : str
        Rounding of :math:`m_2`, to at least 1: ``"ceil"`` or ``"floor"``.
    """

    name: ClassVar[str] = "adaptive-grid"
    summary: ClassVar[str] = "a coarse noisy grid, each block divided by its noisy count, measured again"
    source: ClassVar[str] = "Qardaji et al., ICDE 2013; Bagdasaryan et al. 2022, section 6.2"

    alpha: float = 0.5
    c: float = 10.0
    c2: float | None = None
    first: int | None = None
    whole: Literal["ceil", "floor"] = "ceil"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_share("alpha")
        self._check_positive("c", *(() if self.c2 is None else ("c2",)))
        self._check(self.first is None or 1 <= self.first <= 1 << 12, "first", "1 to 4096, or none")

    def plan(self, setting: Setting) -> Plan:
        """Two queries, after one for the number of users where it is needed; see :meth:`SumMechanism.plan`."""
        side, budget = self.first, self.budget
        before: tuple[Measurement, ...] = ()
        if side is None and not setting.curator:
            side = _LEAST
        elif side is None:
            number = yield from self.number_of_users(setting)
            side, budget = self.first_grid(number.users, float(number.rest)), number.rest
            before = number.measurements(setting.members.size)
        coarse_epsilon, fine_epsilon = split_epsilon(budget, [self.alpha, 1 - self.alpha])
        # A long grid lies on a raster of many more sites than it has cells.
        inside = np.flatnonzero(setting.members)
        row, col = deinterleave(inside)
        rows = even_edges(int(row.min()), int(row.max()) + 1, side)
        columns = even_edges(int(col.min()), int(col.max()) + 1, side)
        shape = (rows.size - 1, columns.size - 1)

        every = BlockEncoding(setting.depth, rows, columns, np.ones(shape, dtype=np.int64))
        used = _held(every.positions(inside)[:, 0], setting.members[inside], every.length) > 0
        coarse = BlockEncoding(setting.depth, rows, columns, used.reshape(shape).astype(np.int64))
        blocks = yield Query("first grid", coarse, coarse_epsilon)

        parts = np.zeros(used.size, dtype=np.int64)
        c2 = self.c2 or (self.c / 2 if setting.curator else _DEVICES_C2)
        parts[used] = self.second_grids(blocks.values, float(fine_epsilon), c2)
        fine = BlockEncoding(setting.depth, rows, columns, parts.reshape(shape))
        sums = yield Query("second grid", fine, fine_epsilon)

        sites = np.arange(setting.members.size)
        block_of_site, part_of_site = (each.positions(sites)[:, 0] for each in (every, fine))
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
                *before,
                blocks.measurement(np.where(block_of_site >= 0, block_number[block_of_site], -1)),
                sums.measurement(part_of_site),
            ),
        )

    def first_grid(self, users: float, epsilon: float) -> int:
        """m1, blocks per side of the first grid."""
        return max(_LEAST, math.ceil(math.ceil(math.sqrt(max(users, 0.0) * epsilon / self.c)) / 4))

    def second_grids(self, noisy: FloatArray, epsilon: float, c2: float) -> IntArray:
        """m2, parts per side of each block of the first grid; ``epsilon`` is the second grid's."""
        wanted = np.sqrt(np.maximum(noisy, 0.0) * epsilon / c2)
        whole = np.ceil(wanted) if self.whole == "ceil" else np.floor(wanted)
        return np.clip(whole, 1, _MOST_PARTS).astype(np.int64)


def _held(group: IntArray, members: IntArray, groups: int) -> IntArray:
    """Number of cells that can hold anybody in each group of sites."""
    inside = group >= 0
    return np.bincount(group[inside], members[inside], groups).astype(np.int64)
