"""Rows that cannot be used: found in one cheap pass, named by a second one on failure only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mapveil.errors import InputError
from mapveil.geo.tables import Table, quote_name, quote_text, reading

if TYPE_CHECKING:
    import duckdb

    from mapveil.geo.points import Points

__all__ = ["check_points"]

_FINITE_WEIGHT: Final = 1e12
"""Weights are summed as integers of a millionth, so a larger one could overflow."""


def check_points(points: Points) -> None:
    """Raise for the first row that cannot be used; see :meth:`Points.check`."""
    import duckdb

    with duckdb.connect() as connection, reading(points.source):
        # A predicate, not MIN and MAX: those may come from file statistics, which leave NaN out.
        row = connection.execute(
            f"SELECT COUNT(*), COUNT(user_id), COUNT(*) FILTER ({' AND '.join(_accepted(points).values())}) "
            f"FROM ({points.scan(connection)}) AS points"
        ).fetchall()[0]
    rows, users, good = row
    if rows == 0:
        raise InputError(f"{points.source}: holds no rows; at least one is accepted")
    if users < rows or good < rows:
        raise InputError(_first_failure(points))


def _accepted(points: Points) -> dict[str, str]:
    """What must hold of each canonical column; an unknown (null) counts as failing."""
    holds = {"lon": "lon >= -180 AND lon <= 180", "lat": "lat >= -90 AND lat <= 90"}
    if points.columns.weight is not None:
        holds["weight"] = f"weight >= 0 AND weight <= {_FINITE_WEIGHT}"
    return holds


def _first_failure(points: Points) -> str:
    import duckdb

    with duckdb.connect() as connection, reading(points.source):
        for part in points.table.parts():
            message = _failure_in(points, part, connection)
            if message:
                return message
    return f"{points.source}: changed while it was read; a table that stays as it is is accepted"


def _failure_in(points: Points, part: Table, connection: duckdb.DuckDBPyConnection) -> str | None:
    holds = {"user": "user_id IS NOT NULL", **_accepted(points)}
    kept = points.expressions
    columns = {"user_id": kept.user, "lon": kept.lon, "lat": kept.lat}
    if kept.weight is not None:
        columns["weight"] = kept.weight
    raw = points.columns._asdict()
    case = " ".join(f"WHEN ({held}) IS NOT TRUE THEN {quote_text(name)}" for name, held in holds.items())
    select = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    written = points.written._asdict() if points.written else {name: quote_name(raw[name]) for name in holds}
    shown = ", ".join(f"CAST({written[name]} AS VARCHAR) AS {name}_text" for name in holds)
    found = connection.execute(
        f"SELECT row, CASE {case} END AS failing, {', '.join(f'{name}_text' for name in holds)} "
        f"FROM (SELECT ROW_NUMBER() OVER () AS row, {select}, {shown} "
        f"FROM {part.relation(connection)}) AS rows "
        "WHERE failing IS NOT NULL ORDER BY row LIMIT 1"
    ).fetchall()
    if not found:
        return None
    row, failing, *texts = found[0]
    value = dict(zip(holds, texts, strict=True))[failing]
    where = f"{part.name}: row {row}, column {raw[failing]!r}"
    if failing == "user":
        return f"{where} is missing (null); every row needs a user id"
    if failing == "weight":
        return f"{where} is {value!r}; a number from 0 to {_FINITE_WEIGHT:g} is accepted"
    accepted = "degrees from -180 to 180 are" if failing == "lon" else "degrees from -90 to 90 are"
    hint = "; are lat and lon swapped?" if failing == "lat" and _look_swapped(points, connection) else ""
    return f"{where} is {value if value is not None else 'missing (null)'}; {accepted} accepted{hint}"


def _look_swapped(points: Points, connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether most rows would be places if lat and lon changed names, and are none as they are."""
    rows = connection.execute(
        "SELECT 2 * COUNT(*) FILTER (ABS(lat) > 90 AND ABS(lat) <= 180 AND ABS(lon) <= 90) > COUNT(*) "
        f"FROM ({points.scan(connection)}) AS points"
    ).fetchall()
    return bool(rows[0][0])
