"""``mapveil attack``: what could still be learnt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.arguments import epsilon_list, length_list, whole_list
from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import (
    Parsed,
    method_options,
    names_option,
    places_option,
    region_option,
    seed_option,
    table_source,
    tiling_option,
)
from mapveil.cli.outputs import outputs

if TYPE_CHECKING:
    from mapveil.attacks.localisation import LocalisationReport
    from mapveil.attacks.localisation_scene import Scene


@click.group("attack")
def command() -> None:
    """Measure what a server could still learn about people from what it holds.

    \b
    Examples:
      mapveil attack random-features released.tif --prior population.npz
      mapveil attack random-features checkins.parquet --region -74.03,40.69,-73.90,40.83 --option bandwidth_m=150
      mapveil attack membership checkins.parquet --region -74.03,40.69,-73.90,40.83 -o report.html
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
    wrote (.tif, .parquet): its options are used, and devices are drawn from --prior. The report reads true
    locations: it is NOT private.

    \b
    Examples:
      mapveil attack random-features checkins.parquet --region -74.03,40.69,-73.90,40.83 \\
          --option features=1 --option bandwidth_m=150 -o report.html
      mapveil attack random-features released.tif --prior population.npz --features 1,2,3,5 --json
    """
    from mapveil.attacks.attack_random_features import attack_random_features
    from mapveil.attacks.localisation_page import report_text
    from mapveil.geo.points import Points
    from mapveil.geo.read_points import read_source
    from mapveil.random_features.known_population import read_population

    with console.progress() as progress:
        progress("read", 0.0)
        read = _map_or(source, lambda: read_source(source, **columns))
        if isinstance(read, Points):
            console.note_columns(read)
        public = None if prior is None else read_population(prior)
        progress("read", 1.0)
        report, scene = attack_random_features(
            read, prior=public, knows=Path(prior or "").name, progress=progress, **parameters
        )
        save_all(outputs, lambda path: _save(report, scene, path), progress)
    console.warn_of_truth("an attack")
    for text in report.warnings:
        console.warn(text)
    console.result(report_text(report), report.to_dict(), outputs)


@command.command("membership")
@click.argument("source", metavar="INPUT|MAP")
@region_option("W,S,E,N in degrees, or a polygon file (needed for points).")
@tiling_option()
@names_option("--methods", "laplace,multiscale", "A curator's methods to attack, separated by commas.")
@click.option(
    "--epsilon",
    "epsilons",
    type=Parsed("epsilons", epsilon_list),
    default="1",
    show_default=True,
    help="Budgets of each method, separated by commas.",
)
@click.option(
    "--suppress", default=5, show_default=True, help="Minimum number of people in a suppressed map's cell."
)
@click.option(
    "--users", default=500, show_default=True, help="Maximum number of people; half are in each map."
)
@click.option("--groups", default=64, show_default=True, help="Number of maps to learn from, and to attack.")
@click.option(
    "--windows", type=int, help="Number of windows of trajectories. [default: 14 where there are times]"
)
@click.option("--window-hours", default=24.0, show_default=True, help="Length of a window, hours.")
@click.option("--members", help="With a MAP: a table of people who are in it.")
@click.option("--others", help="With a MAP: a table of people who could have been in it but are not.")
@outputs((".html", ".png", ".json"), ".html .png .json", required=False)
@table_source("user", "lon", "lat", "weight", "time")
@seed_option("report")
@console_options
def membership(
    console: Console,
    source: str,
    members: str | None,
    others: str | None,
    outputs: tuple[Path, ...],
    columns: dict[str, Any],
    **parameters: Any,
) -> None:
    """Find people in published maps, and their trajectories: raw counts, suppressed counts, private maps.

    INPUT is a table of points: maps of random halves of its people are published in each way, and an adversary who
    knows where everybody was decides who is in. MAP is a released map (.tif, .parquet), judged on the people of two
    tables. The report reads true locations: it is NOT private.

    \b
    Examples:
      mapveil attack membership checkins.parquet --region -74.03,40.69,-73.90,40.83 -o report.html
      mapveil attack membership checkins.parquet --region -74.03,40.69,-73.90,40.83 --methods emd --epsilon 0.5,1,2
      mapveil attack membership released.tif --members in.parquet --others out.parquet --json
    """
    from mapveil.attacks.attack_membership import attack_membership
    from mapveil.evaluation.membership_report import membership_text, save_membership
    from mapveil.geo.read_points import read_points

    with console.progress() as progress:
        read = _map_or(source, lambda: read_points(source, **columns))
        inside, outside = (
            None if path is None else read_points(path, **columns) for path in (members, others)
        )
        report = attack_membership(read, members=inside, others=outside, progress=progress, **parameters)
        save_all(outputs, lambda path: save_membership(report, path), progress)
    console.warn_of_truth("an attack")
    console.result(membership_text(report), report.to_dict(), outputs)


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
