"""``mapveil routes``: routes under private traffic, simulated, and what privacy costs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mapveil.cli.answers import check_outputs, local_mechanism
from mapveil.cli.arguments import epsilon_list, length_list, parse_region, read_options
from mapveil.cli.console import Console, console_options
from mapveil.errors import InputError, ParameterError
from mapveil.privacy.random import as_randomness

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mapveil.analysis.fleet import Fleet, World
    from mapveil.analysis.road_graph import RoadGraph
    from mapveil.analysis.route_map import RouteMap
    from mapveil.analysis.route_study import RouteStudy
    from mapveil.analysis.trips import Trajectories, Trips
    from mapveil.geo.region import Region
    from mapveil.geo.tables import Table

__all__ = ["command"]

_TILING = "quadtree:4"
_CELLS_M = 200.0  # of junctions made from trajectories


@click.command("routes")
@click.argument("source", metavar="[INPUT]", required=False)
@click.option(
    "--roads",
    default="auto",
    show_default=True,
    help="FILE (.graphml .osm .osm.pbf), 'trajectories' (of INPUT) or 'synthetic'.",
)
@click.option("--region", help="W,S,E,N in degrees, or a polygon file. [default: the synthetic city's]")
@click.option("--tiling", default=_TILING, show_default=True, help="The cells that traffic is counted in.")
@click.option(
    "--epsilon", default="2", show_default=True, help="Of each randomized location; several as 1,2,4."
)
@click.option(
    "--theta", default="40", show_default=True, help="Seconds behind the prediction that make a trip ask."
)
@click.option("--updates", default=3, show_default=True, help="How often a trip asks at most (lambda).")
@click.option(
    "--reporting",
    type=click.Choice(["late", "probe"]),
    default="late",
    show_default=True,
    help="Who asks also sends a location (the paper's); or every trip sends one, at a moment drawn before it starts.",
)
@click.option(
    "--method", help="What randomizes: see 'mapveil methods'. [default: the best of the local trust]"
)
@click.option(
    "--option", "options", multiple=True, metavar="K=V", help="An option of the method. Repeatable."
)
@click.option("--vehicles", default=3000, show_default=True, help="Vehicles to simulate.")
@click.option("--period", default=3600.0, show_default=True, help="Seconds in which they depart.")
@click.option("--window", default=300.0, show_default=True, help="Seconds of a traffic map.")
@click.option(
    "--congestion", type=click.Choice(["step", "volume"]), default="volume", show_default=True,
    help="What users of a cell cost: a fixed delay beyond --capacity users (the paper's), or one that grows.",
)  # fmt: skip
@click.option("--capacity", default=25.0, show_default=True, help="Users of a cell in a window.")
@click.option("--delay", default=3.0, show_default=True, help="Seconds of the fixed delay.")
@click.option(
    "--retrieve",
    type=int,
    help="Fetch so many blocks of cells by private retrieval. [default: the whole map]",
)
@click.option("--from", "start", metavar="LON,LAT", help="Where the way that is drawn begins.")
@click.option("--to", "goal", metavar="LON,LAT", help="Where it ends.")
@click.option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path),
              help="Where to write: .html .png .geojson. Repeatable.")  # fmt: skip
@click.option("--title", help="Head of pictures and pages.")
@click.option("--user", help="Column of user ids.")
@click.option("--trip", help="Column of trip ids.")
@click.option(
    "--seed", type=int, help="The same seed gives the same study. The map is marked NOT FOR RELEASE."
)
@console_options
def command(
    console: Console,
    source: str | None,
    roads: str,
    region: str | None,
    tiling: str,
    epsilon: str,
    theta: str,
    updates: int,
    reporting: str,
    method: str | None,
    options: tuple[str, ...],
    vehicles: int,
    period: float,
    window: float,
    congestion: str,
    capacity: float,
    delay: float,
    retrieve: int | None,
    start: str | None,
    goal: str | None,
    outputs: tuple[Path, ...],
    title: str | None,
    user: str | None,
    trip: str | None,
    seed: int | None,
) -> None:
    """Find routes under private traffic: a simulated rush hour, and what privacy costs those who drive.

    INPUT is a table of trips as for 'flows': their ends are where vehicles go; of positions, the earlier half of the
    trips predicts travel times (and makes the roads, with --roads trajectories), the later half is driven. Without
    INPUT everything is synthetic. The study reads true places: its figures are NOT private.

    \b
    Examples:
      mapveil routes -o routes.html
      mapveil routes --epsilon 1,2,4 --theta 20,40,60 --reporting probe --json
      mapveil routes taxis.parquet --region -8.70,41.10,-8.52,41.22 --epsilon 2 -o routes.png
      mapveil routes trips.csv --roads city.graphml --region city.geojson -o routes.html
    """
    from mapveil.analysis.route_map import ROUTE_SUFFIXES
    from mapveil.analysis.route_study import study_routes

    epsilons, thetas = epsilon_list(epsilon), length_list(theta, "--theta")
    mechanism = local_mechanism(method, epsilons[0], read_options(options))
    check_outputs(outputs, ROUTE_SUFFIXES)
    for flag, value in (("--updates", updates), ("--vehicles", vehicles), ("--retrieve", retrieve)):
        if value is not None and value < 1:
            raise ParameterError(f"{flag} is {value}; at least 1 is accepted")
    ends = _place(start, "--from"), _place(goal, "--to")
    model = _congestion(congestion, capacity, delay)
    rng = as_randomness(seed)
    with console.progress() as progress:
        progress("roads", 0.0)
        scene = _scene(source, roads, parse_region(region), user, trip, vehicles, period, seed or 1)
        progress("roads", 1.0)
        progress("traffic", 0.0)
        world = _world(scene, tiling, model, window)
        progress("traffic", 1.0)
        study = study_routes(
            world,
            scene.fleet,
            mechanism,
            epsilons,
            thetas,
            most=updates,
            reporting=reporting,  # type: ignore[arg-type]
            queries=retrieve,
            rng=rng,
            progress=progress,
        )
        made = _map(world, study, ends, scene)
        for at, output in enumerate(outputs):
            progress("write", at / len(outputs))
            if made is None:
                raise InputError(
                    "nobody was late, so nobody reported and there is no traffic to draw; a smaller --theta or "
                    "--capacity, more --vehicles, or --reporting probe is accepted"
                )
            made.save(output, title=title)
        progress("write", 1.0)
    if source is not None:
        console.warn("a study reads true places: do not publish its figures for data of real people")
    _report(console, outputs, study, made, world, scene)


class _Scene(NamedTuple):
    graph: RoadGraph
    predicted: npt.NDArray[np.float64]
    fleet: Fleet
    region: Region
    notes: tuple[str, ...]


def _scene(
    source: str | None,
    roads: str,
    region: Region | None,
    user: str | None,
    trip: str | None,
    vehicles: int,
    period: float,
    seed: int,
) -> _Scene:
    """Roads, predictions and vehicles."""
    from mapveil.analysis.fleet import fleet_from_trips, synthetic_fleet
    from mapveil.analysis.read_roads import read_roads
    from mapveil.analysis.synthetic_roads import synthetic_roads
    from mapveil.analysis.travel_times import predict_times, traversals
    from mapveil.analysis.trips import read_trips
    from mapveil.geo.read_points import open_table
    from mapveil.geo.region import Region
    from mapveil.synthetic import SEA_BOX

    past, driven = None, None
    if source is not None:
        table = open_table(source)
        past, driven = _halves(table, user, trip)
        driven = driven or read_trips(table, user=user, trip=trip)
    if roads == "auto":
        roads = "trajectories" if past is not None else "synthetic"
    if region is None:
        if source is not None or roads not in ("synthetic", "auto"):
            raise ParameterError("a --region is needed; W,S,E,N in degrees or a file is accepted")
        region = Region.from_bbox(*SEA_BOX)
    notes: tuple[str, ...] = ("vehicles are simulated: the promise is to each of them",)
    if roads == "trajectories":
        if past is None:
            raise ParameterError(
                "--roads trajectories needs an INPUT of positions with user, trip id and time; 'synthetic' or a file "
                "of roads is accepted"
            )
        graph = _from_trajectories(past, region)
        notes = (*notes, "the roads are those that trips took: public trips, or it is not private")
    elif roads == "synthetic":
        graph = synthetic_roads(region, seed=seed)
    else:
        graph = read_roads(roads, region)
    predicted = graph.seconds if past is None else predict_times(graph, traversals(graph, past))
    if driven is None:
        fleet = synthetic_fleet(graph, vehicles, period_s=period, seed=seed)
    else:
        fleet = fleet_from_trips(driven, graph, vehicles, period_s=period, seed=seed)
    return _Scene(graph, predicted, fleet, region, notes)


def _halves(
    source: Table, user: str | None, trip: str | None
) -> tuple[Trajectories, Trips] | tuple[None, None]:
    """The earlier half of the trips with their positions, and the ends of the later; nothing for a table of ends."""
    import numpy as np

    from mapveil.analysis.trips import has_destinations, read_trajectories

    if has_destinations(source):
        return None, None
    read = read_trajectories(source, user=user, trip=trip)
    if read.count < 2:
        raise InputError(f"{read.source}: holds one trip; two or more are accepted")
    order = np.argsort(read.departures, kind="stable")
    half = read.count // 2
    return read.select(np.sort(order[:half])), read.select(np.sort(order[half:])).ends()


def _from_trajectories(past: Trajectories, region: Region) -> RoadGraph:
    from mapveil.analysis.trajectory_roads import roads_from_trajectories
    from mapveil.geo.grid import Grid

    rows, columns = (max(1, round(side / _CELLS_M)) for side in (region.height_m, region.width_m))
    return roads_from_trajectories(past, Grid(region, rows=rows, columns=columns))


def _world(scene: _Scene, tiling: str, model: Any, window: float) -> World:
    from mapveil.analysis.fleet import make_world
    from mapveil.geo.parse_tiling import parse_tiling

    cells = parse_tiling(tiling, scene.region)
    return make_world(scene.graph, scene.fleet, cells, scene.predicted, model, window_s=window)


def _congestion(kind: str, capacity: float, delay: float) -> Any:
    from mapveil.analysis.congestion import StepDelay, VolumeDelay

    return StepDelay(capacity, delay) if kind == "step" else VolumeDelay(capacity)


def _place(text: str | None, flag: str) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        lon, lat = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{flag} is {text!r}; LON,LAT in degrees is accepted") from None
    return lon, lat


def _map(
    world: World,
    study: RouteStudy,
    ends: tuple[tuple[float, float] | None, tuple[float, float] | None],
    scene: _Scene,
) -> RouteMap | None:
    """Roads under the study's traffic, and the way that was asked for."""
    from mapveil.analysis.route_map import RouteMap

    if study.traffic is None:
        return None
    graph = world.graph
    west, south, east, north = scene.region.bbox
    defaults = [(west + part * (east - west), south + part * (north - south)) for part in (0.2, 0.8)]
    nodes = []
    for given, default in zip(ends, defaults, strict=True):
        lon, lat = given or default
        if given is not None and not scene.region.contains([lon], [lat])[0]:  # type: ignore[arg-type]
            raise InputError(
                f"{lon:g},{lat:g} is outside the region {scene.region}; a place inside is accepted"
            )
        nodes.append(int(graph.nearest_nodes([lon], [lat])[0][0]))
    if nodes[0] == nodes[1]:
        raise InputError(f"--from and --to are at one junction of {graph.source}; two places are accepted")
    return RouteMap.between(
        graph,
        study.traffic,
        world.predicted,
        world.delays(study.traffic.values),
        *nodes,
        results=[row.to_dict() for row in study.rows],
        notes=scene.notes,
    )


def _report(
    console: Console,
    outputs: tuple[Path, ...],
    study: RouteStudy,
    made: RouteMap | None,
    world: World,
    scene: _Scene,
) -> None:
    lines = [f"wrote {output}" for output in outputs]
    lines.append(f"{scene.graph!r}, {scene.fleet.size} vehicles, {world.windows} windows")
    head = ("epsilon", "theta s", "total eps", "rel. Levenshtein", "off by min", "minutes", "exact", "none")
    lines.append("  ".join(f"{name:>16}" if len(name) > 9 else f"{name:>9}" for name in head))
    for row in study.rows:
        cells = (
            f"{float(row.epsilon):9g}",
            f"{row.theta_s:9g}",
            f"{row.quality.total_epsilon:9.3f}",
            f"{row.quality.relative_levenshtein:16.4f}",
            f"{row.quality.time_deviation_min:>16.4f}"[-10:].rjust(10),
            f"{row.minutes:9.3f}",
            f"{row.minutes_exact:9.3f}",
            f"{row.minutes_free:9.3f}",
        )
        lines.append("  ".join(cells))
    record: dict[str, Any] = {
        "outputs": [str(output) for output in outputs],
        "roads": {"source": scene.graph.source, "junctions": scene.graph.nodes, "roads": scene.graph.roads},
        "vehicles": scene.fleet.size,
        "results": [row.to_dict() for row in study.rows],
        "map": None if made is None else made.metadata(),
    }
    if made is not None:
        lines += [f"{way.name}: {way.traffic_s / 60:.1f} min" for way in made.ways]
        lines.append(repr(made.guarantee))
    console.result("\n".join(lines), record)
