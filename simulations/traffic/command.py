"""``python -m simulations.traffic``: a simulated rush hour under private traffic, and the cost of privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, cast

import click

from mapveil.cli.arguments import epsilon_list, length_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import drawing_options, method_options, region_option
from mapveil.cli.outputs import outputs
from mapveil.cli.routes import parse_ends
from mapveil.geo.parse_tiling import parse_tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.maps.scene import Note
from mapveil.mechanisms.methods import find_method
from mapveil.navigation.route_map import RouteMap, most_helped
from mapveil.navigation.routes import Ends, nearest_ends
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import as_randomness
from simulations.traffic.scene import Scene, congested_world, make_scene
from simulations.traffic.study import RouteStudy, study_routes
from simulations.traffic.world import World

_METHOD, _ESTIMATOR = "subset", "multiscale"  # the best of those tried on a few hundred reports a window
_HEAD: Final = (
    *("epsilon", "theta, s", "updates", "total eps", "Levenshtein"),
    *("off by, min", "minutes", "exact map", "no map"),
)


def _option(*names: str, **about: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(*names, show_default=about.get("default") is not None, **about)


@click.command("traffic", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("source", metavar="[INPUT]", required=False)
@_option(
    "--roads", default="auto", help="FILE (.graphml .osm .osm.pbf), 'trajectories' (of INPUT) or 'synthetic'."
)
@region_option("W,S,E,N in degrees, or a polygon file. [default: the synthetic city's]")
@_option("--tiling", default="quadtree:4", help="Cells that traffic is counted in.")
@_option("--epsilon", default="2", help="Epsilon of each randomized location; several as 1,2,4.")
@_option("--theta", default="40", help="Seconds behind the prediction that make a trip query the map.")
@_option("--updates", default=3, help="Maximum queries of a trip (lambda).")
@_option(
    "--reporting",
    type=click.Choice(["late", "probe"]),
    default="late",
    help="A late trip that queries also reports (the paper's); or every trip reports once, at a random moment.",
)
@_option("--method", default=_METHOD, help="Randomizer: see 'mapveil methods'.")
@method_options()
@_option("--vehicles", default=3000, help="Vehicles to simulate.")
@_option("--period", default=3600.0, help="Seconds in which they depart.")
@_option("--window", default=300.0, help="Seconds of a traffic map.")
@_option(
    "--congestion",
    type=click.Choice(["step", "volume"]),
    default="volume",
    help="Delay by the users of a cell: fixed beyond --capacity (the paper's), or growing.",
)
@_option(
    "--capacity",
    type=float,
    help="Users of a cell at a time that its roads carry. [default: such that trips take half as long again]",
)
@_option("--delay", default=3.0, help="Seconds of the fixed delay.")
@_option(
    "--retrieve", type=int, help="Blocks of cells to fetch by private retrieval. [default: the whole map]"
)
@_option(
    "--from", "start", metavar="LON,LAT", help="Origin of the route that is drawn. [default: an example]"
)
@_option("--to", "goal", metavar="LON,LAT", help="Its destination.")
@outputs(RouteMap.suffixes, ".html .png .geojson", required=False)
@drawing_options
@_option("--user", help="Column of user ids.")
@_option("--trip", help="Column of trip ids.")
@_option("--seed", type=int, help="The same seed gives the same study. The map is marked NOT FOR RELEASE.")
@console_options
def command(console: Console, source: str | None, **given: Any) -> None:  # fmt: skip
    """Simulate a rush hour, and measure the cost of private traffic to those who drive.

    INPUT is a table of trips as for 'mapveil flows': vehicles go where they ended. Of positions, the earlier half of
    the trips predicts travel times (and makes the roads, with --roads trajectories), the later half is driven. Without
    INPUT everything is synthetic. The study reads true locations: its figures are NOT private.

    \b
    Examples:
      python -m simulations.traffic -o routes.html
      python -m simulations.traffic --epsilon 1,2,4 --theta 20,40,60 --reporting probe --json
      python -m simulations.traffic taxis.parquet --region -8.70,41.10,-8.52,41.22 --epsilon 2 -o routes.png
      python -m simulations.traffic trips.csv --roads city.graphml --region city.geojson -o routes.html
    """
    epsilons, thetas = epsilon_list(given["epsilon"]), length_list(given["theta"], "--theta")
    files, method = given["outputs"], given["method"]
    options = {**({"estimator": _ESTIMATOR} if method == _METHOD else {}), **given["options"]}
    mechanism = cast("LocalMechanism", find_method(method, "local").make(epsilons[0], options))
    for flag in ("updates", "vehicles", "retrieve"):
        if given[flag] is not None and given[flag] < 1:
            raise ParameterError(f"--{flag} must be at least 1, got {given[flag]}")
    ends, seed = parse_ends(given["start"], given["goal"]), given["seed"]
    with console.progress() as progress:
        progress("roads", 0.0)
        scene = make_scene(
            source, given["roads"], given["region"], user=given["user"], trip=given["trip"],
            vehicles=given["vehicles"], period_s=given["period"], seed=1 if seed is None else seed,
        )  # fmt: skip
        progress("roads", 1.0)
        progress("traffic", 0.0)
        world = congested_world(
            scene, parse_tiling(given["tiling"], scene.region), given["congestion"], capacity=given["capacity"],
            delay_s=given["delay"], window_s=given["window"],
        )  # fmt: skip
        progress("traffic", 1.0)
        study = study_routes(
            world, scene.fleet, mechanism, epsilons, thetas, most=given["updates"], reporting=given["reporting"],
            queries=given["retrieve"], rng=as_randomness(seed), progress=progress,
        )  # fmt: skip
        about = {key: given[key] for key in ("updates", "reporting", "vehicles")}
        about |= {"theta_s": thetas[0], "retrieved_blocks": given["retrieve"]}
        about |= asdict(world.congestion)  # type: ignore[call-overload]
        made = _map(world, study, ends, scene, about, true_trips=source is not None)
        if files and made is None:
            raise InputError(
                "nobody was late, so nobody reported and there is no traffic to draw; lower --theta or --capacity, "
                "raise --vehicles, or use --reporting probe"
            )
        for at, output in enumerate(files):
            progress("write", at / len(files))
            if made is not None:
                replace(made, **given["drawing"].of(made)).save(output)
        progress("write", 1.0)
    if source is not None:
        console.warn("a study reads true locations: do not publish its figures for data of real people")
    _report(console, files, study, made, world, scene)


def _map(
    world: World,
    study: RouteStudy,
    ends: Ends | None,
    scene: Scene,
    about: dict[str, Any],
    *,
    true_trips: bool,
) -> RouteMap | None:
    """Roads under the study's traffic, and the route between two ends."""
    if study.traffic is None:
        return None
    traffic, graph = study.traffic, world.graph
    if true_trips:
        told = (*traffic.guarantee.assumptions, Assumes.SIMULATED_VEHICLES())
        traffic = replace(traffic, guarantee=replace(traffic.guarantee, assumptions=told))
    delay_s = world.delays(traffic.values)
    between = most_helped(graph, world.predicted, delay_s) if ends is None else nearest_ends(graph, ends)
    warned = (Note("figures of this map are taken from true trips: NOT private", "warning"),) * true_trips
    notes = (*warned, *scene.notes, *(row.in_words() for row in study.rows))
    return RouteMap.between(graph, traffic, world.predicted, delay_s, between, parameters=about, notes=notes)


def _report(
    console: Console,
    files: tuple[Path, ...],
    study: RouteStudy,
    made: RouteMap | None,
    world: World,
    scene: Scene,
) -> None:
    lines = [f"wrote {output}" for output in files]
    lines.append(
        f"{scene.graph!r}, {scene.fleet.size} vehicles, {world.windows} windows, trips {world.slowdown:.2f} times as "
        "long as predicted"
    )
    lines.append("".join(f"{name:>12}" for name in _HEAD))
    for row in study.rows:
        quality = row.quality
        cells = [f"{float(row.epsilon):g}", f"{row.theta_s:g}", f"{quality.updates:.2f}"]
        cells += [f"{quality.total_epsilon:.3f}", f"{quality.relative_levenshtein:.4f}"]
        cells.append(f"{quality.time_deviation_min:.3f}")
        cells += [f"{each:.2f}" for each in (row.minutes, row.minutes_exact, row.minutes_free)]
        lines.append("".join(f"{cell:>12}" for cell in cells))
    record: dict[str, Any] = {
        "outputs": [str(output) for output in files],
        "roads": {"source": scene.graph.source, "junctions": scene.graph.nodes, "roads": scene.graph.roads},
        "vehicles": scene.fleet.size,
        "results": [row.to_dict() for row in study.rows],
        "map": None if made is None else made.metadata(),
    }
    if made is None:
        console.note(
            "nobody sent a location, so there is no private traffic: see --theta, --capacity, --vehicles"
        )
    else:
        lines += [f"{way.name}: {way.traffic_s / 60:.1f} min" for way in made.ways]
        lines.append(repr(made.guarantee))
    console.result("\n".join(lines), record)
