"""The rule by which a map counts a user in windows of time, so that only maps of one rule are compared.

A map of a series states its windows and rule in its parameters, a window of a live series in the entry ``series``
(:func:`live_window`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mapveil.geo.windows import Windows
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.maps.released import ReleasedMap
from mapveil.maps.series_map import SeriesMap
from mapveil_client.errors import InputError


class Counting(NamedTuple):
    """The number that a user counts as in a map, and the windows of the map."""

    contribution: str
    windows: str | None  # their length and kind; None for a map of no window


def live_window(
    series: str, windows: Windows, name: str, released: int, *, most: int, run: int | None
) -> dict[str, Any]:
    """The parameters of a map of a window of a live series, JSON-ready.

    Parameters
    ----------
    series : str
        Random id of the series.
    windows : Windows
        All its windows.
    name : str
        Name of the window.
    released : int
        Windows of the series that were released, this one among them.
    most : int
        k: a user counts in the first k windows that they are in.
    run : int, optional
        Windows of a protected run, in each of which a user counts.
    """
    about = {"id": series, "windows": windows.to_dict(), "window": name, "released": released}
    return {"series": about | ({"windows_per_user": most} if run is None else {"w_event": run})}


def check_counted_alike(before: ReleasedMap, after: ReleasedMap) -> None:
    """Refuse maps that count a user by different rules, whose difference is one of the rules.

    Raises
    ------
    InputError
        A user contributes differently to both, or the windows have different lengths.
    """
    one, two = _counting(before), _counting(after)
    if one.contribution != two.contribution:
        raise InputError(
            f"the maps count users differently, so a change would be one of counting: a user counts "
            f"{one.contribution} in one and {two.contribution} in the other; release both alike"
        )
    if one.windows is not None and two.windows is not None and one.windows != two.windows:
        raise InputError(
            f"the maps are of different windows: {one.windows} and {two.windows}, and longer ones hold more users; "
            "release both with windows of one length"
        )


def exhaustion_note(released: ReleasedMap) -> tuple[str, ...]:
    """A note on a window of a live series in which users may be missing who used up their windows before."""
    series = _live(released)
    most = series.get("windows_per_user")
    if most is None or series["released"] <= most:
        return ()
    windows = "window that they are" if most == 1 else f"{most} windows that they are"
    return (
        f"{series['window']} is window {series['released']} of a live series, and a user counts only in the first "
        f"{windows} in: whoever has used them up is missing, so a fall may be exhaustion and no change",
    )


def exhaustion_notes(*maps: ReleasedMap) -> tuple[str, ...]:
    """The :func:`exhaustion_note` of each map."""
    return tuple(note for each in maps for note in exhaustion_note(each))


def length_note(
    before: ReleasedMap, after: ReleasedMap, names: tuple[str | None, str | None] = (None, None)
) -> tuple[str, ...]:
    """A note on two windows of unequal length; ``names`` are those of windows of maps of several."""
    named, found = [], []
    for each, name in zip((before, after), names, strict=True):
        live = _live(each)
        record, window = live.get("windows", each.parameters.get("windows")), live.get("window", name)
        if not isinstance(record, dict) or window is None:
            return ()
        windows = Windows.from_dict(record)
        named.append(window)
        found.append(windows.lengths(windows.index(window)))
    one, two = found
    for unit in one:
        if one[unit] != two.get(unit, one[unit]):
            apart = f"{one[unit]} and {two[unit]} {unit}"
            return (f"{named[0]} and {named[1]} have {apart}: a difference may be that of the {unit}",)
    return ()


def are_one_series(before: ReleasedMap, after: ReleasedMap) -> bool:
    """Whether both maps are windows of one series, which share its promise."""
    one, two = _live(before), _live(after)
    if one and two:
        return bool(one["id"] == two["id"])
    charged = [each.guarantee.account for each in (before, after)]
    return charged[0] is not None and charged[1] is not None and charged[0].entries == charged[1].entries


def _live(released: ReleasedMap) -> dict[str, Any]:
    found = released.parameters.get("series")
    return found if isinstance(found, dict) and "released" in found else {}


def _counting(released: ReleasedMap) -> Counting:
    live, parameters = _live(released), released.parameters
    if live:  # users who may have used up their windows are told of by a note
        return Counting("1", _length(live["windows"]))
    if not isinstance(parameters.get("windows"), dict):
        return Counting("1", None)
    count, most = Windows.from_dict(parameters["windows"]).count, parameters.get("windows_per_user")
    together = isinstance(released, SeriesMap | FlowSeriesMap)
    windows = None if together else _length(parameters["windows"])
    if parameters.get("per") == "user-week":
        return Counting(
            f"1 in each week of {count} windows together" if together else "1 in each week", windows
        )
    if most is not None:
        counted = f"1 in each of at most {most} of {count} windows"
        return Counting(f"{counted}, together" if together else counted, windows)
    return Counting("1 over all windows together" if together else f"1 divided over {count} windows", windows)


def _length(windows: dict[str, Any]) -> str:
    every, by = windows["every"], windows["by"]
    return " ".join((*((f"every {every}",) if every else ()), *((f"by {by}",) if by else ())))
