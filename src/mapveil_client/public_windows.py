"""The public windows of a series: periods of a calendar, hours of the week and categories, which clients read too.

A window of time is bounded by readings of one clock, that of a time zone: a calendar week has 167 or 169 hours where
the clocks change. Windows of hours are bounded by moments: one hour each, 23 or 25 on such a day.
"""

from __future__ import annotations

import re
from collections import Counter
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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
        edges = tuple(edge.replace(tzinfo=None) for edge in self._edges[:-1])
        return tuple(edge for edge in (edges or (None,)) for _ in range(groups))

    @property
    def reads_time(self) -> bool:
        """Whether a row's window depends on its time."""
        return self.every is not None or self.by in PROFILES

    @property
    def reads_hours(self) -> bool:
        """Whether a day alone does not tell a row's window."""
        return self.by in ("hour", "hour-of-week") or self.counts_hours

    @property
    def counts_hours(self) -> bool:
        """Whether the periods are of hours, and so bounded by moments."""
        return self.every is not None and self._step[1] == "h"

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
        number, unit = self._step if self.every is not None else (0, "mo")
        length = LENGTHS.get(unit, timedelta()) * number
        if not length or _WEEK % length:
            raise ParameterError(
                f"per must be user: windows of {self.every or self.by} do not divide a week, so no row of theirs is of "
                "one user-week"
            )
        start = _reading(str(self.start))
        weeks = [(edge.replace(tzinfo=None) - start) // _WEEK for edge in self._edges[:-1]]
        # A clock that is set back over a week's edge does not bring the week before back.
        return np.asarray(np.maximum.accumulate(weeks)[self.period_of])

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
            period = 0 if self.every is None or moment is None else self._period(moment)
            group = self._group(moment, categories[row] if self.category is not None else None)
            found[row] = -1 if period < 0 or group < 0 else period * max(len(self._groups), 1) + group
        return found

    def ends(self, window: int) -> float | None:
        """The end of a window, seconds since 1970; None for one that recurs or is a category."""
        return None if self.every is None else float(self._moments[int(self.period_of[window]) + 1])

    @property
    def clock_notes(self) -> tuple[str, ...]:
        """A note on hours that the clock repeats, each of which is two windows."""
        edges = self._edges[:-1] if self.counts_hours else ()
        twice = [text for text, times in Counter(_text(edge, "h") for edge in edges).items() if times > 1]
        if not twice:
            return ()
        return (
            f"the clock of {self.zone} repeats {', '.join(twice)}: two windows, in the second of which are all rows "
            "whose times state no offset from UTC",
        )

    def _period(self, moment: datetime) -> int:
        """Number of the period of a moment in the windows' zone, -1 for none."""
        if self.counts_hours:
            found = int(np.searchsorted(self._moments, moment.timestamp(), side="right")) - 1
            return found if found < len(self._moments) - 1 else -1
        reading, first, (number, unit) = moment.replace(tzinfo=None), self._edges[0], self._step
        if not first <= reading < self._edges[-1]:
            return -1
        if unit == "mo":
            return (12 * (reading.year - first.year) + reading.month - first.month) // number
        return (reading - first) // (LENGTHS[unit] * number)

    def _group(self, moment: datetime | None, category: str | None) -> int:
        """Number of the recurring time, or of the category; -1 for none."""
        if self.category is not None:
            return self.values.index(category) if category in self.values else -1
        if self.by is None or moment is None:
            return 0
        day, hour = moment.weekday(), moment.hour
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
        while edges[-1] < until and len(edges) <= 2 * _MOST:
            passed = len(edges) * number
            edges.append(_months_after(start, passed) if unit == "mo" else start + passed * LENGTHS[unit])
        check(edges[-1] >= until, "windows", f"at most {_MOST}", f"more than {2 * _MOST}")
        if edges[-1] > until:
            near = " or ".join(_text(edge, unit) for edge in edges[-2:])
            raise ParameterError(
                f"until (--until) must end a window of {self.every} from {self.start}, such as {near}; got {self.until}"
            )
        return tuple(self._hours(edges)) if unit == "h" else tuple(edges)

    def _hours(self, readings: list[datetime]) -> list[datetime]:
        """The moments of readings, in order, as times of the zone.

        A reading that the clock skips is read by the offset before. One that comes again is an edge again where a whole
        period lies between: set back by an hour, a day has a window more of one hour, and none of two.
        """
        zone, least = zone_named(self.zone or "UTC"), 3600 * self._step[0]
        first, again = (
            [_moment(reading.replace(tzinfo=zone, fold=fold)) for reading in readings] for fold in (0, 1)
        )
        repeated = [later for at, later in zip(first, again, strict=True) if later - at >= least]
        moments = sorted({at for at in (*first, *repeated) if first[0] <= at <= first[-1]})
        return [(_EPOCH + timedelta(seconds=at)).astimezone(zone) for at in moments]

    @cached_property
    def _moments(self) -> IntArray:
        """Every edge of the periods in seconds since 1970."""
        zone = zone_named(self.zone or "UTC")
        edges = self._edges if self.counts_hours else (edge.replace(tzinfo=zone) for edge in self._edges)
        return np.array([_moment(edge) for edge in edges], dtype=np.int64)

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
        texts = [_text(edge, unit) for edge in edges]
        times = Counter(texts)
        return tuple(
            text if times[text] == 1 else text + offset_text(edge)
            for text, edge in zip(texts, edges, strict=True)
        )

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


def offset_text(edge: datetime) -> str:
    """The offset from UTC of an edge of hours, such as ``+02:00``."""
    return edge.isoformat(timespec="minutes")[16:]


def _moment(edge: datetime) -> int:
    """Seconds since 1970."""
    return (edge - _EPOCH) // timedelta(seconds=1)
