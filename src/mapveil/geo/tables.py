"""Tables of rows that DuckDB can stream: where the columns of ``Points`` come from."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_LONGEST: Final = 200
_names = itertools.count()


@runtime_checkable
class Table(Protocol):
    """Rows that can be read again and again, on any connection, without holding them."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register what is needed on the connection; the SQL that follows ``FROM``."""
        ...

    def parts(self) -> tuple[Table, ...]:
        """The tables it is made of, in order, for messages that name one of them."""
        ...


class Place(NamedTuple):
    """Where a table keeps a row's place, when it is one column of geometries."""

    column: str  # its name, for messages
    lon: str  # SQL of type DOUBLE
    lat: str  # SQL of type DOUBLE
    written: str  # SQL of the geometry as text, for messages


@runtime_checkable
class PlaceTable(Table, Protocol):
    """A table whose places are geometries."""

    @property
    def place(self) -> Place:
        """Where they are."""
        ...


def _alias() -> str:
    return f"mapveil_table_{next(_names)}"


class _Whole:
    """A table that is not made of others."""

    def parts(self: Table) -> tuple[Table, ...]:
        """See :class:`Table`."""
        return (self,)


@dataclass(frozen=True, eq=False, repr=False)
class FrameTable(_Whole):
    """A table in memory (Arrow, pandas, Polars) or an Arrow dataset."""

    frame: Any
    name: str = "table"
    _alias: str = field(default_factory=_alias)

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        connection.register(self._alias, self.frame)
        return self._alias


@dataclass(frozen=True, eq=False, repr=False)
class StreamTable(_Whole):
    """Rows that something makes anew, batch by batch, each time they are read.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns.
    batches : callable
        Starts a new stream of record batches.
    name : str
        What messages call it.
    """

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
class QueryTable(_Whole):
    """The rows of one SELECT statement."""

    sql: str
    name: str = "SQL"

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        # A name in the text means a file, never a Python variable of whoever calls.
        connection.execute("SET python_enable_replacements = false")
        return f"({self.sql}\n) AS query"


def quote_name(name: str) -> str:
    """An SQL identifier that means exactly this name."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """An SQL string literal that means exactly this text."""
    return "'" + text.replace("'", "''") + "'"


def column_types(table: Table) -> dict[str, str]:
    """Names and SQL types of a table's columns; reads no rows."""
    import duckdb

    with duckdb.connect() as connection, reading(table.name):
        rows = connection.execute(f"DESCRIBE SELECT * FROM {table.relation(connection)}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


@contextlib.contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB for a heavy query, with a temporary folder to spill to.

    The memory limit is DuckDB's default: 80 % of the machine's memory, or of the control group's.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="mapveil-") as spill, duckdb.connect() as opened:
        opened.execute("SET preserve_insertion_order = false")
        opened.execute("SET temp_directory = ?", [spill])
        yield opened


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn what DuckDB says about an unreadable source into one line that names it.

    Raises
    ------
    InputError
        Anything of DuckDB's own was raised inside.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise InputError(_one_line(name, str(error))) from error


def _one_line(name: str, message: str) -> str:
    own = re.search(r"InputError: (.+)", message)
    if own:
        return own.group(1).strip()
    # A message can quote the row it stumbled on, and a row is somebody's place.
    message = re.split(r"\s+(?:Original Line|Input|LINE \d+):", message)[0] + _csv_reason(message)
    if re.search(r"magic bytes|too small to be a Parquet|footer|TProtocol|[Tt]hrift|[Ss]nappy|ZSTD", message):
        return f"{name}: not a complete Parquet file (truncated, or of another format)"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = re.sub(r"^[A-Za-z ]*Error:? ", "", lines[0] if lines else "unreadable")
    return f"{name}: cannot be read: {text[:_LONGEST].rstrip('. ')}"


def _csv_reason(message: str) -> str:
    """What DuckDB says is wrong with a line of CSV, without the line."""
    columns = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if columns:
        return f", {columns[2]} columns where the header has {columns[1]}"
    if "not utf-8" in message:
        return ", not UTF-8 text"
    if "unterminated quote" in message:
        return ", a quote that is not closed"
    return ""
