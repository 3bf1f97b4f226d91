"""The public windows of a series: periods of a calendar, hours of the week and categories, which clients read too.

A window of time is bounded by readings of one clock, that of a time zone: a calendar week has 167 or 169 hours where
the clocks change. Windows of hours are bounded by moments: one hour each, 23 or 25 on such a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.public_periods import MOST_WINDOWS, Periods, zone_named

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

PROFILES: Final[dict[str, tuple[str, ...]]] = {
    "hour": tuple(f"{hour:02d}:00" for hour in range(24)),
    "weekday": _DAYS,
    "weekend": ("working day", "weekend"),
    "hour-of-week": tuple(f"{day} {hour:02d}:00" for day in _DAYS for hour in range(24)),
}
"""Names of the recurring times of each kind, in order."""


@dataclass(frozen=True)
class PublicWindows:
    """The windows of a series: calendar periods, recurring times or categories, or every pair of both.

    Parameters
    ----------
    every : str, optional
        Length of a period: a number and ``h``, ``d``, ``w`` or ``mo``, such as ``"1w"``; a calendar month is ``"1mo"``.
    start, until : str, optional
        First day or hour, and the one after the last, such as ``"2026-01-05"``; both needed with ``every``.
    zone : str, optional
        Time zone of the windows, such as ``"Europe/Paris"``; UTC by default. A table whose times state no zone needs
        one.
    by : str, optional
        ``"hour"``, ``"weekday"``, ``"weekend"`` or ``"hour-of-week"``, or the name of a column of categories.
    values : tuple of str
        The public list of a column's categories; rows with another value count in no window.

    Raises
    ------
    ParameterError
        A parameter is outside its range, or periods do not fit between ``start`` and ``until``.

    Examples
    --------
    >>> PublicWindows(every="1w", start="2026-01-05", until="2026-02-02").names
    ('2026-W02', '2026-W03', '2026-W04', '2026-W05')
    >>> PublicWindows(every="1mo", start="2026-01-01", until="2026-03-01", by="weekend").names[:2]
    ('2026-01 working day', '2026-01 weekend')
    """

    every: str | None = None
    start: str | None = None
    until: str | None = None
    zone: str | None = None
    by: str | None = None
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.every is None and self.by is None:
            raise ParameterError("every (--every) or by (--by) is required: a series needs windows")
        if self.zone is not None:
            zone_named(self.zone)
        self._check_categories()
        if self.every is None:
            if self.start is not None or self.until is not None:
                raise ParameterError(
                    "start and until (--from and --until) are of periods: give every=LENGTH (--every LENGTH) too, or "
                    "leave them out"
                )
        else:
            if self.start is None or self.until is None:
                raise ParameterError(
                    "start and until (--from and --until) are required with every: taken from the table, the windows "
                    "would tell when somebody was there"
                )
            _ = self.periods  # checks them
        check(self.count <= MOST_WINDOWS, "windows", f"at most {MOST_WINDOWS}", self.count)

    def _check_categories(self) -> None:
        texts = isinstance(self.values, Sequence) and not isinstance(self.values, str)
        if not texts or not all(isinstance(value, str) for value in self.values):
            raise ParameterError(
                f"values (--values) must be a list of texts, such as ['work', 'leisure'], got {self.values!r}"
            )
        object.__setattr__(self, "values", tuple(self.values))
        listed = ", ".join(self.values)
        if self.by in PROFILES or self.by is None:
            check(not self.values, "values (--values)", "left out without a column of categories", listed)
            return
        if not self.values:
            raise ParameterError(
                f"values (--values) are required with by={self.by!r}: a public list, since taken from the table they "
                f"would tell which are there; recurring times are {', '.join(PROFILES)}"
            )
        distinct = len(set(map(str.strip, self.values))) == len(self.values)  # names are stripped
        check(
            distinct and all(map(str.isprintable, self.values)),
            "values (--values)",
            "different texts",
            listed,
        )

    @cached_property
    def periods(self) -> Periods | None:
        """The calendar periods, where there are some."""
        if self.every is None:
            return None
        return Periods(self.every, str(self.start), str(self.until), self.zone or "UTC")

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each window."""
        periods, groups = self.periods.names if self.periods else ("",), self._groups or ("",)
        return tuple(f"{period} {group}".strip() for period in periods for group in groups)

    @property
    def count(self) -> int:
        """Number of windows."""
        return (self.periods.count if self.periods else 1) * max(len(self._groups), 1)

    @property
    def starts(self) -> tuple[datetime | None, ...]:
        """The clock's reading at the start of each window; None for a recurring time or a category."""
        groups = max(len(self._groups), 1)
        edges = self.periods.edges[:-1] if self.periods else (None,)
        return tuple(edge and edge.replace(tzinfo=None) for edge in edges for _ in range(groups))

    @property
    def reads_time(self) -> bool:
        """Whether a row's window depends on its time."""
        return self.every is not None or self.by in PROFILES

    @property
    def reads_hours(self) -> bool:
        """Whether a day alone does not tell a row's window."""
        return self.by in ("hour", "hour-of-week") or (self.periods is not None and self.periods.counts_hours)

    @property
    def category(self) -> str | None:
        """The column of categories, where there is one."""
        return None if self.by in PROFILES else self.by

    @property
    def period_of(self) -> IntArray:
        """Number of the period of each window, shape (windows,)."""
        return np.arange(self.count, dtype=np.int64) // max(len(self._groups), 1)

    @property
    def week_of(self) -> IntArray:
        """The week of each window by the clock, counted from ``start``, shape (windows,).

        Raises
        ------
        ParameterError
            The windows do not lie within weeks.
        """
        weeks = self.periods.weeks if self.periods else None
        if weeks is None:
            raise ParameterError(
                f"per must be user: windows of {self.every or self.by} do not divide a week, so no row of theirs is of "
                "one user-week"
            )
        return np.asarray(weeks[self.period_of])

    def index(self, name: str) -> int:
        """Number of the window of a name.

        Raises
        ------
        ParameterError
            There is none of this name.
        """
        names = self.names
        if name not in names:
            shown = ", ".join(names if len(names) <= 4 else (*names[:3], "...", names[-1]))
            raise ParameterError(f"window must be one of {shown}; got {name!r}")
        return names.index(name)

    def numbers(self, times: FloatArray | None, categories: Sequence[str | None] = ()) -> IntArray:
        """Number of the window of each row of one client, -1 for none. Run by: the client.

        Parameters
        ----------
        times : ndarray of float64, shape (rows,), optional
            Seconds since 1970, UTC.
        categories : sequence of str or None, shape (rows,)
            Where the windows are by category.

        Raises
        ------
        InputError
            The windows need times or categories that are not given.
        """
        if self.reads_time and times is None:
            raise InputError("a device's locations have no times, which these windows need")
        if self.category is not None and not categories:
            raise InputError(
                f"a device's locations have no categories, which windows by {self.category} need"
            )
        rows = len(categories) if times is None else times.size
        found = np.zeros(rows, dtype=np.int64)
        zone = zone_named(self.zone or "UTC")
        for row in range(rows):
            moment = (
                None if times is None else datetime.fromtimestamp(float(times[row]), UTC).astimezone(zone)
            )
            period = 0 if self.periods is None or moment is None else self.periods.number(moment)
            group = self._group(moment, categories[row] if self.category is not None else None)
            found[row] = -1 if period < 0 or group < 0 else period * max(len(self._groups), 1) + group
        return found

    def ends(self, window: int) -> float | None:
        """The end of a window, seconds since 1970; None for one that recurs or is a category."""
        return float(self.periods.moments[int(self.period_of[window]) + 1]) if self.periods else None

    @property
    def clock_notes(self) -> tuple[str, ...]:
        """A note on hours that the clock repeats, each of which is two windows."""
        twice = self.periods.repeated if self.periods else ()
        if not twice:
            return ()
        return (
            f"the clock of {self.zone} repeats {', '.join(twice)}: two windows; a row whose time states no offset "
            "from UTC counts in the second",
        )

    def _group(self, moment: datetime | None, category: str | None) -> int:
        """Number of the recurring time, or of the category; -1 for none."""
        if self.category is not None:
            return self.values.index(category) if category in self.values else -1
        if self.by is None or moment is None:
            return 0
        day, hour = moment.weekday(), moment.hour
        return {"hour": hour, "weekday": day, "weekend": day // 5, "hour-of-week": 24 * day + hour}[self.by]

    @property
    def _groups(self) -> tuple[str, ...]:
        return PROFILES.get(self.by or "", self.values)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {**asdict(self), "values": list(self.values)}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        return cls(**{**record, "values": tuple(map(str, record["values"]))})

    def __str__(self) -> str:
        parts = [f"every {self.every} from {self.start} until {self.until}"] if self.every else []
        parts += [f"by {self.by}"] if self.by else []
        parts += [f"clock of {self.zone or 'UTC'}"] if self.reads_time else []
        return ", ".join(parts)
