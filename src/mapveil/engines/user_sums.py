"""Exact user sums per cell: the curator's one heavy step, as one SQL text.

The text is plain SQL but for placeholders, among them integer division and how a query is inlined, so that another
SQL engine can run it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.engines.contributions import UNIT, check_same_tiling, located_rows
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tables import quote_text
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil_client.errors import InputError

USER_SUMS_SQL: Final = """
WITH located AS {once} (SELECT user_id, {columns} FROM ({rows}) AS rows){chosen},
totals AS (
    SELECT {contributor}, CAST(SUM({weight}) AS {integer}) AS total
    FROM {counted}
    GROUP BY {contributor}
)
SELECT {group}, CAST(SUM({quotient}) AS BIGINT) AS share
FROM {counted} JOIN totals USING ({contributor})
GROUP BY {group}
"""
"""The SQL of :func:`user_sums`. Each row's share of its user is rounded down, so no user's shares exceed one.

Rounding row by row spares a grouping by user and cell, whose table may be as long as the input. The source is read
once and its located rows are kept (``once``) for the second grouping: one that differs from reading to reading, such
as a random sample, would give a user another total than the rows have. Beyond the memory limit DuckDB keeps them in
the temporary folder.
"""

CHOSEN_SQL: Final = """,
places AS (
    SELECT user_id, part, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY chance, part) AS place
    FROM (SELECT DISTINCT user_id, part, {chance} AS chance FROM located) AS parts
),
chosen AS {once} (
    SELECT located.* FROM located JOIN places USING (user_id, part) WHERE place <= {most}
)"""
"""The part of :data:`USER_SUMS_SQL` that keeps the rows of at most so many of each user's windows.

A keyed hash of user and window orders a user's windows, so that their own rows alone decide which count.
"""

_LARGEST_SUM = (1 << 62) // UNIT


class UserSums(NamedTuple):
    """Exact sums of the users' shares. Not private: never print or store them."""

    # (cells,), or (windows or labels, cells); units of 1 / UNIT user. Of trips a cell is a pair of the tiling's cells.
    sums: npt.NDArray[np.int64]
    tiling: Tiling


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
    sums = _from_points(source, tiling, key, labels)
    if progress:
        progress("sum users per cell", 1.0)
    return UserSums(sums, tiling)


def _from_counts(counts: Counts) -> npt.NDArray[np.int64]:
    if counts.values.sum(dtype=np.float64) > _LARGEST_SUM:
        raise InputError(f"{counts.source}: at most {_LARGEST_SUM} users fit 63-bit sums, got more")
    return counts.values * UNIT


def _from_points(points: Points, tiling: Tiling, key: str, labels: int | None) -> npt.NDArray[np.int64]:
    windows = points.windows.count if isinstance(points, WindowedPoints) else labels
    parts = points.parts if isinstance(points, WindowedPoints) else None
    with located_rows(points, tiling) as rows:
        weighted = points.columns.weight is not None
        columns = ["cell", *(["weight"] if weighted else []), *(["label"] if windows is not None else [])]
        chosen = ""
        if parts is not None:
            columns.append(f"label // {parts.length} AS part")
            if parts.most is not None:
                chance = f"md5(concat_ws(':', {quote_text(key)}, user_id, part))"
                chosen = CHOSEN_SQL.format(chance=chance, most=parts.most, once="MATERIALIZED")
        text = USER_SUMS_SQL.format(
            rows=rows.sql,
            columns=", ".join(columns),
            weight="weight" if weighted else "1",
            integer="HUGEINT" if weighted else "BIGINT",
            quotient=f"(weight * {UNIT}) // total" if weighted else f"{UNIT} // total",
            once="MATERIALIZED",
            chosen=chosen,
            counted="chosen" if chosen else "located",
            contributor="user_id" if parts is None else "user_id, part",
            group="cell" if windows is None else "cell, label",
        )
        found = rows.connection.execute(text).fetchnumpy()
        cells = rows.cells(found["cell"])
    shares = np.ma.filled(found["share"], 0)
    size = tiling.size if points.columns.to_lon is None else tiling.size**2
    if windows is None:
        sums = np.zeros(size, dtype=np.int64)
        sums[cells] = shares
    else:
        sums = np.zeros((windows, size), dtype=np.int64)
        sums[np.ma.filled(found["label"], 0), cells] = shares
    return sums
