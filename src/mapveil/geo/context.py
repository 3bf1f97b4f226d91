"""Layers of one's own under a map, for orientation: districts, streets, names. Public, and never read by a method."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.ground import PlaceNames, Shapes, shapes_of
from mapveil.geo.zones import Zones, overlap_notes
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mapveil.geo.online_tiles import OnlineTiles

_NAME: Final = "name"
_MOST_CORNERS: Final = 1_000_000  # a page carries them all


class Context(NamedTuple):
    """Lines, outlines of polygons, and names, WGS84 degrees; a page answers questions about the polygons."""

    lines: Shapes
    names: PlaceNames  # of features with a ``name``, those of the largest first
    zones: Zones  # its valid polygons, by their names or numbers
    tiles: OnlineTiles | None = None  # what pages fetch where their readers look

    @classmethod
    def of_zones(cls, zones: Zones, rank: FloatArray | None = None) -> Context:
        """The outlines and names of zones, named in the order of ``rank``, or of their size."""
        return cls(shapes_of(zones.polygons), labels_of(zones.polygons, zones.labels, rank), zones)

    @classmethod
    def nothing(cls) -> Context:
        """No layers."""
        none, no_shapes = np.empty(0), np.empty(0, dtype=np.object_)
        start = np.zeros(1, dtype=np.int64)
        return cls(Shapes(none, none, start), PlaceNames(none, none, ()), Zones(no_shapes, ()))


def read_context(path: str | PathLike[str]) -> Context:
    """Read the layers of a GeoPackage, GeoJSON or another vector file; names come from its column ``name``.

    Parameters
    ----------
    path : path-like
        The file. GeoJSON needs no extra; of a file with several layers all are read.

    Raises
    ------
    InputError
        No such file, not readable, without a CRS, without lines, polygons or names, or of more than a million corners.
    MissingExtra
        Another format than GeoJSON, and geopandas is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(
            f"{file}: no such file; expected a GeoPackage or GeoJSON file of lines, polygons or labels"
        )
    shapes, names = (
        _from_geojson(file) if file.suffix.lower() in {".geojson", ".json"} else _from_layers(file)
    )
    return _context(file, shapes, names)


def _context(file: Path, shapes: npt.NDArray[np.object_], names: Sequence[Any]) -> Context:
    import shapely

    there = ~(shapely.is_missing(shapes) | shapely.is_empty(shapes))
    kept = shapes[there]
    labels = ["" if name is None or name != name else str(name) for name in np.asarray(names, object)[there]]
    corners = int(shapely.get_num_coordinates(kept).sum())
    if corners > _MOST_CORNERS:
        raise InputError(
            f"{file}: has {corners:,} corners; expected at most {_MOST_CORNERS:,}: cut or simplify it"
        )
    if not np.isfinite(shapely.get_coordinates(kept)).all():
        raise InputError(f"{file}: a coordinate is not a finite number")
    lines = shapes_of(kept)
    named = np.flatnonzero([bool(label) for label in labels])
    if lines.lon.size == 0 and named.size == 0:
        raise InputError(f"{file}: no lines, polygons or features with a name; expected some of these")
    names_there = tuple(labels[each] for each in named.tolist())
    return Context(lines, labels_of(kept[named], names_there), _zones(kept, labels))


def labels_of(
    shapes: npt.NDArray[np.object_], names: tuple[str, ...], rank: FloatArray | None = None
) -> PlaceNames:
    """Names within their shapes, those of the least rank first; by default of the largest shapes."""
    import shapely

    order = np.argsort(-shapely.area(shapes) if rank is None else rank, kind="stable")
    at = shapely.get_coordinates(shapely.point_on_surface(shapes[order]))
    return PlaceNames(at[:, 0], at[:, 1], tuple(names[each] for each in order.tolist()))


def _zones(shapes: npt.NDArray[np.object_], labels: Sequence[str]) -> Zones:
    """The valid polygons among shapes."""
    import shapely

    polygons = np.flatnonzero(np.isin(shapely.get_type_id(shapes), (3, 6)))
    valid = polygons[shapely.is_valid(shapes[polygons])]
    names = tuple(labels[at] or str(number) for number, at in enumerate(valid.tolist(), start=1))
    broken = polygons.size - valid.size
    notes = (f"{broken} invalid polygons are drawn, and not asked about",) if broken else ()
    flat = np.asarray(shapely.force_2d(shapes[valid]), dtype=np.object_)
    return Zones(flat, names, notes=(*notes, *overlap_notes(flat, names)))


def _from_geojson(file: Path) -> tuple[npt.NDArray[np.object_], list[Any]]:
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        features = content["features"] if content["type"] == "FeatureCollection" else [content]
        shapes, names = np.empty(len(features), dtype=np.object_), []
        for at, feature in enumerate(features):
            is_feature = feature["type"] == "Feature"
            geometry = feature["geometry"] if is_feature else feature
            with np.errstate(invalid="ignore"):  # a number that is none is refused with the others
                shapes[at] = None if geometry is None else shape(geometry)
            names.append((feature.get("properties") or {}).get(_NAME) if is_feature else None)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, ShapelyError) as error:
        raise InputError(f"{file}: not readable as GeoJSON ({type(error).__name__}: {error})") from error
    return shapes, names


def _from_layers(file: Path) -> tuple[npt.NDArray[np.object_], list[Any]]:
    geopandas = require("geopandas", "geo")
    try:
        layers = geopandas.list_layers(file)["name"].tolist()
        frames = [geopandas.read_file(file, layer=layer) for layer in layers]
    except (ValueError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{file}: not readable as a vector file ({reason}); expected GeoPackage or GeoJSON"
        ) from error
    frames = [frame for frame in frames if isinstance(frame, geopandas.GeoDataFrame) and len(frame)]
    if any(frame.crs is None for frame in frames):
        raise InputError(f"{file}: a layer has no CRS; expected one whose CRS is known")
    shapes: list[Any] = []
    names: list[Any] = []
    for frame in frames:
        shapes += frame.geometry.to_crs("EPSG:4326").tolist()
        names += frame[_NAME].tolist() if _NAME in frame.columns else [None] * len(frame)
    made = np.empty(len(shapes), dtype=np.object_)
    made[:] = shapes
    return made, names
