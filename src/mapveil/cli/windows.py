"""Options of the windows of a series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import name_list
from mapveil.cli.console import Console, gathered
from mapveil.mechanisms.methods import SERIES
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from fractions import Fraction

    from mapveil.cli.console import Console
    from mapveil.geo.windows import Windows
    from mapveil.maps.density_map import DensityMap
    from mapveil.maps.flow_map import FlowMap


window_error_option = click.option(
    "--window-error",
    type=float,
    metavar="USERS",
    help="Refuse more windows of a user than epsilon allows, if its smallest blocks' sums are to be this near (95 %).",
)


_K_OF_FLOWS = "Count each user 1 in at most K windows. [default: 1 divided over all windows]"
_K_OF_USERS = (
    "Count each user 1 in at most K windows. With --trust local each client draws K windows by itself. "
    "[default: 1 divided over all windows; local: 1]"
)


def windows_options(function: Callable[..., Any], *, flows: bool = False) -> Callable[..., Any]:
    """Add the options of windows; the command receives ``windows``, None without any, and ``per``, a mapping.

    The help for ``flows`` leaves out what these refuse: weeks of a user, and windows that clients draw.
    """

    def given(
        every: str | None,
        start: str | None,
        until: str | None,
        time_zone: str | None,
        by: str | None,
        values: str | None,
        per: str | None,
        windows_per_user: int | None,
        window_error: float | None,
    ) -> dict[str, Any]:
        if every is None and by is None:
            alone: dict[str, object] = {"--from": start, "--until": until, "--time-zone": time_zone}
            alone |= {"--values": values, "--per": per, "--windows-per-user": windows_per_user}
            alone |= {"--window-error": window_error}
            for name, value in alone.items():
                if value is not None:
                    raise ParameterError(f"{name} is for a series: give --every or --by too")
            return {"windows": None, "per": {}}
        from mapveil.geo.windows import Windows

        listed = () if values is None else tuple(name_list(values, "--values"))
        windows = Windows(every=every, start=start, until=until, zone=time_zone, by=by, values=listed)
        chosen = {"per": per or "user", "windows_per_user": windows_per_user, "window_error": window_error}
        return {"windows": windows, "per": chosen}

    return gathered(
        given,
        click.option(
            "--every", metavar="LENGTH", help="Release a series: windows of 1h, 1d, 1w, 1mo or multiples."
        ),
        click.option(
            "--from", "start", metavar="DATE", help="With --every: first day, or hour, of the first window."
        ),
        click.option("--until", metavar="DATE", help="With --every: end of the last window, not in it."),
        click.option(
            "--time-zone", metavar="ZONE", help="Clock of the windows, such as Europe/Paris. [default: UTC]"
        ),
        click.option(
            "--by",
            metavar="WHAT",
            help="Release a series by hour, weekday, weekend or hour-of-week, or by a column of categories.",
        ),
        click.option(
            "--values", metavar="A,B,...", help="With --by COLUMN: the public list of its categories."
        ),
        click.option(
            "--per",
            type=click.Choice(["user", "user-week"]),
            hidden=flows,
            help="With windows: who is protected by epsilon. A user's epsilons of their weeks add up. [default: user]",
        ),
        click.option(
            "--windows-per-user",
            type=int,
            metavar="K",
            help=_K_OF_FLOWS if flows else _K_OF_USERS,
        ),
        window_error_option,
    )(function)


def note_clock(console: Console, windows: Windows | None) -> None:
    """Say which clock tells the hours, where none was named."""
    if windows is not None and windows.reads_hours and windows.zone is None:
        console.note("hours are those of UTC; --time-zone ZONE names another clock, such as Europe/Paris")


def check_series(
    method: str | None,
    trust: str,
    epsilon: Fraction | None,
    *,
    merge_below: float | None,
    smooth_m: float | None,
    windows: Windows,
    outputs: Sequence[Path],
) -> None:
    """Refuse options of one map that a series has no use for, and a picture of too many windows."""
    from mapveil.maps.series_map import check_drawn

    for path in outputs:
        check_drawn(path, windows.count)
    for name, value in (("--merge-below", merge_below), ("--smooth-m", smooth_m)):
        if value is not None:
            raise ParameterError(f"{name} is for one map, and cannot be used with --every or --by")
    if trust not in SERIES:
        raise ParameterError(f"--trust must be one of {', '.join(SERIES)} for a series, got {trust}")
    row = SERIES[trust]
    if method not in (None, row.name, row.name.removesuffix("-series")):
        raise ParameterError(
            f"--method must be left out for a series, whose method is {row.name}, got {method}"
        )
    if epsilon is None:
        raise ParameterError("--epsilon is required: a series needs a budget, such as 1")


def tell_of_one_block(
    console: Console, epsilon: Fraction, options: Mapping[str, Any], windows: Windows, per: Mapping[str, Any]
) -> None:
    """Say before any charge when each window of a curator's series is measured in one block, which has no pattern.

    What is said follows from epsilon, the windows and the declared number of users, all of which are public. The blocks
    follow from the noisy sums.
    """
    from mapveil.mechanisms.multiscale_series import MultiscaleSeries
    from mapveil.trust.curator import Curator

    own = {name: per[name] for name in ("per", "windows_per_user")}
    made = SERIES["central"].make(epsilon, {**options, **own, "windows": windows})
    assert isinstance(made, MultiscaleSeries)
    assert isinstance(made.trust, Curator)
    users, unit = made.trust.users, "user-weeks" if made.per == "user-week" else "users"
    if users is None:
        console.note(
            f"each window is measured in one block, without a pattern, unless about {made.divided_from:,.0f} {unit} or "
            "more count in all windows together"
        )
    elif made.per == "user" and users * made.contribution < made.divided_from:
        console.warn(
            f"each window is measured in one block, without a pattern, unless the noisy sums find about "
            f"{made.divided_from:,.0f} users or more in all windows together, and {users:,} were declared; take fewer "
            "windows, longer ones, or a larger epsilon"
        )


def windowed_map(path: str, window: str | None, flag: str = "--window") -> DensityMap:
    """The map in a file: of one window where a flag names it, else of all of them together."""
    from mapveil.formats.read_map import read_map
    from mapveil.maps.series_map import SeriesMap

    heat = read_map(path)
    if window is None:
        return heat
    if not isinstance(heat, SeriesMap):
        raise ParameterError(f"{flag} {window}: {path} is one map, not a series; leave it out")
    return heat.window(window)


def map_or_flows(path: str, window: str | None, flag: str = "--window") -> DensityMap | FlowMap:
    """As :func:`windowed_map`, or the flows in a file of flows, of one window where it is named."""
    from mapveil.formats.read_map import HoldsFlows, read_flows
    from mapveil.maps.flow_series_map import FlowSeriesMap

    try:
        return windowed_map(path, window, flag)
    except HoldsFlows:
        flows = read_flows(path)
    if window is None:
        return flows
    if not isinstance(flows, FlowSeriesMap):
        raise ParameterError(f"{flag} {window}: {path} holds flows of one time, not a series; leave it out")
    return flows.window(window)
