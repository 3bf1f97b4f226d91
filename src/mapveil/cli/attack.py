"""``mapveil attack``: what could still be learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    from mapveil.random_features.fourier_kde import FourierKde
    from mapveil_client.randomness.random import Randomness

_METHOD: Final = "fourier-kde"


@click.group("attack")
def command() -> None:
    """Measure what could still be learnt of people by whoever holds the answers.

    \b
    Examples:
      mapveil attack waves waves.tif
      mapveil attack waves checkins.parquet --region -74.03,40.69,-73.90,40.83 --option bandwidth_m=150
    """


class _Asked(NamedTuple):
    mechanism: FourierKde
    bandwidth: float
    scene: Scene


@command.command("waves")
@click.argument("source", metavar="INPUT|MAP")
@region_option("W,S,E,N in degrees, or a polygon file (needed for points).")
@tiling_option()
@method_options(of=_METHOD)
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
def waves(
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
    """Where are the devices that answered with waves? The paper's score, and servers that know more.

    INPUT is a table of points or a raster of counts, as for 'release'; MAP is what 'release --method fourier-kde'
    wrote (.tif, .parquet): then devices are drawn from the map, and the options are the map's. The report reads
    true places: it is NOT private.

    \b
    Examples:
      mapveil attack waves checkins.parquet --region -74.03,40.69,-73.90,40.83 \\
          --option features=1 --option bandwidth_m=150 -o report.html
      mapveil attack waves waves.tif --features 1,2,3,5 --json
    """
    from mapveil.attacks.localisation import localisation_report
    from mapveil.attacks.localisation_page import report_text
    from mapveil_client.randomness.random import Randomness

    with console.progress() as progress:
        progress("read", 0.0)
        released = _released(source)
        if released is None:
            asked = _of_devices(source, region, tiling, options, prior, columns, Randomness(seed))
        elif region or tiling or options or prior:
            raise InputError(
                f"{source}: a released map brings its own; leave out --region, --tiling, --option and --prior"
            )
        else:
            asked = _of_map(source, released)
        progress("read", 1.0)
        made = localisation_report(
            asked.mechanism,
            asked.bandwidth,
            asked.scene,
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
        _write(made, asked.scene, outputs)
        progress("write", 1.0)
    console.warn("an attack reads true places: do not publish its figures for data of real people")
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


def _of_map(source: str, released: DensityMap) -> _Asked:
    from mapveil.attacks.localisation_scene import scene
    from mapveil.random_features.fourier_kde import FourierKde

    if released.method != _METHOD:
        raise InputError(f"{source}: was released by {released.method}; a map by {_METHOD} is accepted")
    try:
        mechanism = FourierKde(**released.parameters)
    except TypeError as error:
        raise InputError(f"{source}: its parameters are of another version ({error})") from None
    if mechanism.bandwidth_m is None:
        raise InputError(f"{source}: does not say its bandwidth; a map of this version is accepted")
    return _Asked(mechanism, mechanism.bandwidth_m, scene(released.tiling, None, released))


def _of_devices(
    source: str,
    region: Region | None,
    tiling: str | None,
    options: dict[str, Any],
    prior: str | None,
    columns: dict[str, Any],
    rng: Randomness,
) -> _Asked:
    from mapveil.attacks.localisation import SCORED
    from mapveil.attacks.localisation_scene import device_places, scene
    from mapveil.geo.parse_tiling import tiling_for
    from mapveil.geo.read_points import read_source
    from mapveil.mechanisms.methods import find_method
    from mapveil.random_features.fourier_kde import FourierKde

    mechanism = find_method(_METHOD, "projection").make(None, options)
    if not isinstance(mechanism, FourierKde):
        raise AssertionError(f"{_METHOD} is another mechanism")
    read = read_source(source, **columns)
    cells = tiling_for(read, tiling, region)
    public = None if prior is None else _public(prior)
    bandwidth = mechanism.chosen_bandwidth(read, cells, rng.child("bandwidth"))
    places = device_places(read, cells, SCORED, rng.child("devices"))
    return _Asked(mechanism, bandwidth, scene(cells, places, public, knows=Path(prior or "").name))


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
