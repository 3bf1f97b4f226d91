"""``mapveil plan``: expected errors, before anything is spent."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.arguments import epsilon_list, name_list, parse_region
from mapveil.cli.console import Console, console_options
from mapveil_client.errors import InputError


@click.command("plan")
@click.option("--users", type=int, required=True, help="About how many users the table has; public.")
@click.option("--region", required=True, help="W,S,E,N in degrees, or a polygon file.")
@click.option("--tiling", default="quadtree:8", show_default=True, help="As for 'release'.")
@click.option("--epsilon", default="0.5,1,2", show_default=True, help="Budgets separated by commas.")
@click.option(
    "--methods",
    default="multiscale,emd,adaptive-grid,privtree,laplace",
    show_default=True,
    help="Names separated by commas.",
)
@click.option("--trials", default=3, show_default=True, help="Synthetic cities.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same plan.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table as CSV.")
@console_options
def command(
    console: Console,
    users: int,
    region: str,
    tiling: str,
    epsilon: str,
    methods: str,
    trials: int,
    seed: int,
    output: Path | None,
) -> None:
    """Predict each method's error before anything is spent. Reads no data: it uses synthetic cities.

    \b
    Examples:
      mapveil plan --users 5000 --region -74.03,40.69,-73.90,40.83
      mapveil plan --users 200 --region city.geojson --tiling h3:8 --epsilon 0.1,1 --methods multiscale,laplace
    """
    from mapveil.evaluation.plan import plan
    from mapveil.formats.atomic import atomic_path
    from mapveil.geo.parse_tiling import parse_tiling

    place = parse_region(region)
    if place is None:
        raise InputError("--region is empty; W,S,E,N in degrees or a polygon file is accepted")
    with console.progress() as progress:
        made = plan(
            users,
            parse_tiling(tiling, place),
            epsilon_list(epsilon),
            name_list(methods, "--methods"),
            trials=trials,
            seed=seed,
            progress=progress,
        )
    if output is not None:
        with atomic_path(output) as scratch:
            scratch.write_text(made.to_csv(), encoding="utf-8")
        console.note(f"wrote {output}")
    console.result(
        made.text(),
        {
            "expectations": [row._asdict() for row in made.expectations],
            "recommendations": [row._asdict() for row in made.recommendations],
        },
    )
