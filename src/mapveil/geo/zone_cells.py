"""Zones as a tiling: public polygons, such as districts, that do not overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mapveil.geo.region import Region, reprojected
from mapveil.geo.tiling import Bounds, SqlKey
from mapveil.geo.zones import LABEL, Zones, overlapping_pairs
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Centres, Lattice
from mapveil_client.errors import InputError, one_line
from mapveil_client.tiles_and_sites import scattered

_SPARE_LEVELS = 2  # of the lattice of middles


@dataclass(frozen=True, eq=False)
class ZoneCells:
    """Polygons as cells: a location belongs to the zone around it, and to none outside all of them.

    The list must be public. A location on a common border belongs to the first of its zones.

    Parameters
    ----------
    zones : Zones
        The polygons, at least two; none of them overlaps another.

    Raises
    ------
    InputError
        Fewer than two zones, or two that overlap.

    Examples
    --------
    >>> import shapely
    >>> halves = [shapely.box(0, 0, 1, 1), shapely.box(1, 0, 2, 1)]
    >>> ZoneCells(Zones.read(halves)).locate(np.array([0.5, 1.5, 3.0]), np.array([0.5, 0.5, 0.5])).tolist()
    [0, 1, -1]
    """

    zones: Zones

    def __post_init__(self) -> None:
        if len(self.zones) < 2:
            raise InputError(f"zones must be two polygons or more, got {len(self.zones)}")
        one, other = overlapping_pairs(self.zones.polygons)
        if one.size:
            said = "pairs that do, such as" if one.size > 1 else "pair that does:"
            pair = f"{self.zones.names[int(one[0])]} and {self.zones.names[int(other[0])]}"
            raise InputError(f"zones must not overlap, got {one.size} {said} {pair}")

    def check_names(self) -> None:
        """Refuse zones of one name, of which nobody could ask for one.

        Raises
        ------
        InputError
            Two zones have one name.
        """
        name, times = Counter(self.names).most_common(1)[0]
        if times > 1:
            raise InputError(
                f"zones must have different names, got {times} named {one_line(name, LABEL)!r}; name another column "
                "for them: name=COLUMN (--zone-name COLUMN)"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each zone."""
        return self.zones.names

    @property
    def size(self) -> int:
        """Number of zones."""
        return len(self.zones)

    @property
    def spec(self) -> str:
        """``zones:N`` with the number of zones."""
        return f"zones:{self.size}"

    @cached_property
    def region(self) -> Region:
        """The box around all zones."""
        import shapely

        return Region.from_bbox(*shapely.total_bounds(self.zones.polygons).tolist())

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The zone of each location (WGS84 degrees), -1 outside."""
        import shapely

        lon, lat = (np.asarray(each, dtype=np.float64).ravel() for each in (lon, lat))
        at, zone = self._tree.query(shapely.points(lon, lat), predicate="intersects")
        cells = np.full(lon.size, self.size, dtype=np.int64)
        np.minimum.at(cells, at, zone)
        return np.where(cells < self.size, cells, -1)

    @cached_property
    def _tree(self) -> Any:
        import shapely

        shapely.prepare(self.zones.polygons)
        return shapely.STRtree(self.zones.polygons)

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """None: the zone of a location is no SQL expression."""
        return None

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """The given zones (all by default) as shapely polygons, degrees."""
        return self.zones.polygons if cells is None else self.zones.polygons[cells]

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the polygons, degrees."""
        import shapely

        return Bounds(*np.asarray(shapely.bounds(self.polygons(cells)), dtype=np.float64).T)

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the polygons, square metres."""
        import shapely

        return np.asarray(
            shapely.area(reprojected(self.polygons(cells), self.region.metric_projection.project))
        )

    def centres(self, cells: IntArray | None = None) -> Centres:
        """A point inside each of the given zones."""
        import shapely

        inner = shapely.point_on_surface(self.polygons(cells))
        return Centres(shapely.get_x(inner), shapely.get_y(inner))

    def lattice(self) -> Lattice:
        """The middles on a raster fine enough that few share one of its sites."""
        return scattered(self.region, self.centres(), _SPARE_LEVELS)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :meth:`from_record` makes it again."""
        import shapely

        record = {"kind": "zones", "region": self.region.to_dict(), "names": list(self.names)}
        return record | {"polygons": shapely.to_wkb(self.zones.polygons, hex=True).tolist()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read the zones of a record that :meth:`to_dict` wrote."""
        import shapely

        try:
            polygons = np.asarray(shapely.from_wkb(record["polygons"]), dtype=object)
        except shapely.errors.ShapelyError as error:
            raise InputError(f"a tiling's zones are no polygons ({error})") from error
        return cls(Zones(polygons, tuple(record["names"])))
