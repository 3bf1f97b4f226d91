"""``mapveil signal privatize``: privatize a file as the phones of its users would."""

from __future__ import annotations

from pathlib import Path

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import outputs
from mapveil.cli.signal_columns import SignalColumns, read_signal, signal_columns

_FORMATS = (".parquet", ".csv")


@click.command("privatize")
@click.argument("privatizer", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT")
@click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Leave a further column as it is. Repeatable; think twice.",
)
@outputs(_FORMATS, ".parquet .csv")
@click.option("--seed", type=int, help="Repeat a run exactly. The file is NOT FOR RELEASE.")
@signal_columns
@console_options
def command(
    console: Console,
    privatizer: Path,
    source: str,
    columns: SignalColumns,
    keep: tuple[str, ...],
    outputs: tuple[Path, ...],
    seed: int | None,
) -> None:
    """Privatize a file of measurements as phones would.

    PRIVATIZER is what 'signal fit' wrote (.mapveil). The output has the columns and types of INPUT, so that what
    reads one reads the other: features are privatized, every other column is emptied unless --keep names it (user
    ids and times say more than any privatization hides), and rows with a missing feature are left out.

    \b
    Examples:
      mapveil signal privatize gap.mapveil measurements.parquet -o private.parquet
      mapveil signal privatize noise.mapveil day.csv --keep cell_id -o private.csv
    """
    from mapveil.geo.read_points import open_table
    from mapveil.obfuscation.export.privatizer_file import read_privatizer
    from mapveil.obfuscation.privatize_table import privatize_table, write_privatized
    from mapveil_client.randomness.random import as_randomness

    with console.progress() as progress:
        fitted = read_privatizer(privatizer)
        progress("read", 0.0)
        table = open_table(source)
        measurements = read_signal(console, table, columns, features=fitted.names)
        progress("read", 1.0)
        made = privatize_table(
            fitted, measurements, table, keep=keep, rng=as_randomness(seed), progress=progress
        )
        for at, output in enumerate(outputs):
            progress("write", at / len(outputs))
            write_privatized(made, output)
        progress("write", 1.0)
    if keep:
        console.warn(f"{', '.join(keep)} left as it is: the guarantee says nothing about it")
    if seed is not None:
        console.warn("seeded: this file is NOT FOR RELEASE")
    lines = [f"wrote {output}" for output in outputs]
    lines.append(f"privatized {len(measurements)} rows; emptied {', '.join(made.emptied) or 'no column'}")
    lines += [f"note: {note}" for note in made.notes]
    lines.append(repr(made.guarantee))
    record = {
        "outputs": [str(output) for output in outputs],
        "rows": len(measurements),
        "privatized": list(fitted.names),
        "emptied": list(made.emptied),
        "kept": list(keep),
        "notes": list(made.notes),
        "guarantee": made.guarantee.to_dict(),
    }
    console.result("\n".join(lines), record)
