"""``mapveil series``: a live stream of windows under one promise."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import epsilon_option, ledger_option, region_option, table_source, tiling_option
from mapveil.cli.outputs import outputs
from mapveil.cli.windows import window_error_option
from mapveil.maps.released import SUFFIXES
from mapveil_client.epsilon import readable
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from mapveil.geo.region import Region
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.mechanisms.series_status import SeriesStatus
    from mapveil.privacy.ledger import Ledger

_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_maps = ".tif .parquet .geojson .gpkg .csv .png .html"


@click.group("series")
def command() -> None:
    """Release the map of each window as its table arrives, with one promise over all of them.

    FILE is private: it holds how many windows each user counted in, by a keyed hash, and the key. Epsilon is charged
    once, at the start, to the account of the series.

    \b
    Examples:
      mapveil series start city.series --name city --region city.geojson --tiling quadtree:6 \\
          --every 1w --from 2026-01-05 --until 2027-01-04 --windows-per-user 8 --epsilon 2
      mapveil series add city.series visits.parquet --window 2026-W03 -o 2026-W03.parquet
      mapveil series status city.series
      mapveil series map city.series 2026-W02 -o 2026-W02.html
    """


@command.command("start")
@_file
@click.option("--name", required=True, help="Name of the account, which the people of every window join.")
@region_option(required=True)
@tiling_option("as deep as --users and the epsilon of a window allow, quadtree:8 without")
@click.option(
    "--users",
    type=int,
    metavar="N",
    help="Public estimate of the users of a window, which chooses the cells where --tiling is not given.",
)
@click.option(
    "--every", required=True, metavar="LENGTH", help="Length of a window: 1h, 1d, 1w, 1mo or multiples."
)
@click.option(
    "--from", "start", required=True, metavar="DATE", help="First day, or hour, of the first window."
)
@click.option("--until", required=True, metavar="DATE", help="End of the last window, not in it.")
@click.option(
    "--time-zone", metavar="ZONE", help="Clock of the windows, such as Europe/Paris. [default: UTC]"
)
@click.option(
    "--windows-per-user",
    type=int,
    metavar="K",
    help="Windows that a user may count in, the first K. [default: all]",
)
@click.option(
    "--w-event",
    type=int,
    metavar="W",
    help="Let epsilon be for a user's rows in any W consecutive windows, instead of in all: a window that noise does "
    "not tell from the last one published is not published again.",
)
@window_error_option
@epsilon_option("The privacy budget of a user over all windows, such as 2.", required=True)
@ledger_option
@click.option("--no-ledger", is_flag=True, help="Do not charge the series to an account.")
@click.option(
    "--accept-large-epsilon", is_flag=True, help="Allow an epsilon above 20, or a delta above 0.01."
)
@console_options
def start_series(
    console: Console,
    file: Path,
    name: str,
    region: Region,
    tiling: str | None,
    users: int | None,
    every: str,
    start: str,
    until: str,
    time_zone: str | None,
    windows_per_user: int | None,
    w_event: int | None,
    window_error: float | None,
    epsilon: Fraction,
    ledger: Path | None,
    no_ledger: bool,
    accept_large_epsilon: bool,
) -> None:
    """Start a series, and charge its epsilon once."""
    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.geo.windows import Windows
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.privacy.ledger import Ledger

    windows = Windows(every=every, start=start, until=until, zone=time_zone)
    parts = max(windows_per_user or windows.count, 1) if w_event is None else 2 * max(w_event, 1)
    check(tiling is None or users is None, "--users", "left out with --tiling, which it would choose", users)
    tiling = tiling or _default_tiling(console, users, epsilon / parts)
    opened = None if no_ledger else Ledger(ledger)
    LiveSeries.start(
        file,
        name,
        windows,
        parse_tiling(tiling, region),
        epsilon=epsilon,
        windows_per_user=windows_per_user,
        w_event=w_event,
        window_error=window_error,
        ledger=opened,
        accept_large_epsilon=accept_large_epsilon,
    )
    _tell(console, file, opened)


def _default_tiling(console: Console, users: int | None, each: Fraction) -> str:
    """The cells where none are asked for, by the epsilon that a window has at least; said before the charge."""
    from mapveil.geo.parse_tiling import DEFAULT_TILING
    from mapveil.mechanisms.default_tiling import declared_tiling
    from mapveil.mechanisms.multiscale import Multiscale

    if users is not None:
        check(users >= 1, "--users", "at least 1", users)
        made = declared_tiling(users, each)
        console.note(f"cells: {made.reason}")
        return made.spec
    noise = math.sqrt(2) / float(Multiscale(epsilon=each).curators_last_budget)
    console.note(
        f"cells: {DEFAULT_TILING}, because no number of users was declared; with epsilon {readable(each)} a window the "
        f"noise on the sum of a smallest block deviates by {noise:.2g} users, which cells of few users do not rise "
        "above: --users N chooses cells by an estimate of a window's users, or give --tiling"
    )
    return DEFAULT_TILING


@command.command("add")
@_file
@click.argument("source", metavar="INPUT")
@click.option(
    "--window",
    help="Name of the window, such as 2026-W34; windows before it that were not released never can be. [default: the "
    "one after the last, if every row lies in it]",
)
@click.option(
    "--nobody", is_flag=True, help="Release a map of noise if no row lies in the window of --window."
)
@table_source("user", "lon", "lat", "time", "weight")
@ledger_option
@click.option(
    "--other-people",
    metavar="REASON",
    help="State that these people are others than those of accounts with the same ids.",
)
@outputs(SUFFIXES, _maps)
@console_options
def add_window(
    console: Console,
    file: Path,
    source: str,
    window: str | None,
    nobody: bool,
    columns: dict[str, Any],
    ledger: Path | None,
    other_people: str | None,
    outputs: tuple[Path, ...],
) -> None:
    """Release the map of the next window; it costs nothing beyond what the start was charged."""
    from mapveil.geo.read_points import read_points
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.mechanisms.series_file import short_list
    from mapveil.privacy.account import Account
    from mapveil.privacy.ledger import Ledger

    series = LiveSeries(file)
    charged = series.status().charged
    if ledger is not None and not charged:
        raise ParameterError(f"--ledger must be left out: {file} was started without a ledger")
    points = read_points(source, **columns)
    console.note_columns(points)
    opened = Ledger(ledger) if charged else None
    passed = series.passed_over(window)
    if passed:
        console.warn(f"{window} passes over {short_list(passed)}: no map of them can be released any more")
    with console.progress() as progress:
        heat = series.add(points, window, ledger=opened, other_people=other_people, nobody=nobody)
        save_all(outputs, heat.save, progress)
    if opened is not None:
        series.written(outputs, ledger=opened)
    console.answer(outputs, heat, None if opened is None else Account(ledger=opened))


@command.command("map")
@_file
@click.argument("window", metavar="WINDOW")
@ledger_option
@outputs(SUFFIXES, _maps)
@console_options
def write_window(
    console: Console, file: Path, window: str, ledger: Path | None, outputs: tuple[Path, ...]
) -> None:
    """Write the map of a window again, as it was released; it costs nothing.

    The ledger that the series was charged to notes the files, so that 'mapveil ledger sign' signs them.
    """
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.privacy.ledger import Ledger
    from mapveil.privacy.ledger_records import default_ledger_path

    series = LiveSeries(file)
    heat = series.window(window)
    charged = heat.guarantee.account is not None
    _check_ledger(series, ledger)
    path = ledger or default_ledger_path()
    opened = Ledger(path) if charged and path.exists() else None
    with console.progress() as progress:
        save_all(outputs, heat.save, progress)
    if opened is not None and series.charged_to(opened):
        series.written(outputs, ledger=opened)
    elif charged:
        console.warn(
            f"{path} has no charge of this series, so it does not sign the files; name its ledger (--ledger)"
        )
    console.answer(outputs, heat, None, free=heat.guarantee.account is not None)


@command.command("status")
@_file
@ledger_option
@console_options
def show_status(console: Console, file: Path, ledger: Path | None) -> None:
    """Show which windows were released, what is promised and what was charged."""
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.privacy.ledger import Ledger
    from mapveil.privacy.ledger_records import default_ledger_path

    series = LiveSeries(file)
    charged = series.status().charged
    if ledger is not None and not charged:
        raise ParameterError(f"--ledger must be left out: {file} was started without a ledger")
    _check_ledger(series, ledger)
    path = ledger or default_ledger_path()
    _tell(console, file, Ledger(path) if charged and path.exists() else None)


def _check_ledger(series: LiveSeries, ledger: Path | None) -> None:
    """Refuse a ledger that was named and has no charge of the series."""
    from mapveil.privacy.ledger import Ledger

    if ledger is not None and not (ledger.exists() and series.charged_to(Ledger(ledger))):
        raise ParameterError(f"--ledger must be the one that {series.path} was charged to, got {ledger}")


def _tell(console: Console, file: Path, ledger: Ledger | None) -> None:
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.mechanisms.series_file import short_list

    found = LiveSeries(file).status(ledger=ledger)
    whole, each = readable(found.epsilon), readable(found.each)
    if found.run is None:
        text = f"epsilon {whole} for a user over all windows, {each} for each of at most {found.windows_per_user}"
    else:
        text = f"epsilon {whole} for a user's rows in any {found.run} consecutive windows, {each} at most for one"
    stand_ins = found.stand_ins
    maps = [name + f" (the map of {stand_ins.get(name)})" * (name in stand_ins) for name in found.released]
    lines = [
        f"series {found.name}: {text}",
        f"charged: {_charge(found)}",
        f"windows: {found.windows}",
        f"released: {', '.join(maps) or 'none'}",
    ]
    if found.passed_over:
        lines.append(f"passed over for good: {short_list(found.passed_over)}")
    if found.used_up_after is not None:
        lines.append(
            f"users: after {found.used_up_after} whoever counted in {found.windows_per_user} windows is missing, so a "
            "fall may be exhaustion"
        )
    ended = "none, the charge was annulled" if found.annulled else "none, the series has ended"
    lines.append(f"next: {found.next or ended}")
    record = {
        "name": found.name,
        "windows": found.windows,
        "epsilon": str(found.epsilon),
        "epsilon_of_a_window": str(found.each),
        "epsilon_of_all_windows": str(found.whole),
        "windows_per_user": str(found.windows_per_user),
    }
    record |= {} if found.run is None else {"w_event": str(found.run)}
    account = found.account
    charge: dict[str, Any] | None = None
    if account is not None and not found.annulled:
        amounts = {"spent": account.spent, "budget": account.budget}
        charge = {"name": account.name} | {name: str(value) for name, value in amounts.items()}
    told = {
        "account": charge,
        "annulled": found.annulled,
        "released": list(found.released),
        "stand_ins": dict(stand_ins),
        "passed_over": list(found.passed_over),
        "used_up_after": found.used_up_after,
        "next": found.next,
    }
    console.result("\n".join(lines), {**record, **told}, ())


def _charge(found: SeriesStatus) -> str:
    """The charge of a series, as far as its ledger was read."""
    if not found.charged:
        return f"to no account; a user's epsilon over all windows is {readable(found.whole)}"
    if found.annulled:
        return "nothing, for the charge was annulled"
    if found.account is None:
        return f"epsilon {readable(found.whole)}, to another ledger; name it for what is left: --ledger FILE"
    return f"epsilon {readable(found.whole)} to account {found.account.name}: {found.account.standing}"
