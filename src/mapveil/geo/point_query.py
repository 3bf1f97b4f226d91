"""The query behind points: columns of a table, how each is computed, and the check of every row."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from mapveil.geo.tables import Table, quote_name, quote_text, reading, value_text
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb

_LARGEST_WEIGHT: Final = 1e12
"""Weights are summed as integers of a millionth, so a larger one could overflow."""

_WANTED: Final = {
    "user": "every row needs a user id",
    "lon": "expected a longitude from -180 to 180 degrees",
    "lat": "expected a latitude from -90 to 90 degrees",
    "place": "expected a point with longitude -180 to 180 and latitude -90 to 90",
    "weight": f"expected a number from 0 to {_LARGEST_WEIGHT:g}",
}


class Columns(NamedTuple):
    """A text for each canonical column, such as its name or its SQL; None where the source has no such column."""

    user: str
    lon: str
    lat: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class PointQuery:
    """A table and the expressions of its canonical columns."""

    table: Table
    columns: Columns  # names of the columns in the source
    expressions: Columns  # SQL of each canonical column: DOUBLE for lon, lat and weight
    written: Columns | None = (
        None  # SQL of each as the source has it, for messages, where locations are geometries
    )

    @property
    def source(self) -> str:
        """Name of the source in messages."""
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

    def check(self) -> None:
        """Look for rows that cannot be used, in one cheap pass; a second one names the first such row.

        Run by: the curator.

        Raises
        ------
        InputError
            The table is empty, or a row has no user id, a coordinate that is missing, not finite or out of range, or a
            weight that is missing or negative: names the row (1 is the first of the data) and the value.
        """
        rows, users, good = _counted(self)
        if rows == 0:
            raise InputError(f"{self.source}: holds no rows; expected at least one")
        if users < rows or good < rows:
            changed = f"{self.source}: changed while it was read; expected a table that stays as it is"
            raise InputError(_first_failure(self) or changed)


def _counted(points: PointQuery) -> tuple[int, int, int]:
    """Numbers of rows, of rows with a user, and of rows whose numbers can be used."""
    import duckdb

    # A predicate, not MIN and MAX: those may come from file statistics, which leave NaN out.
    accepted = " AND ".join(_accepted(points).values())
    try:
        with duckdb.connect() as connection, reading(points.source):
            rows, users, good = connection.execute(
                f"SELECT COUNT(*), COUNT(user_id), COUNT(*) FILTER ({accepted}) "
                f"FROM ({points.scan(connection)}) AS points"
            ).fetchall()[0]
    except InputError:
        # DuckDB may move TRY_CAST into its CSV reader, where text in a number column is an error of the
        # file; reading the text beside the number keeps it out.
        message = None
        with contextlib.suppress(InputError):
            message = _first_failure(points)
        if message is None:
            raise
        raise InputError(message) from None
    return rows, users, good


def _accepted(points: PointQuery) -> dict[str, str]:
    """SQL that holds for each usable canonical number; an unknown (null) counts as failing."""
    holds = {"lon": "lon >= -180 AND lon <= 180", "lat": "lat >= -90 AND lat <= 90"}
    if points.columns.weight is not None:
        holds["weight"] = f"weight >= 0 AND weight <= {_LARGEST_WEIGHT}"
    return holds


def _first_failure(points: PointQuery) -> str | None:
    import duckdb

    with duckdb.connect() as connection, reading(points.source):
        messages = (_failure_in(points, part, connection) for part in points.table.parts())
        return next(filter(None, messages), None)


def _failure_in(points: PointQuery, part: Table, connection: duckdb.DuckDBPyConnection) -> str | None:
    """The message about the first failing row of a part, if there is one."""
    holds = {"user": "user_id IS NOT NULL", **_accepted(points)}
    names, expressions = points.columns._asdict(), points.expressions._asdict()
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
        f"FROM (SELECT ROW_NUMBER() OVER () AS row, {select} FROM {part.relation(connection)}) AS rows "
        "WHERE failing IS NOT NULL ORDER BY row LIMIT 1"
    ).fetchall()
    if not found:
        return None
    row, failing, *shown = found[0]
    text = value_text(dict(zip(holds, shown, strict=True))[failing])
    wanted = _WANTED["place" if points.written and failing in ("lon", "lat") else failing]
    swapped = failing == "lat" and _look_swapped(points, connection)
    hint = "; are lat and lon swapped?" if swapped else ""
    return f"{part.name}: row {row}, column {names[failing]!r} is {text}; {wanted}{hint}"


def _look_swapped(points: PointQuery, connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether most rows would be locations if lat and lon changed names, and are none as they are."""
    rows = connection.execute(
        "SELECT 2 * COUNT(*) FILTER (ABS(lat) > 90 AND ABS(lat) <= 180 AND ABS(lon) <= 90) > COUNT(*) "
        f"FROM ({points.scan(connection)}) AS points"
    ).fetchall()
    return bool(rows[0][0])
