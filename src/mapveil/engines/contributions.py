"""One definition of a user's contribution: which rows count, in which cell, with what weight.

The curator's exact sums and the simulated clients of every other trust model read a table through this module. The
SQL is run by DuckDB, which takes its memory limit from the machine and spills to a temporary folder beyond it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.raster import in_box_sql
from mapveil.geo.tables import connection, reading
from mapveil.geo.tiling import EXACT_KEY, SqlKey, Tiling
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import WEIGHT_UNITS, Outside
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow

Locate = Callable[[FloatArray, FloatArray], IntArray]
"""Cells of locations in degrees, -1 for outside."""

UNIT: Final = 1 << 28
"""Lattice units per user: every sum is an integer number of these.

Rounding every row down costs a user of a million rows 0.4 % of their contribution at most; the sums of 2**34
users fit 62 bits, and :mod:`mapveil.engines.user_sums` refuses more.
"""

CHUNK: Final = 1 << 21
"""Rows (or users of counts) that a stream holds at one time: 64 MB of user, longitude, latitude and weight."""

CONTRIBUTIONS_SQL: Final = """
SELECT * FROM (
    SELECT user_id, {columns}, {weight} AS weight
    FROM (SELECT *{steps} FROM ({points}) AS points WHERE {inside}) AS kept
) AS contributions
WHERE {counted}
"""
"""Rows of (user, cell or location, weight): what every query below and in ``user_sums`` selects from.

Rows are kept by their location (``inside``) where that tells: a condition on the cell would compute each cell twice.
"""

_USERS_SQL: Final = """
WITH located AS MATERIALIZED ({rows}),
users AS (
    SELECT user_id, CAST(SUM(weight) AS HUGEINT) AS total, row_number() OVER (ORDER BY user_id) - 1 AS number
    FROM located
    GROUP BY user_id
)
SELECT number, cell, label, CAST(SUM(weight) AS BIGINT) AS weight,
       CAST(SUM((weight * {unit}) // NULLIF(total, 0)) AS BIGINT) AS share
FROM located JOIN users USING (user_id)
GROUP BY number, cell, label
ORDER BY number, cell, label
"""

_STREAM_SQL: Final = """
SELECT DENSE_RANK() OVER (ORDER BY user_id) - 1 AS number, lon, lat,
       CAST(weight AS DOUBLE) / {units} AS weight
FROM ({rows}) AS located
ORDER BY number, lon, lat, weight
"""


class LocatedRows(NamedTuple):
    """A table's contributions as the rows of an SQL query, while its connection is open."""

    connection: duckdb.DuckDBPyConnection
    sql: str  # user_id, cell (the tiling's SQL key), label where the table has one, weight
    cells: Callable[[Any], IntArray]  # from the query's column "cell" to cells


class UserCells(NamedTuple):
    """The cells of every user, ordered by user, SQL key of the cell and label. Not private."""

    starts: IntArray  # (users + 1,): entries of user u, in the order of ids, are starts[u]:starts[u + 1]
    cells: IntArray  # (entries,), -1 for outside (with KEEP)
    weights: IntArray  # (entries,), above 0, in 1 / WEIGHT_UNITS; rows where the table has no weights
    shares: IntArray  # (entries,), 1 / UNIT of the user's contribution, every row rounded down
    labels: npt.NDArray[np.generic] | None  # (entries,), as the table has them


class UserRows(NamedTuple):
    """Rows of whole users, ordered by user. Not private."""

    user: IntArray  # (rows,), ascending
    lon: FloatArray  # (rows,), degrees
    lat: FloatArray
    weights: FloatArray  # (rows,), from 0; 1 where the table has no weights

    def take(self, rows: slice | npt.NDArray[np.bool_]) -> UserRows:
        """Some of the rows, in their order."""
        return UserRows(self.user[rows], self.lon[rows], self.lat[rows], self.weights[rows])


@contextlib.contextmanager
def located_rows(
    points: Points, tiling: Tiling, outside: Outside = Outside.DROP, locate: Locate | None = None
) -> Iterator[LocatedRows]:
    """Open a table's contributions: users, their cells and weights.

    Of a table of trips (with destinations) a cell is a pair, ``origin * tiling.size + destination``, and -1 where
    either end lies in no cell.

    Parameters
    ----------
    points : Points
        The table; checked before the first row is used.
    tiling : Tiling
        The cells.
    outside : Outside
        ``DROP`` or ``KEEP``.
    locate : callable, optional
        Replaces the tiling's own ``locate``; see :func:`locator`.

    Raises
    ------
    InputError
        The table cannot be used.
    """
    points.table.check_here("trust central (--trust central) and a method that needs sums alone")
    points.check()
    with unchecked_rows(points, tiling, outside, locate) as rows:
        yield rows


@contextlib.contextmanager
def unchecked_rows(
    points: Points, tiling: Tiling, outside: Outside = Outside.DROP, locate: Locate | None = None
) -> Iterator[LocatedRows]:
    """:func:`located_rows` of a table whose rows were checked, or of which those that cannot be used are dropped."""
    with connection() as opened, reading(points.source):
        trips = points.columns.to_lon is not None
        located = _sql_pair(opened, tiling, locate) if trips else _sql_key(opened, tiling, locate)
        if outside is Outside.DROP:
            cell, inside = located.key, located.inside or "TRUE"
            counted = "weight > 0" if located.inside is not None else "cell >= 0 AND weight > 0"
        else:
            cell, inside, counted = located.expression, "TRUE", "TRUE"
        label = ", label" if points.columns.label is not None else ""
        sql = CONTRIBUTIONS_SQL.format(
            columns=f"{cell} AS cell{label}",
            weight=_weight_sql(points),
            points=points.scan(opened),
            inside=inside,
            counted=counted,
            steps="".join(f", {sql} AS {name}" for name, sql in located.steps),
        )
        yield LocatedRows(opened, sql, lambda keys: located.cells(np.ma.filled(keys, -1).astype(np.int64)))


def user_cells(
    points: Points, tiling: Tiling, outside: Outside = Outside.DROP, locate: Locate | None = None
) -> UserCells:
    """Read every user's cells, weights and shares; memory follows the users' distinct cells. Run by: a simulation.

    Arguments and errors are those of :func:`located_rows`.
    """
    labelled = points.columns.label is not None
    with located_rows(points, tiling, outside, locate) as rows:
        text = _USERS_SQL.format(rows=rows.sql, unit=UNIT)
        found = rows.connection.execute(text if labelled else text.replace(", label", "")).fetchnumpy()
        cells = rows.cells(found["cell"])
    user = np.asarray(found["number"], dtype=np.int64)
    weights, shares = (np.ma.filled(found[name], 0).astype(np.int64) for name in ("weight", "share"))
    counted = weights > 0
    users = int(user[-1]) + 1 if user.size else 0
    return UserCells(
        np.searchsorted(user[counted], np.arange(users + 1)).astype(np.int64),
        cells[counted],
        weights[counted],
        shares[counted],
        np.asarray(np.ma.filled(found["label"]))[counted] if labelled else None,
    )


def user_rows(points: Points, tiling: Tiling | None = None, *, chunk: int = CHUNK) -> Iterator[UserRows]:
    """Stream the rows of whole users, in the order of their ids, ``chunk`` rows at a time. Run by: a simulation.

    With a tiling, rows outside its region's bounding box, or without weight, are dropped. An :class:`InputError`
    where the table cannot be used.
    """
    points.check()
    with connection() as opened, reading(points.source):
        units = 1 if points.columns.weight is None else WEIGHT_UNITS
        text = _STREAM_SQL.format(rows=_boxed_rows(points, opened, tiling), units=units)
        yield from _whole_users(opened.sql(text).to_arrow_reader(chunk))


def count_users(source: Points | Counts, tiling: Tiling | None) -> int:
    """The number of users with a row in the region of a tiling, or in the table. Run by: a simulation.

    Raises
    ------
    InputError
        The table cannot be used.
    NobodyInside
        Nobody is inside the region.
    """
    if isinstance(source, Counts):
        count = int(source.values.sum())
    elif tiling is None or tiling.region.polygon is None:
        source.check()
        with connection() as opened, reading(source.source):
            rows = _boxed_rows(source, opened, tiling)
            found = opened.execute(f"SELECT COUNT(DISTINCT user_id) FROM ({rows}) AS rows").fetchall()
        count = int(found[0][0])
    else:
        inside = tiling.region.contains
        parts = user_rows(source, tiling)
        count = sum(np.unique(part.user[inside(part.lon, part.lat)]).size for part in parts)
    if count == 0 and tiling is not None:
        raise nobody_inside(source, tiling)
    return count


def locator(tiling: Tiling, cells: IntArray, outside: Outside) -> Locate:
    """A function from locations to some cells of a tiling: the sites of reports.

    Parameters
    ----------
    cells : ndarray of int64, shape (sites,)
        Cells of the tiling that are sites, ascending.
    outside : Outside
        With ``NEAREST``, a location in no site is at the site whose centre is nearest in metres of the region's
        plane; otherwise its cell is -1.
    """
    everywhere, project = cells.size == tiling.size, tiling.region.metric_projection.project

    def locate(lon: FloatArray, lat: FloatArray) -> IntArray:
        found = tiling.locate(lon, lat)
        return found if everywhere else np.where(np.isin(found, cells), found, -1)

    if outside is not Outside.NEAREST:
        return locate
    from scipy.spatial import cKDTree

    tree = cKDTree(np.column_stack(project(*tiling.centres(cells))))

    def locate_nearest(lon: FloatArray, lat: FloatArray) -> IntArray:
        found = locate(lon, lat)
        away = np.flatnonzero(found < 0)
        if away.size:
            found[away] = cells[tree.query(np.column_stack(project(lon[away], lat[away])))[1]]
        return found

    return locate_nearest


def check_same_tiling(given: Tiling, tiling: Tiling) -> None:
    """Refuse counts or sums on other cells than the release's by an :class:`InputError`."""
    if given is not tiling and given.to_dict() != tiling.to_dict():
        raise InputError(f"counts must be on the cells of {tiling.spec}, got counts on {given.spec}")


class NobodyInside(InputError):
    """A simulation has no client in the region; who takes part is public there."""


def nobody_inside(source: Points | Counts, tiling: Tiling) -> NobodyInside:
    """The error that names the data and the region."""
    return NobodyInside(
        f"{source.source}: no row lies inside the region {tiling.region}, and a simulation needs a client; "
        "'mapveil describe' shows where the rows are"
    )


def _weight_sql(points: Points) -> str:
    if points.columns.weight is None:
        return "CAST(1 AS BIGINT)"
    return f"CAST(ROUND(weight * {WEIGHT_UNITS}) AS HUGEINT)"


def _sql_key(opened: duckdb.DuckDBPyConnection, tiling: Tiling, locate: Locate | None) -> SqlKey:
    """The cell of the columns lon and lat: the tiling's SQL expression, or a function where it has none."""
    key = tiling.locate_sql("lon", "lat") if locate is None else None
    if key is None:
        return _function(opened, locate or tiling.locate, ("lon", "lat"))
    _function(opened, key.exact, ("lon", "lat"))
    return key


def _sql_pair(opened: duckdb.DuckDBPyConnection, tiling: Tiling, locate: Locate | None) -> SqlKey:
    """The pair of cells of the columns lon, lat, to_lon and to_lat."""
    cells_of, size = locate or tiling.locate, tiling.size

    def pairs(lon: FloatArray, lat: FloatArray, to_lon: FloatArray, to_lat: FloatArray) -> IntArray:
        origin, destination = cells_of(lon, lat), cells_of(to_lon, to_lat)
        return np.where((origin >= 0) & (destination >= 0), origin * size + destination, -1)

    return _function(opened, pairs, ("lon", "lat", "to_lon", "to_lat"))


def _function(
    opened: duckdb.DuckDBPyConnection, keys: Callable[..., IntArray], columns: tuple[str, ...]
) -> SqlKey:
    """A key that a function of columns computes, called through Arrow."""

    # DuckDB counts parameters, and evaluates their annotations where only builtins are known.
    def of_place(lon: object, lat: object) -> object:
        return _arrow(keys(*_numbers(lon, lat)))

    def of_trip(lon: object, lat: object, to_lon: object, to_lat: object) -> object:
        return _arrow(keys(*_numbers(lon, lat, to_lon, to_lat)))

    called = of_place if len(columns) == 2 else of_trip

    opened.create_function(
        EXACT_KEY, called, ["DOUBLE"] * len(columns), "BIGINT", type="arrow", side_effects=True
    )  # type: ignore[call-overload]  # its stubs want the annotations that it cannot evaluate
    return SqlKey((), f"{EXACT_KEY}({', '.join(columns)})", None, lambda found: found, keys)


def _numbers(*columns: Any) -> list[FloatArray]:
    """Arrow columns of doubles. By their buffers: pyarrow's conversions import pandas where it is installed."""
    chunks = [getattr(each, "chunks", [each]) for each in columns]
    return [np.concatenate([np.empty(0), *map(_doubles, each)]) for each in chunks]


def _doubles(chunk: pyarrow.Array) -> FloatArray:
    if chunk.null_count:
        return np.asarray(chunk, dtype=np.float64)
    return np.frombuffer(chunk.buffers()[1], np.float64, len(chunk), 8 * chunk.offset)


def _arrow(cells: IntArray) -> pyarrow.Array:
    import pyarrow

    whole = pyarrow.py_buffer(np.ascontiguousarray(cells, dtype=np.int64))
    return pyarrow.Array.from_buffers(pyarrow.int64(), cells.size, [None, whole])


def _boxed_rows(points: Points, opened: duckdb.DuckDBPyConnection, tiling: Tiling | None) -> str:
    """Contributions as locations, of a tiling those inside its region's bounding box."""
    return CONTRIBUTIONS_SQL.format(
        columns="lon, lat",
        weight=_weight_sql(points),
        points=points.scan(opened),
        inside="TRUE" if tiling is None else in_box_sql("lon", "lat", tiling.region.bbox),
        counted="TRUE" if tiling is None else "weight > 0",
        steps="",
    )


def _whole_users(batches: pyarrow.RecordBatchReader) -> Iterator[UserRows]:
    kept: UserRows | None = None
    for batch in batches:
        rows = UserRows(*(column.to_numpy(zero_copy_only=False) for column in batch.columns))
        if kept is not None:
            rows = UserRows._make(np.concatenate(pair) for pair in zip(kept, rows, strict=True))
        cut = int(np.searchsorted(rows.user, rows.user[-1]))
        kept = rows.take(slice(cut, None))
        if cut:
            yield rows.take(slice(cut))
    if kept is not None:
        yield kept
