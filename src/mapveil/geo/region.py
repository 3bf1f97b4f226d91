"""The region a map covers: a box or polygon, degrees outside, metres inside."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.geo.box_order import lies_where_nobody_lives, order_hint
from mapveil.geo.projection import projection_of
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import InputError, require
from mapveil_client.plane import (
    DEGREES_CRS,
    Box,
    BoxEdges,
    EqualAreaCylinder,
    Projection,
    middle_cylinder,
    read_box,
)

if TYPE_CHECKING:
    from os import PathLike

    from shapely.geometry import MultiPolygon, Polygon

_GRAIN_M: Final = 2.0**-20
"""Metres that a box's bounds are multiples of: far above what sines differ by, far below what anybody locates."""

_Project = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Region(Box):
    """A part of the Earth, with the plane its tilings divide.

    Made by :meth:`from_bbox`, :meth:`from_polygon`, :meth:`from_file`, :meth:`parse`,
    :meth:`from_bounds_in` or :meth:`without_georeference`, not by the constructor.

    Parameters
    ----------
    crs, bounds_m, bbox
        See :class:`~mapveil_client.plane.Box`. The plane is an equal-area cylinder around the region's middle unless
        the region came from a raster in another CRS.
    polygon : shapely Polygon or MultiPolygon, optional
        Outline in degrees, when it is not the box. Its edges are straight in degrees, as in GeoJSON. A cell belongs
        to the region when the cell's centre lies in the polygon, and a location when its cell does.

    Examples
    --------
    >>> region = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    >>> round(region.area_m2 / 1e6, 1)
    170.7
    >>> print(region)
    -74.03,40.69,-73.9,40.83
    """

    polygon: Polygon | MultiPolygon | None = None

    @classmethod
    def from_bbox(cls, west: float, south: float, east: float, north: float) -> Region:
        """The box between two meridians and two parallels, degrees WGS84.

        Raises
        ------
        InputError
            Not numbers, out of range, empty, swapped, or across the antimeridian.
        """
        return cls._around(_checked_bbox(west, south, east, north))

    @classmethod
    def from_polygon(cls, polygon: Any) -> Region:
        """A polygon in degrees WGS84 (shapely's, or GeoJSON), or the union of a GeoDataFrame or GeoSeries in any CRS.

        Raises
        ------
        InputError
            Not a polygon, invalid, empty, without area, or outside the ranges of :meth:`from_bbox`.
        """
        from shapely.geometry.base import BaseGeometry

        if hasattr(polygon, "to_crs"):
            if polygon.crs is None:
                raise InputError("polygon: a frame without a CRS; set_crs says which it has")
            shape = polygon.to_crs(DEGREES_CRS).union_all()
        else:
            shape = polygon if isinstance(polygon, BaseGeometry) else _from_geojson(polygon, "polygon")
        return cls._from_shape(shape, "polygon")

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Region:
        """The union of the polygons of a file: GeoJSON, or what geopandas reads.

        Raises
        ------
        InputError
            No such file, not readable, or no usable polygon in it.
        MissingExtra
            Another format than GeoJSON, and geopandas is not installed.
        """
        file = Path(path)
        if not file.is_file():
            raise InputError(f"{file}: no such file; expected a GeoJSON file of polygons as a region")
        if file.suffix.lower() in {".geojson", ".json"}:
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
            except (ValueError, OSError) as error:
                raise InputError(f"{file}: not readable as GeoJSON ({error})") from error
            return cls._from_shape(_from_geojson(content, str(file)), str(file))
        geopandas = require("geopandas", "geo")
        try:
            frame = geopandas.read_file(file)
        except (ValueError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{file}: not readable as a vector file ({reason}); expected GeoJSON") from error
        if len(frame) == 0 or frame.crs is None:
            raise InputError(f"{file}: no features with a CRS; expected polygons with a known CRS")
        return cls._from_shape(frame.to_crs(DEGREES_CRS).union_all(), str(file))

    @classmethod
    def parse(cls, text: str) -> Region:
        """A region as the command line writes it: ``"W,S,E,N"`` in degrees, or a file.

        Raises
        ------
        InputError
            Neither four numbers nor a readable file of polygons, or numbers that seem to be in another order.
        """
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) == 4:
            region = cls.from_bbox(*numbers)
            if lies_where_nobody_lives(region.bbox):
                raise InputError(
                    f"region {text!r} lies at latitudes from {numbers[1]:g} to {numbers[3]:g}, where nobody lives; "
                    "longitude and latitude seem to be swapped: expected west,south,east,north; if it is meant so, "
                    "give it as a GeoJSON file"
                )
            return region
        if Path(text).is_file():
            return cls.from_file(text)
        given = f"is {len(numbers)} numbers" if numbers else "is no such file, and not four numbers"
        raise InputError(
            f"region {text!r} {given}; expected west,south,east,north in degrees such as -74.03,40.69,-73.90,40.83, "
            "or the path of a GeoJSON file of polygons"
        )

    @classmethod
    def from_bounds_in(cls, crs: str, x0: float, y0: float, x1: float, y1: float) -> Region:
        """A box in another CRS, for a raster whose cells must be kept as they are.

        Parameters
        ----------
        crs : str
            Anything pyproj understands, such as ``"EPSG:26918"`` or ``"EPSG:4326"``.
        x0, y0, x1, y1 : float
            West, south, east and north edge in the CRS's units (x before y, also for EPSG:4326).

        Raises
        ------
        InputError
            An unknown CRS, or an empty box, or one with no place on Earth.
        """
        text = _crs_text(crs)
        box = (float(x0), float(y0), float(x1), float(y1))
        if text == DEGREES_CRS:
            bbox = _checked_bbox(*box)
            return cls(text, bbox, bbox)
        if not all(math.isfinite(value) for value in box) or box[0] >= box[2] or box[1] >= box[3]:
            raise InputError(f"bounds {box} in {crs} are empty; expected x0 < x1 and y0 < y1")
        if text.startswith("+proj=cea"):
            west, south, east, north = _mapped(box, projection_of(text).unproject)
        else:
            from pyproj import Transformer

            transformer = Transformer.from_crs(text, DEGREES_CRS, always_xy=True)
            west, south, east, north = transformer.transform_bounds(*box, densify_pts=21)
        return cls(text, box, _checked_bbox(west, south, east, north))

    @classmethod
    def without_georeference(cls, width: int, height: int) -> Region:
        """A raster of width x height cells without a place on Earth; every length is in cells.

        Raises
        ------
        InputError
            Not positive.
        """
        if width < 1 or height < 1:
            raise InputError(f"a raster of {width} x {height} cells is empty; expected at least 1 x 1")
        box = (0.0, 0.0, float(width), float(height))
        return cls("", box, box)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Region:
        """The inverse of :meth:`to_dict`.

        Raises
        ------
        InputError
            The record lacks something, or its box has no area.
        """
        edges = read_box(record)
        polygon = record.get("polygon")
        shape = None if polygon is None else _from_geojson(polygon, "region")
        made = cls(*edges, shape)
        west, south, east, north = made.bbox
        if not (west < east and south < north):
            raise InputError(f"region: {west!r},{south!r},{east!r},{north!r} has no area to divide")
        return made

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :meth:`from_dict` makes the region again."""
        record = super().to_dict()
        if self.polygon is not None:
            from shapely.geometry import mapping

            record["polygon"] = json.loads(json.dumps(mapping(self.polygon)))
        return record

    @property
    def is_box(self) -> bool:
        """Whether every location in the box is in the region."""
        return self.polygon is None

    @cached_property
    def projection(self) -> Projection:
        """Between degrees and the region's plane."""
        return projection_of(self.crs)

    @cached_property
    def area_m2(self) -> float:
        """Area on the ellipsoid, square metres (square cells without georeference)."""
        if self.polygon is None and self.projection.separable:
            return super().area_m2
        import shapely

        # Short edges, because an edge that is straight in degrees is not so in metres.
        step = max(self.bbox[2] - self.bbox[0], self.bbox[3] - self.bbox[1]) / 256
        return float(
            reprojected(shapely.segmentize(self.outline(), step), middle_cylinder(self.bbox).project).area
        )

    def outline(self) -> Polygon | MultiPolygon:
        """The region as a shapely polygon in degrees."""
        import shapely

        if self.polygon is not None:
            return self.polygon
        if self.projection.separable:
            return shapely.box(*self.bbox)
        # Edges that are straight in the plane are curved in degrees.
        flat = shapely.segmentize(shapely.box(*self.bounds_m), max(self.width_m, self.height_m) / 64)
        outline: Polygon | MultiPolygon = reprojected(flat, self.unproject)
        return outline

    def contains(self, lon: FloatArray, lat: FloatArray) -> BoolArray:
        """Whether locations (degrees) lie in the region, edges included; never for NaN."""
        lon, lat = np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)
        inside = self.box_contains(lon, lat)
        if self.polygon is not None:
            import shapely

            shapely.prepare(self.polygon)
            inside[inside] = shapely.intersects_xy(self.polygon, lon[inside], lat[inside])
        return inside

    def __str__(self) -> str:
        if not self.georeferenced:
            return f"{self.width_m:g} x {self.height_m:g} cells without georeference"
        text = ",".join(f"{value:.10g}" for value in self.bbox)
        return text if self.polygon is None else f"polygon within {text}"

    @classmethod
    def _from_shape(cls, shape: Any, source: str) -> Region:
        import shapely

        if shape.is_empty or shape.geom_type not in {"Polygon", "MultiPolygon"}:
            kind = "empty" if shape.is_empty else f"a {shape.geom_type}"
            raise InputError(f"{source}: the geometry is {kind}; expected a Polygon or MultiPolygon")
        if not shape.is_valid:
            raise InputError(f"{source}: the polygon is invalid ({shapely.is_valid_reason(shape)})")
        west, south, east, north = shape.bounds
        bbox = _checked_bbox(west, south, east, north, source)
        if shape.area <= 0:
            raise InputError(f"{source}: the polygon has no area")
        flat = shapely.force_2d(shape)
        # A polygon that is its own bounding box is a box: cheaper, and its edges are exact.
        is_box = flat.geom_type == "Polygon" and flat.equals(shapely.box(*bbox))
        return cls._around(bbox, None if is_box else flat)

    @classmethod
    def _around(cls, bbox: BoxEdges, polygon: Polygon | MultiPolygon | None = None) -> Region:
        projection = middle_cylinder(bbox)
        # Processors' sines differ in the last bit: rounded outward, a box has the same cells on every machine.
        low, high = np.reshape(_mapped(bbox, projection.project), (2, 2)) / _GRAIN_M
        x0, y0, x1, y1 = (float(each) * _GRAIN_M for each in (*np.floor(low), *np.ceil(high)))
        return cls(projection.crs, (x0, y0, x1, y1), bbox, polygon)


def reprojected(shapes: Any, project: _Project) -> Any:
    """Shapely geometries with their coordinates projected."""
    import shapely

    return shapely.transform(shapes, lambda xy: np.column_stack(project(xy[:, 0], xy[:, 1])))


def _mapped(box: BoxEdges, project: _Project) -> BoxEdges:
    x, y = project(np.array([box[0], box[2]]), np.array([box[1], box[3]]))
    return (float(x[0]), float(y[0]), float(x[1]), float(y[1]))


def _checked_bbox(west: float, south: float, east: float, north: float, source: str = "region") -> BoxEdges:
    values = {"west": west, "south": south, "east": east, "north": north}
    for name, value in values.items():
        if not math.isfinite(value):
            raise InputError(f"{source}: {name} must be a finite number of degrees, got {value!r}")
    hint = order_hint((west, south, east, north))
    if max(abs(south), abs(north)) > 90:
        swapped = max(abs(west), abs(east)) <= 90 and max(abs(south), abs(north)) <= 180
        hint = "; longitude and latitude seem to be swapped" if swapped else hint
        raise InputError(f"{source}: latitudes must be from -90 to 90, got {south:g} to {north:g}{hint}")
    if max(abs(west), abs(east)) > 180:
        raise InputError(
            f"{source}: longitudes must be from -180 to 180, got {west:g} to {east:g}; "
            "a region that crosses the antimeridian must be given as two, one on each side of it"
        )
    if west >= east:
        if west - east > 180:  # the shorter way leads across the antimeridian
            hint = (
                f"; if the region crosses the antimeridian, give two: {west:g} to 180, and -180 to {east:g}"
            )
        raise InputError(f"{source}: west {west:g} is not less than east {east:g}{hint}")
    if south >= north:
        raise InputError(f"{source}: south {south:g} is not less than north {north:g}{hint}")
    at_pole = round(south + north, 9) in {180.0, -180.0}
    if at_pole or round(east - west, 9) == 0 or round(north - south, 9) == 0:
        raise InputError(f"{source}: {west!r},{south!r},{east!r},{north!r} has no area to divide")
    return (float(west), float(south), float(east), float(north))


def _crs_text(crs: str) -> str:
    """One text for each CRS: ours for the cylinder and degrees, else the authority's name or WKT."""
    if isinstance(projection_of(crs), EqualAreaCylinder):
        return crs
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        known = CRS.from_user_input(crs)
    except CRSError as error:
        raise InputError(
            f"CRS {crs!r} is not known; expected an EPSG code such as EPSG:4326, or WKT"
        ) from error
    authority = known.to_authority(min_confidence=100)
    if authority is not None and authority[1] in {"4326", "CRS84"}:
        return DEGREES_CRS
    return ":".join(authority) if authority is not None else str(known.to_wkt())


def _from_geojson(content: Any, source: str) -> Any:
    """The union of a GeoJSON object's geometries."""
    import shapely
    from shapely.errors import ShapelyError
    from shapely.geometry import shape

    kind = content.get("type") if isinstance(content, Mapping) else None
    try:
        if kind == "FeatureCollection":
            shapes = [shape(feature["geometry"]) for feature in content["features"]]
            return shapes[0] if len(shapes) == 1 else shapely.union_all(shapes)
        return shape(content["geometry"] if kind == "Feature" else content)
    except (ShapelyError, AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"{source}: not a GeoJSON polygon ({type(error).__name__}: {error}); expected one of a "
            "Polygon or MultiPolygon, or features of these"
        ) from error
