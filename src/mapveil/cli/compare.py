"""``mapveil compare``: methods side by side on data you may look at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import (
    epsilons_option,
    names_option,
    places_option,
    region_option,
    seed_option,
    table_source,
    tiling_option,
)

if TYPE_CHECKING:
    from mapveil.geo.region import Region


@click.command("compare")
@click.argument("source", metavar="INPUT|GRID")
@names_option(
    "--methods",
    "multiscale,emd,adaptive-grid,laplace",
    "Methods, separated by commas; options as name:key=value.",
)
@epsilons_option
@click.option("--trials", default=10, show_default=True, help="Repetitions of each method and epsilon.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder for the report: CSV, PNG, one HTML page."
)
@region_option("W,S,E,N in degrees, or a polygon file (needed for points).")
@tiling_option()
@places_option
@click.option("--users", type=int, help="Number of users to draw in each trial. [default: all]")
@names_option("--metrics", "similarity,pearson,kl,emd", "Metrics, separated by commas.")
@click.option(
    "--sigma-cells", type=float, default=0.0, help="Smooth both maps by this many cells before measuring."
)
@click.option("--sigma-m", type=float, help="Smooth both maps by this many metres before measuring.")
@table_source("user", "lon", "lat", "weight")
@seed_option("comparison")
@click.option("--workers", type=int, default=1, show_default=True, help="Number of processes.")
@console_options
def command(
    console: Console,
    source: str,
    region: Region | None,
    tiling: str | None,
    places_are_public: bool,
    columns: dict[str, Any],
    output: Path | None,
    **parameters: Any,
) -> None:
    """Compare methods on your own data. The report reads the truth: it is NOT private.

    \b
    Examples:
      mapveil compare grid.npz --methods multiscale,emd --epsilon 0.5,1,2 --trials 5 -o report/
      mapveil compare checkins.parquet --region -74.03,40.69,-73.90,40.83 --users 200 -o report/
      mapveil compare grid.npz --methods emd,emd:width=200 --metrics kl,emd --json
    """  # fmt: skip
    from mapveil.evaluation.compare import compare
    from mapveil.evaluation.html_report import write_comparison
    from mapveil.geo.parse_tiling import tiling_for
    from mapveil.geo.points import Points
    from mapveil.geo.read_points import read_source

    read = read_source(source, **columns)
    if isinstance(read, Points):
        console.note_columns(read)
    cells = tiling_for(read, tiling, region, places_are_public=places_are_public)
    with console.progress() as progress:
        found = compare(read, cells, **parameters, progress=progress)
    written = write_comparison(found, output) if output else []
    console.warn("a comparison reads the true data: do not publish its figures")
    lines = [f"counted: {found.settings['counted']}; distances: {found.settings['distances']}"]
    lines += [f"{'method':<24} {'epsilon':>8} {'metric':<14} {'mean':>10}  95 % interval"]
    for row in found.summary():
        interval = f"{row.low:.4g} .. {row.high:.4g}" if math.isfinite(row.low) else "needs two trials"
        lines.append(f"{row.method:<24} {row.epsilon:>8g} {row.metric:<14} {row.mean:>10.4g}  {interval}")
    summary = [row._asdict() for row in found.summary()]
    record = {"settings": found.settings, "summary": summary, "private": False}
    console.result("\n".join(lines), record, written)
