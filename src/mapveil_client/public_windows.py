"""The public windows of a series: periods of a calendar, hours of the week and categories, which clients read too.

A window of time is bounded by readings of one clock, that of a time zone: a calendar week has 167 or 169 hours where
the clocks change, and an hour that a clock repeats is one window of two hours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError, check

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_STEP: Final = re.compile(r"([1-9][0-9]{0,3})(h|d|w|mo)$")
LENGTHS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
"""Lengths of the units of time that have one."""
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MOST: Final = 1 << 14
_WEEK: Final = timedelta(weeks=1)

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
            named = self.start is not None or self.until is not None
            check(
                not named,
                "every (--every)",
                "given with start and until (--every with --from and --until)",
                None,
            )
        else:
            check(
                _STEP.match(self.every) is not None,
                "every (--every)",
                "a length such as 1h, 1d, 1w or 1mo",
                self.every,
            )
            if self.start is None or self.until is None:
                raise ParameterError(
                    "start and until (--from and --until) are required with every: taken from the table, the windows "
                    "would tell when somebody was there"
                )
            check(len(self._edges) > 1, "every (--every)", "at least one window long", self.every)
        check(self.count <= _MOST, "windows", f"at most {_MOST}", self.count)

    def _check_categories(self) -> None:
        texts = isinstance(self.values, Sequence) and not isinstance(self.values, str)
        if not texts or not all(isinstance(value, str) for value in self.values):
            raise ParameterError(
                f"values (--values) must be a list of texts, such as ['work', 'leisure'], got {self.values!r}"
            )
        object.__setattr__(self, "values", tuple(self.values))
        if self.by in PROFILES or self.by is None:
            check(
                not self.values, "values (--values)", "left out without a column of categories", self.values
            )
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
            self.values,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each window."""
        groups = self._groups or ("",)
        return tuple(f"{period} {group}".strip() for period in self._periods or ("",) for group in groups)

    @property
    def count(self) -> int:
        """Number of windows."""
        return max(len(self._periods), 1) * max(len(self._groups), 1)

    @property
    def starts(self) -> tuple[datetime | None, ...]:
        """The clock's reading at the start of each window; None for a recurring time or a category."""
        groups = max(len(self._groups), 1)
        return tuple(edge for edge in (self._edges[:-1] or (None,)) for _ in range(groups))

    @property
    def reads_time(self) -> bool:
        """Whether a row's window depends on its time."""
        return self.every is not None or self.by in PROFILES

    @property
    def reads_hours(self) -> bool:
        """Whether a day alone does not tell a row's window."""
        return self.by in ("hour", "hour-of-week") or (self.every is not None and self._step[1] == "h")

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
        """The week of each window, counted from ``start``, shape (windows,).

        Raises
        ------
        ParameterError
            The windows do not lie within weeks.
        """
        number, unit = self._step if self.every is not None else (0, "mo")
        length = LENGTHS.get(unit, timedelta()) * number
        if not length or _WEEK % length:
            raise ParameterError(
                f"per must be user: windows of {self.every or self.by} do not divide a week, so no row of theirs is of "
                "one user-week"
            )
        return np.asarray(self.period_of // (_WEEK // length))

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
            reading = (
                None
                if times is None
                else datetime.fromtimestamp(float(times[row]), UTC).astimezone(zone).replace(tzinfo=None)
            )
            period = 0 if self.every is None or reading is None else self._period(reading)
            group = self._group(reading, categories[row] if self.category is not None else None)
            found[row] = -1 if period < 0 or group < 0 else period * max(len(self._groups), 1) + group
        return found

    def ends(self, window: int) -> float | None:
        """The end of a window, seconds since 1970; None for one that recurs or is a category."""
        if self.every is None:
            return None
        edge = self._edges[int(self.period_of[window]) + 1]
        return edge.replace(tzinfo=zone_named(self.zone or "UTC")).timestamp()

    @property
    def clock_notes(self) -> tuple[str, ...]:
        """Notes on hours that the clock skips or repeats.

        They are windows as any other: the number of windows is the same on every device, whatever it knows of clocks.
        """
        if self.every is None or self._step[1] != "h":
            return ()
        zone, names = zone_named(self.zone or "UTC"), self._periods
        moments = [edge.replace(tzinfo=zone).timestamp() for edge in self._edges]
        lasts = np.diff(moments)
        skipped = [name for name, lasts_s in zip(names, lasts, strict=True) if lasts_s == 0]
        twice = [
            name for name, lasts_s in zip(names, lasts, strict=True) if self._step[0] == 1 and lasts_s == 7200
        ]
        noted = []
        if skipped:
            noted.append(
                f"the clock of {self.zone} skips {', '.join(skipped)}: nobody was there then, and what a map shows of "
                "it is noise"
            )
        if twice:
            noted.append(f"the clock of {self.zone} repeats {', '.join(twice)}: a window of two hours")
        return tuple(noted)

    def _period(self, reading: datetime) -> int:
        """Number of the period of a clock's reading, -1 for none."""
        first, number, unit = self._edges[0], *self._step
        if not first <= reading < self._edges[-1]:
            return -1
        if unit == "mo":
            return (12 * (reading.year - first.year) + reading.month - first.month) // number
        return (reading - first) // (LENGTHS[unit] * number)

    def _group(self, reading: datetime | None, category: str | None) -> int:
        """Number of the recurring time, or of the category; -1 for none."""
        if self.category is not None:
            return self.values.index(category) if category in self.values else -1
        if self.by is None or reading is None:
            return 0
        day, hour = reading.weekday(), reading.hour
        return {"hour": hour, "weekday": day, "weekend": day // 5, "hour-of-week": 24 * day + hour}[self.by]

    @property
    def _step(self) -> tuple[int, str]:
        found = _STEP.match(str(self.every))
        assert found is not None
        return int(found[1]), found[2]

    @cached_property
    def _edges(self) -> tuple[datetime, ...]:
        """The clock's reading at every edge of the periods."""
        if self.every is None:
            return ()
        start, until = (_reading(str(text)) for text in (self.start, self.until))
        number, unit = self._step
        if unit == "mo":
            if start != start.replace(day=1, hour=0):
                raise ParameterError(
                    f"start (--from) must be the first of a month with every {self.every}, got {self.start}"
                )
        elif unit != "h" and (start.hour or until.hour):
            raise ParameterError(f"start and until (--from, --until) must be days with every {self.every}")
        check(until > start, "until (--until)", f"after start (--from) {self.start}", self.until)
        edges = [start]
        while edges[-1] < until and len(edges) <= _MOST + 1:
            passed = len(edges) * number
            edges.append(_months_after(start, passed) if unit == "mo" else start + passed * LENGTHS[unit])
        if edges[-1] > until:
            near = " or ".join(_text(edge, unit) for edge in edges[-2:])
            raise ParameterError(
                f"until (--until) must end a window of {self.every} from {self.start}, such as {near}; got {self.until}"
            )
        return tuple(edges)

    @property
    def _periods(self) -> tuple[str, ...]:
        if self.every is None:
            return ()
        number, unit = self._step
        edges = self._edges[:-1]
        if (number, unit) == (1, "mo"):
            return tuple(f"{edge:%Y-%m}" for edge in edges)
        if (number, unit) == (1, "w") and edges[0].weekday() == 0:
            return tuple("{}-W{:02d}".format(*edge.isocalendar()[:2]) for edge in edges)
        return tuple(_text(edge, unit) for edge in edges)

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


def zone_named(name: str) -> ZoneInfo:
    """The time zone of a name.

    Raises
    ------
    ParameterError
        There is none, or the machine has no time zones.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ParameterError(
            f"zone (--time-zone) must be a name such as Europe/Paris or UTC, got {name!r}"
        ) from None


def _reading(text: str) -> datetime:
    """A day, or a whole hour, of a clock."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ParameterError(
            f"start and until (--from, --until) must be dates such as 2026-01-05, got {text!r}"
        ) from None
    if found.tzinfo is not None or found != found.replace(minute=0, second=0, microsecond=0):
        raise ParameterError(
            f"start and until (--from, --until) must be days or whole hours of the windows' own clock, got {text!r}"
        )
    return found


def _months_after(start: datetime, months: int) -> datetime:
    year, month = divmod(start.month - 1 + months, 12)
    return start.replace(year=start.year + year, month=month + 1)


def _text(edge: datetime, unit: str) -> str:
    return f"{edge:%Y-%m-%dT%H:%M}" if unit == "h" else f"{edge:%Y-%m-%d}"
