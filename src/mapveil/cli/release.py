"""``mapveil release``: from a table to a map that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.accounting import Accounting
from mapveil.cli.arguments import parse_region, read_options
from mapveil.cli.console import Console, console_options
from mapveil.cli.release_request import DEFAULT_TILING, ReleaseRequest
from mapveil.mechanisms.methods import DEFAULT_METHODS, find_method
from mapveil_client.epsilon import as_epsilon
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import as_randomness

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap
    from mapveil.privacy.ledger import Account


@click.command("release")
@click.argument("source", metavar="INPUT")
@click.option(
    "--region", help="W,S,E,N in degrees, or a polygon file. Without it, a tenth of epsilon finds one."
)
@click.option(
    "--tiling",
    help=f"quadtree:8, grid:300x300, h3:8, tiles:15, places:FILE or places:COLUMN. [default: {DEFAULT_TILING}]",
)
@click.option("--method", help="See 'mapveil methods'. [default: the best of the trust]")
@click.option(
    "--trust",
    default="central",
    show_default=True,
    help=f"Who may see raw locations: {', '.join(DEFAULT_METHODS)}.",
)
@click.option("--epsilon", help="The whole privacy budget of this map, such as 1, 0.5 or 1/3.")
@click.option(
    "--option", "options", multiple=True, metavar="K=V", help="An option of the method. Repeatable."
)
@click.option(
    "--secure-sum",
    type=click.Choice(["ideal", "protocol", "active"]),
    help="With --trust distributed: add in the clear, run all the cryptography, or that with checks "
    "against a lying server. [default: ideal]",
)
@click.option("--shard-size", type=int, help="With --trust distributed: devices of one secure sum at most.")
@click.option("--dropout", type=float, help="With --trust distributed: part of the devices that drop out.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Where to write: .tif .parquet .geojson .png .html. Repeatable.",
)
@click.option("--user", help="Column of user ids. [default: the usual names]")
@click.option("--lon", help="Column of longitudes.")
@click.option("--lat", help="Column of latitudes.")
@click.option("--weight", help="Column of weights: how much each row counts within its user.")
@click.option("--label", help="Column of labels, for methods that tell proportions.")
@click.option("--merge-below", type=float, help="Move cells estimated below this many users to 'elsewhere'.")
@click.option("--smooth-m", type=float, help="Blur the map by a Gaussian of this many metres.")
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="The ledger file. [default: $MAPVEIL_LEDGER or yours]"
)
@click.option(
    "--no-ledger",
    is_flag=True,
    help="Do not account for this release (the promise stays, the sum of promises is lost).",
)
@click.option("--dataset", help="Name of the dataset whose budget is spent. [default: told by its content]")
@click.option("--seed", type=int, help="Repeat a run exactly. The map is marked NOT FOR RELEASE.")
@console_options
def command(
    console: Console,
    source: str,
    region: str | None,
    tiling: str | None,
    method: str | None,
    trust: str,
    epsilon: str | None,
    options: tuple[str, ...],
    secure_sum: str | None,
    shard_size: int | None,
    dropout: float | None,
    outputs: tuple[Path, ...],
    user: str | None,
    lon: str | None,
    lat: str | None,
    weight: str | None,
    label: str | None,
    merge_below: float | None,
    smooth_m: float | None,
    ledger: Path | None,
    no_ledger: bool,
    dataset: str | None,
    seed: int | None,
) -> None:
    """Release a private map of a table of points or a raster of counts.

    INPUT is Parquet (a glob too), GeoParquet, CSV, GeoJSON, '-' for CSV on standard input, or a
    raster of counts (.npz, .tif). One row is one visit; a user's rows together count as one user.

    \b
    Examples:
      mapveil release checkins.parquet --region -74.03,40.69,-73.90,40.83 --epsilon 1 -o map.html
      mapveil release trips.csv --user rider --region city.geojson --tiling h3:8 --epsilon 0.5 -o map.geojson
      mapveil release checkins.parquet --region -74.03,40.69,-73.90,40.83 --tiling quadtree:8 \\
          --method emd --option width=40 --epsilon 1 -o map.tif -o map.png
      mapveil release population.npz --epsilon 1 -o population.tif
    """
    from mapveil.geo.points import Points
    from mapveil.geo.read_points import read_source
    from mapveil.privacy.ledger import Ledger

    given = read_options(options)
    if shard_size is not None:
        given["shard_size"] = shard_size
    request = ReleaseRequest(
        find_method(method, trust),
        None if epsilon is None else as_epsilon(epsilon),
        given,
        parse_region(region),
        tiling,
        secure_sum,
        dropout,
    )
    request.mechanism()
    _check_outputs(outputs)
    if request.region is not None and request.column_of_places is None:
        request.cells(request.region)
    if merge_below is not None and not merge_below >= 0:
        raise ParameterError(f"--merge-below is {merge_below!r}; a number of users of at least 0 is accepted")
    if smooth_m is not None and not smooth_m > 0:
        raise ParameterError(f"--smooth-m is {smooth_m!r}; a length in metres above 0 is accepted")

    read = read_source(source, user=user, lon=lon, lat=lat, weight=weight, label=label)
    if not isinstance(read, Points):
        request.check_raster(source)
    elif request.column_of_places is not None:
        console.warn(
            f"the list of places in {request.column_of_places!r} is taken to be public: nothing hides which there are"
        )
    rng = as_randomness(seed)
    with console.progress() as progress:

        def account() -> Accounting:
            progress("open the ledger", 0.0)
            opened = Accounting(
                None if no_ledger or seed is not None else Ledger(ledger),
                read,
                dataset,
                method=request.method.name,
                parameters=given,
                tiling=tiling or (DEFAULT_TILING if isinstance(read, Points) else read.tiling.spec),
                region=region or "",
                outputs=outputs,
            )
            progress("open the ledger", 1.0)
            return opened

        release = _wing(trust)
        made, accounting = release(console, request, read, account, rng, progress)
        if smooth_m is not None:
            from mapveil.inference.heatmap import smooth

            made = smooth(made, sigma_m=smooth_m)
        if merge_below is not None:
            made = made.merge_below(merge_below)
        for at, output in enumerate(outputs):
            progress("write", at / len(outputs))
            made.save(output)
        progress("write", 1.0)
    receipt = None if accounting is None else accounting.written()
    if seed is not None:
        console.warn("seeded: this map is NOT FOR RELEASE, and nothing was charged for it")
    _report(console, made, outputs, receipt)


def _wing(trust: str) -> Any:
    """How a trust releases."""
    if trust == "distributed":
        from mapveil.cli.release_devices import release_by_devices

        return release_by_devices
    if trust == "local":
        from mapveil.cli.release_local import release_by_local_reports

        return release_by_local_reports
    if trust == "projection":
        from mapveil.cli.release_projection import release_by_projection

        return release_by_projection
    from mapveil.cli.release_curator import release_by_curator

    return release_by_curator


def _check_outputs(outputs: tuple[Path, ...]) -> None:
    """Refuse what could not be written before anything is read or spent."""
    from mapveil.maps.released import SUFFIXES

    for output in outputs:
        if output.suffix.lower() not in SUFFIXES:
            raise InputError(f"-o {output}: no format has that suffix; accepted: {', '.join(SUFFIXES)}")
        if output.is_dir() or not output.parent.is_dir():
            raise InputError(f"-o {output}: the folder {output.parent} must exist, and the name be a file's")


def _report(console: Console, made: DensityMap, outputs: tuple[Path, ...], receipt: Account | None) -> None:
    lines = [f"wrote {output}" for output in outputs]
    # Warnings are on stderr already.
    lines += [f"note: {note}" for note in made.notes if not note.startswith("WARNING: ")]
    lines.append(repr(made.guarantee))
    record: dict[str, Any] = {"outputs": [str(output) for output in outputs], **made.metadata()}
    if receipt is None and made.guarantee.epsilon is not None:
        console.warn("not entered in a ledger: nobody adds this release to others of the same people")
    if receipt is not None:
        spent, budget = float(receipt.spent), float(receipt.budget)
        lines.append(f"  ledger      {spent:g} of {budget:g} spent on these data, {budget - spent:g} left")
        record["ledger"] = {"spent": str(receipt.spent), "budget": str(receipt.budget)}
    console.result("\n".join(lines), record)
