"""Files of privatized measurements, read back by a server, with the guarantee that they carry."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.geo.measurements import Measurements
from mapveil.geo.read_measurements import read_measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import FrameTable, Table, quote_name, reading
from mapveil.obfuscation.privatizers.map_error import MapError
from mapveil.privacy.claim import Assumes
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError

METADATA_KEY: Final = b"mapveil"
"""Key of a Parquet file's metadata that holds the guarantee of its rows."""

_NOBODY: Final = "no user"


class Provenance(NamedTuple):
    """The privatizer of a file's reports, and when they were made."""

    fingerprint: str  # SHA-256 of the privatizer's file
    first: date
    last: date


def privatized_names(path: str | Path) -> tuple[str, ...] | None:
    """Read the privatized features of a file that :func:`write_privatized` wrote; None of any other."""
    names = _record(path).get("privatized")
    return tuple(names) if isinstance(names, list) else None


def privatized_guarantee(path: str | Path) -> Guarantee | None:
    """Read the guarantee of one row of a file that :func:`write_privatized` wrote; None of any other."""
    try:
        return Guarantee.from_dict(_record(path)["guarantee"])
    except (KeyError, TypeError, ValueError):
        return None


def privatized_provenance(path: str | Path) -> Provenance | None:
    """Read the privatizer and the period of a file's reports; None where the file does not say both."""
    record = _record(path)
    try:
        first, last = record["period"]
        return Provenance(str(record["fingerprint"]), date.fromisoformat(first), date.fromisoformat(last))
    except (KeyError, TypeError, ValueError):
        return None


def privatized_map_error(path: str | Path) -> MapError | None:
    """Read the error of a map of a file's reports, learnt on the pilot; None where the file does not say it."""
    try:
        return MapError.of_record(_record(path)["map_error"])
    except (KeyError, TypeError, ValueError):
        return None


def _record(path: str | Path) -> dict[str, Any]:
    """The record in a Parquet file or beside a CSV; else empty: reading the file as a table names what is wrong."""
    from pyarrow import ArrowException, parquet

    text: bytes | str = b"{}"
    try:
        if Path(path).suffix.lower() == ".parquet":
            with Path(path).open("rb") as opened:
                text = (parquet.read_schema(opened).metadata or {}).get(METADATA_KEY, text)
        elif Path(path).suffix.lower() == ".csv":
            text = Path(f"{path}{CSV_METADATA_SUFFIX}").read_text(encoding="utf-8")
        record = json.loads(text)
    except (ArrowException, OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


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
        All rows as of one user; and the guarantee that a file of :func:`privatize` documents.

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
            FrameTable(whole, table.name),
            user=_NOBODY,
            rss=rss,
            lat=lat,
            lon=lon,
            features=features,
            categories=(),
            identifiers=True,
        )
    except InputError as error:  # no message lists the column that was added
        raise type(error)(str(error).replace(f", {_NOBODY!r}", "")) from None
    guarantee = privatized_guarantee(Path(source)) if isinstance(source, str | PathLike) else None
    if guarantee is not None:
        guarantee = dataclasses.replace(
            guarantee, assumptions=(*guarantee.assumptions, Assumes.PRIVATIZED_INPUT())
        )
    return measurements, guarantee


def read_reports(path: str | Path) -> FloatArray:
    """Read the features of a file of reports, NaN where one is empty, shape (reports, features). Run by: the server.

    Raises
    ------
    InputError
        No such file, or no file of reports.
    """
    names = privatized_names(path)
    table = open_table(path)
    if names is None:
        raise InputError(
            f"{path}: does not say which features it has; expected what 'signal privatize' wrote"
        )
    return feature_rows(table, names)


def feature_rows(table: Table, names: Sequence[str]) -> FloatArray:
    """Some columns of a table as numbers, NaN where they are null, shape (rows, names)."""
    import duckdb

    columns = ", ".join(f"CAST({quote_name(name)} AS DOUBLE) AS f{at}" for at, name in enumerate(names))
    with duckdb.connect() as connection, reading(table.name):
        found = connection.sql(f"SELECT {columns} FROM {table.relation(connection)}").to_arrow_table()
    return np.column_stack([np.asarray(each.to_numpy(), dtype=np.float64) for each in found.columns])
