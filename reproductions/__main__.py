"""``python -m reproductions PAPER``: run a paper's experiments on the shared data."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.app import run
from mapveil.cli.console import Console, console_options
from reproductions.driver import PAPERS, Paper, find_paper, reproduce


class _Papers(click.Group):
    """A group that imports a paper's modules only when its experiments run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PAPERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(find_paper(cmd_name)) if cmd_name in PAPERS else None


def _command(paper: Paper) -> click.Command:
    folder = click.Path(path_type=Path)

    @click.option("--shared", type=folder, default=Path("../shared/data"), show_default=True,
                  help="Folder of the data sets.")  # fmt: skip
    @click.option("-o", "--output", type=folder, default=Path(f"reproduction/{paper.name}"), show_default=True,
                  help="Folder for tables, pictures and the page.")  # fmt: skip
    @click.option("--table", "tables", type=click.Choice(paper.names("table")), multiple=True,
                  help="Only this table. Repeatable.")  # fmt: skip
    @click.option("--figure", "figures", type=click.Choice(paper.names("figure")), multiple=True,
                  help="Only this figure. Repeatable.")  # fmt: skip
    @click.option("--quick", is_flag=True, help=paper.quick)
    @click.option(
        "--seed", default=paper.seed, show_default=True, help="The same seed gives the same figures."
    )
    @click.option("--workers", default=2, show_default=True, help="Processes.")
    @console_options
    def command(
        console: Console,
        shared: Path,
        output: Path,
        tables: tuple[str, ...],
        figures: tuple[str, ...],
        quick: bool,
        seed: int,
        workers: int,
    ) -> None:
        with console.progress() as progress:
            made = reproduce(
                paper, shared, out=output, tables=tables, figures=figures, quick=quick, seed=seed,
                workers=workers, progress=progress,
            )  # fmt: skip
        record = {
            "output": str(output),
            "claims": [claim._asdict() for claim in made.claims],
            "tables": [table._asdict() for report in made.reports.values() for table in report.tables],
        }
        console.result(f"{made.text()}\nwrote {output}", record)

    return click.command(paper.name, help=paper.title)(command)


papers = _Papers("reproductions", help="Run a paper's experiments on the shared data.")

if __name__ == "__main__":
    run(command=papers, name="python -m reproductions")
