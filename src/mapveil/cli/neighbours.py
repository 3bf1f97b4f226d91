"""``mapveil neighbours``: nearest users, from a private map."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import parse_location
from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import (
    Parsed,
    drawing_options,
    epsilon_option,
    evaluate_option,
    method_options,
    places_option,
    region_option,
    table_source,
    tiling_option,
    zone_cells_options,
    zones_or_tiling,
)
from mapveil.cli.outputs import release_options
from mapveil.cli.run_file import Rerunnable, titled
from mapveil.maps.released import SUFFIXES
from mapveil_client.errors import InputError, ParameterError, check

if TYPE_CHECKING:
    from mapveil.analysis.neighbour_map import NeighbourMap
    from mapveil.cli.options import Drawing
    from mapveil.geo.points import Points
    from mapveil.geo.region import Region
    from mapveil.geo.zone_cells import ZoneCells
    from mapveil.local.local_mechanism import LocalMechanism
    from mapveil.privacy.account import Account


@click.command("neighbours", cls=Rerunnable)
@click.argument("source", metavar="INPUT|MAP")
@click.option("-k", "count", type=int, default=25, show_default=True, help="Number of nearest users.")
@region_option()
@tiling_option("quadtree:5")
@zone_cells_options
@places_option
@epsilon_option("The budget of each user's report. Without it, INPUT is a released map.")
@click.option(
    "--method", help="Randomizer, see 'mapveil methods'. [default: the best of the local trust model]"
)
@method_options()
@click.option(
    "--at",
    "places",
    multiple=True,
    type=Parsed("location", lambda text: parse_location(text, "--at")),
    metavar="LON,LAT",
    help="List the nearest users of a location. Repeatable.",
)
@table_source("user", "lon", "lat")
@evaluate_option
@drawing_options
@release_options(SUFFIXES, ".csv (the lists) .parquet .geojson .gpkg .tif .png .html", required=False)
@console_options
def command(
    console: Console,
    source: str,
    count: int,
    region: Region | None,
    tiling: str | None,
    zones: ZoneCells | None,
    places_are_public: bool,
    epsilon: Fraction | None,
    method: str | None,
    options: dict[str, Any],
    places: tuple[tuple[float, float], ...],
    columns: dict[str, Any],
    evaluate: bool,
    drawing: Drawing,
    accept_large_epsilon: bool,
    outputs: tuple[Path, ...],
    account: Account | None,
    seed: int | None,
) -> None:
    """Find the k nearest users of every cell, from randomized reports or from a released map.

    INPUT is a table of points, as for 'release': every user reports one location, randomized on their device, and the
    lists follow from the estimated map. MAP is a map that was released (.tif, .parquet): that costs nothing further.

    \b
    Examples:
      mapveil neighbours checkins.parquet --region -74.03,40.69,-73.90,40.83 --epsilon 2 -k 25 -o near.html
      mapveil neighbours checkins.parquet --region -74.03,40.69,-73.90,40.83 --tiling places:venue_id \\
          --places-are-public --epsilon 2 -o near.csv -o near.png
      mapveil neighbours checkins.parquet --zones districts.geojson --epsilon 2 -o near.csv
      mapveil neighbours released.parquet --at -73.98,40.75
    """
    from mapveil.analysis.neighbour_map import DEFAULT_CELLS, neighbours
    from mapveil.formats.read_map import read_map
    from mapveil.geo.read_points import read_points
    from mapveil.mechanisms.methods import find_method
    from mapveil.privacy.account import writing
    from mapveil.privacy.rehearsal import RehearsalAccount

    check(count >= 1, "-k", "at least 1", count)
    evaluation = None
    with console.progress() as progress:
        if epsilon is None:
            if isinstance(account, RehearsalAccount):
                raise ParameterError("--dry-run is for a table with --epsilon: a released map costs nothing")
            if (
                region
                or tiling
                or zones
                or method
                or options
                or evaluate
                or places_are_public
                or accept_large_epsilon
            ):
                raise ParameterError(
                    "without --epsilon, INPUT is a released map, which brings its own: leave out --region, --tiling, "
                    "--zones, --places-are-public, --method, --option, --evaluate and --accept-large-epsilon, or give "
                    "--epsilon"
                )
            try:
                heat = read_map(source)
            except InputError as error:
                raise InputError(f"{error}; for a table of points, give --epsilon and --region") from None
            near = neighbours(heat, k=count)
        else:
            cells = zones_or_tiling(zones, region, tiling) or DEFAULT_CELLS
            mechanism: Any = find_method(method, "local").make(epsilon, options)
            if region is not None:
                _check_inside(region, places)
            points = read_points(source, **columns)
            console.note_columns(points)
            near = neighbours(
                points,
                cells,
                k=count,
                method=mechanism,
                region=region,
                places_are_public=places_are_public,
                accept_large_epsilon=accept_large_epsilon,
                account=account,
                rng=seed,
                progress=progress,
            )
        near = titled(near, drawing)
        if outputs or places:
            near.find_lists(progress)
        with writing(None if epsilon is None else account, near.guarantee):
            save_all(outputs, lambda path: _save(near, path), progress)
        if evaluate:
            evaluation = console.evaluated(lambda: _evaluate(mechanism, points, near))
    listed = [near.nearest(*place) for place in places]
    console.answer(
        outputs,
        near,
        account,
        free=epsilon is None,
        lines=[_in_words(near, one) for one in listed],
        more={"places": listed},
        evaluation=evaluation,
        seed=seed,
    )


def _check_inside(region: Region, places: tuple[tuple[float, float], ...]) -> None:
    import numpy as np

    for lon, lat in places:
        if not region.contains(np.array([lon]), np.array([lat]))[0]:
            raise InputError(f"--at {lon:g},{lat:g}: is outside the map's region {region}")


def _save(near: NeighbourMap, output: Path) -> None:
    if output.suffix.lower() == ".csv":
        near.write_lists(output)
    else:
        near.save(output)


def _in_words(near: NeighbourMap, listed: dict[str, Any]) -> str:
    lon, lat = listed["place"]
    nearest = "nearest user" if near.k == 1 else f"{near.k} nearest users"
    are = "is" if near.k == 1 else "are"
    lines = [f"the {nearest} of {lon:g}, {lat:g} {are} within {listed['radius_m']:.0f} m:"]
    lines += [
        f"  {row['users']:4d} in cell {row['cell']} ({row['lon']}, {row['lat']}), {row['distance_m']:.0f} m away"
        for row in listed["neighbours"][:10]
    ]
    if len(listed["neighbours"]) > 10:
        lines.append(f"  and in {len(listed['neighbours']) - 10} more cells (--json lists all)")
    return "\n".join(lines)


def _evaluate(mechanism: LocalMechanism, points: Points, near: NeighbourMap) -> dict[str, float]:
    """Compare with the cells that the users reported about, without privacy."""
    import numpy as np

    from mapveil.analysis.quality import neighbour_quality
    from mapveil.local.reported_cells import cells_of_users
    from mapveil_client.local.domain import Domain
    from mapveil_client.randomness.random import Randomness

    cells = cells_of_users(points, Domain(near.tiling), mechanism.place, mechanism.outside, Randomness(0))
    truth = np.bincount(cells, minlength=near.tiling.size)
    return neighbour_quality(truth, near.values, near.tiling, min(near.k, cells.size - 1))._asdict()
