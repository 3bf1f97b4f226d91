"""Exact user sums per cell: the curator's one heavy step, by the engine that holds the table."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.engines.contributions import UNIT, check_same_tiling
from mapveil.engines.table_engine import engine_of
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import Parts, WindowedPoints
from mapveil.geo.windows import Windows
from mapveil_client.errors import InputError

_LARGEST_SUM = (1 << 62) // UNIT


class UserSums(NamedTuple):
    """Exact sums of the users' shares. Not private: never print or store them."""

    # (cells,), or (windows or labels, cells); units of 1 / UNIT user. Of trips a cell is a pair of the tiling's cells.
    sums: npt.NDArray[np.int64]
    tiling: Tiling
    windows: Windows | None = None  # that rows were numbered by
    parts: Parts | None = None  # of the windows, in which a user contributes 1 each


def user_sums(
    source: Points | Counts | UserSums,
    tiling: Tiling,
    *,
    progress: Callable[[str, float], None] | None = None,
    key: str = "",
    labels: int | None = None,
) -> UserSums:
    r"""Sum every user's distribution over the cells, exactly. Run by: the curator.

    .. math:: s(c) = \sum_{i:\, c_i = c} \Big\lfloor U w_i \Big/ \textstyle\sum_{j:\, u_j = u_i} w_j \Big\rfloor

    where: row i of user :math:`u_i` lies in cell :math:`c_i` and weighs :math:`w_i` (1 without weights, which
    count to a millionth); the sum below is over the user's rows inside the tiling; :math:`U` is
    :data:`UNIT`. One user contributes at most :math:`U` in L1, whatever they did. Of trips, c is a pair of cells: the
    origin and the destination. With windows, c is a cell (or pair) in a window; where the points bound the contribution
    of a part of the windows and not of all, the sum below is over the user's rows in that part, and a user contributes
    at most :math:`U` in each part.

    Parameters
    ----------
    source : Points, Counts or UserSums
        A table; or counts, each unit one user in one cell; or earlier sums, returned as they are.
    tiling : Tiling
        The cells; rows outside them contribute nothing.
    progress : callable, optional
        Called with the step's name and the fraction that is done.
    key : str
        Key of the hash by which windows of a user are chosen, where the points allow at most so many.
    labels : int, optional
        Number of labels 0, 1, ... of a table of labels, whose sums are kept apart.

    Raises
    ------
    InputError
        The table cannot be used, or counts are of another tiling or too many for 63 bits. A table without a row inside
        has sums of zero: an error would answer without noise whether somebody is there.
    """
    if not isinstance(source, Points):
        check_same_tiling(source.tiling, tiling)
        return source if isinstance(source, UserSums) else UserSums(_from_counts(source), tiling)
    if progress:
        progress("sum users per cell", 0.0)
    told = partial(progress, "sum users per cell") if progress else lambda _: None
    sums = engine_of(source).user_sums(source, tiling, key, labels, told)
    if progress:
        progress("sum users per cell", 1.0)
    if isinstance(source, WindowedPoints):
        return UserSums(sums, tiling, source.windows, source.parts)
    return UserSums(sums, tiling)


def _from_counts(counts: Counts) -> npt.NDArray[np.int64]:
    if counts.values.sum(dtype=np.float64) > _LARGEST_SUM:
        raise InputError(f"{counts.source}: at most {_LARGEST_SUM} users fit 63-bit sums, got more")
    return counts.values * UNIT
