"""Files of privatized measurements, read back by a server, with the guarantee that they carry."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.geo.measurements import Measurements
from mapveil.geo.read_measurements import read_measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import FileTable, FrameTable, Table, connect, quote_name, reading
from mapveil.geo.text_categories import OTHER, TextNumbers, number_texts
from mapveil.obfuscation.privatizers.map_error import MapError
from mapveil.privacy.claim import Assumes
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError

METADATA_KEY: Final = b"mapveil"
"""Key of a Parquet file's metadata that holds the guarantee of its rows."""

ROWS_KEY: Final = "rows_sha256"
"""Name of the rows' SHA-256 in the record: of a CSV its bytes, of a Parquet file those before its metadata."""

REPORTS_KEY: Final = "reports"
"""Name of the number of rows that were privatized in the record of any file: fewer are a selection, more are not."""

_NOBODY: Final = "no user"
_PARQUET: Final = b"PAR1"  # first bytes of a Parquet file
_FOOTER_END: Final = 8  # bytes at its end: the length of its metadata (4, little-endian), and the same mark
_AT_ONCE: Final = 1 << 20  # bytes
_ALIKE: Final = (
    "fingerprint",
    "privatized",
    "texts",
    "map_error",
    "guarantee",
)  # equal in the files of one privatizer


class Provenance(NamedTuple):
    """The privatizer of a file's reports, and when they were made."""

    fingerprint: str  # SHA-256 of the privatizer's file
    first: date
    last: date
    kept: tuple[str, ...] = ()  # columns left as they were
    empty: float = 0.0  # fraction of empty reports


def privatized_names(source: Any) -> tuple[str, ...] | None:
    """Read the privatized features of what :func:`write_privatized` wrote; None of anything else."""
    names = _record(source).get("privatized")
    return tuple(names) if isinstance(names, list) else None


def privatized_texts(source: Any) -> TextNumbers:
    """Read the numbers of the texts of what :func:`write_privatized` wrote; empty of anything else."""
    try:
        return {
            str(name): {str(text): int(number) for text, number in texts.items()}
            for name, texts in _record(source).get("texts", {}).items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def privatized_guarantee(source: Any) -> Guarantee | None:
    """Read the guarantee of one row of what :func:`write_privatized` wrote; None of anything else.

    Raises
    ------
    InputError
        The rows are recorded as privatized, under a guarantee that cannot be read.
    """
    record = _record(source)
    try:
        return Guarantee.from_dict(record["guarantee"])
    except (KeyError, TypeError, ValueError):
        if not record.keys().isdisjoint(_ALIKE):
            raise InputError(
                f"{open_table(source).name}: was privatized, but the guarantee in its record cannot be read; expected "
                "what 'signal privatize' wrote"
            ) from None
        return None


def privatized_provenance(source: Any) -> Provenance | None:
    """Read the privatizer and the period of a source's reports; None where a file does not say both."""
    record = _record(source)
    try:
        first, last = record["period"]
        return Provenance(
            str(record["fingerprint"]),
            date.fromisoformat(first),
            date.fromisoformat(last),
            tuple(map(str, record["kept"])),
            float(record["empty"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def is_shuffled(source: Any) -> bool:
    """Whether a source's reports are in another order than the rows that they were made of."""
    return bool(_record(source).get("order") == "shuffled")


def privatized_map_error(source: Any) -> MapError | None:
    """Read the error of a map of a source's reports, learnt on the pilot; None where a file does not say it."""
    try:
        return MapError.of_record(_record(source)["map_error"])
    except (KeyError, TypeError, ValueError):
        return None


def _record(source: Any) -> dict[str, Any]:
    """The record that all files of a source carry, of the period of all; empty where none carries any.

    Raises
    ------
    InputError
        Two files were not privatized alike, or a record cannot be read.
    """
    first, *others = [(part.name, _record_of(part)) for part in open_table(source).parts()]
    name, record = first
    for other_name, other in others:
        if any(record.get(key) != other.get(key) for key in _ALIKE):
            raise InputError(
                f"{name} and {other_name}: were not privatized alike, or one does not say how; expected files of one "
                "privatizer"
            )
    periods = [each.get("period") for _, each in (first, *others)]
    known = [each for each in periods if isinstance(each, list) and len(each) == 2]
    if others:
        whole = len(known) == len(periods)
        record["period"] = [min(known)[0], max(end for _, end in known)] if whole else None
        record["empty"] = max((each.get("empty", 1.0) for _, each in (first, *others)), default=1.0)
    return record


def _record_of(table: Table) -> dict[str, Any]:
    """The record in a Parquet file, beside a CSV or in an Arrow table; empty where there is none."""
    import pyarrow
    from pyarrow import parquet

    text: bytes | str = b"{}"
    rows, count = None, 0
    beside = "its metadata"
    try:
        if isinstance(table, FrameTable) and isinstance(table.frame, pyarrow.Table):
            text = (table.frame.schema.metadata or {}).get(METADATA_KEY, text)
            count = table.frame.num_rows
        elif isinstance(table, FileTable) and table.paths[0].suffix.lower() == ".csv":
            held = Path(f"{table.paths[0]}{CSV_METADATA_SUFFIX}")
            text, beside = held.read_text(encoding="utf-8"), held.name
            with table.paths[0].open("rb") as opened:
                rows = hashlib.file_digest(opened, "sha256").hexdigest()
        elif isinstance(table, FileTable):
            with table.paths[0].open("rb") as opened:
                if opened.read(len(_PARQUET)) == _PARQUET:
                    written = parquet.read_metadata(opened)
                    text, count = (written.metadata or {}).get(METADATA_KEY, text), written.num_rows
                    rows = (
                        parquet_rows_hash(table.paths[0])
                        if METADATA_KEY in (written.metadata or {})
                        else None
                    )
    except (pyarrow.ArrowException, OSError):
        return {}  # reading the file as a table names what is wrong
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InputError(
            f"{table.name}: the record of its rows cannot be read; expected what 'signal privatize' wrote"
        )
    privatized = record.get(REPORTS_KEY, count)
    if not isinstance(privatized, int) or count > privatized:
        raise InputError(
            f"{table.name}: holds {count:,} rows, its record is of {privatized!r}: others were added, which no "
            "guarantee covers; expected what 'signal privatize' wrote, or some of its rows"
        )
    if rows is not None and record.get(ROWS_KEY, rows) != rows:
        raise InputError(
            f"{table.name}: its rows are not those that the record in {beside} was written for, or another program "
            "rewrote the file; expected the file that 'signal privatize' wrote, or rows without a record, which are "
            "read as undocumented"
        )
    return record


def parquet_rows_hash(path: Path) -> str:
    """SHA-256 of the bytes of a Parquet file before its metadata, which hold all values of all columns."""
    with path.open("rb") as opened:
        opened.seek(-_FOOTER_END, os.SEEK_END)
        left = opened.tell() - int.from_bytes(opened.read(4), "little")
        opened.seek(0)
        found = hashlib.sha256()
        while left > 0 and (piece := opened.read(min(left, _AT_ONCE))):
            found.update(piece)
            left -= len(piece)
    return found.hexdigest()


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
        All rows as of one user; and the guarantee that files or a table of :func:`privatize` document.

    Raises
    ------
    InputError
        The table cannot be read, its files were not privatized alike, or a record of them cannot be read.
    """

    table = open_table(source)
    with connect() as connection, reading(table.name):
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
        raise type(error)(str(error.args[0]).replace(f", {_NOBODY!r}", "")) from None
    guarantee = privatized_guarantee(table)
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
    return feature_rows(table, names, privatized_texts(path))


def feature_rows(table: Table, names: Sequence[str], texts: TextNumbers) -> FloatArray:
    """Some columns of a table as numbers, NaN where they are null or text without a number, shape (rows, names)."""

    columns = ", ".join(
        f"{quote_name(name)}::{'VARCHAR' if name in texts else 'DOUBLE'} AS f{at}"
        for at, name in enumerate(names)
    )
    with connect() as connection, reading(table.name):
        found = connection.sql(f"SELECT {columns} FROM {table.relation(connection)}").to_arrow_table()
    made = []
    for name, each in zip(names, found.columns, strict=True):
        if name in texts:
            numbers = number_texts(each, texts[name]).numbers
            made.append(np.where(numbers == OTHER, np.nan, numbers))
        else:
            made.append(np.asarray(each.to_numpy(), dtype=np.float64))
    return np.column_stack(made)
