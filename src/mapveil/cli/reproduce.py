"""``mapveil reproduce``: a paper's experiments on the shared data."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.console import Console, console_options

__all__ = ["command"]


@click.group("reproduce")
def command() -> None:
    """Run a paper's experiments on the shared data.

    \b
    Examples:
      mapveil reproduce ghazi --quick
      mapveil reproduce ghazi --shared ../shared/data -o reproduction/ --workers 2
    """


@command.command("ghazi")
@click.option(
    "--shared",
    type=click.Path(path_type=Path),
    default=Path("../shared/data"),
    show_default=True,
    help="Folder of the shared data sets.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("reproduction/ghazi"),
    show_default=True,
    help="Folder for tables, pictures and the page.",
)
@click.option("--quick", is_flag=True, help="Fewer cells, trials and budgets: a few minutes.")
@click.option(
    "--seed", type=int, default=2023, show_default=True, help="The same seed gives the same figures."
)
@click.option("--workers", type=int, default=2, show_default=True, help="Processes.")
@console_options
def ghazi(console: Console, shared: Path, output: Path, quick: bool, seed: int, workers: int) -> None:
    """Ghazi et al. 2023, 'Differentially Private Heatmaps': its three experiments, and the shared grids.

    \b
    Examples:
      mapveil reproduce ghazi --quick
    """  # fmt: skip
    from mapveil.experiments.ghazi import ghazi as reproduce

    with console.progress() as progress:
        made = reproduce(shared, out=output, quick=quick, seed=seed, workers=workers, progress=progress)
    console.result(
        f"{made.text()}\nwrote {output}",
        {"output": str(output), "claims": [claim._asdict() for claim in made.claims]},
    )
