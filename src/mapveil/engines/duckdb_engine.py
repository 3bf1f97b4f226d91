"""DuckDB in this process: exact user sums as one SQL text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from mapveil.engines.contributions import UNIT, located_rows
from mapveil.geo.points import Points
from mapveil.geo.tables import Table, quote_text
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil_client.arrays import IntArray

USER_SUMS_SQL: Final = """
WITH located AS MATERIALIZED (SELECT user_id, {columns} FROM ({rows}) AS rows){chosen},
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
once and its located rows are kept for the second grouping: one that differs from reading to reading, such
as a random sample, would give a user another total than the rows have. Beyond the memory limit DuckDB keeps them in
the temporary folder.
"""

CHOSEN_SQL: Final = """,
places AS (
    SELECT user_id, part, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY chance, part) AS place
    FROM (SELECT DISTINCT user_id, part, {chance} AS chance FROM located) AS parts
),
chosen AS MATERIALIZED (
    SELECT located.* FROM located JOIN places USING (user_id, part) WHERE place <= {most}
)"""
"""The part of :data:`USER_SUMS_SQL` that keeps the rows of at most so many of each user's windows.

A keyed hash of user and window orders a user's windows, so that their own rows alone decide which count.
"""


class DuckDbEngine:
    """Sums by DuckDB, which spills to a temporary folder beyond its memory limit."""

    def check(self, points: Points) -> None:
        """See :class:`mapveil.engines.table_engine.Engine`."""
        points.check()

    def people(self, table: Table, column: str, values: Callable[[Table], IntArray]) -> IntArray:
        """See :class:`mapveil.engines.table_engine.Engine`."""
        return table.people(column, values)

    def user_sums(
        self,
        points: Points,
        tiling: Tiling,
        key: str,
        labels: int | None,
        told: Callable[[float], None] = lambda _: None,
    ) -> IntArray:
        """See :class:`mapveil.engines.table_engine.Engine`."""
        windows = points.windows.count if isinstance(points, WindowedPoints) else labels
        parts = points.parts if isinstance(points, WindowedPoints) else None
        with located_rows(points, tiling) as rows:
            weighted = points.columns.weight is not None
            columns = ["cell", *(["weight"] if weighted else []), *(["label"] if windows is not None else [])]
            chosen = ""
            if parts is not None:
                columns.append(f"{parts.sql} AS part")
                if parts.most is not None:
                    chosen = CHOSEN_SQL.format(chance=chance_sql(key), most=parts.most)
            text = USER_SUMS_SQL.format(
                rows=rows.sql,
                columns=", ".join(columns),
                weight="weight" if weighted else "1",
                integer="HUGEINT" if weighted else "BIGINT",
                quotient=f"(weight * {UNIT}) // total" if weighted else f"{UNIT} // total",
                chosen=chosen,
                counted="chosen" if chosen else "located",
                contributor="user_id" if parts is None else "user_id, part",
                group="cell" if windows is None else "cell, label",
            )
            found = rows.connection.execute(text).fetchnumpy()
            cells = rows.cells(found["cell"])
        shares = np.ma.filled(found["share"], 0)
        size = tiling.size if points.columns.to_lon is None else tiling.size**2
        labelled = None if windows is None else np.ma.filled(found["label"], 0)
        return placed(cells, labelled, shares, size, windows)


def chance_sql(key: str, user: str = "user_id") -> str:
    """SQL of the keyed hash that orders a user's parts, of SQL of the user's id and the column ``part``."""
    return f"md5(concat_ws(':', {quote_text(key)}, {user}, part))"


def placed(
    cells: IntArray, labels: IntArray | None, shares: IntArray, size: int, windows: int | None
) -> IntArray:
    """Sums per cell, or per window and cell, from those above 0; those of a repeated cell are added."""
    if windows is None or labels is None:
        sums = np.zeros(size, dtype=np.int64)
        np.add.at(sums, cells, shares)
    else:
        sums = np.zeros((windows, size), dtype=np.int64)
        np.add.at(sums, (labels, cells), shares)
    return sums
