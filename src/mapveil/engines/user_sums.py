"""From rows to exact user sums per cell: the one heavy step, one SQL text.

Run by: the curator (or a simulation). The text is plain SQL but for placeholders, integer
division and how a query is inlined among them, so that another SQL engine can run it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tables import reading
from mapveil.geo.tiling import SqlKey, Tiling
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb

UNIT: Final = 1 << 28
"""Lattice units per user: every sum is an integer number of these.

Fine enough that rounding every row down costs a user of a million rows 0.4 % of themself at most; coarse enough
that the sums of 34 thousand million users fit 63 bits.
"""

USER_SUMS_SQL: Final = """
WITH rows_of_users AS {inline} (
    SELECT user_id, {cell} AS cell, {weight} AS weight
    FROM ({points}) AS points
),
located AS {inline} (
    SELECT user_id, cell, weight
    FROM rows_of_users
    WHERE cell >= 0 AND weight > 0
),
totals AS (
    SELECT user_id, CAST(SUM(weight) AS {integer}) AS total
    FROM located
    GROUP BY user_id
)
SELECT cell, CAST(SUM({quotient}) AS BIGINT) AS share
FROM located JOIN totals USING (user_id)
GROUP BY cell
"""
"""The step's text. Each row's share of its user is rounded down, so no user's shares exceed one.

Rounding row by row rather than once per user and cell spares a grouping by user and cell, whose table may be as
long as the input: grouped are the users, then the cells. The rows are located twice (``inline``) rather than kept
between the two groupings, so that memory follows the users and the cells, never the rows.
"""

_MEMORY_LIMIT = "1200MB"
_WEIGHT_UNITS = 1_000_000
_LARGEST_SUM = (1 << 62) // UNIT


class UserSums(NamedTuple):
    """Exact sums of the users' shares. Not private: never print or store them."""

    sums: npt.NDArray[np.int64]  # (tiling.size,), units of 1 / UNIT user
    tiling: Tiling


def user_sums(
    source: Points | Counts | UserSums,
    tiling: Tiling,
    *,
    progress: Callable[[str, float], None] | None = None,
    may_be_empty: bool = False,
) -> UserSums:
    r"""Sum every user's distribution over the cells, exactly. Run by: the curator.

    .. math:: s(c) = \sum_{i:\, c_i = c} \Big\lfloor U w_i \Big/ \textstyle\sum_{j:\, u_j = u_i} w_j \Big\rfloor

    where: row i of user :math:`u_i` lies in cell :math:`c_i` and weighs :math:`w_i` (1 without weights, which
    count to a millionth); the sum below is over the user's rows inside the tiling; :math:`U` is
    :data:`UNIT`. One user contributes at most :math:`U` in L1, whatever they did.

    Parameters
    ----------
    source : Points, Counts or UserSums
        A table; or counts, each unit one user in one cell; or sums made before.
    tiling : Tiling
        The cells; rows outside them contribute nothing.
    progress : callable, optional
        Told the step's name and the done part.
    may_be_empty : bool
        Whether sums of nobody are an answer. Once noise was drawn an error would be one too, without noise.

    Returns
    -------
    UserSums
        int64 sums, shape (tiling.size,).

    Raises
    ------
    InputError
        The table cannot be used, no row lies inside the tiling, or counts are of another tiling or
        too many for 63 bits.
    """
    if not isinstance(source, Points):
        if source.tiling is not tiling and source.tiling.to_dict() != tiling.to_dict():
            raise InputError(f"counts on {source.tiling.spec} cannot be released on {tiling.spec}")
        return source if isinstance(source, UserSums) else UserSums(_from_counts(source), tiling)
    if progress:
        progress("sum users per cell", 0.0)
    sums = _from_points(source, tiling, may_be_empty)
    if progress:
        progress("sum users per cell", 1.0)
    return UserSums(sums, tiling)


def _from_counts(counts: Counts) -> npt.NDArray[np.int64]:
    if counts.values.sum(dtype=np.float64) > _LARGEST_SUM:
        raise InputError(f"{counts.source}: more users than {_LARGEST_SUM} in all; fewer are accepted")
    return counts.values * UNIT


def _from_points(points: Points, tiling: Tiling, may_be_empty: bool) -> npt.NDArray[np.int64]:
    import duckdb

    points.check()
    with tempfile.TemporaryDirectory(prefix="mapveil-") as spill, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET temp_directory = ?", [spill])
        rows = points.scan(connection)
        weighted = points.columns.weight is not None
        located = located_by(connection, tiling)
        text = USER_SUMS_SQL.format(
            cell=located.expression,
            weight=f"CAST(ROUND(weight * {_WEIGHT_UNITS}) AS HUGEINT)" if weighted else "CAST(1 AS BIGINT)",
            points=rows,
            integer="HUGEINT" if weighted else "BIGINT",
            quotient=f"(weight * {UNIT}) // total",
            inline="NOT MATERIALIZED",
        )
        with reading(points.source):
            found = connection.execute(text).fetchnumpy()
    cells = located.cells(np.ma.filled(found["cell"], -1).astype(np.int64))
    if cells.size == 0 and not may_be_empty:
        hint = "; are lat and lon swapped?" if _inside_if_swapped(points, tiling) else ""
        raise InputError(
            f"{points.source}: no row lies inside the region {tiling.region}; "
            f"a region that overlaps the points is accepted (west,south,east,north in degrees){hint}"
        )
    sums = np.zeros(tiling.size, dtype=np.int64)
    sums[cells] = np.ma.filled(found["share"], 0)
    return sums


def _inside_if_swapped(points: Points, tiling: Tiling) -> bool:
    """Whether most rows would lie in the region's box, were lat and lon exchanged."""
    import duckdb

    west, south, east, north = tiling.region.bbox
    with duckdb.connect() as connection, reading(points.source):
        rows = connection.execute(
            "SELECT 2 * COUNT(*) FILTER (lat BETWEEN ? AND ? AND lon BETWEEN ? AND ?) > COUNT(*) "
            f"FROM ({points.scan(connection)}) AS points",
            [west, east, south, north],
        ).fetchall()
    return bool(rows[0][0])


def located_by(connection: duckdb.DuckDBPyConnection, tiling: Tiling) -> SqlKey:
    """The cell of the columns lon and lat in SQL; ``tiling.locate`` as a function where there is no expression."""
    located = tiling.locate_sql("lon", "lat")
    if located is not None:
        return located
    import pyarrow

    # DuckDB evaluates these annotations where only builtins are known.
    def locate(lon: object, lat: object) -> object:
        cells = tiling.locate(np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64))
        return pyarrow.array(cells)

    connection.create_function(  # type: ignore[call-overload]
        "mapveil_locate", locate, ["DOUBLE", "DOUBLE"], "BIGINT", type="arrow"
    )
    return SqlKey("mapveil_locate(lon, lat)", lambda keys: keys)
