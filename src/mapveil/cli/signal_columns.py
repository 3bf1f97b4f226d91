"""What the commands of ``mapveil signal`` share: how a table of measurements is named and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mapveil.cli.console import options_of
from mapveil_client.errors import InputError

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


def signal_columns(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name columns; the command receives one ``columns``."""

    def command(*arguments: Any, features: tuple[str, ...], **options: Any) -> Any:
        named = {name: options.pop(name) for name in ("user", "lat", "lon", "rss", "fill", "time")}
        return function(*arguments, columns=SignalColumns(features=features or None, **named), **options)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    options_of(command).extend(options_of(function))
    for option in (
        click.option("--time", help="Column of times, UTC."),
        click.option("--fill", type=float, help="What a missing feature counts as, such as -105."),
        click.option(
            "--feature",
            "features",
            multiple=True,
            help="A further column to rewrite. Repeatable. [default: all numbers that vary]",
        ),
        click.option("--rss", help="Column of signal strength in dBm. [default: the usual names]"),
        click.option("--lon", help="Column of longitudes."),
        click.option("--lat", help="Column of latitudes."),
        click.option("--user", help="Column of user ids. [default: the usual names]"),
    ):
        command = option(command)
    return command


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


def check_suffixes(outputs: tuple[Path, ...], accepted: tuple[str, ...]) -> None:
    """Refuse what could not be written before anything is read.

    Raises
    ------
    InputError
        Another suffix, or a place where no file can be.
    """
    for output in outputs:
        if output.suffix.lower() not in accepted:
            raise InputError(f"-o {output}: no format here has that suffix; accepted: {', '.join(accepted)}")
        if output.is_dir() or not output.parent.is_dir():
            raise InputError(f"-o {output}: the folder {output.parent} must exist, and the name be a file's")
