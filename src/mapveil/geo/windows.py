"""Windows of a series in a table: the public windows, and the SQL of the number of each row's."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Final

from mapveil.geo.tables import connection, quote_text
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.public_windows import LENGTHS, PROFILES, PublicWindows

_PROFILES: Final = {
    "hour": "hour({wall})",
    "weekday": "isodow({wall}) - 1",
    "weekend": "CASE WHEN isodow({wall}) > 5 THEN 1 ELSE 0 END",
    "hour-of-week": "24 * (isodow({wall}) - 1) + hour({wall})",
}
"""SQL of the number of each recurring time from a clock's reading."""


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

    def sql(self, wall: str | None, category: str | None) -> str:
        """SQL of the number of a row's window, NULL for none.

        Parameters
        ----------
        wall : str or None
            SQL of the clock's reading: a TIMESTAMP without a time zone.
        category : str or None
            SQL of the column of categories, as text.
        """
        parts = []
        if self.every is not None:
            parts.append((self._period_sql(str(wall)), len(self._periods)))
        if self.by in PROFILES:
            parts.append((f"({_PROFILES[self.by].format(wall=wall)})", len(self._groups)))
        elif self.by is not None:
            cases = " ".join(f"WHEN {quote_text(value)} THEN {at}" for at, value in enumerate(self.values))
            parts.append((f"(CASE {category} {cases} END)", len(self._groups)))
        if len(parts) == 1:
            return f"CAST({parts[0][0]} AS BIGINT)"
        return f"CAST({parts[0][0]} * {parts[1][1]} + {parts[1][0]} AS BIGINT)"

    def _period_sql(self, wall: str) -> str:
        first, end = (f"TIMESTAMP '{edge.isoformat(sep=' ')}'" for edge in (self._edges[0], self._edges[-1]))
        number, unit = self._step
        if unit == "mo":
            passed = f"datediff('month', {first}, {wall}) // {number}"
        else:
            length = LENGTHS[unit] * number // timedelta(microseconds=1)
            passed = f"(epoch_us({wall}) - epoch_us({first})) // {length}"
        return f"(CASE WHEN {wall} >= {first} AND {wall} < {end} THEN {passed} END)"


def check_zone(windows: PublicWindows) -> None:
    """Refuse a time zone that the machine knows and DuckDB does not, such as ``posix/Europe/Paris``.

    Raises
    ------
    ParameterError
        Times cannot be read by its clock.
    """
    if windows.zone is None or windows.zone.casefold() in _known_zones():
        return
    raise ParameterError(
        f"zone (--time-zone) must be a name such as Europe/Paris or UTC, got {windows.zone!r}, by which no times of a "
        "table can be read"
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
