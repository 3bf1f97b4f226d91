"""Tables of rows that DuckDB can stream: the sources of ``Points``."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from mapveil.geo.line_ends import odd_line
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_LONGEST: Final = 200  # characters of a message of DuckDB
_LONGEST_VALUE: Final = 60  # characters
_names = itertools.count()


class Table(ABC):
    """Rows that can be read again and again, on any connection, without holding them."""

    name: str  # in messages
    elsewhere: ClassVar[bool] = False  # whether the rows stay where they are, on a cluster

    def described(self, connection: duckdb.DuckDBPyConnection) -> str:
        """As :meth:`relation`, for the names and types of the columns: the rows may be left out."""
        return self.relation(connection)

    @abstractmethod
    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register what is needed on the connection; the SQL that follows ``FROM``."""

    def parts(self) -> tuple[Table, ...]:
        """The tables it is made of, in order, for messages that name one of them."""
        return (self,)

    def check_here(self, need: str) -> None:
        """Refuse a table whose rows stay on a cluster; ``need`` is what could be asked of it instead."""
        del need

    def people(self, column: str, values: Callable[[Table], IntArray]) -> IntArray:
        """The distinct values that a function of a table gives, computed where the rows are; it reads one column."""
        return values(self)

    @property
    def place(self) -> Place | None:
        """The column of geometries that holds the locations, where there is one."""
        return None


class Place(NamedTuple):
    """A column of geometries that holds a table's locations."""

    column: str  # its name, for messages
    lon: str  # SQL of type DOUBLE
    lat: str  # SQL of type DOUBLE
    written: str  # SQL of the geometry as text, for messages


def _alias() -> str:
    return f"mapveil_table_{next(_names)}"


@dataclass(frozen=True, eq=False, repr=False)
class FrameTable(Table):
    """A table in memory (Arrow, pandas, Polars) or an Arrow dataset."""

    frame: Any
    name: str = "table"
    _alias: str = field(default_factory=_alias)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        connection.register(self._alias, self.frame)
        return self._alias


@dataclass(frozen=True, eq=False, repr=False)
class StreamTable(Table):
    """Rows that ``batches`` makes anew, batch by batch, each time they are read."""

    schema: pyarrow.Schema
    batches: Callable[[], Iterator[pyarrow.RecordBatch]]
    name: str
    _alias: str = field(default_factory=_alias)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow

        reader = pyarrow.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        connection.register(self._alias, self)
        return self._alias


@dataclass(frozen=True, eq=False, repr=False)
class QueryTable(Table):
    """The rows of one SELECT statement."""

    sql: str
    name: str = "SQL"

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        # A name in the text means a file, never a Python variable of whoever calls.
        connection.execute("SET python_enable_replacements = false")
        return f"({self.sql}\n) AS query"


@dataclass(frozen=True, eq=False, repr=False)
class FileTable(Table):
    """Files of one format, taken as they are: no patterns."""

    paths: tuple[Path, ...]
    name: str
    kept: object  # lives as long as the table, such as a temporary folder

    def parts(self) -> tuple[Table, ...]:
        """See :class:`Table`."""
        if len(self.paths) == 1:
            return (self,)
        return tuple(replace(self, paths=(path,), name=str(path)) for path in self.paths)


def quote_name(name: str) -> str:
    """An SQL identifier that means exactly this name."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """An SQL string literal that means exactly this text."""
    return "'" + text.replace("'", "''") + "'"


def value_text(value: object) -> str:
    """A value of a row for messages."""
    return "missing (null)" if value is None else repr(str(value)[:_LONGEST_VALUE])


def column_types(table: Table) -> dict[str, str]:
    """Names and SQL types of a table's columns; reads no rows."""
    with connect() as connection, reading(table.name):
        rows = connection.execute(f"DESCRIBE SELECT * FROM {table.described(connection)}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


def connect() -> duckdb.DuckDBPyConnection:
    """Open DuckDB so that a filter decides about each row by that row alone, and alike on every machine.

    Instants are in UTC. No condition is decided by the statistics of a Parquet file: they leave NaN out, which is
    larger than every number, so one user's number would decide whether the rows of other users with NaN count.
    """
    import duckdb

    opened = duckdb.connect()
    opened.execute("SET TimeZone = 'UTC'")
    opened.execute("SET disabled_optimizers = 'filter_pushdown,statistics_propagation'")
    return opened


@contextlib.contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB for a heavy query, with a temporary folder to spill to.

    The memory limit is DuckDB's default: 80 % of the machine's memory, or of the control group's.
    """
    with tempfile.TemporaryDirectory(prefix="mapveil-") as spill, connect() as opened:
        opened.execute("SET preserve_insertion_order = false")
        opened.execute("SET temp_directory = ?", [spill])
        yield opened


def create_function(
    connection: duckdb.DuckDBPyConnection, name: str, function: Callable[..., Any], types: list[str]
) -> None:
    """Make a function of Arrow columns to ``STRUCT(lon DOUBLE, lat DOUBLE)`` known to a connection, once."""
    known = connection.execute(
        "SELECT COUNT(*) FROM duckdb_functions() WHERE function_name = ?", [name]
    ).fetchall()
    if not known[0][0]:
        connection.create_function(  # type: ignore[call-overload]  # its stubs want what it cannot evaluate
            name, function, types, "STRUCT(lon DOUBLE, lat DOUBLE)", type="arrow"
        )


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn DuckDB's errors about an unreadable source into :class:`InputError`, one line that names it."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise InputError(_one_line(name, str(error))) from error


def _one_line(name: str, message: str) -> str:
    own = re.search(r"InputError: (.+)", message)
    if own:
        return own.group(1).strip()
    # A message can quote the row or the sum it stumbled on, and either may be one person's.
    before = re.split(r"\s+(?:Original Line|Input|LINE \d+):", message)[0]
    if "state machine" in before:
        return _not_csv(name, message)
    message = before + _csv_reason(message)
    message = re.sub(r"with value \S+", "with a value", message)
    if re.search(r"magic bytes|too small to be a Parquet|footer|TProtocol|[Tt]hrift|[Ss]nappy|ZSTD", message):
        return f"{name}: not a complete Parquet file (truncated, or of another format)"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = re.sub(r"^[A-Za-z ]*Error:? ", "", lines[0] if lines else "unreadable")
    return f"{name}: cannot be read: {text[:_LONGEST].rstrip('. ')}"


def _not_csv(name: str, message: str) -> str:
    """The reason of a file of CSV whose rows DuckDB cannot part, which it does not tell."""
    files = re.findall(r"^\s*file = (.+)$", message, flags=re.MULTILINE)  # the last is DuckDB's, not a row's
    path, odd = Path(files[-1] if files else name), None
    with contextlib.suppress(OSError):
        odd = odd_line(path) if path.is_file() else None
    if odd is None:
        return f"{name}: cannot be read as CSV; expected quotes around whole values only, and doubled inside them"
    where = path if files and Path(name).suffix else name
    return (
        f"{where}: line {odd.number} ends with {odd.end}, the lines before it with {odd.usual}; expected one kind of "
        "line end, such as a text editor or dos2unix writes"
    )


def _csv_reason(message: str) -> str:
    """DuckDB's reason against a line of CSV, without the line."""
    columns = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if columns:
        return f", {columns[2]} columns where the header has {columns[1]}"
    if "not utf-8" in message:
        return ", not UTF-8 text; another one needs encoding (--encoding)"
    if "unterminated quote" in message:
        return ", a quote that is not closed"
    return ""
