"""Files of measurements privatized as the clients of their users would, and read back by a server."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.formats.csv import write_csv_table
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.read_measurements import STRONGEST_DBM, WEAKEST_DBM, read_measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import FrameTable, quote_name, reading
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer, Privatizer, find_privatizer
from mapveil.privacy.claim import Assumes
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    import pyarrow

_NOBODY: Final = "no user"

METADATA_KEY: Final = b"mapveil"
"""Key of a Parquet file's metadata that holds the guarantee of its rows."""

_RANGES: Final = {LAT: (-90.0, 90.0), LON: (-180.0, 180.0), RSS: (WEAKEST_DBM, STRONGEST_DBM)}


@dataclass(frozen=True, eq=False, repr=False)
class PrivatizedTable:
    """A privatized table with its guarantee.

    Parameters
    ----------
    table : pyarrow.Table
        The columns of the source, in its order and types.
    guarantee : Guarantee
        The guarantee of one report.
    emptied : tuple of str
        Columns that were neither privatized nor kept.
    notes : tuple of str
        Remarks for a reader.
    """

    table: pyarrow.Table
    guarantee: Guarantee
    emptied: tuple[str, ...]
    notes: tuple[str, ...]


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
    rng, progress : optional
        The source of bits; called with a step's name and its finished fraction.

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
    """Privatize the features of a table, row by row, and empty its other columns. Run by: a simulation of the clients.

    Privatized values are brought into the range of their column (degrees, dBm, whole numbers where the source has
    them): that is processing after the privatizer, which no promise depends on. Where the source has no types (CSV),
    features become whole numbers or numbers as their values were.

    Parameters
    ----------
    fitted : FittedPrivatizer
        The privatizer that the clients hold.
    source : path, str, sequence of paths, frame or relation
        As :func:`mapveil.read_points` takes; its features are the columns of ``fitted``.
    keep : sequence of str
        Columns left as they are, which no guarantee covers; others that are no feature are emptied.
    rng, progress : optional
        The source of bits; called with a step's name and its finished fraction.
    **columns
        ``user``, ``lat``, ``lon``, ``rss``, ``time`` and ``fill``, as for :func:`mapveil.read_measurements`.

    Raises
    ------
    InputError
        A column is missing, or one to keep is a feature; a row cannot be read.
    """
    import duckdb
    import pyarrow

    opened = open_table(source)
    measurements = read_measurements(opened, names=fitted.names, **columns)
    with duckdb.connect() as connection, reading(opened.name):
        whole = connection.sql(f"SELECT * FROM {opened.relation(connection)}").to_arrow_table()
    for name in keep:
        if name not in whole.column_names or name in fitted.names:
            free = ", ".join(each for each in whole.column_names if each not in fitted.names) or "none"
            raise InputError(
                f"{opened.name}: {name!r} cannot be kept; columns that are not privatized: {free}"
            )
    stream, tell = as_randomness(rng), progress or (lambda step, done: None)
    tell("privatize", 0.0)
    rows = fitted.privatize_measurements(measurements, rng=stream).rows
    tell("privatize", 1.0)
    notes = list(measurements.notes)
    for at, (low, high) in _RANGES.items():
        outside = float(((rows[:, at] < low) | (rows[:, at] > high)).mean())
        if outside:
            notes.append(
                f"{outside:.1%} of the privatized {fitted.names[at]} were brought into {low:g} .. {high:g}"
            )
            rows[:, at] = np.clip(rows[:, at], low, high)
    taken = whole.take(pyarrow.array(measurements.positions))
    guarantee = fitted.guarantee(seeded=stream.seeded).as_simulation()
    untyped = all(pyarrow.types.is_string(field.type) for field in taken.schema)
    emptied, kept, kinds = [], [], []
    for field in taken.schema:
        kind = field.type
        if field.name in fitted.names:
            at = fitted.names.index(field.name)
            if untyped:
                whole_numbers = (measurements.rows[:, at] == np.rint(measurements.rows[:, at])).all()
                kind = pyarrow.int64() if whole_numbers else pyarrow.float64()
            kept.append(_typed(rows[:, at], kind))
        elif field.name in keep:
            kept.append(taken[field.name])
        else:
            emptied.append(field.name)
            kept.append(pyarrow.nulls(len(taken), kind))
        kinds.append(pyarrow.field(field.name, kind))
    record = {
        "privatizer": fitted.privatizer.name,
        "parameters": fitted.privatizer.parameters(),
        "privatized": list(fitted.names),
        "kept": list(keep),
        "guarantee": guarantee.to_dict(),
        "in_words": guarantee.in_words(),
    }
    schema = pyarrow.schema(kinds, {METADATA_KEY: json.dumps(record).encode()})
    table = pyarrow.Table.from_arrays(kept, schema=schema)
    return PrivatizedTable(table, guarantee, tuple(emptied), tuple(notes))


def write_privatized(privatized: PrivatizedTable, path: str | Path) -> None:
    """Write Parquet (with the guarantee inside) or CSV (with the guarantee beside it), whole or not at all.

    Raises
    ------
    InputError
        Another suffix, or a place that cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".parquet", ".csv"):
        raise InputError(f"{path}: privatized measurements are written as .parquet or .csv")
    if suffix == ".csv":
        write_csv_table(privatized.table, privatized.table.schema.metadata[METADATA_KEY].decode(), path)
        return
    from pyarrow import parquet

    with atomic_path(path) as place:
        parquet.write_table(privatized.table, place, compression="zstd")


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


def _typed(values: npt.NDArray[np.float64], kind: pyarrow.DataType) -> pyarrow.Array:
    """Numbers in a column's own type; whole ones are rounded and kept within it."""
    import pyarrow

    types = pyarrow.types
    if types.is_boolean(kind):
        return pyarrow.array(values >= 0.5)
    if types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        high = float(limits.max)
        if high > limits.max:  # of 64 bits: float64 rounds it up
            high = np.nextafter(high, 0)
        return pyarrow.array(np.clip(np.rint(values), limits.min, high).astype(kind.to_pandas_dtype()))
    if types.is_decimal(kind):
        # What does not fit would become 0; half a unit off the end keeps rounding from leaving it.
        most = 10.0 ** (kind.precision - kind.scale) - 10.0**-kind.scale
        return pyarrow.array(np.clip(values, -most, most)).cast(kind, safe=False)
    if types.is_floating(kind):
        return pyarrow.array(values.astype(kind.to_pandas_dtype()))
    return pyarrow.array(values).cast(kind, safe=False)


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
