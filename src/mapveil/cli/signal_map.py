"""``mapveil signal map``: from measurements, privatized or not, to a coverage map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import (
    method_options,
    outputs,
    region_option,
    seed_option,
    table_source,
    tiling_option,
    title_option,
)
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.measurements import Measurements
    from mapveil.geo.region import Region
    from mapveil.privacy.guarantee import Guarantee

_EVERYBODY = "everybody"


def _suffixes() -> tuple[str, ...]:
    from mapveil.maps.signal_map import SignalMap

    return SignalMap.suffixes


@click.command("map")
@click.argument("source", metavar="INPUT")
@region_option(
    "W,S,E,N in degrees, or a polygon file. [default: around the middle 99 % of privatized locations]"
)
@tiling_option("quadtree:7")
@click.option(
    "--model",
    type=click.Choice(["cells", "linear", "path-loss", "random-forest", "kriging"]),
    default="cells",
    show_default=True,
    help="The mean of each cell's measurements, or a model of the whole region.",
)
@method_options(of="model")
@click.option("--hole", default=-110.0, show_default=True, help="Below this mean a cell is a hole, dBm.")
@click.option("--least", type=int, help="Cells with fewer measurements are unknown (cells). [default: 1]")
@click.option(
    "--reach", type=float, help="Cells farther from every measurement are unknown (models), metres."
)
@click.option("--truth", help="Measurements as they were: also report the error there. It is NOT private.")
@outputs(_suffixes, ".tif .parquet .geojson .csv .png .html")
@title_option
@seed_option("map")
@table_source("rss", "lon", "lat")
@console_options
def command(
    console: Console,
    source: str,
    region: Region | None,
    tiling: str | None,
    model: str,
    options: dict[str, Any],
    hole: float,
    least: int | None,
    reach: float | None,
    truth: str | None,
    outputs: tuple[Path, ...],
    title: str | None,
    seed: int,
    columns: dict[str, str | None],
) -> None:
    """Map signal strength from measurements, privatized or not.

    INPUT is what 'signal privatize' wrote, or any table with latitude, longitude and signal strength. The map carries
    the guarantee of a privatized Parquet file, whose reports may also set the region; of any other INPUT, it says that
    nothing is promised.

    \b
    Examples:
      mapveil signal map private.parquet -o coverage.html
      mapveil signal map private.parquet --region city.geojson --tiling h3:9 --model kriging \\
          --reach 300 --hole -100 -o coverage.tif -o coverage.png
    """
    from mapveil.analysis.signal_mapping import signal_map

    by = (str(options["by"]),) if options.get("by") else ()
    guarantee = _guarantee(source)
    with console.progress() as progress:
        progress("read", 0.0)
        measurements = _read(source, by, columns)
        true = None if truth is None else _read(truth, by, columns)
        progress("map", 0.3)
        made = signal_map(
            measurements,
            tiling,
            region=region,
            guarantee=guarantee,
            model=model,
            options=options,
            least=least,
            reach_m=reach,
            hole_dbm=hole,
            rng=seed,
        )
        error = None
        if true is not None:
            error = made.rmse_dbm(true)
        for at, output in enumerate(outputs):
            progress("write", 0.7 + 0.3 * at / len(outputs))
            made.save(output, title=title)
        progress("write", 1.0)
    if guarantee is None:
        console.warn(f"nothing in {source} says that it was privatized: take this map as NOT private")
    coverage = made.coverage()
    lines = [
        f"{coverage.covered} cells covered, {coverage.holes} holes below {hole:g} dBm, {coverage.unknown} unknown"
    ]
    more: dict[str, Any] = {}
    if error is not None:
        console.warn("the error is taken from true measurements: it is NOT private")
        lines.append(f"root mean square error at true measurements: {error:.2f} dB")
        more["rmse_db"] = error
    console.answer(outputs, made, None, lines=lines, more=more)


def _read(source: str, features: tuple[str, ...], columns: dict[str, str | None]) -> Measurements:
    """Places and strengths; a privatized file names no user, and a map needs none."""
    import duckdb

    from mapveil.geo.read_measurements import read_measurements
    from mapveil.geo.read_points import open_table
    from mapveil.geo.tables import quote_name, reading

    table = open_table(source)
    with duckdb.connect() as connection, reading(table.name):
        whole: Any = connection.sql(
            f"SELECT *, 0 AS {quote_name(_EVERYBODY)} FROM {table.relation(connection)}"
        ).to_arrow_table()
    try:
        return read_measurements(
            whole,
            user=_EVERYBODY,
            features=features,
            rss=columns["rss"],
            lon=columns["lon"],
            lat=columns["lat"],
        )
    except InputError as error:
        # The frame has no name of its own: the file that was named is what its owner knows.
        said = str(error).replace(_frame_name(whole), source).replace(f", {_EVERYBODY!r}", "")
        raise type(error)(said) from None


def _frame_name(whole: Any) -> str:
    from mapveil.geo.read_points import open_table

    return open_table(whole).name


def _guarantee(source: str) -> Guarantee | None:
    """The guarantee that the file documents."""
    import dataclasses

    from mapveil.obfuscation.privatize_table import privatized_guarantee
    from mapveil.privacy.claim import Assumes

    found = None if source == "-" else privatized_guarantee(source)
    if found is None:
        return None
    return dataclasses.replace(found, assumptions=(*found.assumptions, Assumes.PRIVATIZED_INPUT()))
