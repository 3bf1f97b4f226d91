"""The query behind points: columns of a table and how users, longitudes and latitudes are computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mapveil.geo.tables import Table

if TYPE_CHECKING:
    import duckdb


class Columns(NamedTuple):
    """Names of the columns in the source, None where it has no such column."""

    user: str
    lon: str
    lat: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None


class Expressions(NamedTuple):
    """One SQL expression over the source per column: DOUBLE for lon, lat and weight."""

    user: str
    lon: str
    lat: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class PointQuery:
    """A table and the expressions of its canonical columns.

    Parameters
    ----------
    table, columns, expressions, written
        As for :class:`mapveil.geo.points.Points`.
    """

    table: Table
    columns: Columns
    expressions: Expressions
    written: Expressions | None = None

    @property
    def source(self) -> str:
        """What messages call the source."""
        return self.table.name

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register the source on a connection; the SELECT text of the canonical columns.

        Yields ``user_id``, ``lon``, ``lat`` (degrees, DOUBLE) and, where the source has them, ``weight``
        (DOUBLE), ``time`` and ``label``.
        """
        kept = self.expressions._asdict()
        select = [f"{kept.pop('user')} AS user_id"]
        select += [f"{sql} AS {name}" for name, sql in kept.items() if sql]
        return f"SELECT {', '.join(select)} FROM {self.table.relation(connection)}"
