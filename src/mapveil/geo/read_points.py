"""Read points from files, frames and SQL: described now, streamed when they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from mapveil.geo.counts import Counts, read_counts
from mapveil.geo.files import ACCEPTED, TabularFiles, open_files, open_standard_input
from mapveil.geo.find_columns import find_columns, has_usual_place
from mapveil.geo.point_query import BadRows
from mapveil.geo.points import Points
from mapveil.geo.read_geoparquet import GeometryTable, check_crs, find_geometry
from mapveil.geo.row_filter import check_filter
from mapveil.geo.tables import FrameTable, QueryTable, StreamTable, Table, column_types, reading
from mapveil_client.errors import InputError, check

if TYPE_CHECKING:
    import pyarrow

    from mapveil.geo.region import Region

_COUNTS: Final = (".npz", ".npy", ".tif", ".tiff")
_SQL: Final = re.compile(r"\s*(SELECT|WITH|FROM)\s", flags=re.IGNORECASE)
_BATCH: Final = 1 << 17
_ON_USERS: Final = "a condition on the user column"


def read_points(
    source: Any,
    *,
    user: str | None = None,
    lon: str | None = None,
    lat: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    label: str | None = None,
    region: Region | None = None,
    where: str | None = None,
    on_bad_rows: BadRows = "fail",
) -> Points:
    """Describe a table of points; its rows are read when it is used, as a stream. Run by: the curator.

    Parameters
    ----------
    source : path, str, sequence of paths, frame or relation
        One of:

        - a path, a pattern or a list of either: Parquet, GeoParquet (points), CSV or TSV with a header line
          (``.gz`` too), GeoJSON of points (a collection, or one Feature a line); ``"-"`` for standard input;
        - a pandas, GeoPandas, Polars or Arrow table, or an Arrow dataset;
        - a DuckDB relation, which must stay usable as long as the points;
        - SQL text that begins with SELECT, WITH or FROM, over files.
    user, lon, lat, time, weight, label : str, optional
        Names of the columns; otherwise :data:`mapveil.geo.find_columns.USUAL_NAMES` are looked for. ``weight`` is
        how much a row counts within its user; without it all rows of a user count alike.
    region : Region, optional
        The region the points belong to, public.
    where : str, optional
        A filter: an SQL condition on the columns of each row, such as ``"hour(time) < 12"``. It belongs to a request,
        not to the dataset: the ledger recognises the table without it. Files record its text, unless it reads the
        column of users.
    on_bad_rows : str
        ``"fail"``: a row that cannot be used is an error; ``"drop"``: such rows are left out, and counted on stderr.

    Returns
    -------
    Points
        Nothing of it has been read but the names and types of its columns.

    Raises
    ------
    InputError
        No such file, an unknown format, an unreadable file, or columns that are missing. Rows that cannot
        be used are found when the points are used, or by :meth:`Points.check`.

    Examples
    --------
    >>> read_points("SELECT 'ann' AS user_id, -73.9 AS lon, 40.7 AS lat")
    Points(SQL: user=user_id, lon=lon, lat=lat, weight=none)
    """
    given = {"user": user, "lon": lon, "lat": lat, "time": time, "weight": weight, "label": label}
    table = open_table(source)
    types = column_types(table)
    if lon is None and lat is None:
        table = _with_place(table, types)
    found = find_columns(table.name, types, given, table.place if lon is None and lat is None else None)
    recorded = where
    if where is not None and found.columns.user.lower() in map(str.lower, check_filter(where, table, types)):
        recorded = _ON_USERS  # its text can hold an id
    check(on_bad_rows in get_args(BadRows), "on_bad_rows", "fail or drop", on_bad_rows)
    columns = (found.columns, found.expressions, found.written)
    return Points(table, *columns, where, on_bad_rows, recorded_where=recorded, region=region)


def read_source(source: str, **options: Any) -> Points | Counts:
    """Open the source of a command: a raster of counts (.npz, .tif) or a table of points.

    Options and errors are those of :func:`read_points` and :func:`mapveil.read_counts`.
    """
    if not _SQL.match(source) and Path(source).suffix.lower() in _COUNTS:
        if options.get("where") is not None:
            raise InputError(f"{source}: a raster of counts has no rows to filter; leave out where (--where)")
        return read_counts(source)
    return read_points(source, **options)


def open_table(source: Any) -> Table:
    """Open any source of :func:`read_points`, whatever its columns are.

    An open table stays itself, so that standard input can be read for more than one purpose.
    """
    if isinstance(source, str) and source == "-":
        return open_standard_input()
    if isinstance(source, str) and _SQL.match(source) and not Path(source).exists():
        return _query(source)
    if isinstance(source, str | PathLike):
        return open_files([source], str(source))
    if isinstance(source, Sequence) and source and all(isinstance(one, str | PathLike) for one in source):
        more = f" and {len(source) - 1} more" if len(source) > 1 else ""
        return open_files(source, f"{source[0]}{more}")
    return _open_frame(source)


def _with_place(table: Table, types: dict[str, str]) -> Table:
    """The table with its geometry column decoded, where it has one instead of lon and lat."""
    geometry = None if table.place or has_usual_place(types) else find_geometry(types)
    if geometry is None:
        return table
    metadata = None
    if isinstance(table, TabularFiles):
        import pyarrow.parquet

        metadata = (pyarrow.parquet.read_schema(table.paths[0]).metadata or {}).get(b"geo")
    check_crs(table.name, geometry, types[geometry], metadata)
    return GeometryTable(table.name, table, geometry, types[geometry])


def _query(sql: str) -> Table:
    """One SELECT, so that it can stand in brackets and can change nothing."""
    import duckdb

    with reading("SQL"):
        statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InputError(f"SQL: {len(statements)} statements, or not a SELECT; expected one SELECT")
    return QueryTable(sql.rstrip().rstrip(";"))


def _open_frame(source: Any) -> Table:
    kind, home = type(source).__name__, type(source).__module__.split(".")[0].lstrip("_")
    if home == "duckdb" and hasattr(source, "fetchall") and hasattr(source, "limit"):
        return _relation(source)
    if home == "geopandas" and hasattr(source, "to_arrow"):
        import pyarrow

        return FrameTable(pyarrow.table(source.to_arrow(geometry_encoding="WKB")), kind)
    if home == "polars" and hasattr(source, "collect"):
        return FrameTable(source.collect(), kind)
    if home == "pyarrow" and hasattr(source, "read_next_batch"):
        raise InputError(f"{kind}: can be read once only; expected an Arrow table or dataset")
    if home in ("pandas", "polars", "pyarrow"):
        return FrameTable(source, kind)
    if isinstance(source, Table):
        return source
    raise InputError(f"points of type {kind} cannot be read; expected one of {ACCEPTED}")


def _relation(source: Any) -> Table:
    """A relation of another connection: its query runs anew for every pass, batch by batch."""
    name = "DuckDB relation"
    with reading(name):
        schema = source.limit(0).to_arrow_table().schema

    def batches() -> Iterator[pyarrow.RecordBatch]:
        with reading(name):
            start = getattr(source, "to_arrow_reader", None) or source.fetch_arrow_reader
            yield from start(_BATCH)

    return StreamTable(schema, batches, name)
