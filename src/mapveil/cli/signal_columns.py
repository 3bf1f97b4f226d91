"""What the commands of ``mapveil signal`` share: how a table of measurements is named and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mapveil.cli.console import gathered
from mapveil.cli.options import column_option

if TYPE_CHECKING:
    from mapveil.cli.console import Console
    from mapveil.geo.measurements import Measurements
    from mapveil.geo.tables import Table


class SignalColumns(NamedTuple):
    """How the columns were named on the command line; None looks for the usual names."""

    user: str | None = None
    lat: str | None = None
    lon: str | None = None
    rss: str | None = None
    features: tuple[str, ...] | None = None
    fill: float | None = None
    time: str | None = None


def _columns(features: tuple[str, ...], **named: Any) -> dict[str, Any]:
    return {"columns": SignalColumns(features=features or None, **named)}


signal_columns = gathered(
    _columns,
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
"""Add the options that name columns of measurements; the command receives one ``columns``."""


def read_signal(
    console: Console, source: str | Table, columns: SignalColumns, *, features: tuple[str, ...] | None = None
) -> Measurements:
    """Read a table and say what was left out.

    Parameters
    ----------
    console : Console
        Told the notes.
    source : str or Table
        As ``mapveil release`` takes a table, or one that is open.
    columns : SignalColumns
        The options given.
    features : tuple of str, optional
        All features of a fitted privatizer: its place and signal columns, then the others.
    """
    from mapveil.geo.read_measurements import read_measurements

    if features is not None:
        columns = columns._replace(
            lat=columns.lat or features[0],
            lon=columns.lon or features[1],
            rss=columns.rss or features[2],
            features=features[3:],
        )
    read = read_measurements(source, **columns._asdict())
    for note in read.notes:
        console.note(f"note: {read.source}: {note}")
    return read
