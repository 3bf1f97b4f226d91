"""``mapveil attack``: what could still be learnt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import length_list, whole_list
from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import (
    Parsed,
    method_options,
    outputs,
    places_option,
    region_option,
    seed_option,
    table_source,
    tiling_option,
)

if TYPE_CHECKING:
    from mapveil.attacks.localisation import LocalisationReport
    from mapveil.attacks.localisation_scene import Scene


@click.group("attack")
def command() -> None:
    """Measure what a server could still learn about people from what it holds.

    \b
    Examples:
      mapveil attack random-features released.tif
      mapveil attack random-features checkins.parquet --region -74.03,40.69,-73.90,40.83 --option bandwidth_m=150
    """


@command.command("random-features")
@click.argument("source", metavar="INPUT|MAP")
@region_option("W,S,E,N in degrees, or a polygon file (needed for points).")
@tiling_option()
@places_option
@method_options(of="fourier-kde")
@click.option(
    "--prior",
    help="Knowledge of a server: a map or a raster of counts. [default: the density of these devices]",
)
@click.option(
    "--features",
    type=Parsed("numbers", lambda text: whole_list(text, "--features")),
    default="1,2,3",
    show_default=True,
    help="Numbers of random features to compare.",
)
@click.option(
    "--bandwidths",
    type=Parsed("lengths", lambda text: length_list(text, "--bandwidths")),
    default=(),
    help="Bandwidths to compare, metres. [default: half, once and twice the mechanism's]",
)
@click.option("--devices", default=200, show_default=True, help="Number of devices against each server.")
@click.option("--answers", default=8, show_default=True, help="Number of reports of a moving device.")
@click.option(
    "--step-m", type=float, help="Distance between two reports, metres. [default: two of the prior's cells]"
)
@click.option(
    "--ratio", default=1.1, show_default=True, help="The paper's epsilon: maxima down to highest / ratio."
)
@outputs((".html", ".png", ".json"), ".html .png .json", required=False)
@table_source("user", "lon", "lat", "weight")
@seed_option("report")
@console_options
def random_features(
    console: Console,
    source: str,
    prior: str | None,
    outputs: tuple[Path, ...],
    columns: dict[str, Any],
    **parameters: Any,
) -> None:
    """Locate devices that report random Fourier features: the paper's score, and servers that know more.

    INPUT is a table of points or a raster of counts, as for 'release'; MAP is what 'release --method fourier-kde'
    wrote (.tif, .parquet): then devices are drawn from the map, and the options are the map's. The report reads
    true locations: it is NOT private.

    \b
    Examples:
      mapveil attack random-features checkins.parquet --region -74.03,40.69,-73.90,40.83 \\
          --option features=1 --option bandwidth_m=150 -o report.html
      mapveil attack random-features released.tif --features 1,2,3,5 --json
    """
    from mapveil.attacks.attack_random_features import attack_random_features
    from mapveil.attacks.localisation_page import report_text
    from mapveil.geo.counts import read_counts
    from mapveil.geo.points import Points
    from mapveil.geo.read_points import read_source

    with console.progress() as progress:
        progress("read", 0.0)
        read = _map_or(source, lambda: read_source(source, **columns))
        if isinstance(read, Points):
            console.note_columns(read)
        public = None if prior is None else _map_or(prior, lambda: read_counts(prior))
        progress("read", 1.0)
        report, scene = attack_random_features(
            read, prior=public, knows=Path(prior or "").name, progress=progress, **parameters
        )
        save_all(outputs, lambda path: _save(report, scene, path), progress)
    console.warn_of_truth("an attack")
    for text in report.warnings:
        console.warn(text)
    console.result(report_text(report), report.to_dict(), outputs)


def _map_or(source: str, read: Callable[[], Any]) -> Any:
    """The released map in a file, or else what ``read`` reads there."""
    from mapveil.formats.read_map import NotAMap, read_map

    try:
        return read_map(source)
    except NotAMap:
        return read()


def _save(report: LocalisationReport, at: Scene, path: Path) -> None:
    from mapveil.attacks.localisation_page import report_page, report_picture
    from mapveil.evaluation.html_report import write_atomically

    if path.suffix.lower() == ".json":
        write_atomically(path, json.dumps(report.to_dict(), indent=2).encode())
        return
    picture = report_picture(report, at)
    write_atomically(
        path, picture if path.suffix.lower() == ".png" else report_page(report, picture).encode()
    )
