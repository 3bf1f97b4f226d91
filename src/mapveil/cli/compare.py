"""``mapveil compare``: methods side by side on data you may look at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mapveil.cli.arguments import epsilon_list, name_list, parse_region
from mapveil.cli.console import Console, console_options
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.tiling import Tiling


@click.command("compare")
@click.argument("source", metavar="INPUT|GRID")
@click.option(
    "--methods",
    default="multiscale,emd,adaptive-grid,laplace",
    show_default=True,
    help="Names separated by commas; options as name:key=value.",
)
@click.option("--epsilon", default="0.5,1,2", show_default=True, help="Budgets separated by commas.")
@click.option("--trials", default=10, show_default=True, help="Repetitions of each.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder for the report: CSV, PNG, one HTML page."
)
@click.option("--region", help="W,S,E,N in degrees, or a polygon file (needed for points).")
@click.option("--tiling", default=None, help="As for 'release'. [default: quadtree:8]")
@click.option("--users", type=int, help="Draw this many users in each trial. [default: all]")
@click.option(
    "--metrics", default="similarity,pearson,kl,emd", show_default=True, help="Separated by commas."
)
@click.option(
    "--sigma-cells", type=float, default=0.0, help="Smooth both maps by this many cells before measuring."
)
@click.option("--sigma-m", type=float, help="The same in metres.")
@click.option("--user", help="Column of user ids.")
@click.option("--lon", help="Column of longitudes.")
@click.option("--lat", help="Column of latitudes.")
@click.option("--weight", help="Column of weights.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The same seed gives the same comparison."
)
@click.option("--workers", type=int, default=1, show_default=True, help="Processes.")
@console_options
def command(
    console: Console,
    source: str,
    methods: str,
    epsilon: str,
    trials: int,
    output: Path | None,
    region: str | None,
    tiling: str | None,
    users: int | None,
    metrics: str,
    sigma_cells: float,
    sigma_m: float | None,
    user: str | None,
    lon: str | None,
    lat: str | None,
    weight: str | None,
    seed: int,
    workers: int,
) -> None:
    """Compare methods on your own data. The report reads the truth: it is NOT private.

    \b
    Examples:
      mapveil compare grid.npz --methods multiscale,emd --epsilon 0.5,1,2 --trials 5 -o report/
      mapveil compare checkins.parquet --region -74.03,40.69,-73.90,40.83 --users 200 -o report/
      mapveil compare grid.npz --methods emd,emd:width=200 --metrics kl,emd --json
    """  # fmt: skip
    from mapveil.evaluation.compare import compare
    from mapveil.evaluation.report import write_comparison
    from mapveil.geo.points import Points
    from mapveil.geo.read_points import read_source

    budgets, names = epsilon_list(epsilon), name_list(methods, "--methods")
    place = parse_region(region)
    read = read_source(source, user=user, lon=lon, lat=lat, weight=weight)
    cells: Tiling | None = None
    if isinstance(read, Points):
        if place is None:
            raise InputError(
                f"{source}: a table of points needs --region W,S,E,N (degrees) or a polygon file"
            )
        from mapveil.geo.parse_tiling import parse_tiling

        cells = parse_tiling(tiling or "quadtree:8", place)
    elif tiling or region:
        raise InputError(
            f"{source}: a raster of counts brings its own cells; leave out --region and --tiling"
        )
    with console.progress() as progress:
        found = compare(
            read,
            cells,
            names,
            budgets,
            trials,
            users=users,
            sigma_cells=sigma_cells,
            sigma_m=sigma_m,
            metrics=name_list(metrics, "--metrics"),
            seed=seed,
            workers=workers,
            progress=progress,
        )
    written = write_comparison(found, output) if output else []
    console.warn("a comparison reads the true data: do not publish its figures")
    lines = [f"{'method':<24} {'epsilon':>8} {'metric':<14} {'mean':>10}  95 % interval"]
    for row in found.summary():
        interval = f"{row.low:.4g} .. {row.high:.4g}" if math.isfinite(row.low) else "needs two trials"
        lines.append(f"{row.method:<24} {row.epsilon:>8g} {row.metric:<14} {row.mean:>10.4g}  {interval}")
    lines += [f"wrote {path}" for path in written]
    record = {
        "settings": found.settings,
        "summary": [row._asdict() for row in found.summary()],
        "written": [str(path) for path in written],
        "private": False,
    }
    console.result("\n".join(lines), record)
