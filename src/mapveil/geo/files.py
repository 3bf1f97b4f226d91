"""Files of points: found by path or pattern, told apart by name, streamed by DuckDB."""

from __future__ import annotations

import csv
import filecmp
import glob
import re
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from mapveil.geo.read_geojson import GeoJsonTable
from mapveil.geo.read_vector import EXCEL, VECTOR, ExcelTable, VectorTable
from mapveil.geo.tables import FileTable, Table, quote_text
from mapveil_client.errors import CuratorWarning, InputError

if TYPE_CHECKING:
    import duckdb

ACCEPTED: Final = (
    ".parquet .geoparquet .csv .tsv .geojson (.gz too) .gpkg .shp .fgb .xlsx, a pattern, '-', a frame or SQL"
)
"""Sources that can be read, for messages."""

Encoding = Literal["utf-8", "latin-1", "utf-16"]
"""Encodings of CSV that DuckDB reads."""

_PARQUET: Final = (".parquet", ".pq", ".geoparquet")
_CSV: Final = (".csv", ".tsv", ".txt")
_GEOJSON: Final = (".geojson", ".json", ".geojsonl", ".geojsons", ".ndjson", ".jsonl")
_RASTER: Final = (".npz", ".npy", ".tif", ".tiff")
_SUFFIXES: Final = {".gz", ".zst"}
_HEADER: Final = 1 << 16
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class TabularFiles(FileTable):
    """Parquet or CSV files; ``call`` is the SQL of DuckDB's reader, with ``{}`` for the list of files."""

    call: str

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        # DuckDB would take a path's own brackets and stars for a pattern.
        listed = ", ".join(quote_text(re.sub(r"([*?\[])", r"[\1]", str(path))) for path in self.paths)
        return self.call.replace("{}", f"[{listed}]", 1)


def open_files(sources: Iterable[str | PathLike[str]], name: str, encoding: Encoding = "utf-8") -> Table:
    """Open the files of paths and patterns, all of one known format, as one table."""
    paths = tuple(path for source in sources for path in _expand(source))
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; expected a file or a pattern such as {path}/*.parquet")
        if path.is_file() and path.stat().st_size == 0:
            raise InputError(f"{path}: is empty (0 bytes); expected a table with at least one row")
    check_repeated(paths)
    formats = {_format(path) for path in paths}
    if len(formats) > 1:
        raise InputError(f"{name}: files of several formats ({', '.join(sorted(formats))}); expected one")
    return _open(paths, formats.pop(), name, None, encoding)


def check_repeated(paths: tuple[Path, ...]) -> None:
    """Refuse a file that is given twice, whose rows would count twice, and warn of two with the same bytes."""
    seen: dict[tuple[int, int], Path] = {}
    of_size: dict[int, list[Path]] = {}
    for path in paths:
        status = path.stat()
        file = status.st_dev, status.st_ino
        if file in seen and status.st_ino:  # some file systems number none
            also = "" if path == seen[file] else f", also as {seen[file]}"
            raise InputError(
                f"{path}: is given twice{also}, so its rows would count twice; expected each file once"
            )
        seen[file] = path
        alike = of_size.setdefault(status.st_size, [])
        copied = next((other for other in alike if filecmp.cmp(other, path, shallow=False)), None)
        if copied is not None:
            text = f"{path}: has the same bytes as {copied}, and their rows count twice; leave one out if it is a copy"
            warnings.warn(text, CuratorWarning, stacklevel=2)
        alike.append(path)


def open_standard_input(encoding: Encoding = "utf-8") -> Table:
    """The table on standard input (Parquet, GeoJSON, CSV), spooled to a private temporary file.

    A table is read more than once, so it has to be kept; the file goes away with the table.
    """
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise InputError("standard input: holds no bytes; expected a file")
    spool = _Spool()
    path = spool.folder / "standard-input"
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file, _CHUNK)
    head = _first_bytes(path)
    if not head.strip():
        raise InputError("standard input: is empty; expected Parquet, CSV with a header line or GeoJSON")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    suffix = ".parquet" if start[:4] == b"PAR1" else ".geojson" if start[:1] in b"{\x1e" else ".csv"
    return _open((path,), suffix, "standard input", spool, encoding)


class _Spool:
    """A temporary folder, removed with this object."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mapveil-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def _open(paths: tuple[Path, ...], suffix: str, name: str, kept: object, encoding: Encoding) -> Table:
    if suffix in _PARQUET:
        return parquet_files(paths, name, kept)
    if suffix in _GEOJSON:
        return GeoJsonTable.open(paths, name, kept)
    if suffix in _CSV:
        return TabularFiles(paths, name, kept, _csv_call(paths, suffix, name, encoding))
    if suffix in VECTOR:
        return VectorTable.open(paths, name)
    if suffix in EXCEL:
        return ExcelTable.open(paths, name)
    hint = "a raster of counts, see read_counts" if suffix in _RASTER else "a format that is not known"
    raise InputError(f"{name}: {suffix or 'a name without a suffix'} is {hint}; expected one of {ACCEPTED}")


def parquet_files(paths: tuple[Path, ...], name: str, kept: object = None) -> TabularFiles:
    """The table of Parquet files."""
    return TabularFiles(paths, name, kept, "read_parquet({}, union_by_name = true)")


def _csv_call(paths: tuple[Path, ...], suffix: str, name: str, encoding: Encoding) -> str:
    """SQL of DuckDB's CSV reader: all columns are text, so that a bad value can be named, and nothing is guessed."""
    lines = [(path, _as_utf8(_first_bytes(path), encoding)) for path in paths]
    delimiter = "\t" if suffix == ".tsv" else _delimiter(lines[0][1])
    headers = [
        (path, _header(line, delimiter, name if len(paths) == 1 else str(path))) for path, line in lines
    ]
    first = headers[0][1]
    for path, header in headers[1:]:
        if header != first:
            raise InputError(f"{path}: its header line is not that of {paths[0]}; expected equal headers")
    columns = ", ".join(f"{quote_text(column)}: 'VARCHAR'" for column in first)
    return (
        f"read_csv({{}}, auto_detect = false, header = true, delim = {quote_text(delimiter)}, quote = '\"', "
        f"escape = '\"', encoding = '{encoding}', columns = {{{columns}}})"
    )


def _as_utf8(head: bytes, encoding: Encoding) -> bytes:
    """The head of a file in UTF-8; bytes that are no text, or half a character at its end, become marks."""
    return head if encoding == "utf-8" else head.decode(encoding, errors="replace").encode()


def _delimiter(head: bytes) -> str:
    line = head.split(b"\n", 1)[0]
    return max(",;\t|", key=lambda mark: line.count(mark.encode()))


def _header(head: bytes, delimiter: str, name: str) -> tuple[str, ...]:
    """The names of the columns; unnamed ones get one."""
    lines = head.decode("utf-8-sig", errors="replace").splitlines(keepends=True)
    try:
        names = [column.strip() for column in next(csv.reader(lines, delimiter=delimiter))]
    except (StopIteration, csv.Error) as error:
        raise InputError(f"{name}: no header line of column names; expected CSV with one") from error
    if any("\ufffd" in column for column in names):
        raise InputError(
            f"{name}: the header line is not UTF-8 text; expected CSV in UTF-8, or encoding latin-1 (--encoding)"
        )
    names = [column or f"unnamed_{at}" for at, column in enumerate(names, start=1)]
    lowered = [column.lower() for column in names]
    for at, column in enumerate(lowered):
        if column in lowered[:at]:
            raise InputError(
                f"{name}: two columns are named {names[at]!r} but for case; expected one of a name"
            )
    return tuple(names)


def _first_bytes(path: Path) -> bytes:
    import pyarrow

    try:
        with pyarrow.input_stream(str(path), compression="detect") as stream:
            return bytes(stream.read(_HEADER))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _expand(source: str | PathLike[str]) -> list[Path]:
    path = Path(source)
    if path.exists():
        return [path]
    if any(mark in str(source) for mark in "*?["):
        found = sorted(Path(match) for match in glob.glob(str(source), recursive=True))
        if not found:
            raise InputError(f"{source}: no file matches this pattern; expected one of {ACCEPTED}")
        return found
    if "://" in str(source):
        raise InputError(f"{source}: addresses are not read; expected a local file")
    raise InputError(f"{source}: no such file; expected one of {ACCEPTED}")
