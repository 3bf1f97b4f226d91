"""``mapveil reproduce``: a paper's experiments on the shared data."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from mapveil.cli.console import Console, console_options


class Paper(NamedTuple):
    """A paper whose experiments can be run; what its modules say themselves is repeated, so that none is loaded."""

    name: str  # of the module, of its function, and of the command
    title: str
    shows: str
    quick: str  # what --quick leaves out
    seed: int
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    own_tables: str = ""  # those the paper does not have
    example: str = "--quick"

    @property
    def in_parts(self) -> bool:
        """Whether single tables and figures can be asked for."""
        return bool(self.tables)


PAPERS: Final = (
    Paper(
        "ghazi",
        "Ghazi et al. 2023, 'Differentially Private Heatmaps'",
        "its three experiments, and the shared grids",
        "Fewer cells, trials and budgets: a few minutes.",
        2023,
    ),
    Paper(
        "bagdasaryan",
        "Bagdasaryan et al. 2022, 'Towards Sparse Federated Analytics'",
        "its tables and figures, and what goes beyond",
        "Three seeds instead of twenty, and fewer points: two minutes.",
        2022,
        ("1", "2", "3", "beyond", "skewed", "communication"),
        ("1", "5", "6", "7", "8", "9"),
        "'beyond', 'skewed' and 'communication'",
        "--table 1 --table 3 --figure 7",
    ),
    Paper(
        "wang",
        "Wang et al. 2022, 'L-SRR'",
        "its tables and figures, with a staircase that keeps its promise, and what goes beyond",
        "Two seeds instead of ten, and fewer epsilons: three minutes.",
        2022,
        ("beyond", "1", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"),
        ("5", "8", "9", "10", "11", "14", "15", "16"),
        "'beyond'",
        "--table beyond --figure 8",
    ),
    Paper(
        "zong",
        "Zong et al. 2023, 'Privacy by Projection'",
        "its figures, and what its score of privacy leaves out",
        "Fewer trials, fewer people searched for maxima: a minute.",
        2023,
        ("1", "posterior", "private"),
        ("3", "10", "11", "14", "12", "13"),
        "'posterior' and 'private'",
        "--figure 10 --figure 11 --table posterior",
    ),
    Paper(
        "zhang",
        "Zhang et al. 2022, 'Privacy-utility trades in crowdsourced signal map obfuscation'",
        "its tables and figures, stronger adversaries, and what goes beyond",
        "One trial, fewer rows and values, short training: three minutes.",
        2022,
        ("3", "4", "5", "6", "beyond"),
        ("4", "5", "6", "7", "8", "9", "10", "11", "12"),
        "'beyond'",
        "--table 6 --figure 10",
    ),
)
"""In the order of the design: central, distributed, local, projection, obfuscation."""


@click.group("reproduce")
def command() -> None:
    """Run a paper's experiments on the shared data.

    \b
    Examples:
      mapveil reproduce ghazi --quick
      mapveil reproduce ghazi --shared ../shared/data -o reproduction/ --workers 2
      mapveil reproduce bagdasaryan --table 1
    """


def _add(paper: Paper) -> None:
    """The command of one paper."""

    def run(
        console: Console,
        shared: Path,
        output: Path,
        quick: bool,
        seed: int,
        workers: int,
        **parts: tuple[str, ...],
    ) -> None:
        reproduce = getattr(importlib.import_module(f"mapveil.evaluation.{paper.name}"), paper.name)
        with console.progress() as progress:
            made = reproduce(
                shared, out=output, quick=quick, seed=seed, workers=workers, progress=progress, **parts
            )
        record: dict[str, Any] = {
            "output": str(output),
            "claims": [claim._asdict() for claim in made.claims],
        }
        if paper.in_parts:
            record["tables"] = [
                table._asdict() for report in made.reports.values() for table in report.tables
            ]
        console.result(f"{made.text()}\nwrote {output}", record)

    examples = dict.fromkeys(("--quick", paper.example))
    run.__name__ = paper.name
    run.__doc__ = "\n".join(
        [f"{paper.title}: {paper.shows}.", "", "\b", "Examples:"]
        + [f"  mapveil reproduce {paper.name} {each}" for each in examples]
    )
    made: Callable[..., Any] = console_options(run)
    for option in _options(paper):
        made = option(made)
    command.command(paper.name, short_help=paper.title)(made)


def _options(paper: Paper) -> list[Callable[..., Any]]:
    """The options of a paper's command, the last first."""
    made = [
        click.option("--workers", type=int, default=2, show_default=True, help="Processes."),
        click.option(
            "--seed",
            type=int,
            default=paper.seed,
            show_default=True,
            help="The same seed gives the same figures.",
        ),
        click.option("--quick", is_flag=True, help=paper.quick),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            default=Path(f"reproduction/{paper.name}"),
            show_default=True,
            help="Folder for tables, pictures and the page.",
        ),
        click.option(
            "--shared",
            type=click.Path(path_type=Path),
            default=Path("../shared/data"),
            show_default=True,
            help="Folder of the shared data sets.",
        ),
    ]
    if paper.in_parts:
        made += [
            click.option(
                "--figure",
                "figures",
                type=click.Choice(paper.figures),
                multiple=True,
                help="Only this figure (repeatable).",
            ),
            click.option(
                "--table",
                "tables",
                type=click.Choice(paper.tables),
                multiple=True,
                help=f"Only this table (repeatable); not in the paper: {paper.own_tables}.",
            ),
        ]
    return made


for _paper in PAPERS:
    _add(_paper)
