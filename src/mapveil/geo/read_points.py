"""Read points from files, frames and SQL: described now, streamed when they are used."""

from __future__ import annotations

import glob
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mapveil.errors import InputError
from mapveil.geo.find_columns import find_columns
from mapveil.geo.geojson import geojson_table
from mapveil.geo.geoparquet import GeometryTable, check_crs, find_geometry
from mapveil.geo.points import Columns, Expressions, Points
from mapveil.geo.tables import FrameTable, QueryTable, Table, column_types, quote_name, quote_text, reading

if TYPE_CHECKING:
    import duckdb

    from mapveil.geo.counts import Counts
    from mapveil.geo.region import Region

__all__ = ["FileTable", "read_points", "read_source"]

_READERS: Final = {
    ".parquet": "read_parquet({}, union_by_name = true)",
    ".pq": "read_parquet({}, union_by_name = true)",
    ".geoparquet": "read_parquet({}, union_by_name = true)",
    ".csv": "read_csv({}, header = true, all_varchar = true, union_by_name = true)",
    ".tsv": "read_csv({}, header = true, all_varchar = true, union_by_name = true, delim = '\t')",
}
_GEOJSON: Final = (".geojson", ".json", ".geojsonl", ".ndjson")
_COUNTS: Final = (".npz", ".tif", ".tiff")
_SQL: Final = re.compile(r"\s*(SELECT|WITH|FROM)\b", flags=re.IGNORECASE)
_ACCEPTED: Final = ".parquet .geoparquet .csv .tsv .geojson (also .csv.gz), a glob, '-', a frame or SQL"


@dataclass(frozen=True, eq=False, repr=False)
class FileTable:
    """Files of one format that DuckDB reads; CSV columns as text, so that a bad value can be named."""

    paths: tuple[Path, ...]
    reader: str
    name: str
    kept: Any = None  # what must live as long as the table, such as a temporary file

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        # DuckDB would take a path's own brackets and stars for a pattern.
        listed = ", ".join(quote_text(re.sub(r"([*?\[\]])", r"[\1]", str(path))) for path in self.paths)
        return self.reader.format(f"[{listed}]")

    def parts(self) -> tuple[Table, ...]:
        """See :class:`mapveil.geo.tables.Table`."""
        if len(self.paths) == 1:
            return (self,)
        return tuple(FileTable((path,), self.reader, str(path), self.kept) for path in self.paths)


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
) -> Points:
    """Describe a table of points; its rows are read when it is used, as a stream. Run by: the curator.

    Parameters
    ----------
    source : path, str, sequence of paths, frame or relation
        Parquet (a glob too), GeoParquet, CSV or TSV (``"-"`` is CSV on standard input), GeoJSON of points
        (held in memory), a pandas, Polars or Arrow frame, a DuckDB relation, or SQL text.
    user, lon, lat, time, weight, label : str, optional
        Names of the columns; otherwise the usual names are looked for.
    region : Region, optional
        The region the points belong to, public.

    Returns
    -------
    Points
        Nothing of it has been read but the names and types of its columns.

    Raises
    ------
    InputError
        No such file, an unknown format, an unreadable file, or columns that are missing.

    Examples
    --------
    >>> read_points("SELECT 'ann' AS user_id, -73.9 AS lon, 40.7 AS lat")
    Points(SQL: user, lon, lat)
    """
    table = _table(source)
    types = column_types(table)
    given = {"user": user, "lon": lon, "lat": lat, "time": time, "weight": weight, "label": label}
    geometry = find_geometry(types) if lon is None and lat is None else None
    if geometry is not None and not any(name.lower() in ("lon", "longitude", "lng") for name in types):
        return _of_geometry(table, geometry, types, given, region)
    found = find_columns(table.name, types, given)
    return Points(table, found.columns, found.expressions, region)


def read_source(
    source: str,
    *,
    user: str | None = None,
    lon: str | None = None,
    lat: str | None = None,
    weight: str | None = None,
) -> Points | Counts:
    """What a command was given: a raster of counts (.npz, .tif) or a table of points.

    Raises
    ------
    InputError
        As :func:`read_points` and :func:`mapveil.read_counts` do.
    """
    if Path(source).suffix.lower() in _COUNTS:
        from mapveil.geo.read_counts import read_counts

        return read_counts(source)
    return read_points(source, user=user, lon=lon, lat=lat, weight=weight)


def _of_geometry(
    table: Table, geometry: str, types: dict[str, str], given: dict[str, str | None], region: Region | None
) -> Points:
    """Points whose places are in one geometry column."""
    metadata = None
    if isinstance(table, FileTable):
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(table.paths[0])
        metadata = (schema.metadata or {}).get(b"geo")
    check_crs(table.name, geometry, types[geometry], metadata)
    named = find_columns(
        table.name, {**types, "lon": "DOUBLE", "lat": "DOUBLE"}, {**given, "lon": "lon", "lat": "lat"}
    )
    place = GeometryTable.PLACE
    columns = Columns(named.columns.user, geometry, geometry, *named.columns[3:])
    expressions = Expressions(named.expressions.user, f"{place}.lon", f"{place}.lat", *named.expressions[3:])
    quoted = [name and quote_name(name) for name in named.columns[3:]]
    written = Expressions(quote_name(columns.user), f"{place}.lon", f"{place}.lat", *quoted)
    return Points(GeometryTable(table, geometry, types[geometry]), columns, expressions, region, written)


def _table(source: Any) -> Table:
    if isinstance(source, str) and _SQL.match(source):
        return QueryTable(source.rstrip().rstrip(";"), "SQL")
    if source == "-" if isinstance(source, str) else False:
        return _standard_input()
    if isinstance(source, str | PathLike):
        return _files([source], str(source))
    if isinstance(source, Sequence) and source and all(isinstance(one, str | PathLike) for one in source):
        return _files(
            list(source), f"{source[0]} and {len(source) - 1} more" if source[1:] else str(source[0])
        )
    return _frame(source)


def _frame(source: Any) -> Table:
    kind, home = type(source).__name__, type(source).__module__.split(".")[0].lstrip("_")
    if home == "duckdb" and hasattr(source, "to_arrow_table"):
        with reading("DuckDB relation"):
            return FrameTable(source.to_arrow_table(), "DuckDB relation")
    if home in ("pandas", "geopandas", "polars", "pyarrow"):
        if home == "geopandas" and hasattr(source, "to_arrow"):
            import pyarrow

            return FrameTable(pyarrow.table(source.to_arrow(geometry_encoding="WKB")), kind)
        return FrameTable(source, kind)
    raise InputError(f"points of type {kind} cannot be read; accepted: {_ACCEPTED}")


def _standard_input() -> Table:
    """Spool standard input to a private temporary file: the table is read more than once."""
    stream = getattr(sys.stdin, "buffer", sys.stdin)
    spool = tempfile.NamedTemporaryFile(prefix="mapveil-", suffix=".csv")  # noqa: SIM115  kept by the table
    size = 0
    while chunk := stream.read(1 << 20):
        size += len(chunk)
        spool.write(chunk if isinstance(chunk, bytes) else chunk.encode())
    spool.flush()
    if size == 0:
        raise InputError("standard input is empty; CSV with a header is accepted")
    return FileTable((Path(spool.name),), _READERS[".csv"], "standard input", spool)


def _files(sources: list[Any], name: str) -> Table:
    paths = [path for source in sources for path in _expand(source)]
    suffixes = {_suffix(path) for path in paths}
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; accepted: {_ACCEPTED}")
        if path.stat().st_size == 0:
            raise InputError(f"{path}: is empty (0 bytes)")
    if len(suffixes) > 1:
        raise InputError(
            f"{name}: files of several formats ({', '.join(sorted(suffixes))}); one format is accepted"
        )
    suffix = suffixes.pop()
    if suffix in _GEOJSON:
        return geojson_table(paths, name)
    if suffix not in _READERS:
        raise InputError(
            f"{name}: the format of {suffix or 'a name without suffix'} is not known; accepted: {_ACCEPTED}"
        )
    return FileTable(tuple(paths), _READERS[suffix], name)


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _expand(source: Any) -> list[Path]:
    path = Path(source)
    if path.exists():
        return [path]
    if any(mark in str(source) for mark in "*?["):
        found = sorted(Path(match) for match in glob.glob(str(source), recursive=True))
        if not found:
            raise InputError(f"{source}: no file matches; accepted: {_ACCEPTED}")
        return found
    raise InputError(f"{source}: no such file; accepted: {_ACCEPTED}")
