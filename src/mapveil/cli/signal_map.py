"""``mapveil signal map``: from measurements, rewritten or not, to a coverage map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

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
_MARGIN = 0.05  # of the side of a box around reports


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
    """Map signal strength from measurements, rewritten or not.

    INPUT is what 'signal privatize' wrote, or any table with latitude, longitude and signal strength. The map carries
    the guarantee of a rewritten Parquet file, whose reports may also set the region; of whatever else INPUT is, it says
    that nothing is promised.

    \b
    Examples:
      mapveil signal map private.parquet -o coverage.html
      mapveil signal map private.parquet --region city.geojson --tiling h3:9 --model kriging \\
          --reach 300 --hole -100 -o coverage.tif -o coverage.png
    """
    from mapveil.analysis.signal_mapping import map_signal
    from mapveil.analysis.signal_models.models import signal_model
    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.maps.signal_map import SignalMap

    chosen = None if model == "cells" else signal_model(model, options)
    for name, value, needed in (
        ("--reach", reach, False),
        ("--least", least, True),
        ("--option", options, False),
    ):
        if value and (chosen is None) != needed:
            raise InputError(
                f"{name} is for {'--model cells' if needed else 'the other models'}; leave it out here"
            )
    by = (str(options["by"]),) if options.get("by") else ()
    documented, guarantee = _guarantee(source)
    if region is None and not documented:
        raise InputError(
            f"{source}: the region must not be taken from measurements that were not rewritten; --region W,S,E,N or a "
            "polygon file is accepted"
        )
    with console.progress() as progress:
        progress("read", 0.0)
        measurements = _read(source, by, columns)
        true = None if truth is None else _read(truth, by, columns)
        cells = parse_tiling(tiling or "quadtree:7", region or _around(measurements))
        progress("map", 0.3)
        error = None
        if chosen is None:
            made = SignalMap.from_measurements(
                measurements, cells, guarantee, least=1 if least is None else least, hole_dbm=hole
            )
        else:
            parameters = {name: value for name, value in options.items() if value is not None}
            made = map_signal(
                chosen,
                measurements,
                cells,
                guarantee,
                reach_m=reach,
                rng=seed,
                hole_dbm=hole,
                parameters=parameters,
            )
        if true is not None:
            error = made.rmse_dbm(true)
        for at, output in enumerate(outputs):
            progress("write", 0.7 + 0.3 * at / len(outputs))
            made.save(output, title=title)
        progress("write", 1.0)
    if not documented:
        console.warn(f"nothing in {source} says that it was rewritten: take this map as NOT private")
    coverage = made.coverage()
    lines = [f"wrote {output}" for output in outputs]
    lines.append(
        f"{coverage.covered} cells covered, {coverage.holes} holes below {hole:g} dBm, {coverage.unknown} unknown"
    )
    lines += [f"note: {note}" for note in made.notes]
    if error is not None:
        console.warn("the error is taken from true measurements: it is NOT private")
        lines.append(f"root mean square error at true measurements: {error:.2f} dB")
    lines.append(repr(guarantee))
    record = {
        **made.metadata(),
        "outputs": [str(output) for output in outputs],
        **({} if error is None else {"rmse_db": error}),
    }
    console.result("\n".join(lines), record)


def _read(source: str, features: tuple[str, ...], columns: dict[str, str | None]) -> Measurements:
    """Places and strengths; a rewritten file names no user, and a map needs none."""
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


def _around(measurements: Measurements) -> Region:
    """A box of what was reported: reports are public, and a few may lie anywhere."""
    from mapveil.geo.region import Region

    (south, west), (north, east) = np.quantile(measurements.rows[:, :2], [0.005, 0.995], axis=0)
    if not (south < north and west < east):
        raise InputError("the reports are all in one place; --region W,S,E,N or a polygon file is accepted")
    # A margin: cells of some tilings are in the region only when their middle is.
    across, up = _MARGIN * (east - west), _MARGIN * (north - south)
    box = (west - across, max(south - up, -90.0), east + across, min(north + up, 90.0))
    return Region.from_bbox(*map(float, box))


def _frame_name(whole: Any) -> str:
    from mapveil.geo.read_points import open_table

    return open_table(whole).name


def _guarantee(source: str) -> tuple[bool, Guarantee]:
    """Whether the file documents a guarantee, and the guarantee: none where it does not."""
    import dataclasses

    from mapveil.obfuscation.rewrite_table import rewritten_guarantee
    from mapveil.privacy.claim import Adversary, Assumes, Reveals, TrustModel, Unit
    from mapveil.privacy.guarantee import Guarantee

    found = None if source == "-" else rewritten_guarantee(source)
    if found is not None:
        return True, dataclasses.replace(found, assumptions=(*found.assumptions, Assumes.PRIVATIZED_INPUT()))
    return False, Guarantee(
        model=TrustModel.OBFUSCATION,
        unit=Unit.REPORT,
        epsilon=None,
        adversary=Adversary.REPORTS,
        disclosure=Reveals.UNDOCUMENTED(),
    )
