"""Points with the number of each row's window, and the unit whose contribution is bounded."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.point_query import Columns
from mapveil.geo.points import Points
from mapveil.geo.tables import column_types, connection, reading
from mapveil.geo.window_categories import category_sql
from mapveil.geo.windows import Windows, check_zone, interval_sql, no_time_column
from mapveil_client.errors import CuratorWarning, InputError, one_line

_UTC: Final = r"\s*(?:[Zz]|[Uu][Tt][Cc]|[Gg][Mm][Tt])$"
"""A name of UTC at the end of a time, trimmed."""

_ZONED: Final = rf"\d{{2}}:\d{{2}}[0-9:.]*({_UTC[:-1]}|\s*[+-]\d{{2}}(:?\d{{2}})?)\s*$"
"""A text of a time that states its offset from UTC."""

_TOO_FAR: Final = r"[+-](1[6-9]|[2-9]\d)(:?\d{2})?\s*$"
"""An offset that no clock has, at the end of such a text."""

_NAMED: Final = "[A-SU-Za-su-z]"
"""A letter other than the T between day and clock: of a month, of AM or PM, or of a time zone."""


_WIDEST: Final = 200  # characters of a list in a message
_MANY: Final = (
    0.1  # of the rows, in no window: more than the edges of a period leave out. Chosen, not measured.
)


class Parts(NamedTuple):
    """Groups of consecutive windows; a user contributes at most 1 to each."""

    length: int | tuple[int, ...]  # windows of a part, or of each
    most: int | None = None  # parts of a user that count

    @property
    def sql(self) -> str:
        """SQL of the part of the column ``label``."""
        if isinstance(self.length, int):
            return f"label // {self.length}"
        return interval_sql("label", np.append(0, np.cumsum(self.length)))


@dataclass(frozen=True, eq=False, repr=False)
class WindowedPoints(Points):
    """Points whose column of labels is the number of the row's window; rows in none are left out.

    Parameters
    ----------
    windows : Windows
        The windows.
    parts : Parts, optional
        The parts of the windows in which a user contributes 1 each; 1 over all windows by default.
    listed : str, optional
        SQL of the number of a row's category: NULL for one that is not listed, -1 for a row that the filter left out.
    dated : str, optional
        SQL of whether a row lies in a period: NULL for a row that the filter left out.
    """

    windows: Windows = field(kw_only=True)
    parts: Parts | None = field(default=None, kw_only=True)
    listed: str | None = field(default=None, kw_only=True)
    dated: str | None = field(default=None, kw_only=True)

    def usable(self, columns: Columns) -> dict[str, str]:
        """See :meth:`mapveil.geo.point_query.PointQuery.usable`; a row without a time is in no window."""
        given = {"time": f"{columns.time} IS NOT NULL"} if self.windows.reads_time and columns.time else {}
        return super().usable(columns) | given


def windowed(points: Points, windows: Windows, parts: Parts | None = None) -> WindowedPoints:
    """Number the window of every row.

    Raises
    ------
    InputError
        The table has no such column, categories of a type that no value can be of, or times that cannot be read, or
        that state no time zone where none is given, or where some do and some do not.
    ParameterError
        Times cannot be read by the clock of the windows.
    """
    types = column_types(points.table)
    column = points.columns.time
    category = None if windows.category is None else category_sql(points, windows)
    wall = moment = None
    if windows.reads_time:
        check_zone(windows)
        if column is None:
            raise no_time_column(points.source)
        wall, moment = _times(points, windows, types[column])
    number = windows.sql(moment, wall, category)
    where = f"({number}) IS NOT NULL"
    if points.where is not None:
        where = f"({points.where}\n) AND {where}"
    given = {item.name: getattr(points, item.name) for item in fields(Points) if item.init}
    given |= {
        "columns": points.columns._replace(label="window"),
        "expressions": points.expressions._replace(label=number, **({} if wall is None else {"time": wall})),
        "where": where,
    }
    listed = None if category is None else windows.category_sql(category)
    if listed is not None and points.where is not None:
        listed = f"CASE WHEN {points.kept} THEN {listed} ELSE -1 END"
    dated = None
    if windows.every is not None:
        alone = Windows(every=windows.every, start=windows.start, until=windows.until, zone=windows.zone)
        dated = f"CASE WHEN {points.kept} THEN ({alone.sql(moment, wall, None)}) IS NOT NULL END"
    return WindowedPoints(**given, windows=windows, parts=parts, listed=listed, dated=dated)


def check_numbering(points: object, windows: Windows | None = None, parts: Parts | None = None) -> None:
    """Refuse a table, or its exact sums, not numbered for these windows and parts: a user would count more.

    Exact sums that :func:`mapveil.engines.user_sums` did not make of such a table are taken as they are.

    Raises
    ------
    InputError
        It was numbered otherwise, or at all where there are no windows.
    """
    numbered = (getattr(points, "windows", None), getattr(points, "parts", None))
    if numbered not in ((None, None), (windows, parts)):
        source = getattr(points, "source", "exact sums")
        raise InputError(
            f"{source}: the windows of its rows were numbered for another mechanism, whose users count "
            "otherwise; expected the table itself, or what numbered() of this mechanism makes of it"
        )


def _times(points: Points, windows: Windows, kind: str) -> tuple[str, str]:
    """SQL of the reading of the windows' clock at a row's time, and of the moment; the rows are checked.

    A reading that states no offset is read as DuckDB does: in an hour that the clock repeats, as of the second.
    """
    time, zone = str(points.expressions.time), windows.zone
    if kind in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"):  # as pandas writes nanoseconds
        return _of_moment(f"CAST({time} AS TIMESTAMP WITH TIME ZONE)", zone)
    if kind == "DATE":
        if windows.reads_hours:
            raise _only_days(points)
        return _of_reading(f"CAST({time} AS TIMESTAMP)", zone)
    if kind.startswith("TIMESTAMP"):
        if zone is None:
            raise _no_zone(points)
        return _of_reading(f"CAST({time} AS TIMESTAMP)", zone)
    if kind != "VARCHAR":
        raise InputError(
            f"{points.source}: column {points.columns.time!r} for time is of type {kind.lower()}; expected dates or "
            "times (SQL makes them of a number of seconds: to_timestamp(column))"
        )
    return _times_of_text(points, windows, time)


def _of_moment(moment: str, zone: str | None) -> tuple[str, str]:
    return f"timezone('{zone or 'UTC'}', {moment})", moment


def _of_reading(wall: str, zone: str | None) -> tuple[str, str]:
    return wall, f"timezone('{zone or 'UTC'}', {wall})"


def _times_of_text(points: Points, windows: Windows, time: str) -> tuple[str, str]:
    points.table.check_here(f"dates or timestamps in column {points.columns.time!r}, not texts")
    zone = windows.zone
    zoned = f"regexp_matches({time}, '{_ZONED}')"
    # DuckDB would read 8:30 PM as 8:30, and 8:30 of a named zone as that of any. Trimmed, else its reader of CSV takes
    # the cast over and refuses the file.
    plain = f"TRY_CAST(CASE WHEN NOT regexp_matches({time}, '{_NAMED}') THEN trim({time}) END AS TIMESTAMP)"
    read = f"{plain} IS NOT NULL"
    with connection() as opened, reading(points.source):
        relation = points.table.relation(opened)
        ((stated, clocks, days),) = opened.execute(
            f"SELECT COUNT(*) FILTER ({zoned}), COUNT(*) FILTER (NOT {zoned} AND contains({time}, ':') AND {read}), "
            # DuckDB would read a day beside zoned times in the machine's zone.
            f"COUNT(*) FILTER (NOT {zoned} AND {read}) FROM {relation}"
        ).fetchall()
    if windows.reads_hours and days and not (stated or clocks):
        raise _only_days(points)
    if windows.reads_hours and clocks and days > clocks:
        warnings.warn(
            f"{points.source}: {days - clocks:,} of {days:,} times in column {points.columns.time!r} are days alone, "
            "which windows of hours count at 00:00; keep this private",
            CuratorWarning,
            stacklevel=2,
        )
    if stated and (clocks or days):
        raise InputError(
            f"{points.source}: some times in column {points.columns.time!r} state a time zone and some do not; "
            "expected all or none"
        )
    if clocks and zone is None:
        raise _no_zone(points)
    if stated:
        utc = f"regexp_replace(trim({time}), '{_UTC}', 'Z')"
        near = f"{zoned} AND NOT regexp_matches({time}, '{_TOO_FAR}')"
        moment = f"TRY_CAST(CASE WHEN {near} THEN {utc} END AS TIMESTAMP WITH TIME ZONE)"
        return _of_moment(moment, zone)
    return _of_reading(plain, zone)


def _only_days(points: Points) -> InputError:
    return InputError(
        f"{points.source}: column {points.columns.time!r} holds days; windows of hours need times"
    )


def _no_zone(points: Points) -> InputError:
    return InputError(
        f"{points.source}: the times in column {points.columns.time!r} state no time zone; name that of their clock, "
        "such as zone=UTC (--time-zone UTC) or Europe/Paris"
    )


def windows_of_rows(points: Points) -> tuple[int, ...]:
    """Numbers of the windows that a :func:`windowed` row lies in, in order. Not private. Run by: the curator."""
    with connection() as opened, reading(points.source):
        found = opened.execute(f"SELECT DISTINCT label FROM ({points.scan(opened)}) AS points").fetchall()
    return tuple(sorted(int(number) for (number,) in found))


def check_times(points: WindowedPoints) -> None:
    """Refuse a table with rows that cannot be used, or whose times cannot be read, unless such rows are dropped.

    Warn of many rows that count in no window. A cluster is given dates and timestamps only: it counts missing ones
    while it sums.

    Raises
    ------
    InputError
        A row cannot be used and is not dropped, or no row can be used.
    """
    if points.table.elsewhere:
        return
    if points.windows.reads_time:
        points.refuse(*points.bad_rows())
    for text in (_undated(points), unlisted(points)):
        if text is not None:
            warnings.warn(f"{points.source}: {text}; keep this private", CuratorWarning, stacklevel=2)


def _undated(points: WindowedPoints) -> str | None:
    """Text on rows that lie in no period, where they are many; None otherwise. Not private."""
    if points.dated is None:
        return None
    usable = " AND ".join(points.usable(points.expressions).values())
    with connection() as opened, reading(points.source):
        ((rows, held, first, last),) = opened.execute(
            "SELECT COUNT(dated), COUNT(*) FILTER (dated), CAST(MIN(day) AS VARCHAR), CAST(MAX(day) AS VARCHAR) FROM "
            f"(SELECT {points.dated} AS dated, CAST({points.expressions.time} AS DATE) AS day "
            f"FROM {points.table.relation(opened)} WHERE {usable}) AS rows WHERE dated IS NOT NULL"
        ).fetchall()
    when = f"they are from {first} to {last}"
    if rows and not held:
        return f"none of its {rows:,} rows lies in a window: {when}, so a map of it is about nobody"
    if rows - held > _MANY * rows:
        return f"{rows - held:,} of its {rows:,} rows lie in no window: {when}"
    return None


def unlisted(points: WindowedPoints) -> str | None:
    """Text on rows whose category is not listed, and on listed ones without a row; None without any. Not private."""
    if points.listed is None:
        return None
    with connection() as opened, reading(points.source):
        relation = points.table.relation(opened)
        rows = dict(
            opened.execute(
                f"SELECT {points.listed} AS number, COUNT(*) FROM {relation} GROUP BY number"
            ).fetchall()
        )
    rows.pop(-1, None)
    column, values = points.windows.category, points.windows.values
    said = []
    if None in rows:
        said.append(
            f"{rows[None]} of {sum(rows.values())} rows hold a value of column {column!r} that is not listed, and "
            "count in no window"
        )
    missing = [value for at, value in enumerate(values) if at not in rows]
    if missing:
        said.append(f"listed and in no row: {one_line(', '.join(missing), _WIDEST)}")
    return "; ".join(said) or None
