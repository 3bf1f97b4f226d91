"""The part of a cluster's executors: the contributions of their rows, and values of ids.

Executors import it by name, so they need this very version of Mapveil.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mapveil.engines.contributions import unchecked_rows
from mapveil.engines.duckdb_engine import chance_sql
from mapveil.geo.points import Points, compared_id
from mapveil.geo.tables import FrameTable, Table
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil_client import __version__
from mapveil_client.arrays import IntArray

if TYPE_CHECKING:
    import pyarrow

BAD: Final = -2
"""The cell of a row that says how many others cannot be used."""

ALL: Final = -3
"""The cell of a row that says how many there are."""

_ROWS: Final = 1 << 18  # that DuckDB takes at a time


def contributions(points: Points, tiling: Tiling, key: str, batch: pyarrow.Table) -> pyarrow.Table:
    """Contributions of the rows of a batch that can be used. Run by: an executor."""
    parts = points.parts if isinstance(points, WindowedPoints) else None
    columns = ["user_id", "cell", "CAST(weight AS BIGINT) AS weight"]
    columns += ["CAST(label AS BIGINT) AS label"] if points.columns.label is not None else []
    columns += [f"CAST({parts.sql} AS BIGINT) AS part"] if parts is not None else []
    limited = parts is not None and parts.most is not None
    with unchecked_rows(replace(points, table=FrameTable(batch, points.source)), tiling) as rows:
        rows.connection.execute("SET threads = 1")
        more = ""
        if parts and limited:  # of ids as :meth:`~mapveil.geo.points.Points.held_once` writes them
            kind = str(rows.connection.sql(f"SELECT user_id FROM ({rows.sql}) AS rows").types[0])
            chance = chance_sql(key, compared_id("user_id", kind))
            more = f", {chance} AS chance, {parts.most} AS place_limit"
        sql = f"SELECT *{more} FROM (SELECT {', '.join(columns)} FROM ({rows.sql}) AS rows) AS contributions"
        return rows.connection.sql(sql).to_arrow_table()


def executed(
    version: str,
    points: Points,
    tiling: Tiling,
    key: str,
    schema: pyarrow.Schema,
    batches: Iterator[pyarrow.RecordBatch],
) -> Iterator[pyarrow.RecordBatch]:
    """Contributions of a partition, and rows that count all and those that cannot be used. Run by: an executor."""
    import pyarrow

    _check_version(version)
    for batch in _gathered(batches):
        here = replace(points, table=FrameTable(batch, points.source))
        made = _declared(contributions(points, tiling, key, batch), schema)
        yield from made.to_batches()
        for cell, count in zip((BAD, ALL), here.bad_rows(), strict=True):
            if count:
                row = {"cell": cell, "weight": count, "place_limit": 1}
                columns = [pyarrow.array([row.get(field.name)], field.type) for field in made.schema]
                yield pyarrow.record_batch(columns, schema=made.schema)


def _declared(made: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """Contributions with ids of the type that the driver knows; an error where that would merge users.

    Sail calls a column of uint64 one of int64 and sends uint64: the cluster would make one user of all ids from 2^63.
    """
    import pyarrow

    found, known = made.schema.field("user_id").type, schema.field("user_id").type
    if found == known:
        return made
    try:
        if not pyarrow.types.is_floating(known):  # it would round
            return made.cast(schema)
    except pyarrow.ArrowException:  # which quotes an id
        pass
    raise RuntimeError("mapveil-ids: " + ", ".join(re.split(r"\W", str(each))[0] for each in (found, known)))


def valued(
    version: str, values: Callable[[Table], IntArray], batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Values of the ids of a partition. Run by: an executor."""
    import pyarrow

    _check_version(version)
    for batch in _gathered(batches):
        yield pyarrow.record_batch({"value": values(FrameTable(batch))})


def _gathered(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    """Batches in tables long enough that a query for each is cheap."""
    import pyarrow

    held: list[pyarrow.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _ROWS:
            yield pyarrow.Table.from_batches(held)
            held = []
    if held:
        yield pyarrow.Table.from_batches(held)


def versions(version: str, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Versions of what executors run. Run by: an executor."""
    import platform

    import duckdb
    import pyarrow

    _check_version(version)
    text = f"Python {platform.python_version()}, mapveil {__version__}, DuckDB {duckdb.__version__}"
    for _ in batches:
        yield pyarrow.record_batch({"found": [text]})


def _check_version(version: str) -> None:
    if version != __version__:
        raise RuntimeError(f"mapveil-version: executors have {__version__}, the driver {version}")


def read_columns(points: Points, schema: pyarrow.Schema) -> list[str]:
    """Columns that executors are sent: those of the points, and those that the filter may name."""
    named = {name for name in points.columns if name}
    where = (points.where or "").lower()
    words = set(re.findall(r"\w+", where))

    def filtered(name: str) -> bool:
        parts = set(re.findall(r"\w+", name.lower()))
        return words >= parts if parts else name in where

    return [name for name in schema.names if name in named or filtered(name)]
