"""Roads, waters and names of a basemap in one file of vector tiles (PMTiles), read from disk: no request is made."""

from __future__ import annotations

import math
import re
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.context import Context, labels_of
from mapveil.geo.ground import PlaceNames, shapes_of
from mapveil.geo.zones import Zones
from mapveil_client.errors import InputError, require

_ROADS: Final = re.compile(
    r"^(roads?|transportation|streets?|highways?|rail|transit|waterway|water_lines|rivers?)$"
)
_WATERS: Final = re.compile(r"^(water|water_polygons|ocean|lakes?)$")
_PLACES: Final = re.compile(r"^(places?|place_labels|place_label)$")
_TILES: Final = 2  # zooms beyond that at which the map fills a tile
_MOST_CORNERS: Final = 150_000  # a page carries them all
_FINEST: Final = 1_500  # fraction of the box's longer side below which no detail is kept
_WEB_MERCATOR: Final = "EPSG:3857"


class Basemap(NamedTuple):
    """A file of vector tiles, of which nothing but its head was read."""

    path: Path
    layers: tuple[str, ...]  # names of Protomaps, OpenMapTiles or Shortbread
    zooms: tuple[int, int]  # smallest and largest

    def within(self, bbox: tuple[float, float, float, float]) -> Context:
        """Lines and names in a box (west, south, east, north, degrees), fewer where there are too many to draw.

        Raises
        ------
        InputError
            The tiles cannot be read.
        """
        west, south, east, north = bbox
        wanted = math.floor(math.log2(360 / max(east - west, north - south, 1e-9))) + _TILES
        least, most = self.zooms
        for zoom in range(min(max(wanted, least), most), least - 1, -1):
            found = self._at(zoom, bbox)
            if found.lines.lon.size <= _MOST_CORNERS:
                return found
        return found._replace(lines=shapes_of(np.empty(0, dtype=np.object_)))

    def _at(self, zoom: int, bbox: tuple[float, float, float, float]) -> Context:
        import shapely

        roads, waters, places = (
            [name for name in self.layers if kind.match(name)] for kind in (_ROADS, _WATERS, _PLACES)
        )
        lines = [self._read(name, zoom, bbox)[0] for name in roads]
        lines = [each[np.isin(shapely.get_type_id(each), (1, 5))] for each in lines]
        for name in waters:
            shapes = self._read(name, zoom, bbox)[0]
            areas = shapes[np.isin(shapely.get_type_id(shapes), (3, 6))]
            # One area over all tiles: borders of tiles are no shores.
            lines.append(
                np.array([shapely.boundary(shapely.union_all(shapely.make_valid(areas)))], dtype=np.object_)
            )
        cut = shapely.clip_by_rect(np.concatenate([np.empty(0, dtype=np.object_), *lines]), *bbox)
        detail = max(bbox[2] - bbox[0], bbox[3] - bbox[1]) / _FINEST
        kept = shapely.simplify(cut, detail, preserve_topology=False)
        named = [self._read(name, zoom, bbox) for name in places]
        points = np.concatenate([np.empty(0, dtype=np.object_), *(shapes for shapes, _ in named)])
        names = [str(name or "") for _, found in named for name in found]
        held = np.array([bool(name) for name in names], dtype=np.bool_)
        return Context(
            shapes_of(kept[~shapely.is_empty(kept)]),
            labels_of(points[held], tuple(name for name in names if name)),
            Zones(np.empty(0, dtype=np.object_), ()),
        )

    def _read(
        self, layer: str, zoom: int, bbox: tuple[float, float, float, float]
    ) -> tuple[npt.NDArray[np.object_], list[Any]]:
        """Geometries in degrees, and names, of a layer."""
        import shapely
        from pyproj import Transformer

        module = require("pyogrio", "geo")
        flat = Transformer.from_crs("EPSG:4326", _WEB_MERCATOR, always_xy=True)
        box = flat.transform_bounds(*bbox)
        try:
            frame = module.read_dataframe(self.path, layer=layer, bbox=box, ZOOM_LEVEL=str(zoom))
        except (ValueError, OSError, RuntimeError) as error:
            raise _unreadable(self.path, error) from error

        def degrees(xy: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            return np.column_stack(flat.transform(xy[:, 0], xy[:, 1], direction="INVERSE"))

        shapes = np.asarray(frame.geometry, dtype=np.object_)
        names = frame["name"].tolist() if "name" in frame.columns else [None] * len(frame)
        return np.asarray(shapely.transform(shapes, degrees), dtype=np.object_), names


def open_basemap(path: str | PathLike[str]) -> Basemap:
    """Open a basemap of Protomaps, OpenMapTiles or Shortbread, such as a cut of https://maps.protomaps.com/builds.

    Parameters
    ----------
    path : path-like
        A PMTiles file of vector tiles.

    Raises
    ------
    InputError
        No such file, no PMTiles of vector tiles, or without a layer of roads, waters or places.
    MissingExtra
        pyogrio is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected a basemap of vector tiles (.pmtiles)")
    with file.open("rb") as opened:
        head = opened.read(127)
    if head[:8] != b"PMTiles\x03" or len(head) < 127 or head[99] != 1:
        raise InputError(f"{file}: not a PMTiles file of vector tiles (version 3)")
    module = require("pyogrio", "geo")
    try:
        layers = tuple(str(name) for name in module.list_layers(file)[:, 0])
    except (ValueError, OSError, RuntimeError) as error:
        raise _unreadable(file, error) from error
    if not any(kind.match(name) for kind in (_ROADS, _WATERS, _PLACES) for name in layers):
        raise InputError(
            f"{file}: has no layer of roads, water or places; its layers are {', '.join(layers) or 'none'}"
        )
    return Basemap(file, layers, (head[100], head[101]))


def joined(context: Context | None, below: Context) -> Context:
    """One's own layers with those of a basemap; zones and the first names are one's own."""
    if context is None:
        return below
    lon, lat = (
        np.concatenate((getattr(context.lines, axis), getattr(below.lines, axis))) for axis in ("lon", "lat")
    )
    start = np.concatenate((context.lines.start, below.lines.start[1:] + context.lines.start[-1]))
    names = PlaceNames(
        np.concatenate((context.names.lon, below.names.lon)),
        np.concatenate((context.names.lat, below.names.lat)),
        (*context.names.name, *below.names.name),
    )
    return context._replace(lines=context.lines._replace(lon=lon, lat=lat, start=start), names=names)


def _unreadable(file: Path, error: Exception) -> InputError:
    return InputError(f"{file}: not readable as PMTiles ({str(error).splitlines()[0]})")
