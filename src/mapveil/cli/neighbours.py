"""``mapveil neighbours``: who is near, from a private map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.answers import answer_options, check_outputs, ledger_of, local_mechanism, say
from mapveil.cli.arguments import parse_region, read_options
from mapveil.cli.console import Console, console_options
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import as_randomness

if TYPE_CHECKING:
    from mapveil.analysis.neighbour_map import NeighbourMap
    from mapveil.geo.points import Points
    from mapveil.geo.tiling import Tiling
    from mapveil.local.mechanism import LocalMechanism

_TILING = "quadtree:5"
_SUFFIXES = (".csv", ".tif", ".tiff", ".parquet", ".geojson", ".json", ".png", ".html")


@click.command("neighbours")
@click.argument("source", metavar="INPUT|MAP")
@click.option("-k", "count", type=int, default=25, show_default=True, help="How many nearest users.")
@click.option("--region", help="W,S,E,N in degrees, or a polygon file.")
@click.option(
    "--tiling", help=f"As for 'release': quadtree:8, places:FILE, places:COLUMN. [default: {_TILING}]"
)
@click.option("--epsilon", help="The budget of each user's report. Without it, INPUT is a released map.")
@click.option(
    "--method", help="What randomizes: see 'mapveil methods'. [default: the best of the local trust]"
)
@click.option(
    "--option", "options", multiple=True, metavar="K=V", help="An option of the method. Repeatable."
)
@click.option(
    "--at", "places", multiple=True, metavar="LON,LAT", help="List the nearest users of a place. Repeatable."
)
@click.option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path),
              help="Where to write: .csv (the lists) .parquet .geojson .tif .png .html. Repeatable.")  # fmt: skip
@click.option("--user", help="Column of user ids. [default: the usual names]")
@click.option("--lon", help="Column of longitudes.")
@click.option("--lat", help="Column of latitudes.")
@click.option(
    "--evaluate", is_flag=True, help="Also compare with the true neighbours. These figures are NOT private."
)
@answer_options
@console_options
def command(
    console: Console,
    source: str,
    count: int,
    region: str | None,
    tiling: str | None,
    epsilon: str | None,
    method: str | None,
    options: tuple[str, ...],
    places: tuple[str, ...],
    outputs: tuple[Path, ...],
    user: str | None,
    lon: str | None,
    lat: str | None,
    evaluate: bool,
    title: str | None,
    ledger: Path | None,
    no_ledger: bool,
    dataset: str | None,
    seed: int | None,
) -> None:
    """Where are the k nearest users of every place? From randomized reports, or from a released map.

    INPUT is a table of points, as for 'release': every user reports one place, randomized on their device, and the
    lists follow from the estimated map. MAP is a map that was released (.tif, .parquet): that costs nothing further.

    \b
    Examples:
      mapveil neighbours checkins.parquet --region -74.03,40.69,-73.90,40.83 --epsilon 2 -k 25 -o near.html
      mapveil neighbours checkins.parquet --region -74.03,40.69,-73.90,40.83 --tiling places:venue_id \\
          --epsilon 2 -o near.csv -o near.png
      mapveil neighbours released.parquet --at -73.98,40.75
    """
    from mapveil.analysis.neighbour_map import NeighbourMap
    from mapveil.formats.read_map import read_map
    from mapveil.local.devices import cells_of_users
    from mapveil_client.local.domain import Domain
    from mapveil_client.randomness.random import Randomness

    if count < 1:
        raise ParameterError(f"-k is {count}; at least 1 is accepted")
    check_outputs(outputs, _SUFFIXES)
    asked_places = [_place(text) for text in places]
    rng = as_randomness(seed)
    receipt, evaluation = None, None
    with console.progress() as progress:
        if epsilon is None:
            if region or tiling or method or options or evaluate:
                raise ParameterError(
                    "without --epsilon, INPUT is a released map, which brings its own: leave out --region, --tiling, "
                    "--method, --option and --evaluate, or give --epsilon"
                )
            try:
                heat = read_map(source)
            except InputError as error:
                raise InputError(f"{error}; to ask a table of points, give --epsilon and --region") from error
            asked_cells = _cells_at(asked_places, heat.tiling)
            near = NeighbourMap.of(heat, count)
            accounting = None
        else:
            mechanism = local_mechanism(method, as_epsilon(epsilon), read_options(options))
            points, cells = _read(console, source, region, tiling, user, lon, lat)
            # What would stop the answer must stop it before anything is spent.
            asked_cells = _cells_at(asked_places, cells)
            domain = Domain(cells)
            mechanism.on(domain)
            cells_of_users(points, domain, mechanism.place, mechanism.outside, Randomness(0))
            accounting = _account(
                points,
                dataset,
                ledger,
                mechanism,
                tiling or _TILING,
                region,
                outputs,
                wanted=not no_ledger and seed is None,
            )
            accounting.spend(mechanism.budget)
            heat = mechanism.release(points, cells, rng=rng, progress=progress)
            near = NeighbourMap.of(heat, count)
            if evaluate:
                evaluation = _evaluate(console, mechanism, points, near)
        progress("write", 0.0)
        for output in outputs:
            _write(near, output, title)
        progress("write", 1.0)
    if accounting is not None:
        receipt = accounting.written()
    lines = [f"wrote {output}" for output in outputs]
    listed = [_listed(near, *asked) for asked in zip(asked_places, asked_cells, strict=True)]
    lines += [_in_words(near, one) for one in listed]
    record: dict[str, Any] = {
        "outputs": [str(output) for output in outputs],
        **near.metadata(),
        "places": listed,
    }
    if evaluation is not None:
        record["evaluation"] = evaluation
        lines.append(
            "evaluation (NOT private): "
            + ", ".join(f"{name} {value:.3g}" for name, value in evaluation.items())
        )
    if accounting is None:
        # Post-processing of what was accounted for when it was released.
        console.result("\n".join([*lines, repr(near.guarantee)]), record)
        return
    say(console, lines, record, near.guarantee, receipt, seed)


def _read(
    console: Console,
    source: str,
    region: str | None,
    tiling: str | None,
    user: str | None,
    lon: str | None,
    lat: str | None,
) -> tuple[Points, Tiling]:
    from mapveil.geo.parse_tiling import parse_tiling, places_of_column
    from mapveil.geo.read_points import read_points
    from mapveil.mechanisms.mechanism import check_tiling

    where = parse_region(region)
    if where is None:
        raise ParameterError(
            "phones report about the cells of a --region; W,S,E,N in degrees or a file is accepted"
        )
    points = read_points(source, user=user, lon=lon, lat=lat)
    kind, _, rest = (tiling or "").partition(":")
    if kind == "places" and rest and not Path(rest).is_file():
        console.warn(f"the list of places in {rest!r} is taken to be public: nothing hides which there are")
        cells: Tiling = places_of_column(points, rest, where)
    else:
        cells = parse_tiling(tiling or _TILING, where)
    check_tiling(cells)
    points.check()
    return points, cells


def _account(
    points: Points,
    dataset: str | None,
    path: Path | None,
    mechanism: LocalMechanism,
    tiling: str,
    region: str | None,
    outputs: tuple[Path, ...],
    *,
    wanted: bool,
) -> Any:
    from mapveil.cli.accounting import Accounting

    return Accounting(
        ledger_of(path, wanted=wanted),
        points,
        dataset,
        method=f"{mechanism.name}, neighbours",
        parameters=mechanism.parameters(),
        tiling=tiling,
        region=region or "",
        outputs=outputs,
    )


def _write(near: NeighbourMap, output: Path, title: str | None) -> None:
    suffix = output.suffix.lower()
    if suffix == ".csv":
        near.write_lists(output)
    elif suffix == ".png":
        near.to_png(output, title=title)
    elif suffix == ".html":
        near.to_html(output, title=title)
    else:
        near.save(output)


def _place(text: str) -> tuple[float, float]:
    try:
        lon, lat = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--at is {text!r}; LON,LAT in degrees is accepted, such as -73.98,40.75") from None
    return lon, lat


def _cells_at(places: list[tuple[float, float]], tiling: Tiling) -> list[int]:
    import numpy as np

    found = []
    for lon, lat in places:
        cell = int(tiling.locate(np.array([lon]), np.array([lat]))[0])
        if cell < 0:
            raise InputError(f"--at {lon:g},{lat:g}: is outside the map's region {tiling.region}")
        found.append(cell)
    return found


def _listed(near: NeighbourMap, place: tuple[float, float], cell: int) -> dict[str, Any]:
    """The nearest users of one place, cell by cell."""
    import numpy as np

    from mapveil.analysis.nearest_users import nearest_users

    found = nearest_users(near.values, near.tiling, near.k, places=[cell], asker_counts=near.asker_counts)
    cells, first, users = np.unique(found.cell[0][found.cell[0] >= 0], return_index=True, return_counts=True)
    order = np.argsort(first)
    centres = near.tiling.centres(cells[order])
    rows = zip(
        cells[order].tolist(),
        users[order].tolist(),
        found.distance_m[0][first[order]].tolist(),
        centres.lon.tolist(),
        centres.lat.tolist(),
        strict=True,
    )
    return {
        "place": list(place),
        "cell": cell,
        "radius_m": float(found.radius_m[0]),
        "neighbours": [
            {"cell": at, "users": many, "distance_m": round(far, 1), "lon": round(x, 6), "lat": round(y, 6)}
            for at, many, far, x, y in rows
        ],
    }


def _in_words(near: NeighbourMap, listed: dict[str, Any]) -> str:
    lon, lat = listed["place"]
    lines = [f"the {near.k} nearest users of {lon:g}, {lat:g} are within {listed['radius_m']:.0f} m:"]
    lines += [
        f"  {row['users']:4d} in cell {row['cell']} ({row['lon']}, {row['lat']}), {row['distance_m']:.0f} m away"
        for row in listed["neighbours"][:10]
    ]
    if len(listed["neighbours"]) > 10:
        lines.append(f"  and in {len(listed['neighbours']) - 10} more cells (--json lists all)")
    return "\n".join(lines)


def _evaluate(
    console: Console, mechanism: LocalMechanism, points: Points, near: NeighbourMap
) -> dict[str, float]:
    """Against the cells the users really reported about: not private."""
    import numpy as np

    from mapveil.analysis.neighbour_quality import neighbour_quality
    from mapveil.local.devices import cells_of_users
    from mapveil_client.local.domain import Domain
    from mapveil_client.randomness.random import Randomness

    cells = cells_of_users(points, Domain(near.tiling), mechanism.place, mechanism.outside, Randomness(0))
    truth = np.bincount(cells, minlength=near.tiling.size)
    console.warn("an evaluation reads true places: do not publish its figures for data of real people")
    return neighbour_quality(truth, near.values, near.tiling, near.k)._asdict()
