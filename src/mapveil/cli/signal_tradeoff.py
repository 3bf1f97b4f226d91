"""``mapveil signal tradeoff``: privacy against utility, measured on your own data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mapveil.cli.arguments import name_list, read_options
from mapveil.cli.console import Console, console_options
from mapveil.cli.signal_columns import SignalColumns, read_signal, signal_columns
from mapveil_client.errors import InputError

_QUICK_STEPS = 500  # of training GAP


def tradeoff_options(function: Any) -> Any:
    """Add what says how a trade-off is measured."""
    for option in (
        click.option(
            "--seed", type=int, default=0, show_default=True, help="The same seed gives the same figures."
        ),
        click.option("--workers", default=1, show_default=True, help="Processes."),
        click.option(
            "--quick", is_flag=True, help="One trial, fewer values, weaker adversaries, short training."
        ),
        click.option(
            "--sequence", default=1, show_default=True, help="Measurements that adversaries see together."
        ),
        click.option("--split", default="random", show_default=True, help="random, time or user."),
        click.option("--pilot", default=0.7, show_default=True, help="Part of the rows that is the pilot."),
        click.option("--rows", default=30_000, show_default=True, help="Rows of a trial; 0 takes all."),
        click.option(
            "--trials", default=3, show_default=True, help="Splits, fits and attacks of each value."
        ),
        click.option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME:K=V",
            help="An option of a privatizer, such as gap:steps=2000. Repeatable.",
        ),
        click.option("--privatizers", help="Names separated by commas. [default: all]"),
    ):
        function = option(function)
    return function


@click.command("tradeoff")
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path),
              help="Folder to write to: curves, tables and a page.")  # fmt: skip
@tradeoff_options
@signal_columns
@console_options
def command(console: Console, source: str, folder: Path, columns: SignalColumns, **asked: Any) -> None:
    """Measure privacy against utility for several privatizers over their parameters.

    For every value a privatizer is fitted on a pilot part, adversaries are trained on what it makes of the pilot,
    and the strongest of them is judged on what it makes of the rest. The report is NOT private.

    \b
    Examples:
      mapveil signal tradeoff measurements.parquet -o tradeoff/
      mapveil signal tradeoff measurements.parquet --privatizers gap,codebook --trials 5 --workers 2 -o tradeoff/
    """
    from mapveil.evaluation.html_report import text_table
    from mapveil.evaluation.signal_report import points_rows, write_tradeoff

    if folder.exists() and not folder.is_dir():
        raise InputError(f"-o {folder}: is a file; expected a folder, or where one can be made")
    trials, points, settings = measure(console, source, columns, **asked)
    paths = write_tradeoff(folder, points, trials, settings)
    console.warn("a trade-off reads true places: do not publish its figures for data of real people")
    table = f"Trade-off (against the strongest adversary)\n{text_table(*points_rows(points))}"
    lines = [table, *(f"wrote {path}" for path in paths)]
    console.result("\n".join(lines), {"points": [point.to_dict() for point in points], "outputs": paths})


def measure(
    console: Console,
    source: str,
    columns: SignalColumns,
    *,
    privatizers: str | None,
    options: tuple[str, ...],
    trials: int,
    rows: int,
    pilot: float,
    split: str,
    sequence: int,
    quick: bool,
    workers: int,
    seed: int,
) -> tuple[Sequence[Any], Sequence[Any], dict[str, object]]:
    """Trials, points and settings of a trade-off."""
    from mapveil.attacks.signal_attack import signal_adversaries
    from mapveil.evaluation.signal_tradeoff import KNOBS, points_of, tradeoff

    names = name_list(privatizers, "--privatizers") if privatizers else list(KNOBS)
    for name in names:
        if name not in KNOBS:
            raise InputError(f"--privatizers: {name!r} is none; expected one of {', '.join(KNOBS)}")
    values = {name: KNOBS[name].values[:: 2 if quick else 1] for name in names}
    others = _options(options, names)
    if quick and "gap" in names:
        others["gap"] = {"steps": _QUICK_STEPS, **others.get("gap", {})}
    if rows < 0:
        raise InputError(f"--rows must be a number of rows, or 0 for all, got {rows}")
    measurements = read_signal(console, source, columns)
    with console.progress() as progress:
        found = tradeoff(
            measurements,
            values,
            options=others,
            trials=1 if quick else trials,
            pilot=pilot,
            split=split,
            rows=rows or None,
            length=sequence,
            adversaries=signal_adversaries(quick=quick),
            seed=seed,
            workers=workers,
            progress=progress,
        )
    settings: dict[str, object] = {
        "source": source,
        "features": ", ".join(measurements.names),
        "rows of a trial": min(rows or len(measurements), len(measurements)),
        "trials": 1 if quick else trials,
        "pilot": f"{pilot:g}, {split}",
        "sequence": sequence,
        "adversaries": "quick" if quick else "full",
        "seed": seed,
    }
    return found, points_of(found), settings


def _options(pairs: tuple[str, ...], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read ``name:key=value``."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        name, colon, rest = pair.partition(":")
        if not colon or name not in names:
            raise InputError(f"--option must be NAME:key=value of {', '.join(names)}, got {pair!r}")
        for key, value in read_options((rest,)).items():
            if key in found.setdefault(name, {}):
                raise InputError(f"--option {name}:{key} is given twice")
            found[name][key] = value
    return found
