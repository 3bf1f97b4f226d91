"""Read points from files, frames and SQL: described now, streamed when they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from mapveil.geo.counts import Counts, read_counts
from mapveil.geo.files import ACCEPTED, Encoding, TabularFiles, open_files, open_standard_input
from mapveil.geo.find_columns import find_columns, find_coordinates, has_usual_place
from mapveil.geo.point_query import BadRows
from mapveil.geo.points import Points
from mapveil.geo.projected import WGS84, ProjectedTable, is_wgs84, read_crs
from mapveil.geo.read_geoparquet import GeometryTable, declared_crs, find_geometry
from mapveil.geo.read_vector import VectorTable
from mapveil.geo.row_filter import check_filter
from mapveil.geo.tables import FrameTable, QueryTable, StreamTable, Table, column_types, quote_name, reading
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
    crs: str | None = None,
    encoding: Encoding = "utf-8",
) -> Points:
    """Describe a table of points; its rows are read when it is used, as a stream. Run by: the curator.

    Parameters
    ----------
    source : path, str, sequence of paths, frame or relation
        One of:

        - a path, a pattern or a list of either: Parquet, GeoParquet (points), CSV or TSV with a header line
          (``.gz`` too), GeoJSON of points (a collection, or one Feature a line); ``"-"`` for standard input;
        - the path of a GeoPackage, Shapefile or FlatGeobuf with one layer of points, or of an Excel file, of which the
          first sheet is read;
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

    crs : str, optional
        Reference system of the coordinates, such as ``"EPSG:32618"``: ``lon`` is then the easting and ``lat`` the
        northing. A file or frame that declares its reference system needs none.

    encoding : str
        Encoding of CSV files: ``"utf-8"``, ``"latin-1"`` or ``"utf-16"``.

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
    check(encoding in get_args(Encoding), "encoding", f"one of {', '.join(get_args(Encoding))}", encoding)
    table = open_table(source, encoding)
    types = column_types(table)
    named = None if crs is None else read_crs(crs, "crs")
    system = None if named is None or is_wgs84(named) else named.to_wkt()
    by_columns = lon is not None or lat is not None
    if not by_columns:
        table = _with_place(table, types, system)
    if system is not None and table.elsewhere:
        raise InputError(
            f"{table.name}: a cluster's rows are not projected; leave out crs (--crs), and give columns of degrees"
        )
    if system is not None and (by_columns or table.place is None):
        x, y = find_coordinates(table.name, types, lon, lat)
        written = f"CONCAT_WS(', ', {', '.join(quote_name(each.column) for each in (x, y))})"
        both = f"{x.column} and {y.column}"
        table = ProjectedTable(table.name, table, both, x.expression, y.expression, written, system)
        given |= {"lon": None, "lat": None}
        by_columns = False
    found = find_columns(table.name, types, given, None if by_columns else table.place)
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


def open_table(source: Any, encoding: Encoding = "utf-8") -> Table:
    """Open any source of :func:`read_points`, whatever its columns are.

    An open table stays itself, so that standard input can be read for more than one purpose.
    """
    if isinstance(source, str) and source == "-":
        return open_standard_input(encoding)
    if isinstance(source, str) and _SQL.match(source) and not Path(source).exists():
        return _query(source)
    if isinstance(source, str | PathLike):
        return open_files([source], str(source), encoding)
    if isinstance(source, Sequence) and source and all(isinstance(one, str | PathLike) for one in source):
        more = f" and {len(source) - 1} more" if len(source) > 1 else ""
        return open_files(source, f"{source[0]}{more}", encoding)
    return _open_frame(source)


def _with_place(table: Table, types: dict[str, str], crs: str | None) -> Table:
    """The table with its geometry column decoded, where it has one instead of lon and lat."""
    geometry = None if table.place or has_usual_place(types) else find_geometry(types)
    if geometry is None:
        return (
            table
            if crs is None or table.place is None
            else ProjectedTable(table.name, table, *table.place, crs)
        )
    metadata = table.geo if isinstance(table, VectorTable) else None
    if isinstance(table, TabularFiles):
        import pyarrow.parquet

        metadata = (pyarrow.parquet.read_schema(table.paths[0]).metadata or {}).get(b"geo")
    declared = crs or declared_crs(table.name, geometry, types[geometry], metadata)
    found = GeometryTable(table.name, table, geometry, types[geometry])
    return found if declared is None else ProjectedTable(found.name, found, *found.place, declared)


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

        if source.crs is not None and not is_wgs84(source.crs):
            source = source.to_crs(WGS84)
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
