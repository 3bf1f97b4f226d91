"""Planes of regions: any CRS by pyproj, and the closed forms (:mod:`mapveil_client.plane`) as SQL too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.plane import (
    DEGREES_CRS,
    ECCENTRICITY,
    ECCENTRICITY2,
    LOG_FACTOR,
    SEMI_MAJOR_M,
    Degrees,
    EqualAreaCylinder,
    Projection,
    closed_projection,
)

if TYPE_CHECKING:
    import pyproj

METRES_PER_DEGREE: Final = 111_195.0
"""Of a meridian of a sphere with the Earth's mean radius (H3's sphere)."""


def sql_number(value: float) -> str:
    """A float as a SQL literal that is read as the very same DOUBLE (never as a DECIMAL)."""
    text = repr(float(value))
    return f"({text})" if "e" in text else f"({text}e0)"


def project_sql(projection: Projection, lon: str, lat: str) -> tuple[str, str] | None:
    """A projection's ``project`` as two SQL expressions; None where it has no closed form."""
    if isinstance(projection, Degrees):
        return f"({lon})", f"({lat})"
    if not isinstance(projection, EqualAreaCylinder):
        return None
    # The arithmetic of EqualAreaCylinder.project, in the same order.
    x = f"(({lon}) - {sql_number(projection.central_meridian)}) * {sql_number(projection.metres_per_degree)}"
    s = f"sin(({lat}) * {sql_number(math.pi / 180)})"
    es = f"({s} * {sql_number(ECCENTRICITY)})"
    q = (
        f"{s} * {sql_number(1 - ECCENTRICITY2)} / (1e0 - {es} * {es})"
        f" + ln((1e0 + {es}) / (1e0 - {es})) * {sql_number(LOG_FACTOR)}"
    )
    return f"({x})", f"(({q}) * {sql_number(SEMI_MAJOR_M / (2 * projection.k0))})"


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

    def box_area_m2(self, x0: FloatArray, y0: FloatArray, x1: FloatArray, y1: FloatArray) -> FloatArray:
        """Areas of the boxes' corners joined on an equal-area cylinder; right for boxes of a few kilometres."""
        if self._known.is_geographic:
            return Degrees().box_area_m2(x0, y0, x1, y1)
        corners = [self.unproject(x, y) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
        flat = EqualAreaCylinder(0.0, 0.0)
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = (flat.project(lon, lat) for lon, lat in corners)
        return np.asarray(np.abs((cx - ax) * (dy - by) - (dx - bx) * (cy - ay)) / 2)


def named_crs(crs: str) -> pyproj.CRS:
    """The CRS of a text, with a name for a region's own cylinder, which has no code: GDAL and QGIS show names."""
    from pyproj import CRS

    known = CRS.from_user_input(crs)
    flat = closed_projection(crs)
    if not isinstance(flat, EqualAreaCylinder):
        return known
    record = known.to_json_dict()
    lat, lon = flat.standard_parallel, flat.central_meridian
    record["name"] = (
        f"Mapveil equal-area cylinder, true at {lat:.6g} degrees north, centred on {lon:.6g} east"
    )
    record["base_crs"]["name"] = "WGS 84"
    record["conversion"]["name"] = "Lambert Cylindrical Equal Area"
    return CRS.from_json_dict(record)


def projection_of(crs: str) -> Projection:
    """The projection that a region's CRS text stands for; empty text for none."""
    return closed_projection(crs) or OtherCrs(crs)
