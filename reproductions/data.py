"""Files of a reproduction: the shared data sets, and the figures that the papers print."""

from __future__ import annotations

import csv
from pathlib import Path

from mapveil_client.errors import InputError


def shared_file(shared: Path, name: str) -> Path:
    """The path of a data set in the shared folder; an ``InputError`` of one line where there is no such file."""
    path = shared / name
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; put the data sets, whose public sources docs/explanation/reproduction-data.md "
            "names, into one folder and give it with --shared"
        )
    return path


def printed_figures(paper: str) -> dict[tuple[str, str, str], float]:
    """The figures that a paper prints, by table, row and column: ``reproductions/PAPER/figures.csv``."""
    with (Path(__file__).parent / paper / "figures.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return {(row["table"], row["row"], row["column"]): float(row["value"]) for row in rows}
