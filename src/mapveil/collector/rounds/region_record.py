"""Regions of collections as operators send them: four numbers, or a GeoJSON polygon or feature that is a box."""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from mapveil.collector.rounds.validation import StrictModel
from mapveil.geo.box_order import lies_where_nobody_lives
from mapveil.geo.region import Region
from mapveil_client.errors import InputError

Longitude = Annotated[float, Field(ge=-180, le=180)]
Latitude = Annotated[float, Field(ge=-90, le=90)]
Corner = Annotated[list[float], Field(min_length=2, max_length=3)]
# Some programs put more points on a side than its ends.
Ring = Annotated[list[Corner], Field(min_length=5, max_length=64)]
_Point = tuple[float, float]
BoundsDegrees = Annotated[
    list[float], Field(min_length=4, max_length=4, description="West, south, east, north")
]


class _GeoJson(StrictModel):
    """An object of RFC 7946, of which foreign members are ignored."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _refuse_crs(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "crs" in value:  # of older GeoJSON: the box may lie elsewhere
            raise PydanticCustomError("crs", "must be in degrees of WGS 84, without the member crs")
        return value


class BoxGeometry(_GeoJson):
    """A GeoJSON polygon of four sides along meridians and parallels."""

    type: Literal["Polygon"]
    coordinates: Annotated[list[Ring], Field(min_length=1, max_length=1)]


class BoxFeature(_GeoJson):
    """The same as a GeoJSON feature."""

    type: Literal["Feature"]
    geometry: BoxGeometry


def _form(region: Any) -> str | None:
    """The form of a region as it was sent, so that faults of one form alone are told."""
    if isinstance(region, list):
        return "|bounds"
    form = region.get("type") if isinstance(region, Mapping) else getattr(region, "type", None)
    return f"|{form}" if form in ("Polygon", "Feature") else None


RegionRecord = Annotated[
    Annotated[BoundsDegrees, Tag("|bounds")]
    | Annotated[BoxGeometry, Tag("|Polygon")]
    | Annotated[BoxFeature, Tag("|Feature")],
    Discriminator(
        _form,
        custom_error_type="region",
        custom_error_message=(
            "must be four numbers, or a GeoJSON Polygon or Feature; of a FeatureCollection, give the one feature"
        ),
    ),
]


def read_region(value: list[float] | BoxGeometry | BoxFeature) -> Region:
    """The region of a specification.

    Raises
    ------
    InputError
        It is no box, or lies where nobody lives.
    """
    if isinstance(value, BoxFeature):
        value = value.geometry
    if isinstance(value, BoxGeometry):
        return Region.from_bbox(*_box(value.coordinates[0]))
    region = Region.from_bbox(*value)
    if lies_where_nobody_lives(region.bbox):
        raise InputError(
            f"region lies at latitudes from {value[1]:g} to {value[3]:g}, where nobody lives; longitude and latitude "
            "seem to be swapped: expected west,south,east,north; if it is meant so, give it as a GeoJSON polygon"
        )
    return region


def _box(ring: list[list[float]]) -> list[float]:
    """The sides of a closed ring that is a box: devices can test no other outline."""
    *points, last = [(corner[0], corner[1]) for corner in ring]
    around = zip(points[-1:] + points, points, points[1:] + points[:1], strict=False)
    corners = [point for before, point, after in around if not _on_a_side(before, point, after)]
    lon, lat = ({corner[axis] for corner in corners} for axis in (0, 1))
    closed = last == points[0] and len(corners) == len(set(corners)) == 4
    along = all((a[0] == b[0]) != (a[1] == b[1]) for a, b in itertools.pairwise(corners + corners[:1]))
    if not (closed and along and len(lon) == len(lat) == 2):
        raise InputError(
            "region must be a box along meridians and parallels: four numbers, or a GeoJSON polygon of four such sides"
        )
    return [min(lon), min(lat), max(lon), max(lat)]


def _on_a_side(before: _Point, point: _Point, after: _Point) -> bool:
    """Whether a point lies on a meridian or parallel between its neighbours."""
    return any(
        before[same] == point[same] == after[same] and min(ends) < point[1 - same] < max(ends)
        for same in (0, 1)
        for ends in [(before[1 - same], after[1 - same])]
    )
