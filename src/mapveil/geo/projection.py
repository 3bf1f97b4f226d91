"""From degrees to metres: the equal-area cylinder in closed form, and any other CRS by pyproj.

The default CRS of a region is Lambert's cylindrical equal-area projection of the WGS84 ellipsoid with
its standard parallel in the middle of the region. It is separable (x depends on the longitude only, y on
the latitude only), so a box in degrees is a box in metres, and it can be written as plain SQL.
Source: J. P. Snyder, Map Projections: A Working Manual, USGS PP 1395 (1987), eqs. 3-12 and 10-13 .. 10-15.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from mapveil_client.arrays import FloatArray

if TYPE_CHECKING:
    import pyproj


DEGREES_CRS: Final = "EPSG:4326"
"""The CRS text of a region whose own coordinates are degrees, x = longitude, y = latitude."""

_A: Final = 6378137.0
_F: Final = 1 / 298.257223563
_E2: Final = _F * (2 - _F)
_E: Final = math.sqrt(_E2)
_CHUNK: Final = 1 << 15
_CYLINDER = re.compile(r"^\+proj=cea \+lat_ts=(\S+) \+lon_0=(\S+) \+datum=WGS84 \+units=m \+no_defs$")


def sql_number(value: float) -> str:
    """A float as a SQL literal that is read as the very same DOUBLE (never as a DECIMAL)."""
    text = repr(float(value))
    return f"({text})" if "e" in text else f"({text}e0)"


def authalic(lat: FloatArray) -> FloatArray:
    r"""Snyder's q: the area north of the equator per radian of longitude is a^2 q / 2.

    .. math:: q = (1 - e^2) \left[ \frac{s}{1 - e^2 s^2} + \frac{1}{2e} \ln \frac{1 + e s}{1 - e s} \right]

    where: :math:`s = \sin` of ``lat``, e is the eccentricity of WGS84 (eq. 3-12).

    Parameters
    ----------
    lat : ndarray of float64
        Geodetic latitudes, degrees.
    """
    with np.errstate(invalid="ignore"):  # infinite latitudes are NaN, like NaN
        s = np.sin(lat * (math.pi / 180))
    es = s * _E
    return np.asarray(
        s * (1 - _E2) / (1.0 - es * es) + np.log((1.0 + es) / (1.0 - es)) * ((1 - _E2) / (2 * _E))
    )


def _inverse_authalic(q: FloatArray) -> FloatArray:
    """Latitudes in degrees from q, by Newton's method on sin(lat)."""
    # dq/ds = 2 (1 - e^2) / (1 - e^2 s^2)^2 hardly varies, so four steps reach the last digit.
    s = np.clip(q / 2, -1.0, 1.0)
    for _ in range(4):
        es = s * _E
        value = s * (1 - _E2) / (1 - es * es) + np.log((1 + es) / (1 - es)) * ((1 - _E2) / (2 * _E))
        s = np.clip(s - (value - q) * (1 - es * es) ** 2 / (2 * (1 - _E2)), -1.0, 1.0)
    return np.asarray(np.degrees(np.arcsin(s)))


class Projection(Protocol):
    """Between WGS84 degrees and the plane coordinates of a region."""

    separable: bool

    @property
    def in_metres(self) -> bool:
        """Whether the plane's unit is the metre (or the cell of a raster that lies nowhere)."""
        ...

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Plane coordinates of places in degrees."""
        ...

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Degrees of plane coordinates."""
        ...

    def sql(self, lon: str, lat: str) -> tuple[str, str] | None:
        """:meth:`project` as two SQL expressions, where there are such."""
        ...

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas of boxes of the plane, square metres on the ellipsoid."""
        ...


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
    separable = True

    @property
    def in_metres(self) -> bool:
        """Yes."""
        return True

    @property
    def crs(self) -> str:
        """The projection as a PROJ string."""
        return (
            f"+proj=cea +lat_ts={self.standard_parallel!r} +lon_0={self.central_meridian!r} "
            "+datum=WGS84 +units=m +no_defs"
        )

    @cached_property
    def _k0(self) -> float:
        phi = math.radians(self.standard_parallel)
        return math.cos(phi) / math.sqrt(1 - _E2 * math.sin(phi) ** 2)

    @cached_property
    def _metres_per_degree(self) -> float:
        return self._k0 * _A * (math.pi / 180)

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Metres of places in degrees."""
        lon, lat = np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)
        x = (lon - self.central_meridian) * self._metres_per_degree
        if lat.size <= _CHUNK:
            return x, authalic(lat) * (_A / (2 * self._k0))
        y = np.empty(lat.shape)
        flat, out = lat.reshape(-1), y.reshape(-1)
        for start in range(0, flat.size, _CHUNK):  # temporaries that stay in the cache
            out[start : start + _CHUNK] = authalic(flat[start : start + _CHUNK])
        y *= _A / (2 * self._k0)
        return x, y

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Degrees of metres."""
        lon = np.asarray(x, dtype=np.float64) / self._metres_per_degree + self.central_meridian
        return lon, _inverse_authalic(np.asarray(y, dtype=np.float64) * (2 * self._k0 / _A))

    def sql(self, lon: str, lat: str) -> tuple[str, str]:
        """The same arithmetic, in the same order, as SQL."""
        x = f"(({lon}) - {sql_number(self.central_meridian)}) * {sql_number(self._metres_per_degree)}"
        s = f"sin(({lat}) * {sql_number(math.pi / 180)})"
        es = f"({s} * {sql_number(_E)})"
        q = (
            f"{s} * {sql_number(1 - _E2)} / (1e0 - {es} * {es})"
            f" + ln((1e0 + {es}) / (1e0 - {es})) * {sql_number((1 - _E2) / (2 * _E))}"
        )
        return f"({x})", f"(({q}) * {sql_number(_A / (2 * self._k0))})"

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Products of the sides: the projection keeps areas."""
        return np.asarray((x1 - x0) * (y1 - y0))


@dataclass(frozen=True)
class Degrees:
    """Longitude and latitude themselves, for rasters in EPSG:4326."""

    crs: str = DEGREES_CRS
    separable = True

    @property
    def in_metres(self) -> bool:
        """No."""
        return False

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same numbers."""
        return np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same numbers."""
        return self.project(x, y)

    def sql(self, lon: str, lat: str) -> tuple[str, str]:
        """The same expressions."""
        return f"({lon})", f"({lat})"

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas on the ellipsoid, from :func:`authalic`."""
        return np.asarray((_A**2 / 2) * np.radians(x1 - x0) * (authalic(y1) - authalic(y0)))


@dataclass(frozen=True)
class Cells(Degrees):
    """Coordinates of a raster that says nothing about where on Earth it is: the unit is the cell."""

    crs: str = ""

    @property
    def in_metres(self) -> bool:
        """As far as there are metres."""
        return True

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas in square cells, for want of metres."""
        return np.asarray((x1 - x0) * (y1 - y0))


@dataclass(frozen=True)
class OtherCrs:
    """Any CRS that PROJ knows, through pyproj."""

    crs: str
    separable = False

    @cached_property
    def _transformer(self) -> pyproj.Transformer:
        from pyproj import Transformer

        return Transformer.from_crs(DEGREES_CRS, self.crs, always_xy=True)

    @cached_property
    def _known(self) -> pyproj.CRS:
        from pyproj import CRS

        return CRS.from_user_input(self.crs)

    @property
    def in_metres(self) -> bool:
        """Whether the CRS is projected, and in metres rather than in feet."""
        return bool(self._known.is_projected) and self._metres_per_unit == 1.0

    @property
    def _metres_per_unit(self) -> float:
        return float(self._known.axis_info[0].unit_conversion_factor)

    def project(self, lon: FloatArray, lat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Plane coordinates; infinite where the CRS has none."""
        x, y = self._transformer.transform(np.asarray(lon), np.asarray(lat))
        return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)

    def unproject(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Degrees of plane coordinates."""
        lon, lat = self._transformer.transform(np.asarray(x), np.asarray(y), direction="INVERSE")
        return np.asarray(lon, dtype=np.float64), np.asarray(lat, dtype=np.float64)

    def sql(self, lon: str, lat: str) -> None:
        """No closed form."""

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas of the boxes' corners joined on an equal-area cylinder; right for boxes of a few kilometres."""
        if self._known.is_geographic:
            return Degrees().box_area_m2(x0, y0, x1, y1)
        corners = [self.unproject(x, y) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
        flat = EqualAreaCylinder(0.0, 0.0)
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = (flat.project(lon, lat) for lon, lat in corners)
        return np.asarray(np.abs((cx - ax) * (dy - by) - (dx - bx) * (cy - ay)) / 2)


def projection_of(crs: str) -> Projection:
    """The projection that a region's CRS text stands for; empty text for none."""
    if crs == "":
        return Cells()
    if crs == DEGREES_CRS:
        return Degrees()
    cylinder = _CYLINDER.match(crs)
    if cylinder:
        return EqualAreaCylinder(float(cylinder[1]), float(cylinder[2]))
    return OtherCrs(crs)
