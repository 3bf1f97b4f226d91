"""Zones: the polygons that a map is asked about, with their names and columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import InputError, one_line, require
from mapveil_client.plane import DEGREES_CRS

_BY_NAME: Final = "--name COLUMN takes their names from one, such as"
_NAMES: Final = ("name", "zone", "district", "id", "label", "code")
"""Columns whose texts name zones, the most likely first."""

LABEL: Final = 60
"""Characters of a name where it is drawn or printed."""

_WIDEST: Final = 200  # characters of a list in a message
_ROOM: Final = 1e-6  # degrees beyond the poles or the 180th meridian that a projection may round to
_PAIRS_AT_ONCE: Final = 1 << 11  # whose intersections are held at once
_MOST_COUNTED: Final = 1000  # overlapping pairs: one more is "more than"
_EXAMPLES: Final = 5


@dataclass(frozen=True, eq=False)
class Zones:
    """Polygons in WGS84 degrees, with a name and the further columns of each.

    Parameters
    ----------
    polygons : ndarray of shapely polygons, shape (zones,)
        Valid polygons or multipolygons, degrees.
    names : tuple of str
        Name of each zone.
    columns : mapping of str to list
        Further columns of the source, one entry per zone.
    notes : tuple of str
        What was repaired, and which zones overlap.
    """

    polygons: npt.NDArray[np.object_]
    names: tuple[str, ...]
    columns: Mapping[str, list[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names for a person's eyes: printable and cut to 60 characters."""
        return tuple(one_line(name, LABEL) for name in self.names)

    def take(self, kept: BoolArray, note: str) -> Zones:
        """Some of the zones, with a further note."""
        at = np.flatnonzero(kept).tolist()
        columns = {name: [values[each] for each in at] for name, values in self.columns.items()}
        return Zones(
            self.polygons[kept], tuple(self.names[each] for each in at), columns, (*self.notes, note)
        )

    @classmethod
    def read(
        cls, source: Any, *, name: str | None = None, crs: str | None = None, repair: bool = False
    ) -> Zones:
        """Read zones from a polygon, several, a frame, GeoJSON, or a file.

        Parameters
        ----------
        source : polygon, iterable of polygons, GeoDataFrame, mapping, path-like or Zones
            Shapely polygons and GeoJSON are in WGS84 degrees. A path is GeoJSON, GeoParquet, or any vector file that
            pyogrio reads, such as GeoPackage, Shapefile or FlatGeobuf.
        name : str, optional
            Column of the zones' names; by default ``name``, ``zone``, ``district``, ``id``, ``label`` or ``code``, or
            else their numbers from 1.
        crs : str, optional
            CRS of a source that states none, such as ``"EPSG:25832"``.
        repair : bool
            Repair invalid polygons; they are refused by default.

        Raises
        ------
        InputError
            No zones, no CRS, no polygons, or invalid ones without ``repair``.
        MissingExtra
            Another file than GeoJSON, and geopandas is not installed.
        """
        if isinstance(source, Zones):
            return source
        where, shapes, columns, stated = _opened(source, crs)
        _check_stated(where, stated, crs)
        stated = crs if stated is None else stated
        if stated is None:
            raise InputError(
                f"{where}: no CRS is stated, so nobody knows where it lies; give crs (--zones-crs), such as EPSG:25832"
            )
        if not len(shapes):
            raise InputError(f"{where}: no zones in it; expected at least one polygon")
        names = _names(where, columns, name, len(shapes))
        shapes, notes = _checked(where, _in_degrees(where, shapes, str(stated)), names, repair=repair)
        others = [key for key in columns if key != "geometry"]
        if name is None and others and not {key.lower() for key in others} & set(_NAMES):
            notes = (*notes, f"zones are called by number; {_BY_NAME} {others[0]}")
        rest = {key: values for key, values in columns.items() if key != "geometry"}
        return cls(shapes, names, rest, (*notes, *overlap_notes(shapes, names)))

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers, shape (zones,).

        Raises
        ------
        InputError
            There is no such column, or it holds something else.
        """
        if name not in self.columns:
            known = ", ".join(self.columns) or "none"
            raise InputError(f"the zones have no column {name!r}; their columns are {known}")
        try:
            return np.asarray(self.columns[name], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"the zones' column {name!r} must hold numbers") from None


def _opened(
    source: Any, crs: str | None
) -> tuple[str, npt.NDArray[np.object_], dict[str, list[Any]], object | None]:
    """Name, geometries, columns and CRS of a source."""
    from shapely.geometry.base import BaseGeometry

    if isinstance(source, BaseGeometry):
        return "zone", np.array([source], dtype=object), {}, DEGREES_CRS
    if isinstance(source, Mapping):
        return "zones", *_of_geojson(source, "zones"), DEGREES_CRS
    if hasattr(source, "geometry") and hasattr(source, "crs"):
        return "zones", *_of_frame(source), source.crs
    if isinstance(source, str | PathLike):
        return _of_file(Path(source), crs)
    if isinstance(source, Iterable):
        shapes = list(source)
        if all(isinstance(each, BaseGeometry) for each in shapes):
            return "zones", np.array(shapes, dtype=object), {}, DEGREES_CRS
    raise InputError(
        f"zones must be polygons, a GeoDataFrame, GeoJSON or a file, got {type(source).__name__}"
    )


def _of_file(
    file: Path, crs: str | None
) -> tuple[str, npt.NDArray[np.object_], dict[str, list[Any]], object | None]:
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected polygons, such as GeoJSON or GeoPackage")
    where = str(file)
    if file.suffix.lower() in {".geojson", ".json"}:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise InputError(f"{where}: not readable as GeoJSON ({error})") from error
        named = content.get("crs") if isinstance(content, Mapping) else None
        return where, *_of_geojson(content, where), _geojson_crs(named, crs)
    geopandas = require("geopandas", "geo")
    read = (
        geopandas.read_parquet if file.suffix.lower() in {".parquet", ".geoparquet"} else geopandas.read_file
    )
    try:
        frame = read(file)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        raise InputError(f"{where}: not readable as a vector file ({str(error).splitlines()[0]})") from error
    if not hasattr(frame, "crs"):
        raise InputError(f"{where}: a table without geometries; expected polygons")
    return where, *_of_frame(frame), frame.crs


def _check_stated(where: str, stated: object | None, crs: str | None) -> None:
    """Refuse a CRS beside another one that the source states."""
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    if crs is None or stated is None or str(stated) == crs:
        return
    try:
        same = CRS.from_user_input(stated).equals(CRS.from_user_input(crs), ignore_axis_order=True)
    except CRSError:
        raise InputError(f"{where}: CRS {crs!r} is not known; expected such as EPSG:25832") from None
    if not same:
        raise InputError(
            f"{where}: states its own CRS, {stated}, and crs (--zones-crs) is {crs!r}: "
            "leave it out, or correct the file"
        )


def _geojson_crs(named: Any, crs: str | None) -> str:
    """The CRS that a file of the format's 2008 edition names; else ``crs``, or WGS84 degrees (RFC 7946)."""
    try:
        text = str(named["properties"]["name"])
    except (TypeError, KeyError):
        return crs or DEGREES_CRS
    return DEGREES_CRS if "CRS84" in text else text


def _of_geojson(
    content: Mapping[str, Any], where: str
) -> tuple[npt.NDArray[np.object_], dict[str, list[Any]]]:
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    if not isinstance(content, Mapping):
        raise InputError(f"{where}: not GeoJSON of polygons (it is no object)")
    kind = content.get("type")
    try:
        if kind == "FeatureCollection":
            features = list(content["features"])
        else:
            features = [content if kind == "Feature" else {"geometry": content, "properties": {}}]
        faults = ((number, _fault(each["geometry"])) for number, each in enumerate(features, 1))
        wrong = next((f"feature {number} {fault}" for number, fault in faults if fault), None)
        if wrong is not None:
            raise InputError(f"{where}: not GeoJSON of polygons: {wrong}")
        shapes = np.array([shape(each["geometry"]) for each in features] + [None], dtype=object)[:-1]
        records = [each.get("properties") or {} for each in features]
    except (ShapelyError, AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{where}: not GeoJSON of polygons ({type(error).__name__}: {error})") from error
    keys = dict.fromkeys(key for record in records for key in record)
    return shapes, {str(key): [record.get(key) for record in records] for key in keys}


def _fault(geometry: Any) -> str | None:
    """The reason why a GeoJSON geometry is no polygon although shapely would take it for one."""
    if not isinstance(geometry, Mapping):
        return "has no geometry"
    if geometry.get("type") not in ("Polygon", "MultiPolygon"):
        return None
    polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    for ring in (ring for polygon in polygons for ring in polygon):
        corners = np.array(ring)
        if corners.dtype.kind not in "iuf" or corners.ndim != 2:
            return "has coordinates that are not numbers"
        if not np.isfinite(corners).all():
            return "is without a place on Earth: it has coordinates that are not finite"
        if len(corners) < 4 or not np.array_equal(corners[0], corners[-1]):
            return "has a ring that is not closed: its last corner must be its first"
    return None


def _of_frame(frame: Any) -> tuple[npt.NDArray[np.object_], dict[str, list[Any]]]:
    shapes = np.asarray(frame.geometry, dtype=object)
    own = frame.geometry.name
    columns = {str(key): frame[key].tolist() for key in getattr(frame, "columns", ()) if key != own}
    return shapes, columns


def _names(where: str, columns: Mapping[str, list[Any]], name: str | None, count: int) -> tuple[str, ...]:
    lowered = {key.lower(): key for key in columns}
    key = name or next((lowered[each] for each in _NAMES if each in lowered), None)
    if key is None:
        return tuple(str(number) for number in range(1, count + 1))
    if key not in columns:
        raise InputError(f"{where}: no column {key!r}; its columns are {', '.join(columns) or 'none'}")
    names = tuple("" if each is None else str(each) for each in columns[key])
    if any("\ud800" <= letter <= "\udfff" for letter in "".join(names)):
        raise InputError(f"{where}: column {key!r} holds names that are no text (half a character)")
    return names


def _in_degrees(where: str, shapes: npt.NDArray[np.object_], crs: str) -> npt.NDArray[np.object_]:
    import shapely
    from pyproj import CRS, Transformer
    from pyproj.exceptions import CRSError

    kinds = set(shapely.get_type_id(shapes).tolist()) - {3, 6}
    if kinds:
        raise InputError(f"{where}: zones must be polygons; there are other geometries, or none, among them")
    try:
        known = CRS.from_user_input(crs)
    except CRSError:
        raise InputError(f"{where}: CRS {crs!r} is not known; expected such as EPSG:25832") from None
    flat = shapely.force_2d(shapes)
    if known.to_authority(min_confidence=100) in {("EPSG", "4326"), ("OGC", "CRS84")}:
        return np.asarray(flat, dtype=object)
    to_degrees = Transformer.from_crs(known, DEGREES_CRS, always_xy=True)
    # Edges that are straight in a plane are curved in degrees.
    bounds = shapely.bounds(flat)
    longest = float(np.nanmax(bounds[:, 2:] - bounds[:, :2], initial=0.0))
    if known.is_projected and longest > 0:
        flat = shapely.segmentize(flat, longest / 64)
    made = shapely.transform(flat, lambda xy: np.column_stack(to_degrees.transform(xy[:, 0], xy[:, 1])))
    return np.asarray(made, dtype=object)


def _checked(
    where: str, shapes: npt.NDArray[np.object_], names: tuple[str, ...], *, repair: bool
) -> tuple[npt.NDArray[np.object_], tuple[str, ...]]:
    import shapely

    corners, zone = shapely.get_coordinates(shapes, return_index=True)
    placed = ~shapely.is_empty(shapes)
    placed[zone[~(np.abs(corners) <= np.array([180, 90]) + _ROOM).all(axis=1)]] = False
    if not placed.all():
        lost = _listed([names[at] for at in np.flatnonzero(~placed)])
        raise InputError(
            f"{where}: zones without a place on Earth: {lost}; longitudes are from -180 to 180 degrees, latitudes "
            "from -90 to 90, unless crs (--zones-crs) names another CRS"
        )
    broken = np.flatnonzero(~shapely.is_valid(shapes))
    if not broken.size:
        return shapes, ()
    named = _listed([f"{names[at]} ({shapely.is_valid_reason(shapes[at])})" for at in broken])
    if not repair:
        raise InputError(f"{where}: invalid polygons: {named}; repair them, or give repair=True (--repair)")
    shapes = shapes.copy()
    shapes[broken] = polygonal(shapely.make_valid(shapes[broken]))
    return shapes, (f"{broken.size} invalid polygons were repaired: {named}",)


def polygonal(shapes: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """The polygons of geometries: lines and points, which have no area, are left out."""
    import shapely

    made = shapes.copy()
    for at in np.flatnonzero(~np.isin(shapely.get_type_id(shapes), (3, 6))):
        parts = shapely.get_parts(shapely.get_parts(shapes[at]))
        made[at] = shapely.union_all(parts[shapely.get_type_id(parts) == 3])
    return made


def overlapping_pairs(shapes: npt.NDArray[np.object_], most: int | None = None) -> tuple[IntArray, IntArray]:
    """The numbers of both zones of every overlapping pair: a thousandth of the smaller zone lies in the other.

    With ``most``, the search ends soon after so many pairs are found.
    """
    import shapely

    one, other = shapely.STRtree(shapes).query(shapes, predicate="intersects")
    one, other = one[one < other], other[one < other]
    areas = shapely.area(shapes)
    real = np.zeros(one.size, dtype=np.bool_)
    for start in range(0, one.size, _PAIRS_AT_ONCE):
        a, b = (each[start : start + _PAIRS_AT_ONCE] for each in (one, other))
        # Borders drawn twice overlap by slivers: those are none.
        common = shapely.area(shapely.intersection(shapes[a], shapes[b]))
        real[start : start + _PAIRS_AT_ONCE] = common > 1e-3 * np.minimum(areas[a], areas[b])
        if most is not None and real.sum() > most:
            break
    return one[real], other[real]


def overlap_notes(shapes: npt.NDArray[np.object_], names: tuple[str, ...]) -> tuple[str, ...]:
    """A note on zones that overlap."""
    one, other = overlapping_pairs(shapes, _MOST_COUNTED)
    if not one.size:
        return ()
    pairs = [
        f"{one_line(names[a], LABEL)} and {one_line(names[b], LABEL)}"
        for a, b in zip(one, other, strict=True)
    ]
    if one.size > _MOST_COUNTED:
        first = _listed(pairs[:_EXAMPLES])
        return (
            f"more than {_MOST_COUNTED} pairs of zones overlap, so people count in both, such as {first}",
        )
    many = f"{one.size} pairs of zones overlap" if one.size > 1 else "Two zones overlap"
    return (f"{many}, so people count in both: {_listed(pairs)}",)


def _listed(names: list[str]) -> str:
    text = ", ".join(one_line(name) for name in names)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}... ({len(names)} in all)"
