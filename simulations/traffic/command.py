"""``python -m simulations.traffic``: a simulated rush hour under private traffic, and the cost of privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from mapveil.cli.arguments import epsilon_list, length_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import method_options, outputs, region_option, title_option
from mapveil.cli.routes import parse_ends
from mapveil.navigation.route_map import RouteMap
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import as_randomness

if TYPE_CHECKING:
    from mapveil.geo.region import Region
    from mapveil.local.mechanism import LocalMechanism
    from mapveil.privacy.claim import Assumes
    from simulations.traffic.drive import Reporting
    from simulations.traffic.scene import Scene
    from simulations.traffic.study import RouteStudy
    from simulations.traffic.world import World

_TILING = "quadtree:4"
_METHOD, _ESTIMATOR = "subset", "multiscale"  # the best of those tried on a few hundred reports a window
_HEAD = (
    "epsilon",
    "theta, s",
    "updates",
    "total eps",
    "Levenshtein",
    "off by, min",
    "minutes",
    "exact map",
    "no map",
)


@click.command("traffic", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("source", metavar="[INPUT]", required=False)
@click.option(
    "--roads",
    default="auto",
    show_default=True,
    help="FILE (.graphml .osm .osm.pbf), 'trajectories' (of INPUT) or 'synthetic'.",
)
@region_option("W,S,E,N in degrees, or a polygon file. [default: the synthetic city's]")
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
@click.option("--method", default=_METHOD, show_default=True, help="What randomizes: see 'mapveil methods'.")
@method_options()
@click.option("--vehicles", default=3000, show_default=True, help="Vehicles to simulate.")
@click.option("--period", default=3600.0, show_default=True, help="Seconds in which they depart.")
@click.option("--window", default=300.0, show_default=True, help="Seconds of a traffic map.")
@click.option(
    "--congestion", type=click.Choice(["step", "volume"]), default="volume", show_default=True,
    help="What users of a cell cost: a fixed delay beyond --capacity users (the paper's), or one that grows.",
)  # fmt: skip
@click.option(
    "--capacity",
    type=float,
    help="Users of a cell at a time that its roads carry. [default: such that trips take half as long again]",
)
@click.option("--delay", default=3.0, show_default=True, help="Seconds of the fixed delay.")
@click.option(
    "--retrieve",
    type=int,
    help="Fetch so many blocks of cells by private retrieval. [default: the whole map]",
)
@click.option(
    "--from",
    "start",
    metavar="LON,LAT",
    help="Where the way that is drawn begins. [default: two places that the traffic keeps apart]",
)
@click.option("--to", "goal", metavar="LON,LAT", help="Where it ends.")
@outputs(RouteMap.suffixes, ".html .png .geojson", required=False)
@title_option
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
    region: Region | None,
    tiling: str,
    epsilon: str,
    theta: str,
    updates: int,
    reporting: Reporting,
    method: str,
    options: dict[str, Any],
    vehicles: int,
    period: float,
    window: float,
    congestion: str,
    capacity: float | None,
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
      python -m simulations.traffic -o routes.html
      python -m simulations.traffic --epsilon 1,2,4 --theta 20,40,60 --reporting probe --json
      python -m simulations.traffic taxis.parquet --region -8.70,41.10,-8.52,41.22 --epsilon 2 -o routes.png
      python -m simulations.traffic trips.csv --roads city.graphml --region city.geojson -o routes.html
    """
    from dataclasses import asdict

    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.mechanisms.methods import find_method
    from simulations.traffic.scene import congested_world, make_scene
    from simulations.traffic.study import study_routes

    epsilons, thetas = epsilon_list(epsilon), length_list(theta, "--theta")
    if method == _METHOD:
        options = {"estimator": _ESTIMATOR, **options}
    mechanism = cast("LocalMechanism", find_method(method, "local").make(epsilons[0], options))
    for flag, value in (("--updates", updates), ("--vehicles", vehicles), ("--retrieve", retrieve)):
        if value is not None and value < 1:
            raise ParameterError(f"{flag} is {value}; at least 1 is accepted")
    ends = parse_ends(start, goal)
    rng = as_randomness(seed)
    with console.progress() as progress:
        progress("roads", 0.0)
        scene = make_scene(
            source,
            roads,
            region,
            user=user,
            trip=trip,
            vehicles=vehicles,
            period_s=period,
            seed=1 if seed is None else seed,
        )
        progress("roads", 1.0)
        progress("traffic", 0.0)
        world = congested_world(
            scene,
            parse_tiling(tiling, scene.region),
            congestion,
            capacity=capacity,
            delay_s=delay,
            window_s=window,
        )
        progress("traffic", 1.0)
        study = study_routes(
            world,
            scene.fleet,
            mechanism,
            epsilons,
            thetas,
            most=updates,
            reporting=reporting,
            queries=retrieve,
            rng=rng,
            progress=progress,
        )
        about = {
            "updates": updates,
            "reporting": reporting,
            "theta_s": thetas[0],
            "vehicles": vehicles,
            "retrieved_blocks": retrieve,
            **asdict(world.congestion),  # type: ignore[call-overload]
        }
        made = _map(world, study, ends, scene, about, true_trips=source is not None)
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


def _map(
    world: World,
    study: RouteStudy,
    ends: tuple[tuple[float, float], tuple[float, float]] | None,
    scene: Scene,
    about: dict[str, Any],
    *,
    true_trips: bool,
) -> RouteMap | None:
    """Roads under the study's traffic, and the way that was asked for."""
    from dataclasses import replace

    from mapveil.cli.routes import nearest_ends
    from mapveil.navigation.route_map import RouteMap, most_helped

    if study.traffic is None:
        return None
    traffic, graph = study.traffic, world.graph
    if true_trips:
        told = (
            *traffic.guarantee.assumptions,
            Assumes.SIMULATED_VEHICLES(),
        )
        traffic = replace(traffic, guarantee=replace(traffic.guarantee, assumptions=told))
    delay_s = world.delays(traffic.values)
    between = most_helped(graph, world.predicted, delay_s) if ends is None else nearest_ends(graph, ends)
    return RouteMap.between(
        graph,
        traffic,
        world.predicted,
        delay_s,
        between,
        parameters=about,
        notes=(*scene.notes, *(row.in_words() for row in study.rows)),
    )


def _report(
    console: Console,
    outputs: tuple[Path, ...],
    study: RouteStudy,
    made: RouteMap | None,
    world: World,
    scene: Scene,
) -> None:
    lines = [f"wrote {output}" for output in outputs]
    lines.append(
        f"{scene.graph!r}, {scene.fleet.size} vehicles, {world.windows} windows, trips {world.slowdown:.2f} times as "
        "long as predicted"
    )
    lines.append("".join(f"{name:>12}" for name in _HEAD))
    for row in study.rows:
        quality = row.quality
        cells = (
            f"{float(row.epsilon):g}",
            f"{row.theta_s:g}",
            f"{quality.updates:.2f}",
            f"{quality.total_epsilon:.3f}",
            f"{quality.relative_levenshtein:.4f}",
            f"{quality.time_deviation_min:.3f}",
            f"{row.minutes:.2f}",
            f"{row.minutes_exact:.2f}",
            f"{row.minutes_free:.2f}",
        )
        lines.append("".join(f"{cell:>12}" for cell in cells))
    if made is None:
        console.note(
            "nobody sent a location, so there is no private traffic: see --theta, --capacity, --vehicles"
        )
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
