"""``mapveil signal``: coverage maps from measurements that phones privatize before they leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli import signal_certify, signal_privacy, signal_sums
from mapveil.cli.console import Console, console_options, counted, save_all
from mapveil.cli.options import (
    Parsed,
    drawing_options,
    method_options,
    region_option,
    seed_option,
    table_source,
    tiling_option,
)
from mapveil.cli.outputs import outputs
from mapveil.cli.signal_privacy import read_signal, signal_columns
from mapveil.maps.released import SUFFIXES
from mapveil_client.epsilon import as_epsilon
from mapveil_client.report_account import ReportBudget

if TYPE_CHECKING:
    from fractions import Fraction

    from mapveil.cli.options import Drawing
    from mapveil.geo.region import Region


@click.group("signal")
def command() -> None:
    """Map coverage from phones that privatize each measurement before it leaves.

    \b
    Examples:
      mapveil signal fit pilot.parquet --privatizer gap --option rho=0.4 -o gap.mapveil
      mapveil signal certify gap.mapveil opted-in.parquet -o certificate.json
      mapveil signal privatize gap.mapveil measurements.parquet -o private.parquet
      mapveil signal attack private.parquet --truth measurements.parquet -o attack.html
      mapveil signal tradeoff measurements.parquet -o tradeoff/
      mapveil signal choose tradeoff/ --distortion-at-most 3
      mapveil signal map private.parquet --region 23.99,35.50,24.08,35.54 -o coverage.html
    """


@command.command("fit")
@click.argument("source", metavar="PILOT")
@click.option(
    "--privatizer",
    required=True,
    help="gaussian-noise, local-gaussian, truncated-laplacian, gap or codebook.",
)
@method_options(of="privatizer")
@click.option(
    "--rows", type=click.IntRange(2), help="Fit on at most so many rows, drawn at random. [default: all rows]"
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=30,
    show_default=True,
    help="Number of days after which phones refuse it.",
)
@click.option(
    "--category-epsilon",
    default="1",
    show_default=True,
    help="Epsilon of each category of a measurement (k-ary randomized response).",
)
@outputs((".mapveil", ".onnx", ".json"), ".mapveil, or for phones .onnx or .json")
@click.option("--seed", type=int, help="Repeat a fit exactly.")
@signal_columns
@console_options
def fit(
    console: Console,
    source: str,
    columns: dict[str, Any],
    privatizer: str,
    options: dict[str, Any],
    rows: int | None,
    outputs: tuple[Path, ...],
    seed: int | None,
    **terms: Any,
) -> None:
    """Fit a privatizer on measurements of people who opted in.

    PILOT is Parquet, CSV and whatever else 'release' reads, with columns for a user, a location and a signal strength
    in dBm; every further column of numbers is a feature, identifiers left out. Whoever runs this sees the pilot; the
    measurements that are privatized later stay unseen. Phones refuse the file after its last day.

    \b
    Examples:
      mapveil signal fit pilot.parquet --privatizer gap --option rho=0.4 -o gap.mapveil -o gap.onnx
      mapveil signal fit pilot.csv --privatizer local-gaussian --option epsilon=10 --feature speed \\
          -o noise.mapveil -o noise.json
    """
    from mapveil.obfuscation.export.phone_export import check_phone_name, export_privatizer
    from mapveil.obfuscation.export.privatizer_file import fingerprint, write_privatizer
    from mapveil.obfuscation.privatize import fit_privatizer
    from mapveil.obfuscation.privatizers.privatizer import find_privatizer
    from mapveil_client.randomness.random import as_randomness

    chosen = find_privatizer(privatizer).make(options)
    phones = [output for output in outputs if output.suffix.lower() != ".mapveil"]
    for output in phones:
        check_phone_name(output, chosen.name)
    rng = as_randomness(seed)
    with console.progress() as progress:
        progress("read", 0.0)
        pilot = read_signal(console, source, columns).sample(rows, rng.child("rows"), length=chosen.sequence)
        progress("read", 1.0)
        fitted = fit_privatizer(pilot, chosen, rng=rng, progress=progress, **terms)
        save_all(
            outputs,
            lambda path: (export_privatizer if path in phones else write_privatizer)(fitted, path),
            progress,
        )
    guarantee = fitted.guarantee(seeded=False)
    for warning in guarantee.promise.warnings:
        console.warn(warning)
    categories = [fitted.names[each.column] for each in fitted.categories]
    record = {
        "privatizer": chosen.name,
        "parameters": chosen.parameters(),
        "features": list(fitted.names),
        "categories": categories,
        "expires": str(fitted.expires),
        "fingerprint": fingerprint(fitted),
        "pilot_rows": len(pilot),
        "guarantee": guarantee.to_dict(),
    }
    numbers = [fitted.names[at] for at in fitted.numeric[0]]
    text = f"fitted on {counted(len(pilot), 'row')}; privatizes {', '.join(numbers)}"
    if categories:
        text += f"\nas categories: {', '.join(categories)}"
    text += f"\nphones refuse it after {fitted.expires}\n{guarantee!r}"
    console.result(text, record, outputs)


@command.command("privatize")
@click.argument("privatizer", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT")
@click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Leave a further column as it is; the guarantee does not cover it. Repeatable.",
)
@click.option(
    "--user-epsilon",
    type=Parsed("epsilon", lambda text: as_epsilon(text, "--user-epsilon")),
    help="Epsilon of all reports of a phone together; its further rows are left out.",
)
@click.option(
    "--user-reports",
    type=click.IntRange(0),
    help="Maximum number of reports of a phone; others are left out.",
)
@click.option(
    "--user-delta",
    type=Parsed("delta", lambda text: as_epsilon(text, "--user-delta")),
    default="0.00001",
    show_default=True,
    help="Delta at which the epsilon of all reports of a phone is composed.",
)
@outputs((".parquet", ".csv"), ".parquet .csv")
@click.option(
    "--seed",
    type=int,
    help="Repeat a run exactly, in the order of INPUT as 'signal attack' needs it. The file is NOT FOR RELEASE.",
)
@signal_columns
@console_options
def privatize(
    console: Console,
    privatizer: Path,
    source: str,
    columns: dict[str, Any],
    keep: tuple[str, ...],
    user_epsilon: Fraction | None,
    user_reports: int | None,
    user_delta: Fraction,
    outputs: tuple[Path, ...],
    seed: int | None,
) -> None:
    """Privatize a file of measurements as phones would.

    PRIVATIZER is what 'signal fit' wrote (.mapveil). The output has the columns and types of INPUT, so that what
    reads one reads the other: features are privatized, every other column is emptied unless --keep names it (user
    ids and times say more than any privatization hides), and rows with a missing feature are left out.

    \b
    Examples:
      mapveil signal privatize gap.mapveil measurements.parquet -o private.parquet
      mapveil signal privatize noise.mapveil day.csv --keep cell_id -o private.csv
    """
    from mapveil.obfuscation.export.privatizer_file import read_privatizer
    from mapveil.obfuscation.privatize import privatize, total_record, write_privatized

    fitted = read_privatizer(privatizer)
    for given in ("features", "categories"):
        columns.pop(given)  # the privatizer's
    bounded = user_epsilon is not None or user_reports is not None
    budget = ReportBudget(user_epsilon, user_delta, user_reports) if bounded else None
    with console.progress() as progress:
        private = privatize(fitted, source, keep=keep, budget=budget, rng=seed, progress=progress, **columns)
        save_all(outputs, lambda path: write_privatized(private, path), progress)
    if keep:
        console.warn(f"{', '.join(keep)} left as it is: the guarantee says nothing about it")
    for warning in private.guarantee.promise.warnings:
        console.warn(warning)
    rows = private.table.num_rows
    lines = [f"privatized {counted(rows, 'row')}; emptied {', '.join(private.emptied) or 'no column'}"]
    lines += [f"note: {note}" for note in private.notes]
    total = private.total
    if total is None:
        lines.append("all reports of one user together: nothing bounds them (--user-epsilon, --user-reports)")
    else:
        together = f"epsilon {total.epsilon:.4g} at delta {total.delta:.3g}"
        lines.append(
            f"all reports of one user (at most {total.reports}) together: "
            f"{together if total.bounded else 'no epsilon bounds them at a delta below 1'}"
        )
    record = {
        "per_user": total_record(total),
        "rows": rows,
        "privatized": list(fitted.names),
        "emptied": list(private.emptied),
        "kept": list(keep),
        "notes": list(private.notes),
        "guarantee": private.guarantee.to_dict(),
    }
    console.result("\n".join([*lines, repr(private.guarantee)]), record, outputs)


@command.command("map")
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
@signal_sums.hole_option
@click.option(
    "--least", type=int, help="Minimum number of measurements of a known cell (cells). [default: 1]"
)
@click.option(
    "--reach",
    "reach_m",
    type=float,
    help="Maximum distance of a known cell from a measurement (models), metres. [default: any]",
)
@click.option("--truth", help="Measurements as they were: also report the error there. It is NOT private.")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    help="What 'signal certify' wrote: stated where it is about these reports.",
)
@outputs(SUFFIXES, ".tif .parquet .geojson .gpkg .pmtiles .csv .png .html")
@drawing_options
@seed_option("map", name="rng")
@table_source("rss", "lon", "lat")
@console_options
def map_(
    console: Console,
    source: str,
    region: Region | None,
    tiling: str | None,
    options: dict[str, Any],
    hole_dbm: float,
    truth: str | None,
    certificate: Path | None,
    outputs: tuple[Path, ...],
    drawing: Drawing,
    columns: dict[str, str | None],
    **parameters: Any,
) -> None:
    """Map signal strength from measurements, privatized or not.

    INPUT is what 'signal privatize' wrote, or any table with latitude, longitude and signal strength. The map carries
    the guarantee of files of one privatizer (a pattern of them too), whose reports may also set the region; of any
    other INPUT, it says that nothing is promised.

    \b
    Examples:
      mapveil signal map private.parquet -o coverage.html
      mapveil signal map private.parquet --region town.geojson --tiling grid:80x120 --model kriging \\
          --reach 300 --hole -100 -o coverage.tif -o coverage.png
    """
    from mapveil.analysis.signal_mapping import signal_map
    from mapveil.evaluation.certificate_file import read_certificate
    from mapveil.evaluation.signal_certificate import certified
    from mapveil.geo.read_points import open_table
    from mapveil.obfuscation.privatized_file import (
        privatized_map_error,
        privatized_provenance,
        read_privatized,
    )

    found = None if certificate is None else read_certificate(certificate)
    table = open_table(source)  # once: standard input cannot be read again
    provenance = privatized_provenance(table)
    features = (str(options["by"]),) if options.get("by") else ()
    with console.progress() as progress:
        progress("read", 0.0)
        measurements, guarantee = read_privatized(table, features=features, **columns)
        guarantee = None if guarantee is None else certified(guarantee, found, provenance)
        true = None if truth is None else read_privatized(truth, features=features, **columns)[0]
        progress("read", 1.0)
        coverage = signal_map(
            measurements,
            tiling,
            region=region,
            guarantee=guarantee,
            options=options,
            hole_dbm=hole_dbm,
            error=privatized_map_error(table),
            **parameters,
        )
        error = None if true is None else coverage.rmse_dbm(true)
        save_all(outputs, replace(coverage, **drawing.of(coverage)).save, progress)
    lines = [signal_sums.cells_in_words(coverage)]
    more: dict[str, Any] = {}
    if found is not None and (reason := found.about(provenance)) is not None:
        console.warn(f"nothing is certified for these reports: {reason}")
    if error is not None:
        console.warn("the error is taken from true measurements: it is NOT private")
        lines.append(f"root mean square error at true measurements: {error:.2f} dB")
        more["rmse_db"] = error
    console.answer(outputs, coverage, None, lines=lines, more=more)


for _further in (
    *(signal_sums.sums, signal_certify.certify_, signal_certify.drift_),
    *(signal_privacy.attack, signal_privacy.tradeoff, signal_privacy.choose),
):
    command.add_command(_further)
