"""Finished maps in memory: what is costly to make of one is made once and kept for a while."""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
import threading
from collections.abc import Callable, Hashable
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from mapveil.collector.http.tiles import MapTiles, cells_record
from mapveil.collector.recent import Recent
from mapveil.collector.refusals import NotFound
from mapveil.maps.density_map import DensityMap
from mapveil.retrieval.map_records import map_database
from mapveil.retrieval.pir_server import Server

_MAPS: Final = 8
_PICTURES: Final = 4096  # tiles of one map
_HINT_PART_ROWS: Final = 256


EXPORTS: Final = {
    "geotiff": (".tif", "image/tiff"),
    "geoparquet": (".parquet", "application/vnd.apache.parquet"),
    "geojson": (".geojson", "application/geo+json"),
    "png": (".png", "image/png"),
    "html": (".html", "text/html; charset=utf-8"),
}
"""Suffix and media type of each format that a map can be downloaded in, by its name in the address."""


class Compressed(NamedTuple):
    """A body, plain and compressed."""

    plain: bytes
    zipped: bytes

    @classmethod
    def of(cls, plain: bytes) -> Compressed:
        """Compress it."""
        return cls(plain, gzip.compress(plain, 5, mtime=0))


class FinishedMap:
    """One map and what was made of it. Every method may be called from any thread."""

    def __init__(self, heat: DensityMap) -> None:
        self.heat = heat
        self.pictures: Recent[Hashable, bytes] = Recent(_PICTURES)

    @cached_property
    def tiles(self) -> MapTiles:
        """Its pictures."""
        return MapTiles(self.heat)

    @cached_property
    def cells(self) -> Compressed:
        """Its cells as JSON."""
        text = json.dumps(cells_record(self.heat), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return Compressed.of(text.encode())

    @cached_property
    def features(self) -> Compressed:
        """Its cells as GeoJSON."""
        return Compressed.of(self.export("geojson"))

    @cached_property
    def retrieval(self) -> Server:
        """Server of private queries about the map; the hint takes about 1000 operations for each byte."""
        measured = self.heat.interval() is not None
        return Server(map_database(self.heat, ("users", "lower", "upper") if measured else ("users",)))

    def hint_part(self, part: int) -> bytes:
        """Some rows of the retrieval's hint."""
        if not 0 <= part < self.hint_parts:
            raise NotFound(f"the hint has parts 0 to {self.hint_parts - 1}")
        return next(itertools.islice(self.retrieval.hint_messages(), part, None))

    @property
    def hint_parts(self) -> int:
        """Number of parts in which the hint is sent."""
        rows: int = self.retrieval.hint.shape[0]
        return -(-rows // _HINT_PART_ROWS)

    def export(self, name: str) -> bytes:
        """The map as a file of one of :data:`EXPORTS`."""
        with tempfile.TemporaryDirectory(prefix="mapveil-export-") as folder:
            path = Path(folder) / ("map" + EXPORTS[name][0])
            self.heat.save(path)
            return path.read_bytes()


class FinishedMaps:
    """The maps that were asked for last.

    Parameters
    ----------
    read : callable
        Reads a collection's map from the store; raises where there is none.
    """

    def __init__(self, read: Callable[[str], DensityMap]) -> None:
        self._read = read
        self._lock = threading.Lock()  # a map is read once, however many ask for it first
        self._maps: Recent[str, FinishedMap] = Recent(_MAPS)

    def of(self, collection: str) -> FinishedMap:
        """A collection's map; raises as reading it does."""
        with self._lock:
            return self._maps.get(collection) or self._maps.put(
                collection, FinishedMap(self._read(collection))
            )
