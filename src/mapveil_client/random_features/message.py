"""The messages between server and device: what each holds, and its one encoding.

Every message is one canonical CBOR array (:mod:`mapveil_client.canonical_cbor`); ``random_features.cddl`` says the
same in CDDL::

    [version, 1, crs, kernel, features, bandwidth, low, high, start, step, count]    query
    [version, 2, digest of the query, waves]                                         report, compact
    [version, 3, digest of the query, evaluations]                                   report, as the paper sends it

Numbers with fractions are 64-bit floats, little-endian, one after another in a byte string. The waves of a compact
report are, for each feature, its frequency along each axis, then cosine and sine of its phase: (d + 2) B numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil_client import canonical_cbor
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports

VERSION: Final = 1
_QUERY, _COMPACT = 1, 2
_ROUNDING: Final = 1e-9


def _pack(values: npt.ArrayLike) -> bytes:
    return np.asarray(values, dtype="<f8").tobytes()


def write_query(query: Query) -> bytes:
    """Encode a query. Run by: the server."""
    grid = query.grid
    return canonical_cbor.encode(
        [
            VERSION,
            _QUERY,
            query.crs.encode(),
            query.kernel.encode(),
            query.features,
            _pack(query.bandwidth),
            _pack(query.low),
            _pack(query.high),
            b"" if grid is None else _pack(grid.start),
            b"" if grid is None else _pack(grid.step),
            b"" if grid is None else np.asarray(grid.count, dtype="<u4").tobytes(),
        ]
    )


def read_query(data: bytes) -> Query:
    """Decode a query. Run by: the client.

    Raises
    ------
    InputError
        It is no query of this version, or one whose parameters are out of range.
    """
    fields = _fields(data, _QUERY, 11)
    crs, kernel, features, bandwidth, low, high, start, step, count = fields
    axes = [_floats(part) for part in (bandwidth, low, high, start, step)]
    if not (isinstance(features, int) and isinstance(count, bytes) and len(count) % 4 == 0):
        raise InputError("a query whose fields are of other types; nothing is answered")
    counts = tuple(int(value) for value in np.frombuffer(count, dtype="<u4"))
    grid = EvenGrid(axes[3], axes[4], counts) if counts or axes[3] or axes[4] else None
    return Query(axes[0], axes[1], axes[2], features, _text(kernel), grid, _text(crs))


def digest(query: Query) -> bytes:
    """SHA-256 of the query's encoding: names in a report what it answers."""
    return hashlib.sha256(write_query(query)).digest()


def write_reports(reports: Reports, query: Query) -> list[bytes]:
    """Encode each device's compact report. Run by: the client."""
    name = digest(query)
    waves = np.concatenate(
        [reports.frequencies, reports.projections.real[None], reports.projections.imag[None]]
    )
    rows = np.ascontiguousarray(np.moveaxis(waves, 0, 2))
    return [canonical_cbor.encode([VERSION, _COMPACT, name, _pack(row)]) for row in rows]


def read_reports(messages: Sequence[bytes], query: Query) -> Reports:
    """Decode and check compact reports. Run by: the server.

    A report can move the surface by at most one user: its projections are no longer than 1, and its frequencies are in
    the grid's band.

    Raises
    ------
    InputError
        A message is not a report of this query, or has a number out of range.
    """
    size = (query.dimension + 2) * query.features
    rows = _rows(messages, _COMPACT, query, size).reshape(len(messages), query.features, query.dimension + 2)
    frequencies = np.ascontiguousarray(np.moveaxis(rows[:, :, : query.dimension], 2, 0))
    projections = rows[:, :, -2] + 1j * rows[:, :, -1]
    longest = np.abs(projections).max(axis=1, initial=0.0)
    _refuse(np.asarray(longest > 1 + _ROUNDING), "a projection longer than 1")
    if query.grid is not None:
        band = np.pi / np.abs(query.grid.step)[:, None, None] * (1 + _ROUNDING)
        _refuse(
            np.asarray((np.abs(frequencies) > band).any(axis=(0, 2))), "a frequency outside the grid's band"
        )
    return Reports(frequencies, projections)


def _rows(messages: Sequence[bytes], kind: int, query: Query, size: int) -> FloatArray:
    """The numbers of each message, shape (messages, size), all finite."""
    name = digest(query)
    rows = np.empty((len(messages), size))
    for at, data in enumerate(messages):
        try:
            answered, numbers = _fields(data, kind, 4)
        except InputError as error:
            raise InputError(f"report {at}: {error}") from None
        if answered != name:
            raise InputError(f"report {at}: answers another query")
        if not isinstance(numbers, bytes) or len(numbers) != 8 * size:
            raise InputError(f"report {at}: {size} numbers of 64 bits are accepted for this query")
        rows[at] = np.frombuffer(numbers, dtype="<f8")
    _refuse(np.asarray(~np.isfinite(rows).all(axis=1)), "a number that is not finite")
    return rows


def _refuse(bad: npt.NDArray[np.bool_], what: str) -> None:
    """Name the first report with a fault."""
    if bad.any():
        raise InputError(f"report {int(np.argmax(bad))}: {what}")


def _fields(data: bytes, kind: int, count: int) -> list[int | bytes]:
    try:
        values = canonical_cbor.decode(bytes(data))
    except canonical_cbor.NotCanonical as error:
        raise InputError(f"is no message of this version ({error})") from None
    if len(values) != count or values[0] != VERSION or values[1] != kind:
        raise InputError(f"is no message of version {VERSION}, kind {kind}, with {count} fields")
    return values[2:]


def _floats(data: int | bytes) -> tuple[float, ...]:
    if not isinstance(data, bytes) or len(data) % 8:
        raise InputError("a query whose fields are of other types; nothing is answered")
    return tuple(np.frombuffer(data, dtype="<f8").tolist())


def _text(data: int | bytes) -> str:
    try:
        return data.decode() if isinstance(data, bytes) else ""
    except UnicodeDecodeError:
        raise InputError("a query whose names are not text; nothing is answered") from None
