"""``mapveil signal sums``: a coverage map from a pilot and noisy sums of residuals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options, counted, gathered, save_all
from mapveil.cli.options import (
    column_option,
    drawing_options,
    epsilon_option,
    method_options,
    region_option,
    tiling_option,
)
from mapveil.cli.outputs import release_options
from mapveil.cli.run_file import Rerunnable, titled
from mapveil.maps.released import SUFFIXES

if TYPE_CHECKING:
    from mapveil.cli.options import Drawing
    from mapveil.geo.region import Region
    from mapveil.maps.signal_map import SignalMap
    from mapveil.privacy.account import Account


def cells_in_words(coverage: SignalMap) -> str:
    """The numbers of a coverage map's cells in one line."""
    found, told = coverage.coverage(), int(coverage.holes_told().sum())
    seen = int((coverage.known & ~coverage.holes & ~coverage.unmeasured).sum())
    return (
        f"{counted(found.covered, 'cell')} covered ({seen:,} of them {coverage.evidence}), "
        f"{counted(found.holes, 'hole')} below {coverage.hole_dbm:g} dBm "
        f"({told:,} told from covered ground), {found.unknown:,} unknown; "
        f"{int(coverage.unmeasured.sum()):,} extrapolated"
    )


hole_option = click.option(
    "--hole",
    "hole_dbm",
    type=click.FloatRange(-200, 0),
    default=-110.0,
    show_default=True,
    help="Below this mean a cell is a hole, dBm, which are negative.",
)
"""Add ``--hole``."""

_COLUMNS = ("user", "lat", "lon", "rss", "time")


@click.command("sums", cls=Rerunnable)
@click.argument("source", metavar="INPUT")
@click.option("--pilot", required=True, help="Measurements of people who opted in, whom nothing protects.")
@region_option(required=True)
@tiling_option("quadtree:7")
@epsilon_option("The whole budget of one unit.", required=True)
@click.option(
    "--unit",
    type=click.Choice(["user", "user's day", "trace"]),
    default="user",
    show_default=True,
    help="What the guarantee is about: a user; or a user's day, or a trace, whose epsilons add up.",
)
@click.option(
    "--trust",
    type=click.Choice(["central", "distributed", "operators", "local"]),
    default="central",
    show_default=True,
    help="Who adds: a trusted curator; simulated clients by secure aggregation or two operators; or nobody: every "
    "client randomizes its own report.",
)
@method_options(of="sums")
@click.option("--clip-db", type=click.FloatRange(0.01, 200), help="Largest residual that counts, dB.")
@hole_option
@drawing_options
@release_options(SUFFIXES, ".tif .parquet .geojson .gpkg .pmtiles .csv .png .html")
@gathered(lambda **named: {"columns": named}, *(column_option(name) for name in _COLUMNS))
@console_options
def sums(
    console: Console,
    source: str,
    pilot: str,
    region: Region,
    tiling: str | None,
    epsilon: Any,
    unit: str,
    trust: str,
    options: dict[str, Any],
    clip_db: float | None,
    hole_dbm: float,
    drawing: Drawing,
    outputs: tuple[Path, ...],
    account: Account | None,
    seed: int | None,
    accept_large_epsilon: bool,
    columns: dict[str, Any],
) -> None:
    """Map coverage from noisy sums of what phones measured against a pilot's map.

    INPUT holds the true measurements of those who report, with columns for a user, a location and a signal strength in
    dBm. Each user contributes, with a weight of one in all, how far they measured from the map of the pilot; only noisy
    sums over squares of several sizes are revealed, and correct the map.

    \b
    Examples:
      mapveil signal sums measurements.parquet --pilot pilot.parquet --region 23.99,35.50,24.08,35.54 \\
          --epsilon 1 --no-ledger -o coverage.html
      mapveil signal sums measurements.parquet --pilot pilot.parquet --region 23.99,35.50,24.08,35.54 \\
          --epsilon 1 --unit "user's day" --trust distributed -o coverage.parquet
    """
    from mapveil.analysis.coverage_sums import coverage_by_sums
    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.geo.read_measurements import read_measurements
    from mapveil.mechanisms.methods import signal_sums
    from mapveil.privacy.account import writing

    cells = parse_tiling(tiling or "quadtree:7", region)
    asked = {**options, "unit": unit}
    mechanism = signal_sums(epsilon, trust, asked, accept_large_epsilon=accept_large_epsilon)
    with console.progress() as progress:
        progress("read", 0.0)
        reports, opted = (read_measurements(each, features=(), **columns) for each in (source, pilot))
        progress("read", 1.0)
        made = coverage_by_sums(
            reports, opted, cells, mechanism, clip_db=clip_db, hole_dbm=hole_dbm, account=account, rng=seed,
            progress=progress,
        )  # fmt: skip
        with writing(account, made.guarantee):
            save_all(outputs, titled(made, drawing).save, progress)
    if unit != "user":
        console.warn(f"the guarantee is about one {unit}: a user of ten has ten times the epsilon")
    lines = [cells_in_words(made)]
    console.answer(outputs, made, account if unit == "user" else None, lines=lines, seed=seed)
