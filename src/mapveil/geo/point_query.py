"""The query behind points: columns of a table, how each is computed, and the check of every row."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from mapveil.geo.tables import Table, quote_name, quote_text, reading, value_text
from mapveil_client.contribution import WEIGHT_UNITS
from mapveil_client.errors import CuratorWarning, InputError

if TYPE_CHECKING:
    import duckdb

_SMALLEST_WEIGHT: Final = 1 / WEIGHT_UNITS
_LARGEST_WEIGHT: Final = 1e12
"""Weights are summed as integers of a millionth, so a larger one could overflow."""

_WANTED: Final = {
    "user": "every row needs a user id",
    "lon": "expected a longitude from -180 to 180 degrees",
    "lat": "expected a latitude from -90 to 90 degrees",
    "place": "expected a point with longitude -180 to 180 and latitude -90 to 90",
    "weight": f"expected a number from {_SMALLEST_WEIGHT:g} to {_LARGEST_WEIGHT:g}",
}

BadRows = Literal["fail", "drop"]
"""Treatment of rows that cannot be used."""


class Columns(NamedTuple):
    """A text for each canonical column, such as its name or its SQL; None where the source has no such column."""

    user: str
    lon: str
    lat: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None

    @property
    def text(self) -> str:
        """Which column is what, such as ``user=user_id, lon=x, lat=y, weight=none``."""
        named = self._asdict().items()
        return ", ".join(f"{kind}={name or 'none'}" for kind, name in named if name or kind == "weight")


@dataclass(frozen=True, eq=False, repr=False)
class PointQuery:
    """A table and the expressions of its canonical columns."""

    table: Table
    columns: Columns  # names of the columns in the source
    expressions: Columns  # SQL of each canonical column: DOUBLE for lon, lat and weight
    written: Columns | None = (
        None  # SQL of each as the source has it, for messages, where locations are geometries
    )
    where: str | None = None  # SQL of the rows that count, see :mod:`mapveil.geo.row_filter`
    on_bad_rows: BadRows = "fail"

    @property
    def source(self) -> str:
        """Name of the source in messages."""
        return self.table.name

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register the source on a connection; the SELECT text of the canonical columns.

        Yields ``user_id``, ``lon``, ``lat`` (degrees, DOUBLE) and, where the source has them, ``weight``
        (DOUBLE), ``time`` and ``label``: rows that :meth:`counted` holds for.
        """
        kept = self.expressions._asdict()
        select = [f"{kept.pop('user')} AS user_id"]
        select += [f"{sql} AS {name}" for name, sql in kept.items() if sql]
        relation = self.table.relation(connection)
        return f"SELECT {', '.join(select)} FROM {relation} WHERE {self.counted()}"

    def counted(self) -> str:
        """SQL of the source's rows that count: of the filter; usable where others are dropped."""
        parts = [] if self.where is None else [f"({self.where}\n)"]
        if self.on_bad_rows == "drop":
            parts += self.usable(self.expressions).values()
        return " AND ".join(parts) or "TRUE"

    def check(self) -> None:
        """Look for bad rows, in one cheap pass; a second one names the first of them. Run by: the curator.

        Dropped rows are counted in a :class:`CuratorWarning`, and nowhere else.

        Raises
        ------
        InputError
            A row has no user id, a coordinate that is missing, not finite or out of range, or a weight that is
            missing or not above 0, and bad rows are not dropped: names the row (1 is the first of the data) and
            the value.
        """
        bad = self.bad_rows()
        if bad and self.on_bad_rows == "fail":
            changed = f"{self.source}: changed while it was read; expected a table that stays as it is"
            raise InputError(first_failure(self) or changed)
        if bad:
            text = f"{self.source}: dropped {bad} rows that cannot be used; keep this number private"
            warnings.warn(text, CuratorWarning, stacklevel=2)

    def bad_rows(self) -> int:
        """Number of rows of the filter that cannot be used. Not private."""
        import duckdb

        usable = " AND ".join(self.usable(self.expressions).values())
        with duckdb.connect() as connection, reading(self.source):
            # A predicate, not MIN and MAX: those may come from file statistics, which leave NaN out.
            found = connection.execute(
                f"SELECT COUNT(*) - COUNT(*) FILTER ({usable}) FROM {self.table.relation(connection)} "
                f"WHERE ({self.where or 'TRUE'}\n)"
            ).fetchall()
        return int(found[0][0])

    def usable(self, columns: Columns) -> dict[str, str]:
        """SQL that holds for each of the columns of a row that can be used; null counts as failing."""
        user, lon, lat = columns[:3]
        holds = {"user": f"{user} IS NOT NULL"}
        holds |= {"lon": f"{lon} >= -180 AND {lon} <= 180", "lat": f"{lat} >= -90 AND {lat} <= 90"}
        if columns.weight is not None:
            holds["weight"] = (
                f"{columns.weight} >= {_SMALLEST_WEIGHT} AND {columns.weight} <= {_LARGEST_WEIGHT}"
            )
        return holds


def first_failure(points: PointQuery) -> str | None:
    """The message about the first row that cannot be used, if there is one. Not private."""
    import duckdb

    with duckdb.connect() as connection, reading(points.source):
        messages = (_failure_in(points, part, connection) for part in points.table.parts())
        return next(filter(None, messages), None)


def _failure_in(points: PointQuery, part: Table, connection: duckdb.DuckDBPyConnection) -> str | None:
    """The message about the first failing row of a part, if there is one."""
    names, expressions = points.columns._asdict(), points.expressions._asdict()
    holds = points.usable(Columns("user_id", "lon", "lat", weight=names["weight"] and "weight"))
    written = (
        points.written._asdict() if points.written else {kind: quote_name(names[kind]) for kind in holds}
    )
    columns = {"user_id" if kind == "user" else kind: expressions[kind] for kind in holds}
    columns |= {f"{kind}_text": f"CAST({written[kind]} AS VARCHAR)" for kind in holds}
    select = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    case = " ".join(f"WHEN ({held}) IS NOT TRUE THEN {quote_text(kind)}" for kind, held in holds.items())
    texts = ", ".join(f"{kind}_text" for kind in holds)
    found = connection.execute(
        f"SELECT row, CASE {case} END AS failing, {texts} "
        f"FROM (SELECT ROW_NUMBER() OVER () AS row, {select}, ({points.where or 'TRUE'}\n) AS mapveil_kept "
        f"FROM {part.relation(connection)}) AS rows "
        "WHERE mapveil_kept AND failing IS NOT NULL ORDER BY row LIMIT 1"
    ).fetchall()
    if not found:
        return None
    row, failing, *shown = found[0]
    text = value_text(dict(zip(holds, shown, strict=True))[failing])
    wanted = _WANTED["place" if points.written and failing in ("lon", "lat") else failing]
    hint = "; on_bad_rows='drop' (--on-bad-rows drop) leaves out such rows"
    if failing == "lat" and look_swapped(points, connection):
        hint = "; are lat and lon swapped?"
    elif failing != "user" and re.fullmatch(r"'\s*[+-]?\d+,\d+\s*'", text):
        hint = ", written with a point instead of a comma"
    return f"{part.name}: row {row}, column {names[failing]!r} is {text}; {wanted}{hint}"


def look_swapped(points: PointQuery, connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether most rows would be locations if lat and lon changed names, and are none as they are."""
    rows = connection.execute(
        "SELECT 2 * COUNT(*) FILTER (ABS(lat) > 90 AND ABS(lat) <= 180 AND ABS(lon) <= 90) > COUNT(*) "
        f"FROM ({points.scan(connection)}) AS points"
    ).fetchall()
    return bool(rows[0][0])
