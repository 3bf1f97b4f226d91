"""``mapveil plan``: expected errors, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import Console, console_options, save_all
from mapveil.cli.options import (
    CHOSEN_TILING,
    epsilons_option,
    names_option,
    region_option,
    seed_option,
    tiling_option,
)
from mapveil.cli.outputs import outputs

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

    from mapveil.evaluation.predicted_errors import Forecast
    from mapveil.geo.region import Region


@click.command("plan")
@click.option(
    "--users",
    type=click.IntRange(1, 1 << 34),
    required=True,
    help="Approximate number of users in the table; public.",
)
@region_option(required=True)
@tiling_option(CHOSEN_TILING)
@epsilons_option
@names_option("--methods", "multiscale,emd,adaptive-grid,privtree,laplace", "Methods, separated by commas.")
@click.option(
    "--trials", type=click.IntRange(1), default=3, show_default=True, help="Number of synthetic cities."
)
@seed_option("plan")
@outputs((".csv",), ".csv (the table)", required=False, streamed=".csv")
@console_options
def command(
    console: Console,
    users: int,
    region: Region,
    tiling: str | None,
    epsilons: list[Fraction],
    outputs: tuple[Path, ...],
    **parameters: Any,
) -> None:
    """Predict each method's error before anything is spent. Reads no data: it uses synthetic cities.

    \b
    Examples:
      mapveil plan --users 5000 --region -74.03,40.69,-73.90,40.83
      mapveil plan --users 200 --region city.geojson --tiling h3:8 --epsilon 0.1,1 --methods multiscale,laplace
    """
    from mapveil.evaluation.predicted_errors import plan
    from mapveil.geo.parse_tiling import parse_tiling
    from mapveil.mechanisms.default_tiling import declared_tiling

    if tiling is None:
        chosen = declared_tiling(users, max(epsilons))
        console.note(f"{chosen.spec}: {chosen.reason}")
        tiling = chosen.spec
    cells = parse_tiling(tiling, region)
    with console.progress() as progress:
        forecast = plan(users, cells, epsilons, **parameters, progress=progress)
        save_all(outputs, lambda path: _save(forecast, path), progress)
    record = {
        "expectations": [row._asdict() for row in forecast.expectations],
        "recommendations": [row._asdict() for row in forecast.recommendations],
        "random_features": forecast.random_features,
    }
    console.result(forecast.text(), record, outputs)


def _save(forecast: Forecast, path: Path) -> None:
    from mapveil.formats.atomic import atomic_path

    with atomic_path(path) as place:
        place.write_text(forecast.to_csv(), encoding="utf-8")
