"""``mapveil series``: a live stream of windows under one promise."""

from __future__ import annotations

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
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.geo.region import Region

_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_maps = ".tif .parquet .geojson .gpkg .csv .png .html"


@click.group("series")
def command() -> None:
    """Release the map of each window as its table arrives, with one promise over all of them.

    FILE is private: it holds how many windows each user counted in, by a keyed hash, and the key. Epsilon is charged
    once, at the start, to the account of the series.

    \b
    Examples:
      mapveil series start city-2027.series --name city --region city.geojson --tiling quadtree:6 \\
          --every 1w --from 2027-01-04 --until 2028-01-03 --windows-per-user 8 --epsilon 2
      mapveil series add city.series visits.parquet --window 2026-W03 -o 2026-W03.parquet
      mapveil series status city.series
      mapveil series map city.series 2026-W02 -o 2026-W02.html
    """


@command.command("start")
@_file
@click.option("--name", required=True, help="Name of the account, which the people of every window join.")
@region_option(required=True)
@tiling_option()
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
    from mapveil.geo.parse_tiling import DEFAULT_TILING, parse_tiling
    from mapveil.geo.windows import Windows
    from mapveil.mechanisms.live_series import LiveSeries
    from mapveil.privacy.ledger import Ledger

    windows = Windows(every=every, start=start, until=until, zone=time_zone)
    LiveSeries.start(
        file,
        name,
        windows,
        parse_tiling(tiling or DEFAULT_TILING, region),
        epsilon=epsilon,
        windows_per_user=windows_per_user,
        w_event=w_event,
        window_error=window_error,
        ledger=None if no_ledger else Ledger(ledger),
        accept_large_epsilon=accept_large_epsilon,
    )
    _tell(console, file)


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
    if ledger is not None and not (charged and ledger.exists() and series.charged_to(Ledger(ledger))):
        raise ParameterError(f"--ledger must be the one that {file} was charged to, got {ledger}")
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
@console_options
def show_status(console: Console, file: Path) -> None:
    """Show which windows were released, and what is promised."""
    _tell(console, file)


def _tell(console: Console, file: Path) -> None:
    from mapveil.mechanisms.live_series import LiveSeries

    found = LiveSeries(file).status()
    whole, each = readable(found.epsilon), readable(found.each)
    if found.run is None:
        text = f"epsilon {whole} for a user over all windows, {each} for each of at most {found.windows_per_user}"
    else:
        text = f"epsilon {whole} for a user's rows in any {found.run} consecutive windows, {each} at most for one"
    lines = [
        f"series {found.name}: {text}",
        f"windows: {found.windows}",
        f"released: {', '.join(found.released) or 'none'}",
        f"next: {found.next or 'none, the series has ended'}",
    ]
    record = {
        "name": found.name,
        "windows": found.windows,
        "epsilon": str(found.epsilon),
        "epsilon_of_a_window": str(found.each),
    }
    record |= {"windows_per_user": str(found.windows_per_user)}
    record |= {} if found.run is None else {"w_event": str(found.run)}
    console.result("\n".join(lines), {**record, "released": list(found.released), "next": found.next}, ())
