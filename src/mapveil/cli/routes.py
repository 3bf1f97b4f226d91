"""``mapveil routes``: the fastest route under a private map of the traffic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import parse_location
from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import drawing_options
from mapveil.cli.outputs import outputs
from mapveil.maps.released import LINE_SUFFIXES
from mapveil_client.errors import ParameterError

if TYPE_CHECKING:
    from mapveil.cli.options import Drawing
    from mapveil.navigation.routes import Ends


@click.command("routes")
@click.argument("roads", type=click.Path(path_type=Path))
@click.option(
    "--traffic", required=True, type=click.Path(path_type=Path),
    help="Private map of where users are: .parquet or .tif that Mapveil wrote.",
)  # fmt: skip
@click.option(
    "--from",
    "start",
    metavar="LON,LAT",
    help="Origin. [default: an example, drawn from the roads, that the traffic delays]",
)
@click.option("--to", "goal", metavar="LON,LAT", help="Destination.")
@click.option(
    "--active",
    type=float,
    help="Users on the road now; the map is scaled to them. [default: the map's total]",
)
@click.option(
    "--congestion", type=click.Choice(["volume", "step"]), default="volume", show_default=True,
    help="Delay by the users of a cell: grows with them, or fixed beyond --capacity.",
)  # fmt: skip
@click.option(
    "--capacity", default=50.0, show_default=True, help="Users of a cell at a time that its roads carry."
)
@click.option("--delay", default=3.0, show_default=True, help="Delay beyond --capacity with 'step', seconds.")
@outputs(LINE_SUFFIXES, ".html .png .geojson", required=False)
@drawing_options
@console_options
def command(
    console: Console,
    roads: Path,
    traffic: Path,
    start: str | None,
    goal: str | None,
    outputs: tuple[Path, ...],
    drawing: Drawing,
    **parameters: Any,
) -> None:
    """Find the fastest route on ROADS under a private map of the traffic.

    ROADS is .graphml (such as osmnx writes) or an extract of OpenStreetMap (.osm, .osm.pbf), cut to the region of the
    map. The map is a release ('mapveil release ... --trust local -o now.parquet') or the result of a collection; it
    keeps its guarantee. Needs the extra 'routes'.

    \b
    Examples:
      mapveil routes city.graphml --traffic now.parquet --from 2.33,48.85 --to 2.38,48.87 -o route.html
      mapveil routes city.osm.pbf --traffic now.parquet --active 20000 --capacity 80 --json
    """
    from mapveil.formats.read_map import read_map
    from mapveil.navigation.read_roads import read_roads
    from mapveil.navigation.routes import routes

    ends = parse_ends(start, goal)
    with console.progress() as progress:
        progress("roads", 0.0)
        users = read_map(traffic)
        graph = read_roads(roads, users.tiling.region)
        progress("roads", 1.0)
        found = routes(graph, users, ends, **parameters)
        save_all(outputs, replace(found, **drawing.of(found)).save, progress)
    ways = [f"{way.name}: {way.traffic_s / 60:.1f} min with this traffic" for way in found.ways]
    text = "\n".join([repr(graph), *ways, repr(found.guarantee)])
    console.result(text, {"map": found.metadata()}, outputs)


def parse_ends(start: str | None, goal: str | None) -> Ends | None:
    """Read ``--from`` and ``--to`` as longitudes and latitudes; None without either."""
    if start is None and goal is None:
        return None
    if start is None or goal is None:
        raise ParameterError(f"{'--from' if start is None else '--to'} is missing: give both ends or neither")
    return parse_location(start, "--from"), parse_location(goal, "--to")
