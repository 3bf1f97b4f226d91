"""``mapveil flows``: from a table of trips to flows that may be published."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mapveil.cli.arguments import name_list
from mapveil.cli.console import Console, console_options, counted, save_all
from mapveil.cli.options import (
    DECLARED_USERS,
    drawing_options,
    epsilon_option,
    evaluate_option,
    method_options,
    note_read,
    region_option,
    table_source,
    zone_cells_options,
    zones_or_tiling,
)
from mapveil.cli.outputs import release_options
from mapveil.cli.run_file import Rerunnable, titled
from mapveil.cli.windows import note_clock, windows_options
from mapveil.maps.released import LINE_SUFFIXES
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from fractions import Fraction

    from mapveil.analysis.origin_destination import FlowEstimator, FlowUnit
    from mapveil.analysis.trips import Trips
    from mapveil.cli.options import Drawing
    from mapveil.geo.region import Region
    from mapveil.geo.tiling import Tiling
    from mapveil.geo.windows import Windows
    from mapveil.geo.zone_cells import ZoneCells
    from mapveil.maps.flow_map import FlowMap
    from mapveil.privacy.account import Account
    from mapveil_client.arrays import FloatArray


def _pair(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    names = name_list(text, f"--{parameter.name}")
    if len(names) != 2:
        raise InputError(f"--{parameter.name} must be two columns, LON,LAT, got {text!r}")
    return names[0], names[1]


def _candidates(context: click.Context, parameter: click.Parameter, path: Path | None) -> Any:
    if path is None:
        return None
    note_read(context, str(path))
    import numpy as np
    from pyarrow import ArrowInvalid, csv

    needed = "a CSV with columns origin and destination of whole numbers"
    if not path.is_file():
        raise InputError(f"--candidates {path}: no such file; needed: {needed}")
    try:
        table = csv.read_csv(path).select(["origin", "destination"])
        return tuple(np.asarray(column.to_numpy(), dtype=np.int64) for column in table.columns)
    except (ArrowInvalid, KeyError, ValueError) as error:
        raise InputError(f"--candidates {path}: {str(error).splitlines()[0]}; needed: {needed}") from error


@click.command("flows", cls=Rerunnable)
@click.argument("source", metavar="INPUT")
@region_option()
@zone_cells_options
@click.option(
    "--trust",
    type=click.Choice(["local", "central", "distributed", "operators"]),
    default="local",
    show_default=True,
    help="Who adds up the trips: nobody (devices randomize), a curator, secure sums or two operators.",
)
@click.option(
    "--secure-sum",
    type=click.Choice(["ideal", "protocol", "active"]),
    help="Of secure sums: simulate; run the protocol (honest-but-curious server); run it against a malicious server. "
    "[default: ideal]",
)
@click.option("--dropout", type=float, help="Of secure sums: fraction of the clients that drop out.")
@click.option(
    "--tiling",
    help="Cells, as for 'release'; at most 4096, or places:FILE. [default: as fine as the number of trips and epsilon "
    "allow]",
)
@epsilon_option("The whole budget of a user, or of a trip with --unit trip.", required=True)
@click.option("--method", help="Randomizer, see 'mapveil methods'. [default: grr or hr, of least deviation]")
@click.option(
    "--estimator",
    type=click.Choice(["mixed", "pair", "joint", "lasso", "independent"]),
    help="Of local reports: one report, of both ends or of one; of both ends; or a report of each, and the likelihood "
    "of the pairs, the paper's Lasso on the marginals, or their product. [default: mixed for at most 64 cells, else "
    "joint]",
)
@click.option(
    "--unit",
    type=click.Choice(["user", "trip"]),
    default="user",
    show_default=True,
    help="One trip of each user, at random; or every trip, with a guarantee about one trip only.",
)
@method_options(such=DECLARED_USERS)
@click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    callback=_candidates,
    help="CSV of the pairs that are possible, public: columns origin, destination (cells).",
)
@click.option(
    "--most",
    type=int,
    default=5000,
    show_default=True,
    help="Maximum number of flows to list, the largest first; the others are counted as unlisted.",
)
@click.option(
    "--least", type=float, default=0.0, show_default=True, help="Minimum flow to list, trips or users."
)
@table_source("user", "time")
@click.option("--origin", callback=_pair, help="Columns LON,LAT of origins. [default: the usual names]")
@click.option(
    "--destination", callback=_pair, help="Columns LON,LAT of destinations. [default: the usual names]"
)
@partial(windows_options, flows=True)
@click.option("--trip", help="Column of trip ids, where rows are positions with a time.")
@evaluate_option
@drawing_options
@release_options(LINE_SUFFIXES, ".parquet .geojson .gpkg .csv .png .html")
@console_options
def command(
    console: Console,
    source: str,
    unit: FlowUnit,
    options: dict[str, Any],
    columns: dict[str, Any],
    origin: tuple[str, str] | None,
    destination: tuple[str, str] | None,
    trip: str | None,
    zones: ZoneCells | None,
    region: Region | None,
    tiling: str | None,
    evaluate: bool,
    windows: Windows | None,
    per: dict[str, Any],
    drawing: Drawing,
    outputs: tuple[Path, ...],
    account: Account | None,
    seed: int | None,
    **parameters: Any,
) -> None:
    """Release flows between the cells of a map, or between zones.

    Under local trust a device randomizes the ends of its trip. A curator, or secure sums, add up every user's trips,
    which count 1 together.

    INPUT is a table of trips with both ends (lon, lat, dest_lon, dest_lat, or pickup_longitude and the like), or one
    of positions with user, trip id and time, whose first and last positions are the ends.

    \b
    Examples:
      mapveil flows trips.parquet --region -8.70,41.10,-8.52,41.22 --epsilon 2 -o flows.html
      mapveil flows trips.parquet --trust central --zones districts.geojson --epsilon 2 -o flows.parquet
      mapveil flows trips.csv --region city.geojson --tiling grid:12x16 --epsilon 2 --unit trip \\
          --estimator lasso -o flows.parquet -o flows.png
      mapveil flows trips.parquet --trust central --zones districts.geojson --every 1w --from 2026-01-05 \\
          --until 2026-03-30 --epsilon 2 -o weeks.parquet
    """
    from mapveil.analysis.flows import flows
    from mapveil.analysis.trips import read_trips
    from mapveil.privacy.account import writing

    if per.pop("per", "user") != "user":
        raise ParameterError(
            "--per must be user for flows: their epsilon is for all windows of a user together"
        )
    if zones is None and region is None:
        raise ParameterError("--region or --zones is required: flows are between cells of a public region")
    cells = zones_or_tiling(zones, region, tiling)
    with console.progress() as progress:
        progress("read the trips", 0.0)
        trips = read_trips(source, **columns, origin=origin, destination=destination, trip=trip)
        progress("read the trips", 1.0)
        if trips.points is not None:
            console.note_columns(trips.points)
            note_clock(console, windows)
        own = {name: parameters[name] for name in ("epsilon", "trust", "method", "estimator", "candidates")}
        over_time = {} if windows is None else {"windows": windows, **per}
        _foresee(console, trips, _cells(cells, region), unit, options, over_time, **own)
        released = flows(
            trips,
            cells,
            unit=unit,
            options=options,
            region=region,
            account=account,
            rng=seed,
            progress=progress,
            windows=windows,
            **per,
            **parameters,
        )
        with writing(account, released.guarantee):
            save_all(outputs, titled(released, drawing).save, progress)
    if unit == "trip":
        console.warn("the guarantee is about one trip: a user of ten trips has ten times the epsilon")
    lines = [f"{counted(released.size, 'flow')}; {released.in_all()} in all"]
    if released.unlisted:
        part = 100 * released.unlisted / released.all_trips
        lines[0] += f", {part:.0f} % of the shown ones in flows that are not listed"
    if released.counted == "users":
        lines[0] += f"; {released.counting}"
    outside = options.get("outside", "drop")
    evaluation = console.evaluated(lambda: _evaluate(trips, released, outside)) if evaluate else None
    console.answer(outputs, released, account, lines=lines, evaluation=evaluation, seed=seed)


def _cells(cells: ZoneCells | str | None, region: Region | None) -> Tiling | None:
    """The cells; None where the number of reports chooses them."""
    if not isinstance(cells, str) or region is None:
        return None if isinstance(cells, str) else cells
    from mapveil.geo.parse_tiling import parse_tiling

    return parse_tiling(cells, region)


def _foresee(
    console: Console,
    trips: Trips,
    cells: Tiling | None,
    unit: FlowUnit,
    options: dict[str, Any],
    over_time: dict[str, Any],
    *,
    epsilon: Fraction,
    trust: str,
    method: str | None,
    estimator: FlowEstimator | Literal["mixed", "pair"] | None,
    candidates: Any,
) -> None:
    """Warn where few pairs can be told from zero, by numbers that are public: before anything is charged."""
    import numpy as np

    from mapveil.analysis.flow_design import deviation_factor, least_told
    from mapveil.analysis.flows import design_of
    from mapveil.mechanisms.flow_mechanism import MOST_ZONES
    from mapveil.mechanisms.flow_series import FlowSeries
    from mapveil.mechanisms.methods import flow_blocks
    from mapveil.privacy.weighted_noise import WeightedNoise
    from mapveil.trust.curator import Curator

    if cells is None or not 1 < cells.size <= MOST_ZONES:
        return
    people = trips.count if unit == "trip" else len(set(trips.users.tolist()))
    users: int | None = people
    if trust == "local":
        if method is not None or over_time:
            return  # a randomizer of another deviation; and refused
        design = design_of(estimator, method, of_users=unit == "user" and candidates is None)
        least = least_told(math.sqrt(people) * deviation_factor(cells.size, epsilon, design), cells.size)
    else:
        given = {name: value for name, value in over_time.items() if name != "window_error"}
        summing = flow_blocks(epsilon, trust, {**options, **given}, accept_large_epsilon=True)
        if isinstance(summing.trust, Curator):
            users = summing.trust.users
        counts_as = 1
        if isinstance(summing, FlowSeries):
            counts_as = summing.contribution
            users = users and users * counts_as // summing.windows.count
        law = (1.0, float(epsilon / counts_as), float(summing.trust.noise_terms(people)))
        least = least_told(WeightedNoise(*(np.array([part]) for part in law)), cells.size)
    counted = "trips" if trust == "local" else "users"
    # At best: where the whole budget measures every pair by itself.
    said = f"a pair of {cells.size} cells is told from zero at best from about {least:,.0f} {counted} on"
    said += " in a window" if over_time else ""
    if users is None:
        console.note(said)
    elif least > users / 10:
        of = f"the {users:,} of an average window" if over_time else f"all {users:,}"
        console.warn(
            f"{said}, more than a tenth of {of}: few pairs will be, or none; take fewer cells or a larger "
            "epsilon"
        )


def _evaluate(trips: Trips, released: FlowMap, outside: Any) -> dict[str, float]:
    """Compare with all true trips, or with the users that a release counts, without privacy."""
    import numpy as np

    from mapveil.analysis.quality import flow_quality
    from mapveil.analysis.trips import cells_of_trips
    from mapveil_client.local.domain import Domain
    from mapveil_client.randomness.random import Randomness

    if released.counted == "users":
        users = _true_users(trips, released)
        origins, destinations = np.nonzero(users)
        weights = users[origins, destinations]
        return flow_quality(origins, destinations, released, weights=weights)._asdict()
    ends = cells_of_trips(trips, Domain(released.tiling), outside, Randomness(0), one_each=False)
    return flow_quality(*ends, released)._asdict()


def _true_users(trips: Trips, released: FlowMap) -> FloatArray:
    """The users of each pair of cells, each of whom counts as in the release, shape (cells, cells); not private."""
    import numpy as np

    from mapveil.engines import UNIT, user_sums
    from mapveil.geo.windowed_points import windowed
    from mapveil.maps.flow_series_map import FlowSeriesMap

    points, size = trips.as_points(), released.tiling.size
    if isinstance(released, FlowSeriesMap):
        if released.parameters.get("windows_per_user") is not None:
            raise InputError(
                "windows_per_user (--windows-per-user) draws which windows of a user count by a key that is not kept, "
                "so what the release should say is not known"
            )
        points = windowed(points, released.windows)
    sums = user_sums(points, released.tiling).sums.reshape(-1, size, size).sum(axis=0)
    return np.asarray(sums / UNIT, dtype=np.float64)
