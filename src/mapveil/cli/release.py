"""``mapveil release``: from a table to a map that may be published."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.clusters import read_cluster
from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import (
    CHOSEN_TILING,
    DECLARED_USERS,
    drawing_options,
    epsilon_option,
    method_options,
    places_option,
    prior_option,
    region_option,
    table_source,
    tiling_option,
)
from mapveil.cli.outputs import release_options
from mapveil.cli.run_file import Rerunnable, titled
from mapveil.cli.windows import check_series, note_clock, tell_of_one_block, windows_options
from mapveil.maps.released import ANIMATIONS, SUFFIXES
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method
from mapveil_client.epsilon import readable
from mapveil_client.errors import ParameterError, check

if TYPE_CHECKING:
    from mapveil.cli.options import Drawing
    from mapveil.geo.region import Region
    from mapveil.geo.windows import Windows
    from mapveil.privacy.account import Account


@click.command("release", cls=Rerunnable)
@click.argument("source", metavar="INPUT", required=False)
@region_option("W,S,E,N in degrees, or a polygon file. Without it, a tenth of epsilon finds one.")
@tiling_option(CHOSEN_TILING)
@places_option
@click.option("--method", help="Method, see 'mapveil methods'. [default: the best of the trust model]")
@click.option(
    "--trust",
    default="central",
    show_default=True,
    help=f"Who may see raw locations: {', '.join(DEFAULT_METHODS)}.",
)
@click.option(
    "--sums",
    type=click.Choice(["one-server", "operators"]),
    help="With --trust distributed: who adds up reports, one server or two operators (the same as --trust operators). "
    "[default: one-server]",
)
@epsilon_option("The whole privacy budget of this map, such as 1, 0.5 or 1/3.")
@method_options(such=DECLARED_USERS)
@click.option(
    "--aim",
    type=click.Choice(["totals"]),
    help="Measure for totals of districts. The promise is the same. [default: a compromise]",
)
@prior_option
@click.option(
    "--secure-sum",
    type=click.Choice(["ideal", "protocol", "active"]),
    help="With --trust distributed: simulate; run the protocol (honest-but-curious server); run it against a "
    "malicious server. [default: ideal]",
)
@click.option(
    "--shard-size", type=int, help="With --trust distributed: maximum number of devices per secure sum."
)
@click.option(
    "--dropout", type=float, help="With --trust distributed: fraction of the devices that drop out."
)
@table_source("user", "lon", "lat", "time", "weight", "label")
@click.option(
    "--merge-below",
    type=float,
    help="Move cells estimated below this many users to 'outside'.",
)
@click.option(
    "--smooth-m",
    type=click.FloatRange(min=0, min_open=True),
    help="Smooth the map by a Gaussian of this standard deviation, metres.",
)
@click.option("--engine", help="Spark Connect server that holds the table, sc://HOST:PORT, instead of INPUT.")
@click.option(
    "--table", help="With --engine: the table, CATALOG.SCHEMA.TABLE. Its people need a name: --dataset."
)
@windows_options
@drawing_options
@release_options(
    (*SUFFIXES, *ANIMATIONS),
    ".tif .parquet .geojson .gpkg .pmtiles .csv .png .html; of a series .webp .gif too",
)
@console_options
def command(
    console: Console,
    source: str | None,
    engine: str | None,
    table: str | None,
    region: Region | None,
    tiling: str | None,
    method: str | None,
    trust: str,
    sums: str | None,
    epsilon: Fraction | None,
    options: dict[str, Any],
    windows: Windows | None,
    per: dict[str, Any],
    shard_size: int | None,
    columns: dict[str, Any],
    merge_below: float | None,
    smooth_m: float | None,
    drawing: Drawing,
    outputs: tuple[Path, ...],
    account: Account | None,
    seed: int | None,
    **parameters: Any,
) -> None:
    """Release a private map of a table of points or a raster of counts.

    INPUT is Parquet, GeoParquet, CSV, GeoJSON, several such files as a pattern in quotes
    ('visits-*.parquet'), '-' for CSV on standard input, or a raster of counts (.npz, .tif); or
    --engine and --table name a table on a cluster. One row is one visit; a user's rows together
    count as one user. A region without rows gives a map as if it had few: 'mapveil describe'
    tells the curator.

    \b
    Examples:
      mapveil release checkins.parquet --region -74.03,40.69,-73.90,40.83 --epsilon 1 -o map.html
      mapveil release trips.csv --user rider --region city.geojson --tiling h3:8 --epsilon 0.5 -o map.geojson
      mapveil release checkins.parquet --region -74.03,40.69,-73.90,40.83 --tiling quadtree:8 \\
          --method emd --option width=40 --epsilon 1 -o map.tif -o map.png
      mapveil release visits.parquet --region city.geojson --every 1w --from 2026-01-05 \\
          --until 2026-03-30 --epsilon 2 -o weeks.parquet
      mapveil release population.npz --epsilon 1 -o population.tif
    """
    from mapveil.geo.counts import Counts
    from mapveil.geo.parse_tiling import DEFAULT_TILING, tiling_for
    from mapveil.geo.points import Points
    from mapveil.geo.read_points import read_source
    from mapveil.inference.heatmap import check_smoothing, smooth
    from mapveil.mechanisms.mechanism import Mechanism
    from mapveil.mechanisms.release import release
    from mapveil.mechanisms.release_after_search import split_region
    from mapveil.mechanisms.release_series import release_series
    from mapveil.privacy.account import writing
    from mapveil.privacy.rehearsal import RehearsalAccount, Rehearsed

    alone = "given with --trust distributed only"
    alone += " (or give --trust operators instead of it)" * (sums == "operators")
    check(sums is None or trust == "distributed", "--sums", alone, sums)
    trust = "operators" if sums == "operators" else trust
    if shard_size is not None:
        options["shard_size"] = shard_size
    for path in outputs:
        if windows is None and path.suffix.lower() in ANIMATIONS:
            raise ParameterError(f"-o {path}: an animation shows a series; give --every or --by too")
    if windows is None:
        mechanism = find_method(method, trust).make(epsilon, options)
    else:
        check_series(
            method,
            trust,
            epsilon,
            merge_below=merge_below,
            smooth_m=smooth_m,
            windows=windows,
            outputs=outputs,
        )
        if trust == "central" and epsilon is not None:
            tell_of_one_block(console, epsilon, options, windows, per)
    if engine is None and table is None:
        if source is None:
            raise click.UsageError("Missing argument 'INPUT'.")
        points: Any = read_source(source, **columns)
    else:
        points = read_cluster(source, engine, table, columns, account=account, region=region, trust=trust)
    if isinstance(points, Points):
        console.note_columns(points)
        note_clock(console, windows)
        if region is None and epsilon is not None and windows is None:
            console.note(
                f"no --region: {readable(split_region(epsilon)[0])} of epsilon is spent on finding one"
            )
    check(merge_below is None or 0 <= merge_below < math.inf, "--merge-below", "at least 0", merge_below)
    if smooth_m is not None:
        public = parameters["places_are_public"]
        known = region is not None or isinstance(points, Counts)
        cells = tiling_for(points, tiling, region, places_are_public=public) if known else None
        check_smoothing(cells or tiling or DEFAULT_TILING, sigma_m=smooth_m)
    if windows is None and isinstance(account, RehearsalAccount) and not isinstance(mechanism, Mechanism):
        about = {"method": mechanism.name, "parameters": mechanism.parameters()}
        raise Rehearsed({**about, "tiling": tiling or "", "region": str(region or "")})
    with console.progress() as progress:
        given: dict[str, Any] = {
            "region": region,
            "trust": trust,
            "account": account,
            "rng": seed,
            "progress": progress,
        }
        if windows is None:
            heat = release(points, tiling, method=mechanism, **given, **parameters)
        else:
            given |= {"epsilon": epsilon, "options": options, **per}
            heat = release_series(points, windows, tiling, **given, **parameters)
        with writing(account, heat.guarantee):
            if smooth_m is not None:
                heat = smooth(heat, sigma_m=smooth_m)
            if merge_below is not None:
                heat = heat.merge_below(merge_below)
            heat = titled(heat, drawing)
            save_all(outputs, heat.save, progress)
    if heat.guarantee.epsilon is None:
        console.warn("not differential privacy: see what was measured of it below")
    console.answer(outputs, heat, account, seed=seed)
