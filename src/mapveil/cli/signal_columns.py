"""Options that name the columns of measurements, and the reader that the commands of ``mapveil signal`` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mapveil.cli.console import gathered
from mapveil.cli.options import column_option

if TYPE_CHECKING:
    from mapveil.cli.console import Console
    from mapveil.geo.measurements import Measurements

signal_columns = gathered(
    lambda features, **named: {"columns": {"features": features or None, **named}},
    *(column_option(name) for name in ("user", "lat", "lon", "rss")),
    click.option(
        "--feature",
        "features",
        multiple=True,
        help="A further column to privatize. Repeatable. [default: all numbers that vary]",
    ),
    click.option("--fill", type=float, help="Value of a missing feature, such as -105."),
    column_option("time"),
)
"""Add the options that name columns of measurements; the command receives one mapping, ``columns``."""


def read_signal(console: Console, source: str, columns: Mapping[str, Any], **more: Any) -> Measurements:
    """Read a table of measurements, and note what was left out."""
    from mapveil.geo.read_measurements import read_measurements

    read = read_measurements(source, **columns, **more)
    for note in read.notes:
        console.note(f"note: {read.source}: {note}")
    return read
