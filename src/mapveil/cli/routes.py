"""``mapveil routes``: the fastest route under a private map of the traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mapveil.cli.arguments import parse_location
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import outputs, title_option
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from mapveil.navigation.road_graph import RoadGraph

Ends = tuple[tuple[float, float], tuple[float, float]]


def _suffixes() -> tuple[str, ...]:
    from mapveil.navigation.route_map import RouteMap

    return RouteMap.suffixes


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
@outputs(_suffixes, ".html .png .geojson", required=False)
@title_option
@console_options
def command(
    console: Console,
    roads: Path,
    traffic: Path,
    start: str | None,
    goal: str | None,
    active: float | None,
    congestion: str,
    capacity: float,
    delay: float,
    outputs: tuple[Path, ...],
    title: str | None,
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
    from dataclasses import replace

    from mapveil.formats.read_map import read_map
    from mapveil.navigation.congestion import congestion_named, junction_cells
    from mapveil.navigation.read_roads import read_roads
    from mapveil.navigation.route_map import RouteMap, most_helped

    model, ends = congestion_named(congestion, capacity, delay), parse_ends(start, goal)
    if active is not None and not 0 < active < float("inf"):
        raise ParameterError(f"--active must be above 0, got {active:g}")
    with console.progress() as progress:
        progress("roads", 0.0)
        users = read_map(traffic)
        graph = read_roads(roads, users.tiling.region)
        progress("roads", 1.0)
        values = users.values.clip(min=0)
        if active is not None:
            if not values.sum() > 0:
                raise InputError(f"{traffic}: the map has no users to scale to --active")
            users = replace(users, values=values * (active / values.sum()))
        cell = junction_cells(graph, users.tiling)
        delay_s = model.delay(users.values[cell[graph.head]], graph.seconds)
        between = most_helped(graph, graph.seconds, delay_s) if ends is None else nearest_ends(graph, ends)
        about = {"congestion": congestion, "capacity": capacity, "active": active}
        made = RouteMap.between(graph, users, graph.seconds, delay_s, between, parameters=about)
        for at, output in enumerate(outputs):
            progress("write", at / len(outputs))
            made.save(output, title=title)
        progress("write", 1.0)
    lines = [f"wrote {output}" for output in outputs]
    lines += [
        repr(graph),
        *(f"{way.name}: {way.traffic_s / 60:.1f} min with this traffic" for way in made.ways),
    ]
    record = {"outputs": [str(output) for output in outputs], "map": made.metadata()}
    console.result("\n".join([*lines, repr(made.guarantee)]), record)


def parse_ends(start: str | None, goal: str | None) -> Ends | None:
    """Read ``--from`` and ``--to`` as longitudes and latitudes; None without either."""
    if start is None and goal is None:
        return None
    if start is None or goal is None:
        raise ParameterError(f"{'--from' if start is None else '--to'} is missing: give both ends or neither")
    return parse_location(start, "--from"), parse_location(goal, "--to")


def nearest_ends(graph: RoadGraph, ends: Ends, limit_m: float = 2000.0) -> tuple[int, int]:
    """The junctions nearest to two places; an ``InputError`` beyond ``limit_m`` metres, or where they are one."""
    node, far = graph.nearest_nodes(*zip(*ends, strict=True))
    for (lon, lat), metres in zip(ends, far.tolist(), strict=True):
        if not metres <= limit_m:
            raise InputError(f"{lon:g},{lat:g} is outside the roads of {graph.source}: {metres:.0f} m away")
    if node[0] == node[1]:
        raise InputError(
            f"--from and --to are at one junction of {graph.source}; choose places farther apart"
        )
    return int(node[0]), int(node[1])
