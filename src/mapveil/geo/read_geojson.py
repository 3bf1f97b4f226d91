"""Points in GeoJSON, streamed: a FeatureCollection, or one Feature after another.

A block of bytes is cut into features by counting brackets outside strings, all at once with NumPy; DuckDB
then parses each feature. So a collection of any length takes the memory of one block.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.tables import FileTable, Place, StreamTable, quote_name, quote_text
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_BLOCK: Final = 1 << 22
_SAMPLE: Final = 1000
_ACCEPTED: Final = "expected a FeatureCollection of Points, or one Feature a line"
_FEATURES: Final = re.compile(rb'"features"\s*:\s*\[')
_WGS84: Final = re.compile(r"CRS84|4326")
_BLANK: Final = b" \t\r\n,\x1e"

_STEP: Final = np.zeros(256, dtype=np.int8)
_STEP[[ord("{"), ord("[")]] = 1
_STEP[[ord("}"), ord("]")]] = -1


@dataclass(frozen=True, eq=False, repr=False)
class GeoJsonTable(FileTable):
    """The features of GeoJSON files: a column per property (text) and the location of the geometry."""

    properties: tuple[str, ...]

    @classmethod
    def open(cls, paths: tuple[Path, ...], name: str, kept: object) -> GeoJsonTable:
        """Describe files by their first features; an :class:`InputError` unless they are GeoJSON in WGS84."""
        properties: dict[str, None] = {}
        seen = 0
        for path in paths:
            for at, text in enumerate(itertools.islice(_texts(path), _SAMPLE), start=1):
                properties.update(dict.fromkeys(_properties(text, path, at)))
                seen += 1
        if seen == 0:
            raise InputError(f"{name}: holds no features; {_ACCEPTED}")
        return cls(paths, name, kept, tuple(properties))

    @property
    def place(self) -> Place:
        """See :class:`mapveil.geo.tables.Table`."""
        return Place(
            "geometry",
            "TRY_CAST(mapveil_place[1] AS DOUBLE)",
            "TRY_CAST(mapveil_place[2] AS DOUBLE)",
            "mapveil_geometry",
        )

    def relation(self, connection: duckdb.DuckDBPyConnection) -> str:
        """See :class:`mapveil.geo.tables.Table`."""
        import pyarrow

        schema = pyarrow.schema([("feature", pyarrow.string())])
        stream = StreamTable(schema, lambda: _batches(self.paths, schema), self.name)
        columns = [f"{_extract('properties', name)} AS {quote_name(name)}" for name in self.properties]
        columns += [
            "JSON_EXTRACT_STRING(feature, ['/geometry/coordinates/0', '/geometry/coordinates/1'])"
            " AS mapveil_place",
            f"{_extract('geometry')} AS mapveil_geometry",
        ]
        return f"(SELECT {', '.join(columns)} FROM {stream.relation(connection)}) AS features"


class Cut(NamedTuple):
    """Positions of features in a block."""

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]  # one past the last byte
    closed: bool  # whether their list ends within the block


def cut_features(block: npt.NDArray[np.uint8]) -> Cut:
    """Find the outermost objects of JSON text, as bytes, that begins outside strings and objects."""
    quotes = block == ord('"')
    if np.any(block == ord("\\")):
        # A quote after an odd run of backslashes is part of a string.
        index = np.arange(block.size)
        before = np.maximum.accumulate(np.where(block == ord("\\"), -1, index))
        at = np.flatnonzero(quotes)
        run = at - 1 - np.where(at > 0, before[at - 1], -1)
        quotes[at[run % 2 == 1]] = False
    outside = np.bitwise_xor.accumulate(quotes.view(np.uint8)) == 0
    step = np.where(outside, _STEP[block], 0)
    at = np.flatnonzero(step)
    depth = np.cumsum(step[at], dtype=np.int64)
    beyond = np.flatnonzero(depth < 0)
    if beyond.size:
        at, depth = at[: beyond[0]], depth[: beyond[0]]
    ends = at[(depth == 0) & (step[at] < 0)] + 1
    starts = at[(depth == 1) & (step[at] > 0)][: ends.size]
    return Cut(starts, ends, bool(beyond.size))


def _batches(paths: tuple[Path, ...], schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    for path in paths:
        for block, cut in _blocks(path):
            # Features and what lies between them, alternating; only the former are kept.
            edges = np.stack([cut.starts, cut.ends], axis=1).reshape(-1).astype(np.int32)
            texts = pyarrow.StringArray.from_buffers(
                edges.size - 1, pyarrow.py_buffer(edges.tobytes()), pyarrow.py_buffer(block.data)
            ).take(pyarrow.array(np.arange(0, edges.size - 1, 2)))
            try:
                texts.validate(full=True)
            except pyarrow.ArrowInvalid as error:
                raise InputError(f"{path}: not UTF-8 text; {_ACCEPTED}") from error
            yield pyarrow.record_batch([texts], schema=schema)


def _texts(path: Path) -> Iterator[bytes]:
    for block, cut in _blocks(path):
        for start, end in zip(cut.starts, cut.ends, strict=True):
            yield block[start:end].tobytes()


def _blocks(path: Path) -> Iterator[tuple[npt.NDArray[np.uint8], Cut]]:
    """Blocks with at least one whole feature each, and the positions of the features."""
    import pyarrow

    try:
        with contextlib.closing(pyarrow.input_stream(str(path), compression="detect")) as stream:
            carried, listed = _after_header(stream.read(_BLOCK), path)
            while True:
                block = np.frombuffer(carried, dtype=np.uint8)
                cut = cut_features(block)
                if cut.starts.size:
                    yield block, cut
                if cut.closed and listed:
                    return
                carried = carried[int(cut.ends[-1]) if cut.ends.size else 0 :]
                more = stream.read(_BLOCK)
                if not more:
                    break
                carried += more
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    if listed or carried.strip(_BLANK):
        raise InputError(f"{path}: ends in the middle of the features (truncated?); {_ACCEPTED}")


def _after_header(head: bytes, path: Path) -> tuple[bytes, bool]:
    """The bytes after the opening of the list of features, and whether there is such a list."""
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK)
    opening = _FEATURES.search(head)
    if opening:
        with contextlib.suppress(ValueError):
            record = json.loads(head[: opening.end()] + b"]}")
            _check_crs(record.get("crs"), path)
            return head[opening.end() :], True
    if not head.startswith(b"{"):
        raise InputError(f"{path}: not GeoJSON; {_ACCEPTED}")
    return head, False


def _check_crs(crs: Any, path: Path) -> None:
    """Refuse other coordinates than longitude and latitude, which an old GeoJSON file may declare."""
    if crs is not None and not _WGS84.search(json.dumps(crs)):
        raise InputError(f"{path}: declares another reference system than WGS84 (EPSG:4326)")


def _properties(text: bytes, path: Path, at: int) -> list[str]:
    try:
        feature = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: feature {at} is not valid JSON; {_ACCEPTED}") from error
    if feature.get("type") != "Feature":
        raise InputError(f"{path}: object {at} is not a Feature; {_ACCEPTED}")
    return list(feature.get("properties") or {})


def _extract(*keys: str) -> str:
    """SQL of one value of a feature as text, null where it is not there."""
    pointer = "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
    return f"JSON_EXTRACT_STRING(feature, {quote_text(pointer)})"
