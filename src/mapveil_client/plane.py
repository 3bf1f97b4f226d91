"""The plane of a region: from degrees to metres in closed form, and the box that is divided there.

The default plane is Lambert's cylindrical equal-area projection of the WGS84 ellipsoid, true to scale in the middle of
the region. It is separable (x depends on the longitude only, y on the latitude only), so a box in degrees is
a box in metres.
Source: J. P. Snyder, Map Projections: A Working Manual, USGS PP 1395 (1987), eqs. 3-12 and 10-13 .. 10-15.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import InputError

BoxEdges = tuple[float, float, float, float]
"""West, south, east and north edge."""

DEGREES_CRS: Final = "EPSG:4326"
"""The CRS text of a region whose own coordinates are degrees, x = longitude, y = latitude."""

SEMI_MAJOR_M: Final = 6378137.0
_FLATTENING: Final = 1 / 298.257223563
ECCENTRICITY2: Final = _FLATTENING * (2 - _FLATTENING)
ECCENTRICITY: Final = math.sqrt(ECCENTRICITY2)
LOG_FACTOR: Final = (1 - ECCENTRICITY2) / (2 * ECCENTRICITY)
_CHUNK: Final = 1 << 15
_CYLINDER = re.compile(r"^\+proj=cea \+lat_ts=(\S+) \+lon_0=(\S+) \+datum=WGS84 \+units=m \+no_defs$")


def authalic(lat: FloatArray) -> FloatArray:
    r"""Snyder's q: the area north of the equator per radian of longitude is a^2 q / 2.

    .. math:: q = (1 - e^2) \left[ \frac{s}{1 - e^2 s^2} + \frac{1}{2e} \ln \frac{1 + e s}{1 - e s} \right]

    where: :math:`s = \sin` of ``lat`` (geodetic, degrees), e is the eccentricity of WGS84 (eq. 3-12).
    """
    with np.errstate(invalid="ignore"):  # infinite latitudes are NaN, like NaN
        s = np.sin(lat * (math.pi / 180))
    es = s * ECCENTRICITY
    return np.asarray(
        s * (1 - ECCENTRICITY2) / (1.0 - es * es) + np.log((1.0 + es) / (1.0 - es)) * LOG_FACTOR
    )


def _inverse_authalic(q: FloatArray) -> FloatArray:
    """Latitudes in degrees from q, by Newton's method on sin(lat)."""
    # dq/ds = 2 (1 - e^2) / (1 - e^2 s^2)^2 hardly varies, so four steps reach the last digit.
    s = np.clip(q / 2, -1.0, 1.0)
    for _ in range(4):
        es = s * ECCENTRICITY
        value = s * (1 - ECCENTRICITY2) / (1 - es * es) + np.log((1 + es) / (1 - es)) * LOG_FACTOR
        s = np.clip(s - (value - q) * (1 - es * es) ** 2 / (2 * (1 - ECCENTRICITY2)), -1.0, 1.0)
    return np.asarray(np.degrees(np.arcsin(s)))


class Projection(Protocol):
    """Between WGS84 degrees and the plane coordinates of a region."""

    separable: bool

    @property
    def in_metres(self) -> bool:
        """Whether the plane's unit is the metre (or the cell of a raster that lies nowhere)."""

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Plane coordinates of locations in degrees."""

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Degrees of plane coordinates."""

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas of boxes of the plane, square metres on the ellipsoid."""


@dataclass(frozen=True)
class EqualAreaCylinder:
    r"""Lambert's cylindrical equal-area projection of the WGS84 ellipsoid.

    .. math:: x = a k_0 (\lambda - \lambda_0), \qquad y = \frac{a\, q(\varphi)}{2 k_0}, \qquad
              k_0 = \frac{\cos \varphi_1}{\sqrt{1 - e^2 \sin^2 \varphi_1}}

    where: :math:`\varphi_1` is ``standard_parallel``, :math:`\lambda_0` is ``central_meridian`` (both
    degrees), a and e are the ellipsoid's, q is :func:`authalic` (eqs. 10-13 .. 10-15).
    """

    standard_parallel: float
    central_meridian: float
    separable = in_metres = True

    @property
    def crs(self) -> str:
        """The projection as a PROJ string."""
        return (
            f"+proj=cea +lat_ts={self.standard_parallel!r} +lon_0={self.central_meridian!r} "
            "+datum=WGS84 +units=m +no_defs"
        )

    @cached_property
    def k0(self) -> float:
        """The scale along the equator."""
        phi = math.radians(self.standard_parallel)
        return math.cos(phi) / math.sqrt(1 - ECCENTRICITY2 * math.sin(phi) ** 2)

    @cached_property
    def metres_per_degree(self) -> float:
        """Metres of the plane for each degree of longitude."""
        return self.k0 * SEMI_MAJOR_M * (math.pi / 180)

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Metres of locations in degrees."""
        lon, lat = np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)
        x = (lon - self.central_meridian) * self.metres_per_degree
        if lat.size <= _CHUNK:
            return x, authalic(lat) * (SEMI_MAJOR_M / (2 * self.k0))
        y = np.empty(lat.shape)
        flat, out = lat.reshape(-1), y.reshape(-1)
        for start in range(0, flat.size, _CHUNK):  # temporaries that stay in the cache
            out[start : start + _CHUNK] = authalic(flat[start : start + _CHUNK])
        y *= SEMI_MAJOR_M / (2 * self.k0)
        return x, y

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Degrees of metres."""
        lon = np.asarray(x, dtype=np.float64) / self.metres_per_degree + self.central_meridian
        return lon, _inverse_authalic(np.asarray(y, dtype=np.float64) * (2 * self.k0 / SEMI_MAJOR_M))

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Products of the sides: the projection keeps areas."""
        return np.asarray((x1 - x0) * (y1 - y0))


@dataclass(frozen=True)
class Degrees:
    """Longitude and latitude themselves, for rasters in EPSG:4326."""

    crs: str = DEGREES_CRS
    separable = True
    in_metres = False

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same numbers."""
        return np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same numbers."""
        return self.project(x, y)

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas on the ellipsoid, from :func:`authalic`."""
        return np.asarray((SEMI_MAJOR_M**2 / 2) * np.radians(x1 - x0) * (authalic(y1) - authalic(y0)))


@dataclass(frozen=True)
class Cells(Degrees):
    """Coordinates of a raster without georeference: the unit is the cell."""

    crs: str = ""
    in_metres = True

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas in square cells."""
        return np.asarray((x1 - x0) * (y1 - y0))


def closed_projection(crs: str) -> Projection | None:
    """The projection of a region's CRS text, where it has a closed form; the text is empty without georeference.

    Raises
    ------
    ValueError
        The text is a cylinder's, with something else than its two numbers.
    """
    if crs == "":
        return Cells()
    if crs == DEGREES_CRS:
        return Degrees()
    cylinder = _CYLINDER.match(crs)
    return EqualAreaCylinder(float(cylinder[1]), float(cylinder[2])) if cylinder else None


def middle_cylinder(bbox: BoxEdges) -> EqualAreaCylinder:
    """The equal-area cylinder around a box's middle (degrees), true to scale there."""
    west, south, east, north = bbox
    return EqualAreaCylinder(round((south + north) / 2, 9), round((west + east) / 2, 9))


@dataclass(frozen=True)
class Box:
    """A box of the plane that tilings divide.

    Parameters
    ----------
    crs : str
        The plane; empty without georeference.
    bounds_m : tuple of float
        ``(x0, y0, x1, y1)`` in that plane: metres, or degrees (EPSG:4326), or cells (without georeference).
    bbox : tuple of float
        ``(west, south, east, north)``, degrees WGS84 (cells without georeference).
    """

    crs: str
    bounds_m: BoxEdges
    bbox: BoxEdges

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Box:
        """The inverse of :meth:`to_dict`.

        Raises
        ------
        InputError
            The record lacks something, or is of a polygon.
        """
        if record.get("polygon") is not None:
            raise InputError("a region must be a box, got one with a polygon")
        return cls(*read_box(record))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {"crs": self.crs, "bounds": list(self.bounds_m), "bbox": list(self.bbox)}

    @property
    def is_box(self) -> bool:
        """Whether every location in the box is in the region."""
        return True

    @property
    def georeferenced(self) -> bool:
        """Whether the region lies on Earth; otherwise "metres" and "degrees" are cells."""
        return self.crs != ""

    @cached_property
    def projection(self) -> Projection:
        """Between degrees and the plane.

        Raises
        ------
        InputError
            The plane has no closed form.
        """
        projection = closed_projection(self.crs)
        if projection is None:
            raise InputError(f"a region's plane must have a closed form, got {self.crs[:80]!r}")
        return projection

    @cached_property
    def metric_projection(self) -> Projection:
        """:attr:`projection` where its unit is the metre (or the cell), else an equal-area cylinder."""
        return self.projection if self.projection.in_metres else middle_cylinder(self.bbox)

    @property
    def width_m(self) -> float:
        """Extent of the plane's box from west to east."""
        return self.bounds_m[2] - self.bounds_m[0]

    @property
    def height_m(self) -> float:
        """Extent of the plane's box from south to north."""
        return self.bounds_m[3] - self.bounds_m[1]

    @cached_property
    def area_m2(self) -> float:
        """Area on the ellipsoid, square metres (square cells without georeference)."""
        x0, y0, x1, y1 = (np.asarray(value) for value in self.bounds_m)
        return float(self.projection.box_area_m2(x0, y0, x1, y1))

    def box_contains(self, lon: FloatArray, lat: FloatArray) -> BoolArray:
        """Whether locations lie in the box, edges included; never for NaN."""
        # In degrees where possible: an edge of the box is then exact, whatever sine rounds.
        if self.projection.separable:
            x, y, (x0, y0, x1, y1) = lon, lat, self.bbox
        else:
            (x, y), (x0, y0, x1, y1) = self.project(lon, lat), self.bounds_m
        return np.atleast_1d((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1))

    def contains(self, lon: FloatArray, lat: FloatArray) -> BoolArray:
        """Whether locations (degrees WGS84) lie in the region, edges included; never for NaN."""
        return self.box_contains(np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64))

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Plane coordinates (metres by default) of locations in degrees, both shaped as given."""
        return self.projection.project(lon, lat)

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Degrees of plane coordinates, both shaped as given."""
        return self.projection.unproject(x, y)


def read_box(record: Mapping[str, Any]) -> tuple[str, BoxEdges, BoxEdges]:
    """CRS, bounds and degrees of a region's record.

    Raises
    ------
    InputError
        The record lacks something.
    """
    try:
        crs, bounds, bbox = str(record["crs"]), record["bounds"], record["bbox"]
        x0, y0, x1, y1 = (float(value) for value in bounds)
        west, south, east, north = (float(value) for value in bbox)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("a region's record needs crs, bounds and bbox (four numbers each)") from error
    return crs, (x0, y0, x1, y1), (west, south, east, north)
