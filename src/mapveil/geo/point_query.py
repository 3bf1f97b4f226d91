"""The query behind points: columns of a table, how each is computed, and the check of every row."""

from __future__ import annotations

import dataclasses
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from mapveil.geo.tables import Table, connect, connection, quote_name, quote_text, reading, value_text
from mapveil_client.contribution import WEIGHT_UNITS
from mapveil_client.errors import CuratorWarning, InputError

if TYPE_CHECKING:
    import duckdb

_SMALLEST_WEIGHT: Final = 1 / WEIGHT_UNITS
_LARGEST_WEIGHT: Final = 1e12
"""Weights are summed as integers of a millionth, so a larger one could overflow."""

_NAMED: Final = 3
"""Bad rows that a message names."""

_WANTED: Final = {
    "user": "every row needs a user id",
    "lon": "expected a longitude from -180 to 180 degrees",
    "lat": "expected a latitude from -90 to 90 degrees",
    "place": "expected a point with longitude -180 to 180 and latitude -90 to 90, or crs (--crs)",
    "to_lon": "expected the longitude of a destination, from -180 to 180 degrees",
    "to_lat": "expected the latitude of a destination, from -90 to 90 degrees",
    "time": "expected a date or time such as 2026-01-31 08:30",
    "weight": f"expected a number from {_SMALLEST_WEIGHT:g} to {_LARGEST_WEIGHT:g}",
}

_METRES: Final = re.compile(r"'-?\d{4,8}(\.\d*)?'")
"""Values that are no degrees and may be metres of a projected reference system."""

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
    to_lon: str | None = None  # destination, where rows are trips
    to_lat: str | None = None

    @property
    def text(self) -> str:
        """Columns by role, such as ``user=user_id, lon=x, lat=y, weight=none``."""
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
    copy_of: PointQuery | None = None  # the points that the table is a copy of, see :meth:`Points.held_once`
    recorded_where: str | None = (
        None  # the filter as files record it: not its text where it reads the users' ids
    )
    _treated: list[int] = field(default_factory=list, init=False)  # the number of bad rows, once it is known

    @property
    def source(self) -> str:
        """Name of the source in messages."""
        return self.table.name

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register the source on a connection; the SELECT text of the canonical columns.

        Yields ``user_id``, ``lon``, ``lat`` (degrees, DOUBLE) and, where the source has them, ``weight``
        (DOUBLE), ``time``, ``label`` and ``to_lon``, ``to_lat``: rows that :meth:`counted` holds for.
        """
        kept = self.expressions._asdict()
        select = [f"{kept.pop('user')} AS user_id"]
        select += [f"{sql} AS {name}" for name, sql in kept.items() if sql]
        relation = self.table.relation(connection)
        return f"SELECT {', '.join(select)} FROM {relation} WHERE {self.counted()}"

    def counted(self) -> str:
        """SQL of the source's rows that count: of the filter; usable where others are dropped."""
        parts = [] if self.where is None else [self.kept]
        if self.on_bad_rows == "drop":
            parts += self.usable(self.expressions).values()
        return " AND ".join(parts) or "TRUE"

    @property
    def kept(self) -> str:
        """SQL of the filter; a row that it fails on is left out, because an error would tell of the row."""
        return "mapveil_kept" if self.copy_of else f"TRY({self.where or 'TRUE'}\n)"

    def check(self) -> None:
        """Look for bad rows, in one cheap pass; a second one names the first few. Run by: the curator.

        Bad rows are counted in the error or, where they are dropped, in a :class:`CuratorWarning`, and nowhere else.

        Raises
        ------
        InputError
            A row has no user id, a coordinate that is missing, not finite or out of range, or a weight that is
            missing or not above 0, and bad rows are not dropped, or every row is one: names the first rows (1 is the
            first of the data) and their values.
        """
        if not self.checked:
            self.treat(*self.bad_rows())

    @property
    def checked(self) -> bool:
        """Whether the table is a copy whose rows were checked: they do not change any more."""
        return self.copy_of is not None and bool(self._treated)

    def treat(self, bad: int, rows: int) -> None:
        """Refuse so many bad rows, naming the first few, or warn that they are dropped; see :meth:`check`."""
        self._treated.append(bad)
        self.refuse(bad, rows)
        if bad:
            text = f"{self.source}: dropped {bad} of {rows} rows, which cannot be used; keep these numbers private"
            warnings.warn(text, CuratorWarning, stacklevel=2)

    def refuse(self, bad: int, rows: int) -> None:
        """Refuse so many bad rows of a table, naming the first few, where they are not dropped or are all of them.

        Raises
        ------
        InputError
            Rows cannot be used and are not dropped, or no row can be used.
        """
        if not bad or (bad < rows and self.on_bad_rows == "drop"):
            return
        changed = f"{self.source}: changed while it was read; expected a table that stays as it is"
        # Rows that look swapped are read as they are.
        asked = dataclasses.replace(self.copy_of or self, on_bad_rows="fail")
        raise InputError(first_failures(asked, bad, rows) or changed)

    def bad_rows(self) -> tuple[int, int]:
        """Number of rows that cannot be used, whatever the filter, and of all rows. Not private."""
        usable = " AND ".join(self.usable(self.expressions).values())
        with connection() as opened, reading(self.source):
            relation = self.table.relation(opened)
            ((usable_rows, rows),) = opened.execute(
                f"SELECT COUNT(*) FILTER ({usable}), COUNT(*) FROM {relation}"
            ).fetchall()
        return rows - usable_rows, rows

    def usable(self, columns: Columns) -> dict[str, str]:
        """SQL that holds for each of the columns of a row that can be used; null counts as failing."""
        ranges = {"lon": (-180, 180), "lat": (-90, 90), "weight": (_SMALLEST_WEIGHT, _LARGEST_WEIGHT)}
        ranges |= {"to_lon": ranges["lon"], "to_lat": ranges["lat"]}
        named = {kind: column for kind, column in columns._asdict().items() if kind in ranges and column}
        # NaN is outside no range that DuckDB knows from a file's statistics, so it is asked for.
        return {"user": f"{columns.user} IS NOT NULL"} | {
            kind: f"isfinite({column}) AND {column} BETWEEN {ranges[kind][0]} AND {ranges[kind][1]}"
            for kind, column in named.items()
        }


class _Failure(NamedTuple):
    """A row that cannot be used."""

    part: Table
    row: int  # 1 is the first of the part
    kind: str  # of the column
    column: str
    text: str  # the value

    @property
    def where(self) -> str:
        return f"row {self.row}, column {self.column!r} is {self.text}"


def first_failures(points: PointQuery, bad: int, rows: int) -> str | None:
    """The message about so many rows that cannot be used, naming the first few, if there is one. Not private."""

    with connect() as opened, reading(points.source):
        found = list(
            itertools.islice(
                (each for part in points.table.parts() for each in _failures_in(points, part, opened)), _NAMED
            )
        )
        if not found:
            return None
        first, *others = found
        hint = "; on_bad_rows='drop' (--on-bad-rows drop) leaves out such rows" if bad < rows else ""
        text = f"{first.part.name}: {first.where}; {_wanted(points, first, opened, hint)}"
    if bad < 2:
        return text
    more = ", ".join(
        each.where if each.part is first.part else f"{each.part.name} {each.where}" for each in others
    )
    return f"{text}; {bad} of {rows} rows cannot be used{f': next {more}' if more else ''}"


def _wanted(points: PointQuery, failure: _Failure, opened: duckdb.DuckDBPyConnection, hint: str) -> str:
    """The text of an expected value, with a hint: a better one where the values suggest it."""
    wanted = _WANTED["place" if points.written and failure.kind in ("lon", "lat") else failure.kind]
    if failure.kind == "lat" and look_swapped(points, opened):
        return f"{wanted}; are lat and lon swapped?"
    if failure.kind in ("lon", "lat") and not points.written and _METRES.fullmatch(failure.text):
        if points.columns.to_lon is not None:
            return f"{wanted}; if it is in metres, convert the ends of trips to degrees first"
        return f"{wanted}; if it is in metres, give its reference system: crs='EPSG:...' (--crs EPSG:...)"
    if failure.kind != "user" and re.fullmatch(r"'\s*[+-]?\d+,\d+\s*'", failure.text):
        return f"{wanted}, written with a point instead of a comma"
    return f"{wanted}{hint}"


def _failures_in(points: PointQuery, part: Table, opened: duckdb.DuckDBPyConnection) -> Iterator[_Failure]:
    """The first failing rows of a part."""
    names, expressions = points.columns._asdict(), points.expressions._asdict()
    kinds = {kind: kind for kind in ("weight", "time", "to_lon", "to_lat") if names[kind]}
    holds = points.usable(Columns("user_id", "lon", "lat", **kinds))
    written = (
        points.written._asdict() if points.written else {kind: quote_name(names[kind]) for kind in holds}
    )
    columns = {"user_id" if kind == "user" else kind: expressions[kind] for kind in holds}
    columns |= {f"{kind}_text": f"CAST({written[kind]} AS VARCHAR)" for kind in holds}
    select = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    case = " ".join(f"WHEN ({held}) IS NOT TRUE THEN {quote_text(kind)}" for kind, held in holds.items())
    texts = ", ".join(f"{kind}_text" for kind in holds)
    found = opened.execute(
        f"SELECT row, CASE {case} END AS failing, {texts} "
        f"FROM (SELECT ROW_NUMBER() OVER () AS row, {select} FROM {part.relation(opened)}) AS rows "
        f"WHERE failing IS NOT NULL ORDER BY row LIMIT {_NAMED}"
    ).fetchall()
    for row, failing, *shown in found:
        text = value_text(dict(zip(holds, shown, strict=True))[failing])
        yield _Failure(part, row, failing, names[failing], text)


def look_swapped(points: PointQuery, opened: duckdb.DuckDBPyConnection) -> bool:
    """Whether most rows would be locations if lat and lon changed names, and are none as they are."""
    rows = opened.execute(
        "SELECT 2 * COUNT(*) FILTER (ABS(lat) > 90 AND ABS(lat) <= 180 AND ABS(lon) <= 90) > COUNT(*) "
        f"FROM ({points.scan(opened)}) AS points"
    ).fetchall()
    return bool(rows[0][0])
