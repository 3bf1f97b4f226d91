"""Calendar periods by the clock of a time zone: hours, days, weeks and months, one after another.

A period is bounded by readings of the clock: a calendar week has 167 or 169 hours where the clock changes. Periods of
hours are bounded by moments: one hour each, 23 or 25 on such a day.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_STEP: Final = re.compile(r"([1-9][0-9]{0,3})(h|d|w|mo)$")
_READING: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2})?)?(Z|[+-].*)?)?$", re.ASCII)
LENGTHS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
"""Lengths of the units of time that have one."""
MOST_WINDOWS: Final = 1 << 14
_WEEK: Final = timedelta(weeks=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Periods:
    """Periods of one length between two days or hours of a clock.

    Parameters
    ----------
    every : str
        Their length: a number and ``h``, ``d``, ``w`` or ``mo``.
    start, until : str
        First day or hour, and the one after the last.
    zone : str
        Time zone of the clock.

    Raises
    ------
    ParameterError
        A parameter is outside its range, or periods do not fit between ``start`` and ``until``.
    """

    every: str
    start: str
    until: str
    zone: str

    def __post_init__(self) -> None:
        check(
            _STEP.match(self.every) is not None,
            "every (--every)",
            "a length such as 1h, 1d, 1w or 1mo",
            self.every,
        )
        check(len(self.edges) > 1, "every (--every)", "at least one window long", self.every)

    @property
    def step(self) -> tuple[int, str]:
        """Number and unit of a period's length."""
        found = _STEP.match(self.every)
        assert found is not None
        return int(found[1]), found[2]

    @property
    def counts_hours(self) -> bool:
        """Whether the periods are of hours, and so bounded by moments."""
        return self.step[1] == "h"

    @property
    def count(self) -> int:
        """Number of periods."""
        return len(self.edges) - 1

    @cached_property
    def edges(self) -> tuple[datetime, ...]:
        """The clock's reading at every edge of the periods."""
        start, until = (_reading(text) for text in (self.start, self.until))
        number, unit = self.step
        if unit == "mo":
            if start != start.replace(day=1, hour=0):
                raise ParameterError(
                    f"start (--from) must be the first of a month with every {self.every}, got {self.start}"
                )
        elif unit != "h" and (start.hour or until.hour):
            raise ParameterError(f"start and until (--from, --until) must be days with every {self.every}")
        check(until > start, "until (--until)", f"after start (--from) {self.start}", self.until)
        edges = [start]
        while edges[-1] < until and len(edges) <= 2 * MOST_WINDOWS:
            passed = len(edges) * number
            try:
                edge = _months_after(start, passed) if unit == "mo" else start + passed * LENGTHS[unit]
            except (OverflowError, ValueError):  # of Python's dates
                raise ParameterError(
                    f"windows must end before the year 10000, and one of {self.every} (--every) from "
                    f"{_text(edges[-1], unit)} does not"
                ) from None
            edges.append(edge)
        if edges[-1] < until:
            raise ParameterError(f"windows must be at most {MOST_WINDOWS}, got more than {2 * MOST_WINDOWS}")
        if edges[-1] > until:
            near = " or ".join(_text(edge, unit) for edge in edges[1:][-2:])
            raise ParameterError(
                f"until (--until) must end a window of {self.every} from {self.start}, such as {near}; got {self.until}"
            )
        return tuple(self._hours(edges)) if unit == "h" else tuple(edges)

    @cached_property
    def moments(self) -> IntArray:
        """Every edge of the periods in seconds since 1970."""
        zone = zone_named(self.zone)
        edges = self.edges if self.counts_hours else (edge.replace(tzinfo=zone) for edge in self.edges)
        return np.array([_moment(edge) for edge in edges], dtype=np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each period; a repeated hour has its offset from UTC."""
        number, unit = self.step
        edges = self.edges[:-1]
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
    def weeks(self) -> IntArray | None:
        """The week of each period by the clock, counted from ``start``; None where periods do not lie within weeks."""
        number, unit = self.step
        length = LENGTHS.get(unit, timedelta()) * number
        if not length or _WEEK % length:
            return None
        start = _reading(self.start)
        weeks = [(edge.replace(tzinfo=None) - start) // _WEEK for edge in self.edges[:-1]]
        # A clock that is set back over a week's edge does not bring the week before back.
        return np.maximum.accumulate(np.array(weeks, dtype=np.int64))

    @property
    def repeated(self) -> tuple[str, ...]:
        """Hours that the clock repeats, each of which is two periods."""
        edges = self.edges[:-1] if self.counts_hours else ()
        return tuple(text for text, times in Counter(_text(edge, "h") for edge in edges).items() if times > 1)

    def number(self, moment: datetime) -> int:
        """Number of the period of a moment in the periods' zone, -1 for none."""
        if self.counts_hours:
            found = int(np.searchsorted(self.moments, moment.timestamp(), side="right")) - 1
            return found if found < len(self.moments) - 1 else -1
        reading, first, (number, unit) = moment.replace(tzinfo=None), self.edges[0], self.step
        if not first <= reading < self.edges[-1]:
            return -1
        if unit == "mo":
            return (12 * (reading.year - first.year) + reading.month - first.month) // number
        return (reading - first) // (LENGTHS[unit] * number)

    def _hours(self, readings: list[datetime]) -> list[datetime]:
        """The moments of readings, in order, as times of the zone.

        A reading that the clock skips is read by the offset before. One that comes again is an edge again where a whole
        period lies between: set back by an hour, a day has a window more of one hour, and none of two.
        """
        zone, least = zone_named(self.zone), 3600 * self.step[0]
        first, again = (
            [_moment(reading.replace(tzinfo=zone, fold=fold)) for reading in readings] for fold in (0, 1)
        )
        repeated = [later for at, later in zip(first, again, strict=True) if later - at >= least]
        moments = sorted({at for at in (*first, *repeated) if first[0] <= at <= first[-1]})
        return [(_EPOCH + timedelta(seconds=at)).astimezone(zone) for at in moments]


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
        # Of what ISO 8601 allows, what every client reads.
        found = datetime.fromisoformat(text if _READING.match(text) else "")
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
