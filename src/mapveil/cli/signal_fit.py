"""``mapveil signal fit``: from a pilot to a privatizer that phones can be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mapveil.cli.console import Console, console_options
from mapveil.cli.options import method_options, outputs
from mapveil.cli.signal_columns import SignalColumns, read_signal, signal_columns

_FORMATS = (".mapveil", ".onnx", ".json")


@click.command("fit")
@click.argument("source", metavar="PILOT")
@click.option(
    "--privatizer",
    required=True,
    help="gaussian-noise, local-gaussian, truncated-laplacian, gap, codebook or funnel.",
)
@method_options(of="privatizer")
@click.option("--rows", type=int, help="Fit on at most so many rows, drawn at random. [default: all of them]")
@outputs(_FORMATS, ".mapveil, or for phones .onnx or .json")
@click.option("--seed", type=int, help="Repeat a fit exactly.")
@signal_columns
@console_options
def command(
    console: Console,
    source: str,
    columns: SignalColumns,
    privatizer: str,
    options: dict[str, Any],
    rows: int | None,
    outputs: tuple[Path, ...],
    seed: int | None,
) -> None:
    """Fit a privatizer on measurements of people who opted in.

    PILOT is Parquet, CSV and whatever else 'release' reads, with columns for a user, a place and a signal strength
    in dBm; every further column of numbers is a feature. The pilot is seen raw by whoever runs this; people
    whose measurements are privatized later are not.

    \b
    Examples:
      mapveil signal fit pilot.parquet --privatizer gap --option rho=0.4 -o gap.mapveil -o gap.onnx
      mapveil signal fit pilot.csv --privatizer local-gaussian --option epsilon=10 --feature speed -o noise.json
    """
    from mapveil.obfuscation.export.phone_export import check_phone_name, export_privatizer
    from mapveil.obfuscation.export.privatizer_file import write_privatizer
    from mapveil.obfuscation.privatizers.registry import find_privatizer
    from mapveil_client.errors import ParameterError
    from mapveil_client.randomness.random import as_randomness

    made = find_privatizer(privatizer).make(options)
    phones = [output for output in outputs if output.suffix.lower() != ".mapveil"]
    for output in phones:
        check_phone_name(output, made.name)
    if rows is not None and rows < 2:
        raise ParameterError(f"--rows must be at least 2, got {rows}")
    rng = as_randomness(seed)
    with console.progress() as progress:
        progress("read", 0.0)
        pilot = read_signal(console, source, columns)
        if rows is not None and rows < len(pilot):
            runs = pilot.sequences(made.sequence)
            chosen = rng.child("rows").generator().permutation(len(runs))[: max(rows // made.sequence, 1)]
            pilot = pilot.take(runs[chosen].ravel())
        progress("read", 1.0)
        fitted = made.fit(pilot, rng=rng.child("fit"), progress=progress)
        # What phones are given may turn out too large: it comes first, so that then nothing is written.
        for output in phones:
            export_privatizer(fitted, output)
        for output in outputs:
            if output not in phones:
                write_privatizer(fitted, output)
    guarantee = fitted.guarantee(seeded=False)
    lines = [f"wrote {output}" for output in outputs]
    lines.append(f"fitted on {len(pilot)} rows; privatizes {', '.join(fitted.names)}")
    lines.append(repr(guarantee))
    record = {
        "outputs": [str(output) for output in outputs],
        "privatizer": made.name,
        "parameters": made.parameters(),
        "features": list(fitted.names),
        "pilot_rows": len(pilot),
        "guarantee": guarantee.to_dict(),
    }
    console.result("\n".join(lines), record)
