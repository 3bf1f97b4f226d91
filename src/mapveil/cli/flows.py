"""``mapveil flows``: from a table of trips to flows that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.answers import answer_options, check_outputs, ledger_of, local_mechanism, say
from mapveil.cli.arguments import name_list, parse_region, read_options
from mapveil.cli.console import Console, console_options
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import as_randomness

if TYPE_CHECKING:
    from mapveil.analysis.origin_destination import FlowEstimator, FlowUnit, OriginDestination
    from mapveil.analysis.trips import Trips
    from mapveil.geo.region import Region
    from mapveil.geo.tiling import Tiling
    from mapveil.maps.flow_map import FlowMap


@click.command("flows")
@click.argument("source", metavar="INPUT")
@click.option("--region", required=True, help="W,S,E,N in degrees, or a polygon file.")
@click.option(
    "--tiling",
    help="As for 'release'; at most 4096 cells, or places:FILE. [default: as fine as trips and epsilon bear]",
)
@click.option("--epsilon", required=True, help="The whole budget of a trip: half for each end.")
@click.option("--method", help="What randomizes: see 'mapveil methods'. [default: grr on few cells, else hr]")
@click.option(
    "--estimator",
    type=click.Choice(["joint", "lasso", "independent"]),
    default="joint",
    show_default=True,
    help="Likelihood of the pairs; the paper's Lasso on the marginals; their product.",
)
@click.option(
    "--unit",
    type=click.Choice(["user", "trip"]),
    default="user",
    show_default=True,
    help="One trip of each user, at random; or every trip, with the promise about one trip only.",
)
@click.option(
    "--option", "options", multiple=True, metavar="K=V", help="An option of the method. Repeatable."
)
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    help="CSV of the pairs that are possible, public: columns origin, destination (cells).",
)
@click.option(
    "--most",
    type=int,
    default=5000,
    show_default=True,
    help="How many of the largest flows to list; the others are counted elsewhere.",
)
@click.option("--least", type=float, default=0.0, show_default=True, help="The smallest flow to list, trips.")
@click.option("-o", "--output", "outputs", multiple=True, required=True, type=click.Path(path_type=Path),
              help="Where to write: .parquet .geojson .csv .png .html. Repeatable.")  # fmt: skip
@click.option("--user", help="Column of user ids. [default: the usual names]")
@click.option("--origin", help="Columns LON,LAT of origins. [default: the usual names]")
@click.option("--destination", help="Columns LON,LAT of destinations. [default: the usual names]")
@click.option("--trip", help="Column of trip ids, where rows are positions with a time.")
@click.option(
    "--evaluate", is_flag=True, help="Also compare with the true flows. These figures are NOT private."
)
@answer_options
@console_options
def command(
    console: Console,
    source: str,
    region: str,
    tiling: str | None,
    epsilon: str,
    method: str | None,
    estimator: FlowEstimator,
    unit: FlowUnit,
    options: tuple[str, ...],
    candidates: Path | None,
    most: int,
    least: float,
    outputs: tuple[Path, ...],
    user: str | None,
    origin: str | None,
    destination: str | None,
    trip: str | None,
    evaluate: bool,
    title: str | None,
    ledger: Path | None,
    no_ledger: bool,
    dataset: str | None,
    seed: int | None,
) -> None:
    """Release flows between the cells of a map: both ends of a trip are randomized on the device.

    INPUT is a table of trips with both ends (lon, lat, dest_lon, dest_lat, or pickup_longitude and the like), or one
    of positions with user, trip id and time, whose first and last positions are the ends.

    \b
    Examples:
      mapveil flows trips.parquet --region -8.70,41.10,-8.52,41.22 --epsilon 2 -o flows.html
      mapveil flows trips.csv --region city.geojson --tiling grid:12x16 --epsilon 2 --unit trip \\
          --estimator lasso -o flows.parquet -o flows.png
    """
    from mapveil.analysis.flow_choice import best_randomizer
    from mapveil.analysis.origin_destination import OriginDestination
    from mapveil.analysis.trip_cells import cells_of_trips
    from mapveil.analysis.trips import read_trips
    from mapveil.cli.accounting import Accounting
    from mapveil.maps.flow_map import FlowMap
    from mapveil.mechanisms.mechanism import check_tiling
    from mapveil_client.local.domain import Domain

    given, where, budget = read_options(options), parse_region(region), as_epsilon(epsilon)
    if where is None:
        raise ParameterError("--region is empty; W,S,E,N in degrees or a file is accepted")

    def asked_of(name: str) -> OriginDestination:
        return OriginDestination(
            mechanism=local_mechanism(
                name, budget, {"estimator": "multiscale", **given} if method is None else given
            ),
            estimator=estimator,
            unit=unit,
            most=most,
            least=least,
        )

    asked = asked_of(method or "grr")
    check_outputs(outputs, FlowMap.suffixes)
    cells = None if tiling is None else _cells(tiling, where)
    pairs = None if candidates is None else _candidates(candidates)
    rng = as_randomness(seed)
    with console.progress() as progress:
        progress("read the trips", 0.0)
        trips = read_trips(
            source,
            user=user,
            origin=_pair(origin, "--origin"),
            destination=_pair(destination, "--destination"),
            trip=trip,
        )
        progress("read the trips", 1.0)
        if cells is None:
            cells = _as_fine_as_borne(asked, trips, where)
        # What would stop the release must stop it before anything is spent.
        check_tiling(cells)
        domain = Domain(cells)
        if method is None:
            asked = asked_of(best_randomizer(domain.size, budget))
        asked.on(domain)
        cells_of_trips(trips, domain, asked.mechanism.outside, rng, one_each=False)
        # A promise about trips is no promise about users, and a ledger adds up those.
        wanted = not no_ledger and seed is None and unit == "user"
        accounting = Accounting(
            ledger_of(ledger, wanted=wanted),
            _points(trips),
            dataset,
            method=asked.method,
            parameters=asked.parameters(),
            tiling=cells.spec,
            region=region,
            outputs=outputs,
        )
        accounting.spend(budget)
        made = asked.release(trips, cells, candidates=pairs, rng=rng, progress=progress)
        for at, output in enumerate(outputs):
            progress("write", at / len(outputs))
            made.save(output, title=title)
        progress("write", 1.0)
    receipt = accounting.written()
    lines = [f"wrote {output}" for output in outputs]
    lines += [f"{made.size} flows of {made.total:g} trips, {made.elsewhere:g} of them elsewhere"]
    lines += [f"note: {note}" for note in made.notes]
    record: dict[str, Any] = {"outputs": [str(output) for output in outputs], **made.metadata()}
    if unit == "trip":
        console.warn("the promise is about one trip: somebody of ten trips has ten times the epsilon")
    if evaluate:
        record["evaluation"] = _evaluate(console, asked, trips, made, lines)
    say(console, lines, record, made.guarantee, receipt, seed)


def _cells(tiling: str, region: Region) -> Tiling:
    from mapveil.analysis.pair_channel import MOST_SITES
    from mapveil.geo.parse_tiling import parse_tiling

    cells = parse_tiling(tiling, region)
    if cells.size > 4 * MOST_SITES:
        raise ParameterError(
            f"--tiling {tiling} has {cells.size} cells; at most {MOST_SITES} that can hold anybody are accepted"
        )
    return cells


def _as_fine_as_borne(asked: OriginDestination, trips: Trips, where: Region) -> Tiling:
    """A quadtree chosen by the number of reports, which the server sees anyway."""
    from mapveil.analysis.flow_choice import best_depth
    from mapveil.analysis.trip_cells import cells_of_trips
    from mapveil.geo.quadtree import Quadtree
    from mapveil_client.local.domain import Domain
    from mapveil_client.randomness.random import Randomness

    ends = cells_of_trips(
        trips,
        Domain(Quadtree(where, depth=1)),
        asked.mechanism.outside,
        Randomness(0),
        one_each=asked.unit == "user",
    )
    return Quadtree(where, depth=best_depth(ends[0].size, asked.mechanism.budget))


def _pair(text: str | None, flag: str) -> tuple[str, str] | None:
    if text is None:
        return None
    names = name_list(text, flag)
    if len(names) != 2:
        raise InputError(f"{flag} is {text!r}; two columns, longitude and latitude, are accepted")
    return names[0], names[1]


def _points(trips: Trips) -> Any:
    if trips.points is None:
        raise AssertionError("trips that were read have a table")
    return trips.points


def _candidates(path: Path) -> Any:
    import numpy as np
    from pyarrow import ArrowInvalid, csv

    if not path.is_file():
        raise InputError(
            f"--candidates {path}: no such file; a CSV with columns origin and destination is accepted"
        )
    try:
        table = csv.read_csv(path).select(["origin", "destination"])
        return tuple(np.asarray(column.to_numpy(), dtype=np.int64) for column in table.columns)
    except (ArrowInvalid, KeyError, ValueError) as error:
        raise InputError(
            f"--candidates {path}: {str(error).splitlines()[0]}; columns origin and destination of whole numbers are "
            "accepted"
        ) from error


def _evaluate(
    console: Console, asked: OriginDestination, trips: Trips, made: FlowMap, lines: list[str]
) -> dict[str, float]:
    """Against all true trips: not private."""
    from mapveil.analysis.flow_quality import flow_quality
    from mapveil.analysis.trip_cells import cells_of_trips
    from mapveil_client.local.domain import Domain
    from mapveil_client.randomness.random import Randomness

    domain = Domain(made.tiling)
    ends = cells_of_trips(trips, domain, asked.mechanism.outside, Randomness(0), one_each=False)
    found = flow_quality(*ends, made)._asdict()
    console.warn("an evaluation reads true trips: do not publish its figures for data of real people")
    lines.append(
        "evaluation (NOT private): " + ", ".join(f"{name} {value:.3g}" for name, value in found.items())
    )
    return found
