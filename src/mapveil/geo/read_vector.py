"""Tables of points in files of other programs: GeoPackage, Shapefile, FlatGeobuf (streamed), and Excel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mapveil.geo.tables import FileTable, StreamTable
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    import duckdb
    import pyarrow

VECTOR: Final = (".gpkg", ".shp", ".fgb")
"""Suffixes of files that GDAL reads."""

EXCEL: Final = (".xlsx", ".xlsm")
"""Suffixes of Excel's files."""

_BATCH: Final = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class VectorTable(FileTable):
    """The one layer of points of a file: its columns, and its geometry as WKB."""

    layer: str
    schema: pyarrow.Schema
    geo: bytes  # a record of the geometry's reference system, as GeoParquet has it

    @classmethod
    def open(cls, paths: tuple[Path, ...], name: str) -> VectorTable:
        """Describe a file; an :class:`InputError` unless it has one layer of points."""
        module = require("pyogrio", "geo")
        if len(paths) != 1:
            raise InputError(
                f"{name}: {len(paths)} files; expected one {paths[0].suffix} file, or Parquet files"
            )
        path = paths[0]
        try:
            layers = module.list_layers(path)
            points = [str(layer) for layer, kind in layers if str(kind).endswith("Point")]
            if len(points) != 1:
                shown = ", ".join(f"{layer} ({kind})" for layer, kind in layers)
                raise InputError(f"{path}: must have one layer of points, got {shown or 'no layer'}")
            with module.open_arrow(path, layer=points[0], use_pyarrow=True) as (about, reader):
                schema, column, crs = reader.schema, about["geometry_name"] or "wkb_geometry", about["crs"]
        except module.errors.DataSourceError as error:
            raise InputError(f"{path}: not readable ({str(error).splitlines()[0]})") from error
        record: dict[str, Any] = {"columns": {column: {"crs": crs}}}
        return cls(paths, name, None, points[0], schema.remove_metadata(), json.dumps(record).encode())

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        return StreamTable(self.schema, self._batches, self.name).relation(connection)

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        module = require("pyogrio", "geo")
        read = module.open_arrow(self.paths[0], layer=self.layer, batch_size=_BATCH, use_pyarrow=True)
        with read as (_, reader):
            for batch in reader:
                yield batch.replace_schema_metadata(None)


@dataclass(frozen=True, eq=False, repr=False)
class ExcelTable(FileTable):
    """The first sheet of an Excel file, whose first row names the columns; every value as text."""

    schema: pyarrow.Schema

    @classmethod
    def open(cls, paths: tuple[Path, ...], name: str) -> ExcelTable:
        """Describe a file by its first row."""
        import pyarrow

        if len(paths) != 1:
            raise InputError(f"{name}: {len(paths)} files; expected one Excel file")
        head = next(_rows(paths[0]), ())
        named = [_text(value) for value in head]
        while named and named[-1] is None:
            named.pop()
        lowered = [each.lower() for each in named if each is not None]
        if not named or None in named or len(set(lowered)) < len(lowered):
            raise InputError(f"{paths[0]}: the first row must name every column, each once, got {named}")
        schema = pyarrow.schema([(str(each), pyarrow.string()) for each in named])
        return cls(paths, name, None, schema)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        return StreamTable(self.schema, self._batches, self.name).relation(connection)

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        rows, width = _rows(self.paths[0]), len(self.schema)
        next(rows)
        while some := list(islice(rows, _BATCH)):
            texts = [[_text(value) for value in row[:width]] for row in some]
            filled = [
                row + [None] * (width - len(row)) for row in texts if any(each is not None for each in row)
            ]
            columns = [pyarrow.array([row[at] for row in filled], pyarrow.string()) for at in range(width)]
            yield pyarrow.record_batch(columns, schema=self.schema)


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    openpyxl = require("openpyxl", "geo")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # a broken archive raises whatever its parts do
        raise InputError(f"{path}: not readable as Excel ({type(error).__name__}: {error})") from error
    try:
        yield from book.worksheets[0].iter_rows(values_only=True)
    finally:
        book.close()


def _text(value: Any) -> str | None:
    """A cell as text; a whole number without a decimal point, for it may be an id."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, datetime | date | time):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return str(value).strip()
