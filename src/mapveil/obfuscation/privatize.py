"""Files of measurements privatized as the clients of their users would, and read back by a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final

from mapveil.geo.measurements import Measurements
from mapveil.geo.read_measurements import read_measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import FrameTable, quote_name, reading
from mapveil.obfuscation.privatize_table import PrivatizedTable, privatize_table, privatized_guarantee
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, Privatizer, find_privatizer
from mapveil.privacy.claim import Assumes
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness, as_randomness

_NOBODY: Final = "no user"


def fit_privatizer(
    pilot: Measurements,
    privatizer: str | Privatizer,
    options: Mapping[str, Any] | None = None,
    *,
    rng: Randomness | int | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> FittedPrivatizer:
    """Fit a privatizer on measurements of people who opted in. Run by: the curator of the pilot, who sees them.

    Parameters
    ----------
    pilot : Measurements
        The pilot's rows.
    privatizer : str or Privatizer
        A name of the table of privatizers, or one with its parameters.
    options : mapping, optional
        Parameters of a privatizer that is given by name.
    rng : Randomness or int, optional
        The source of bits.
    progress : callable, optional
        Called with a step's name and the fraction done.

    Raises
    ------
    ParameterError
        No such privatizer or option, or a value outside its range.
    InputError
        The pilot is too small.
    """
    chosen = find_privatizer(privatizer).make(options) if isinstance(privatizer, str) else privatizer
    return chosen.fit(pilot, rng=as_randomness(rng).child("fit"), progress=progress)


def privatize(
    fitted: FittedPrivatizer,
    source: Any,
    *,
    keep: Sequence[str] = (),
    rng: Randomness | int | None = None,
    progress: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> PrivatizedTable:
    """Privatize a table of measurements, row by row. Run by: a simulation of the clients.

    Parameters
    ----------
    fitted : FittedPrivatizer
        The privatizer that the clients hold.
    source : path, str, sequence of paths, frame or relation
        As :func:`mapveil.read_points` takes; its features are the columns of ``fitted``.
    keep : sequence of str
        Columns left as they are, which no promise covers; others that are no feature are emptied.
    rng : Randomness or int, optional
        The source of bits.
    progress : callable, optional
        Called with a step's name and the fraction done.
    **columns
        ``user``, ``lat``, ``lon``, ``rss``, ``time`` and ``fill``, as for :func:`mapveil.read_measurements`.

    Raises
    ------
    InputError
        A column is missing, or one to keep is a feature; a row cannot be read.
    """
    table = open_table(source)
    measurements = read_measurements(table, names=fitted.names, **columns)
    made = privatize_table(fitted, measurements, table, keep=keep, rng=rng, progress=progress)
    return dataclasses.replace(made, notes=(*measurements.notes, *made.notes))


def read_privatized(
    source: Any,
    *,
    rss: str | None = None,
    lat: str | None = None,
    lon: str | None = None,
    features: Sequence[str] = (),
) -> tuple[Measurements, Guarantee | None]:
    """Read measurements whose users are unknown, and the guarantee they carry. Run by: the server.

    Parameters
    ----------
    source : path, str, sequence of paths, frame or relation
        As :func:`mapveil.read_points` takes; no column of users is needed.
    rss, lat, lon, features
        As for :func:`mapveil.read_measurements`.

    Returns
    -------
    Measurements, Guarantee or None
        All rows as of one user; and the guarantee that a Parquet file of :func:`privatize` documents.

    Raises
    ------
    InputError
        The table cannot be read.
    """
    import duckdb

    table = open_table(source)
    with duckdb.connect() as connection, reading(table.name):
        whole: Any = connection.sql(
            f"SELECT *, 0 AS {quote_name(_NOBODY)} FROM {table.relation(connection)}"
        ).to_arrow_table()
    try:
        measurements = read_measurements(
            FrameTable(whole, table.name), user=_NOBODY, rss=rss, lat=lat, lon=lon, features=features
        )
    except InputError as error:  # no message lists the column that was added
        raise type(error)(str(error).replace(f", {_NOBODY!r}", "")) from None
    guarantee = privatized_guarantee(Path(source)) if isinstance(source, str | PathLike) else None
    if guarantee is not None:
        guarantee = dataclasses.replace(
            guarantee, assumptions=(*guarantee.assumptions, Assumes.PRIVATIZED_INPUT())
        )
    return measurements, guarantee
