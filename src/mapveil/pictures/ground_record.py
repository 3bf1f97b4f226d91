"""The record of the ground around a map, JSON-ready: what the viewer of pages and the console's region picker draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.geo.projection import projection_of
from mapveil.pictures.packed import packed, packed_xy
from mapveil.pictures.picture_plane import Courses, MapPlane
from mapveil.pictures.plane_ground import plane_ground
from mapveil_client.errors import check

if TYPE_CHECKING:
    from mapveil.geo.context import Context
    from mapveil.geo.region import Region

_WEB_MERCATOR: Final = "EPSG:3857"
_STEEPEST: Final = 85.0  # degrees


def ground_record(
    plane: MapPlane, region: Region, context: Context | None = None, *, margin: float = 0.0
) -> dict[str, Any] | None:
    """Make the record of land, water, borders and names; None without georeference.

    Coordinates are in the plane's unit from its north-west corner, y down.

    Parameters
    ----------
    plane, region, context, margin
        As in :func:`~mapveil.pictures.plane_ground.plane_ground`.
    """
    ground = plane_ground(plane, region, context, margin=margin)
    if ground is None:
        return None
    x0, _, _, y1 = plane.bounds
    west, south, east, north = ground.bounds

    def lines_of(courses: Courses) -> dict[str, Any]:
        return {**packed_xy(plane, *courses.corners.T), "start": packed(courses.start)}

    return {
        "box": [west - x0, y1 - north, east - x0, y1 - south],
        "land": lines_of(ground.land),
        "lakes": lines_of(ground.lakes),
        "shores": lines_of(ground.shores),
        "borders": lines_of(ground.borders),
        "own": lines_of(ground.own),
        "places": {**packed_xy(plane, *ground.places.T), "name": list(ground.names)},
        "attribution": ground.attribution,
    }


def mercator_ground(region: Region) -> dict[str, Any]:
    """Make the record of the ground within a region's box in web mercator, metres of EPSG:3857.

    Parameters
    ----------
    region : Region
        Its box, WGS84 degrees within 85 degrees south and north.

    Raises
    ------
    ParameterError
        It reaches beyond.
    """
    projection, (west, south, east, north) = projection_of(_WEB_MERCATOR), region.bbox
    check(south >= -_STEEPEST and north <= _STEEPEST, "box", "within 85 degrees south and north", region.bbox)
    x, y = projection.project(*np.array([[west, east], [south, north]]))
    bounds = (float(x[0]), float(y[0]), float(x[1]), float(y[1]))
    record = ground_record(MapPlane(projection, bounds, 1.0, 1.0, None, None), region)
    assert record is not None  # a box of degrees is georeferenced
    return record
