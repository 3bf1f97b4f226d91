"""Windows of a series in a table: the public windows, and the SQL of the number of each row's."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Final

import numpy as np

from mapveil.geo.tables import connection, quote_text
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, ParameterError, check, is_whole
from mapveil_client.public_periods import LENGTHS, Periods, offset_text
from mapveil_client.public_windows import PROFILES, PublicWindows

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_PROFILES: Final = {
    "hour": "hour({wall})",
    "weekday": "isodow({wall}) - 1",
    "weekend": "CASE WHEN isodow({wall}) > 5 THEN 1 ELSE 0 END",
    "hour-of-week": "24 * (isodow({wall}) - 1) + hour({wall})",
}
"""SQL of the number of each recurring time from a clock's reading."""
_EVERY_DAY: Final = "1111111"
_ONE_DAY: Final = tuple(f"{1 << (6 - day):07b}" for day in range(7))
_DAYS_OF: Final = {
    "weekday": _ONE_DAY,
    "weekend": ("1111100", "0000011"),
    "hour-of-week": tuple(_ONE_DAY[hour // 24] for hour in range(7 * 24)),
}
"""Days of the week, from Monday on, that each recurring time is on."""


class Windows(PublicWindows):
    """The windows of a series, with the SQL that finds those of a table's rows.

    Parameters
    ----------
    every, start, until, zone, by, values
        See :class:`mapveil_client.public_windows.PublicWindows`.

    Examples
    --------
    >>> Windows(every="1w", start="2026-01-05", until="2026-02-02").names
    ('2026-W02', '2026-W03', '2026-W04', '2026-W05')
    """

    def check_per_user(self, most: int | None) -> None:
        """Refuse a number of windows in which a user counts that is not a whole one from 1 to theirs."""
        held = most is None or is_whole(most, 1, self.count)
        check(held, "windows_per_user (--windows-per-user)", f"a whole number from 1 to {self.count}", most)

    def sql(self, moment: str | None, wall: str | None, category: str | None) -> str:
        """SQL of the number of a row's window, NULL for none.

        Parameters
        ----------
        moment : str or None
            SQL of the row's time: a TIMESTAMP WITH TIME ZONE; needed for periods of hours.
        wall : str or None
            SQL of the clock's reading: a TIMESTAMP without a time zone.
        category : str or None
            SQL of the column of categories, as text.
        """
        parts = []
        if self.periods is not None:
            parts.append((_period_sql(self.periods, str(moment), str(wall)), self.periods.count))
        if self.by in PROFILES:
            parts.append((f"({_PROFILES[self.by].format(wall=wall)})", len(self._groups)))
        elif self.by is not None:
            parts.append((self.category_sql(str(category)), len(self._groups)))
        if len(parts) == 1:
            return f"CAST({parts[0][0]} AS BIGINT)"
        return f"CAST({parts[0][0]} * {parts[1][1]} + {parts[1][0]} AS BIGINT)"

    def category_sql(self, category: str) -> str:
        """SQL of the number of a row's category, NULL for one that is not listed."""
        cases = " ".join(f"WHEN {quote_text(value)} THEN {at}" for at, value in enumerate(self.values))
        return f"(CASE {category} {cases} END)"

    @property
    def titles(self) -> tuple[str, ...]:
        """The name of each window with its days, or hours, and the clock's time zone."""
        return tuple(map(self.title, range(self.count)))

    def title(self, window: int) -> str:
        """The name of a window with its days, or hours, and the clock's time zone, or its column of categories.

        Examples
        --------
        >>> Windows(every="1w", start="2026-01-26", until="2026-02-09", zone="Europe/Paris").title(0)
        '2026-W05: 26 January to 1 February 2026, Europe/Paris'
        >>> Windows(every="1h", start="2026-01-05", until="2026-01-06").title(5)
        '2026-01-05T05:00: 5 January 2026 05:00 to 06:00, UTC'
        >>> Windows(by="weekday").title(0)
        'Monday, UTC'
        >>> Windows(by="purpose", values=("work", "leisure")).title(1)
        'leisure (purpose)'
        """
        when = _when(self.periods, int(self.period_of[window])) if self.periods is not None else ""
        clock = f", {self.zone or 'UTC'}" if self.reads_time else ""
        column = "" if self.by is None or self.by in PROFILES else f" ({self.by})"
        return self.names[window] + column + (f": {when}" if when else "") + clock

    def lengths(self, window: int) -> dict[str, int]:
        """The days and hours of a window, as far as they are known: of recurring times alone, in each week.

        Examples
        --------
        >>> Windows(every="1mo", start="2026-02-01", until="2026-04-01", zone="Europe/Paris").lengths(1)
        {'days': 31, 'hours': 743}
        >>> Windows(by="weekend").lengths(1)
        {'days in each week': 2}
        """
        days = _DAYS_OF.get(self.by or "")
        held = _EVERY_DAY if days is None else days[window % len(days)]
        if self.periods is None:
            return {} if self.category is not None else {"days in each week": held.count("1")}
        at = int(self.period_of[window])
        found = {}
        if not self.periods.counts_hours:
            first, end = (edge.date() for edge in self.periods.edges[at : at + 2])
            found["days"] = int(np.busday_count(first, end, weekmask=held))
        if self.by not in PROFILES:
            found["hours"] = int(np.diff(self.periods.moments[at : at + 2])[0]) // 3600
        return found

    def days(self, window: int) -> str:
        """The days of a window of weeks, whose name does not tell them; empty of any other.

        Examples
        --------
        >>> Windows(every="1w", start="2026-01-26", until="2026-02-09").days(1)
        '2 to 8 February 2026'
        """
        if self.periods is None or self.periods.step[1] != "w":
            return ""
        return _when(self.periods, int(self.period_of[window]))


def _when(periods: Periods, period: int) -> str:
    """The days, or hours, of a period."""
    first, end = periods.edges[period], periods.edges[period + 1]
    if periods.counts_hours:
        day = "" if end.date() == first.date() else f"{_day(end)} "
        offsets = [offset_text(edge) for edge in (first, end)]
        begin, until = offsets if offsets[0] != offsets[1] else ("", "")
        return f"{_day(first)} {first:%H:%M}{begin} to {day}{end:%H:%M}{until}"
    last = end - timedelta(days=1)
    if first == last:
        return _day(last)
    same_month = (first.year, first.month) == (last.year, last.month)
    begin = str(first.day) if same_month else _day(first, year=first.year != last.year)
    return f"{begin} to {_day(last)}"


def _period_sql(periods: Periods, moment: str, wall: str) -> str:
    """SQL of the number of a row's period, NULL for none."""
    if periods.counts_hours:
        return interval_sql(f"epoch_us({moment})", 1_000_000 * periods.moments)
    first, end = (f"TIMESTAMP '{edge.isoformat(sep=' ')}'" for edge in (periods.edges[0], periods.edges[-1]))
    number, unit = periods.step
    if unit == "mo":
        passed = f"datediff('month', {first}, {wall}) // {number}"
    else:
        length = LENGTHS[unit] * number // timedelta(microseconds=1)
        passed = f"(epoch_us({wall}) - epoch_us({first})) // {length}"
    return f"(CASE WHEN {wall} >= {first} AND {wall} < {end} THEN {passed} END)"


def _day(edge: datetime, *, year: bool = True) -> str:
    """A day in words, in English whatever the machine's language."""
    return f"{edge.day} {_MONTHS[edge.month - 1]}" + (f" {edge.year}" if year else "")


def interval_sql(number: str, edges: IntArray) -> str:
    """SQL of the interval that a whole number lies in, NULL before the first edge and from the last on.

    Intervals of one length that follow one another are one case.
    """
    lengths = np.diff(edges)
    firsts = np.append(0, np.flatnonzero(np.diff(lengths)) + 1)
    ends = edges[np.append(firsts[1:], lengths.size)]
    cases = " ".join(
        f"WHEN {number} < {end} THEN {first} + ({number} - {edges[first]}) // {lengths[first]}"
        for first, end in zip(firsts, ends, strict=True)
    )
    return f"(CASE WHEN {number} < {edges[0]} THEN NULL {cases} END)"


def check_zone(windows: PublicWindows) -> None:
    """Refuse a time zone that DuckDB does not know, or whose hours it reads by other rules than Python.

    Edges of hours are moments by Python's database of time zones; DuckDB reads the clock of rows by its own. Either may
    be older: of a clock whose rules changed lately, users would be counted in the hour beside theirs.

    Raises
    ------
    ParameterError
        Times cannot be read by its clock.
    """
    if windows.zone is None:
        return
    if windows.zone.casefold() not in _known_zones():
        raise ParameterError(
            f"zone (--time-zone) must be a name such as Europe/Paris or UTC, got {windows.zone!r}, by which no times "
            "of a table can be read"
        )
    if windows.periods is None or not windows.periods.counts_hours:
        return
    clock = f"timezone({quote_text(windows.zone)}, to_timestamp(moment))"
    with connection() as opened:
        moments = {"moment": windows.periods.moments}
        walls = opened.execute(f"SELECT {clock} FROM (SELECT unnest($moment) AS moment)", moments).fetchall()
    for edge, (wall,) in zip(windows.periods.edges, walls, strict=True):
        if edge.replace(tzinfo=None) != wall:
            raise ParameterError(
                f"windows of hours need one clock, and of {windows.zone} Python's database of time zones and DuckDB's "
                f"have {edge:%Y-%m-%d %H:%M} and {wall:%H:%M} for one moment; bring the older up to date, or use a "
                "zone of a fixed offset, such as Etc/GMT+7 or UTC"
            )


@cache
def _known_zones() -> frozenset[str]:
    with connection() as opened:
        return frozenset(
            str(name).casefold()
            for (name,) in opened.execute("SELECT name FROM pg_timezone_names()").fetchall()
        )


def no_time_column(source: str) -> InputError:
    """The error of a table without times, where windows need them."""
    return InputError(f"{source}: no column of times, which windows need; name one: time=NAME (--time NAME)")
