"""``mapveil signal attack``: what adversaries learn from privatized measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import outputs
from mapveil.cli.signal_columns import SignalColumns, read_signal, signal_columns
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from mapveil.attacks.signal_score import SignalAttack

_FORMATS = (".html", ".png", ".json")


@click.command("attack")
@click.argument("private", metavar="PRIVATE")
@click.option("--truth", required=True, help="The measurements before they were privatized, row for row.")
@click.option("--pilot", default=0.7, show_default=True, help="Part of the rows that adversaries learn from.")
@click.option(
    "--split", default="random", show_default=True, help="How that part is drawn: random, time or user."
)
@click.option(
    "--sequence", default=1, show_default=True, help="Measurements of a user that are seen together."
)
@click.option("--quick", is_flag=True, help="A tenth of the work: privacy looks higher than it is.")
@click.option("--no-network", is_flag=True, help="Leave out the adversary that needs PyTorch.")
@outputs(_FORMATS, ".html .png .json", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same report.")
@signal_columns
@console_options
def command(
    console: Console,
    private: str,
    columns: SignalColumns,
    truth: str,
    pilot: float,
    split: str,
    sequence: int,
    quick: bool,
    no_network: bool,
    outputs: tuple[Path, ...],
    seed: int,
) -> None:
    """Train adversaries on a part of a privatized file and see what they learn from the rest.

    PRIVATE is what 'signal privatize' wrote. Each adversary is told the users and places of the pilot part and
    guesses those of the rest; the strongest is what counts. The report reads true places: it is NOT private.

    \b
    Examples:
      mapveil signal attack private.parquet --truth measurements.parquet
      mapveil signal attack private.parquet --truth measurements.parquet --sequence 10 -o attack.html
    """
    from mapveil.attacks.signal_attack import attack_signal, signal_adversaries
    from mapveil.attacks.signal_evidence import SignalEvidence
    from mapveil.evaluation.signal_tradeoff import split_measurements
    from mapveil.obfuscation.privatize_table import privatized_names
    from mapveil.obfuscation.privatizers.normalisation import Normalisation
    from mapveil.obfuscation.utility import utility
    from mapveil_client.randomness.random import Randomness

    rng = Randomness(seed)
    with console.progress() as progress:
        progress("read", 0.0)
        original = read_signal(console, truth, columns, features=privatized_names(private))
        privatized = original.with_rows(_rows(private, original.names, len(original)))
        progress("read", 1.0)
        original = replace(original, positions=np.arange(len(original)))
        parted = split_measurements(original, split, pilot, rng.child("split"))
        normalisation = Normalisation.learn(parted.pilot)
        # Runs that overlap are more to learn from; those that are judged do not.
        known, held_out = (
            SignalEvidence.of(
                part, privatized.take(part.positions), normalisation, length=sequence, step=step
            )
            for part, step in zip(parted, (max(sequence // 4, 1), sequence), strict=True)
        )
        cost = utility(normalisation.apply(original.rows), normalisation.standardise(privatized.rows))
        attack = attack_signal(
            known,
            held_out,
            adversaries=signal_adversaries(quick=quick, network=not no_network),
            rng=rng.child("attack"),
            progress=progress,
        )
        _write(attack, outputs)
    console.warn("an attack reads true places: do not publish its figures for data of real people")
    record = {
        "utility": cost._asdict(),
        **attack.to_dict(),
        "outputs": [str(output) for output in outputs],
    }
    console.result(_text(attack, cost.total, outputs), record)


def _rows(private: str, names: tuple[str, ...], count: int) -> npt.NDArray[np.float64]:
    """The privatized features; ids and times of the file are not looked at."""
    import duckdb

    from mapveil.geo.read_points import open_table
    from mapveil.geo.tables import column_types, quote_name, reading

    table = open_table(private)
    types = column_types(table)
    for name in names:
        if name not in types:
            raise InputError(f"{private}: no column {name!r}; expected the features of --truth")
    columns = ", ".join(f"CAST({quote_name(name)} AS DOUBLE) AS f{at}" for at, name in enumerate(names))
    with duckdb.connect() as connection, reading(table.name):
        found = connection.sql(f"SELECT {columns} FROM {table.relation(connection)}").to_arrow_table()
    if len(found) != count:
        raise InputError(f"{private}: {len(found)} rows; expected the {count} complete rows of --truth")
    rows = np.column_stack(
        [np.asarray(found[f"f{at}"].to_numpy(), dtype=np.float64) for at in range(len(names))]
    )
    if not np.isfinite(rows).all():
        raise InputError(f"{private}: a privatized value is missing; expected what 'signal privatize' wrote")
    return rows


def _text(attack: SignalAttack, utility: float, outputs: tuple[Path, ...]) -> str:
    from mapveil.evaluation.html_report import text_table
    from mapveil.evaluation.signal_report import attack_rows

    table = f"Adversaries (*: the strongest)\n{text_table(*attack_rows(attack))}"
    strongest = attack.strongest
    words = (
        f"strongest: {strongest.adversary}: wrong about {strongest.p1:.1%} of the users, {strongest.p2_m:.0f} m from "
        f"the place on average; utility U {utility:.3g}"
    )
    return "\n".join([table, words, *(f"wrote {output}" for output in outputs)])


def _write(attack: SignalAttack, outputs: tuple[Path, ...]) -> None:
    from mapveil.evaluation.comparison import NOT_FOR_RELEASE
    from mapveil.evaluation.html_report import png_bytes, write_atomically
    from mapveil.evaluation.signal_report import attack_figure, attack_rows
    from mapveil.pictures.report_page import html_page, html_picture, html_table

    for output in outputs:
        suffix = output.suffix.lower()
        if suffix == ".json":
            write_atomically(output, json.dumps(attack.to_dict(), indent=2).encode())
            continue
        picture = png_bytes(attack_figure(attack))
        if suffix == ".html":
            body = html_picture(picture, "The strongest is red; dashed is a guess that looks at nothing.")
            title = "What adversaries learn from privatized measurements"
            write_atomically(
                output, html_page(title, body + html_table(*attack_rows(attack)), NOT_FOR_RELEASE)
            )
        else:
            write_atomically(output, picture)
