"""``mapveil attack``: what could still be learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import length_list, whole_list
from mapveil.cli.console import Console, console_options
from mapveil.cli.options import (
    Parsed,
    method_options,
    outputs,
    region_option,
    seed_option,
    table_source,
    tiling_option,
)
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.attacks.localisation import LocalisationReport
    from mapveil.attacks.localisation_scene import Scene
    from mapveil.geo.counts import Counts
    from mapveil.geo.region import Region
    from mapveil.maps.density_map import DensityMap


@click.group("attack")
def command() -> None:
    """Measure what could still be learnt of people by whoever holds the answers.

    \b
    Examples:
      mapveil attack random-features released.tif
      mapveil attack random-features checkins.parquet --region -74.03,40.69,-73.90,40.83 --option bandwidth_m=150
    """


@command.command("random-features")
@click.argument("source", metavar="INPUT|MAP")
@region_option("W,S,E,N in degrees, or a polygon file (needed for points).")
@tiling_option()
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
    region: Region | None,
    tiling: str | None,
    options: dict[str, Any],
    prior: str | None,
    features: list[int],
    bandwidths: list[float],
    devices: int,
    answers: int,
    step_m: float | None,
    ratio: float,
    outputs: tuple[Path, ...],
    columns: dict[str, Any],
    seed: int,
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
    from mapveil.geo.read_points import read_source

    with console.progress() as progress:
        progress("read", 0.0)
        read = _released(source) or read_source(source, **columns)
        public = None if prior is None else _public(prior)
        progress("read", 1.0)
        made, scene = attack_random_features(
            read,
            tiling,
            region=region,
            options=options,
            prior=public,
            knows=Path(prior or "").name,
            features=features,
            bandwidths=bandwidths,
            devices=devices,
            answers=answers,
            step_m=step_m,
            ratio=ratio,
            seed=seed,
            progress=progress,
        )
        progress("write", 0.0)
        _write(made, scene, outputs)
        progress("write", 1.0)
    console.warn("an attack reads true locations: do not publish its figures for data of real people")
    for text in made.warnings:
        console.warn(text)
    lines = [report_text(made), *(f"wrote {output}" for output in outputs)]
    console.result("\n".join(lines), {**made.to_dict(), "outputs": [str(output) for output in outputs]})


def _released(source: str) -> DensityMap | None:
    """The map in a file, or None for one that no release wrote."""
    from mapveil.formats.read_map import read_map

    path = Path(source)
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in (".tif", ".tiff", ".parquet"):
        return None
    if suffix == ".parquet" and not _has_metadata(path):
        return None
    try:
        return read_map(path)
    except InputError as error:
        if suffix != ".parquet" and "not a map that Mapveil wrote" in str(error):
            return None  # a raster of counts
        raise


def _has_metadata(path: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    from mapveil.formats.geoparquet import METADATA_KEY

    try:
        with path.open("rb") as opened:
            return METADATA_KEY in (parquet.read_schema(opened).metadata or {})
    except (pa.ArrowException, OSError):
        return False  # whoever reads it as a table says what is wrong with it


def _public(prior: str) -> DensityMap | Counts:
    from mapveil.geo.read_counts import read_counts

    found = _released(prior)
    return read_counts(prior) if found is None else found


def _write(made: LocalisationReport, at: Scene, outputs: tuple[Path, ...]) -> None:
    from mapveil.attacks.localisation_page import report_page, report_picture
    from mapveil.formats.atomic import atomic_path

    picture = b""
    if any(output.suffix.lower() in (".html", ".png") for output in outputs):
        picture = report_picture(made, at)
    for output in outputs:
        suffix = output.suffix.lower()
        with atomic_path(output) as scratch:
            if suffix == ".png":
                scratch.write_bytes(picture)
            elif suffix == ".html":
                scratch.write_text(report_page(made, picture), encoding="utf-8")
            else:
                scratch.write_text(json.dumps(made.to_dict(), indent=2), encoding="utf-8")
