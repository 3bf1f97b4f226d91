"""Read the metadata of a released map from any file that Mapveil wrote."""

from __future__ import annotations

import json
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Final

from mapveil.formats.geopackage import read_geopackage
from mapveil.formats.geoparquet import METADATA_KEY
from mapveil.formats.geotiff import METADATA_TAG, open_geotiff
from mapveil.formats.measurement_record import MEASUREMENTS_KEY
from mapveil.formats.read_map import NotAMap
from mapveil.privacy.file_hash import CSV_METADATA_SUFFIX
from mapveil_client.errors import InputError, require

_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n"
_MOST_TEXT: Final = 1 << 26
"""Bytes of metadata in a PNG that are unpacked at most: no map of ours has a tenth."""
_SCENE: Final = "scene"
"""Id of the script of a page that holds its record."""


def read_record(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the metadata that every export but vector tiles carries, without the values. Run by: anybody.

    Nothing in the record proves that its guarantee was kept.

    Parameters
    ----------
    path : path-like
        A .tif, .tiff, .parquet, .geojson, .json, .gpkg, .png or .html file, or a .csv with its metadata beside it.

    Returns
    -------
    dict
        See :meth:`mapveil.maps.released.ReleasedMap.metadata`.

    Raises
    ------
    NotAMap
        Another suffix, no such file, or not written by Mapveil.
    InputError
        The file is not readable.
    MissingExtra
        A GeoTIFF, and rasterio is not installed.
    """
    file = Path(path)
    read = _READERS.get(file.suffix.lower())
    if read is None:
        words = "; vector tiles carry the promise in words only" if file.suffix.lower() == ".pmtiles" else ""
        raise NotAMap(
            f"{file}: the suffix must be one of {', '.join(_READERS)}, got {file.suffix or 'none'}{words}"
        )
    if not file.is_file():
        raise NotAMap(f"{file}: no such file; a map that Mapveil wrote is needed")
    try:
        text = read(file)
        record = None if text is None else json.loads(text)
    except (OSError, ValueError, struct.error, zlib.error, RecursionError) as error:
        raise InputError(
            f"{file}: not readable as {file.suffix[1:]} ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(record, dict) or record.get("software") != "mapveil":
        raise NotAMap(f"{file}: not a map that Mapveil wrote: its metadata are missing")
    record.pop(MEASUREMENTS_KEY, None)  # a CSV's lie beside its metadata
    return record


def _parquet_text(file: Path) -> str | None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # A file object, so that "key=value" in the path means nothing.
        with file.open("rb") as opened:
            text = (parquet.read_schema(opened).metadata or {}).get(METADATA_KEY)
    except pa.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return None if text is None else text.decode()


def _geotiff_text(file: Path) -> str | None:
    rasterio = require("rasterio", "geo")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with open_geotiff(file) as opened:
                text: str | None = opened.tags().get(METADATA_TAG)
    except rasterio.errors.RasterioError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    return text


def _geojson_text(file: Path) -> str | None:
    record = json.loads(file.read_bytes())
    found = record.get("mapveil") if isinstance(record, dict) else None
    return None if found is None else json.dumps(found)


def _geopackage_text(file: Path) -> str | None:
    return read_geopackage(file, ["cell"])[0]


def _csv_text(file: Path) -> str | None:
    beside = Path(f"{file}{CSV_METADATA_SUFFIX}")
    return beside.read_text("utf-8") if beside.is_file() else None


def _png_text(file: Path) -> str | None:
    with file.open("rb") as opened:
        if opened.read(len(_PNG_HEAD)) != _PNG_HEAD:
            raise ValueError("not a PNG")
        return next((text for key, text in _png_texts(opened) if key == METADATA_KEY), None)


def _png_texts(opened: BinaryIO) -> Iterator[tuple[bytes, str]]:
    """The text chunks of a PNG: tEXt, zTXt and iTXt."""
    while head := opened.read(8):
        size, kind = struct.unpack(">I4s", head)
        if kind not in (b"tEXt", b"zTXt", b"iTXt"):
            opened.seek(size + 4, 1)
            continue
        body = opened.read(size)
        opened.seek(4, 1)
        key, _, rest = body.partition(b"\0")
        if kind == b"tEXt":
            yield key, rest.decode("latin-1")
        elif kind == b"zTXt":
            yield key, _unpacked(rest[1:]).decode("latin-1")
        else:
            packed, text = rest[0], rest[2:].split(b"\0", 2)[2]
            yield key, (_unpacked(text) if packed else text).decode()


def _unpacked(data: bytes) -> bytes:
    """Deflated bytes, up to a limit: a small file must not fill memory."""
    stream = zlib.decompressobj()
    found = stream.decompress(data, _MOST_TEXT)
    if stream.unconsumed_tail:
        raise ValueError(f"its metadata are longer than {_MOST_TEXT} bytes")
    return found


class _SceneFinder(HTMLParser):
    """The text of the first script whose id is that of a page's record."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.found: str | None = None
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and ("id", _SCENE) in attrs and self.found is None

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found = (self.found or "") + data


def _page_text(file: Path) -> str | None:
    finder = _SceneFinder()
    finder.feed(file.read_text("utf-8"))
    if finder.found is None:
        return None
    record = json.loads(finder.found)
    return json.dumps(record["metadata"]) if isinstance(record, dict) and "metadata" in record else None


_READERS: Final[dict[str, Callable[[Path], str | None]]] = {
    ".tif": _geotiff_text,
    ".tiff": _geotiff_text,
    ".parquet": _parquet_text,
    ".geojson": _geojson_text,
    ".json": _geojson_text,
    ".gpkg": _geopackage_text,
    ".csv": _csv_text,
    ".png": _png_text,
    ".html": _page_text,
}
"""The metadata of a file as JSON, by suffix; None where there are none."""
