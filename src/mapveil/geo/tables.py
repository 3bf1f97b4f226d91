"""Tables of rows that DuckDB can stream: where the columns of ``Points`` come from."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mapveil.errors import InputError

if TYPE_CHECKING:
    import duckdb

__all__ = ["FrameTable", "QueryTable", "Table", "column_types", "quote_name", "quote_text", "reading"]

_LONGEST = 300
_names = itertools.count()


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


@dataclass(frozen=True, eq=False, repr=False)
class FrameTable:
    """A table in memory: Arrow, pandas, Polars or an Arrow dataset."""

    frame: Any
    name: str = "table"
    _alias: str = field(default_factory=lambda: f"mapveil_frame_{next(_names)}")

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        connection.register(self._alias, self.frame)
        return self._alias

    def parts(self) -> tuple[Table, ...]:
        """See :class:`Table`."""
        return (self,)


@dataclass(frozen=True, eq=False, repr=False)
class QueryTable:
    """The rows of one SELECT statement."""

    sql: str
    name: str = "query"

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`Table`."""
        return f"({self.sql}\n) AS query"

    def parts(self) -> tuple[Table, ...]:
        """See :class:`Table`."""
        return (self,)


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
def reading(name: str) -> Iterator[None]:
    """Turn what DuckDB says about an unreadable source into one line that names it."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise InputError(_one_line(name, str(error))) from error


def _one_line(name: str, message: str) -> str:
    own = re.search(r"InputError: (.+)", message)
    if own:
        return own.group(1).strip()
    if re.search(r"magic bytes|too small to be a Parquet|footer", message):
        return f"{name}: not a complete Parquet file (truncated, or another format); a whole one is accepted"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    text = re.sub(r"^[A-Za-z ]+ Error: ", "", lines[0] if lines else "unreadable")
    return f"{name}: cannot be read: {text[:_LONGEST]}"
