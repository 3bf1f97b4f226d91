"""``mapveil reproduce``: a paper's experiments on the shared data."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.console import Console, console_options

__all__ = [
    "BAGDASARYAN_FIGURES",
    "BAGDASARYAN_TABLES",
    "WANG_FIGURES",
    "WANG_TABLES",
    "ZONG_FIGURES",
    "ZONG_TABLES",
    "command",
]

BAGDASARYAN_TABLES = ("1", "2", "3", "beyond", "skewed", "communication")
BAGDASARYAN_FIGURES = ("1", "5", "6", "7", "8", "9")
ZONG_TABLES = ("1", "posterior", "private")
ZONG_FIGURES = ("3", "10", "11", "14", "12", "13")
WANG_TABLES = ("beyond", "1", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14")
WANG_FIGURES = ("5", "8", "9", "10", "11", "14", "15", "16")


@click.group("reproduce")
def command() -> None:
    """Run a paper's experiments on the shared data.

    \b
    Examples:
      mapveil reproduce ghazi --quick
      mapveil reproduce ghazi --shared ../shared/data -o reproduction/ --workers 2
      mapveil reproduce bagdasaryan --table 1
      mapveil reproduce zong --quick
      mapveil reproduce wang --quick
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


@command.command("bagdasaryan")
@click.option(
    "--table",
    "tables",
    type=click.Choice(BAGDASARYAN_TABLES),
    multiple=True,
    help="Only this table (repeatable): the paper's 1, 2, 3; 'beyond', 'skewed' and 'communication' are ours.",
)
@click.option(
    "--figure",
    "figures",
    type=click.Choice(BAGDASARYAN_FIGURES),
    multiple=True,
    help="Only this figure (repeatable).",
)
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
    default=Path("reproduction/bagdasaryan"),
    show_default=True,
    help="Folder for tables, pictures and the page.",
)
@click.option("--quick", is_flag=True, help="Three seeds instead of twenty, and fewer points: two minutes.")
@click.option(
    "--seed", type=int, default=2022, show_default=True, help="The same seed gives the same figures."
)
@click.option("--workers", type=int, default=2, show_default=True, help="Processes.")
@console_options
def bagdasaryan(
    console: Console,
    tables: tuple[str, ...],
    figures: tuple[str, ...],
    shared: Path,
    output: Path,
    quick: bool,
    seed: int,
    workers: int,
) -> None:
    """Bagdasaryan et al. 2022, 'Towards Sparse Federated Analytics': its tables and figures, and what goes beyond.

    \b
    Examples:
      mapveil reproduce bagdasaryan --quick
      mapveil reproduce bagdasaryan --table 1 --table 3 --figure 7
    """  # fmt: skip
    from mapveil.experiments.bagdasaryan import bagdasaryan as reproduce

    with console.progress() as progress:
        made = reproduce(
            shared,
            out=output,
            tables=tables,
            figures=figures,
            quick=quick,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    console.result(
        f"{made.text()}\nwrote {output}",
        {
            "output": str(output),
            "claims": [claim._asdict() for claim in made.claims],
            "tables": [table._asdict() for report in made.reports.values() for table in report.tables],
        },
    )


@command.command("zong")
@click.option(
    "--table",
    "tables",
    type=click.Choice(ZONG_TABLES),
    multiple=True,
    help="Only this table (repeatable): the paper's 1; 'posterior' and 'private' are ours.",
)
@click.option(
    "--figure",
    "figures",
    type=click.Choice(ZONG_FIGURES),
    multiple=True,
    help="Only this figure (repeatable).",
)
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
    default=Path("reproduction/zong"),
    show_default=True,
    help="Folder for tables, pictures and the page.",
)
@click.option("--quick", is_flag=True, help="Fewer trials, fewer people searched for maxima: a minute.")
@click.option(
    "--seed", type=int, default=2023, show_default=True, help="The same seed gives the same figures."
)
@click.option("--workers", type=int, default=2, show_default=True, help="Processes.")
@console_options
def zong(
    console: Console,
    tables: tuple[str, ...],
    figures: tuple[str, ...],
    shared: Path,
    output: Path,
    quick: bool,
    seed: int,
    workers: int,
) -> None:
    """Zong et al. 2023, 'Privacy by Projection': its figures, and what its score of privacy leaves out.

    \b
    Examples:
      mapveil reproduce zong --quick
      mapveil reproduce zong --figure 10 --figure 11 --table posterior
    """  # fmt: skip
    from mapveil.experiments.zong import zong as reproduce

    with console.progress() as progress:
        made = reproduce(
            shared,
            out=output,
            tables=tables,
            figures=figures,
            quick=quick,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    console.result(
        f"{made.text()}\nwrote {output}",
        {
            "output": str(output),
            "claims": [claim._asdict() for claim in made.claims],
            "tables": [table._asdict() for report in made.reports.values() for table in report.tables],
        },
    )


@command.command("wang")
@click.option(
    "--table",
    "tables",
    type=click.Choice(WANG_TABLES),
    multiple=True,
    help="Only this table (repeatable): the paper's number; 'beyond' is ours.",
)
@click.option(
    "--figure",
    "figures",
    type=click.Choice(WANG_FIGURES),
    multiple=True,
    help="Only this figure (repeatable).",
)
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
    default=Path("reproduction/wang"),
    show_default=True,
    help="Folder for tables, pictures and the page.",
)
@click.option("--quick", is_flag=True, help="Two seeds instead of ten, and fewer epsilons: three minutes.")
@click.option(
    "--seed", type=int, default=2022, show_default=True, help="The same seed gives the same figures."
)
@click.option("--workers", type=int, default=2, show_default=True, help="Processes.")
@console_options
def wang(
    console: Console,
    tables: tuple[str, ...],
    figures: tuple[str, ...],
    shared: Path,
    output: Path,
    quick: bool,
    seed: int,
    workers: int,
) -> None:
    """Wang et al. 2022, 'L-SRR': its tables and figures, with a staircase that keeps its promise, and what goes beyond.

    \b
    Examples:
      mapveil reproduce wang --quick
      mapveil reproduce wang --table beyond --figure 8
    """  # fmt: skip
    from mapveil.experiments.wang import wang as reproduce

    with console.progress() as progress:
        made = reproduce(
            shared,
            out=output,
            tables=tables,
            figures=figures,
            quick=quick,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    console.result(
        f"{made.text()}\nwrote {output}",
        {
            "output": str(output),
            "claims": [claim._asdict() for claim in made.claims],
            "tables": [table._asdict() for report in made.reports.values() for table in report.tables],
        },
    )
