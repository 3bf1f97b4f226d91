"""Hexagons: the H3 cells of a region."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.projection import METRES_PER_DEGREE
from mapveil.geo.region import Region
from mapveil.geo.tiling import Bounds, SqlKey
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Centres, Lattice
from mapveil_client.errors import ParameterError, check_whole
from mapveil_client.tiles_and_sites import scattered

if TYPE_CHECKING:
    from shapely.geometry import Polygon


_FINEST: Final = 15
_LARGEST: Final = 1 << 23
_SPARE_LEVELS: Final = 2
_REACH: Final = 2.5
"""Largest distance of a descendant's centre from a cell's, in average edges: the largest cell's radius is below 1.5."""


@dataclass(frozen=True)
class Hexagons:
    """The H3 cells whose centre lies in a region; cell i is the i-th by H3 index.

    A location in such a cell counts although it may lie outside the region's own edge. Cells differ in area by a
    few percent.

    Parameters
    ----------
    region : Region
        Region to divide.
    resolution : int
        H3 resolution, 0 to 15; at 8 a cell has about 0.7 square kilometres.

    Raises
    ------
    ParameterError
        ``resolution`` is out of range, no cell has its centre in the region, or there are more than 2**23.

    Examples
    --------
    >>> hexagons = Hexagons(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), resolution=7)
    >>> bool((hexagons.locate(*hexagons.centres()) == np.arange(hexagons.size)).all())
    True
    """

    region: Region
    resolution: int

    def __post_init__(self) -> None:
        resolution = self.resolution
        check_whole(resolution, "resolution", 0, _FINEST)
        if not self.region.georeferenced:
            raise ParameterError("a raster without georeference has no H3 cells; a region on Earth has")
        import h3

        expected = self.region.area_m2 / h3.average_hexagon_area(resolution, unit="m^2")
        if expected > _LARGEST:
            raise ParameterError(
                f"resolution {resolution} has about {expected:.0f} cells there; expected at most {_LARGEST}"
            )
        if self.h3_ids.size == 0:
            raise ParameterError(
                f"no H3 cell of resolution {resolution} has its centre in the region; expected a finer one"
            )

    @cached_property
    def h3_ids(self) -> npt.NDArray[np.uint64]:
        """The cells' H3 indices, ascending; shape (size,)."""
        import h3
        from h3ronpy import change_resolution
        from h3ronpy.vector import cells_to_coordinates

        # From the 122 coarsest cells down, keeping what may have a descendant's centre in the region.
        # Filling the region's outline instead fails for the whole Earth and around the poles.
        ids = np.array([h3.str_to_int(cell) for cell in h3.get_res0_cells()], dtype=np.uint64)
        for level in range(self.resolution + 1):
            if level:
                ids = np.asarray(change_resolution(ids, level).to_numpy(), dtype=np.uint64)
            places = cells_to_coordinates(ids)
            lat, lon = (np.asarray(places[name].to_numpy()) for name in ("lat", "lng"))
            if level < self.resolution:
                reach = _REACH * h3.average_hexagon_edge_length(level, unit="m") / METRES_PER_DEGREE
                ids = ids[_near(self.region.bbox, lon, lat, reach)]
        return np.sort(ids[self.region.contains(lon, lat)])

    @property
    def size(self) -> int:
        """Number of cells."""
        return int(self.h3_ids.size)

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``h3:RESOLUTION``."""
        return f"h3:{self.resolution}"

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each place (WGS84 degrees), -1 outside."""
        from h3ronpy.vector import coordinates_to_cells

        lon, lat = np.asarray(lon, dtype=np.float64).ravel(), np.asarray(lat, dtype=np.float64).ravel()
        with np.errstate(invalid="ignore"):
            known = (np.abs(lon) <= 180) & (np.abs(lat) <= 90)
        cells = np.full(lon.shape, -1, dtype=np.int64)
        if known.any():
            ids = np.asarray(coordinates_to_cells(lat[known], lon[known], self.resolution).to_numpy())
            at = np.minimum(np.searchsorted(self.h3_ids, ids), self.size - 1)
            cells[known] = np.where(self.h3_ids[at] == ids, at, -1)
        return cells

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """None: H3 is no SQL expression."""
        return None

    def _ids(self, cells: IntArray | None) -> npt.NDArray[np.uint64]:
        return self.h3_ids if cells is None else self.h3_ids[cells]

    def centres(self, cells: IntArray | None = None) -> Centres:
        """Centres of the given cells, degrees."""
        from h3ronpy.vector import cells_to_coordinates

        found = cells_to_coordinates(self._ids(cells))
        return Centres(np.array(found["lng"].to_numpy()), np.array(found["lat"].to_numpy()))

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given cells as shapely polygons (in two parts across 180 degrees), degrees."""
        import pyarrow
        import shapely
        from h3ronpy.vector import cells_to_wkb_polygons

        wkb = pyarrow.array(cells_to_wkb_polygons(self._ids(cells)))
        outlines = np.asarray(shapely.from_wkb(wkb.to_numpy(zero_copy_only=False)), dtype=object)
        west, _, east, _ = np.asarray(shapely.bounds(outlines)).T
        crossing = east - west > 180
        if crossing.any():
            outlines[crossing] = _cut_at_180(outlines[crossing])
        return outlines

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the given cells, degrees."""
        import shapely

        return Bounds(*np.asarray(shapely.bounds(self.polygons(cells)), dtype=np.float64).T)

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the given cells on H3's sphere, square metres."""
        from h3ronpy import cells_area_m2

        return np.array(cells_area_m2(self._ids(cells)).to_numpy())

    def lattice(self) -> Lattice:
        """The cells' centres on a raster fine enough that few share one of its sites."""
        return scattered(self.region, self.centres(), _SPARE_LEVELS)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.parse_tiling.tiling_from_dict` makes it again."""
        return {"kind": "h3", "region": self.region.to_dict(), "resolution": self.resolution}


def _near(
    bbox: tuple[float, float, float, float], lon: FloatArray, lat: FloatArray, reach: float
) -> npt.NDArray[np.bool_]:
    """Whether places are at most about ``reach`` degrees of latitude from a box, also across 180 degrees."""
    west, south, east, north = bbox
    polar = np.abs(lat) + reach >= 90
    shrink = np.cos(np.radians(np.where(polar, 0.0, np.abs(lat) + reach)))
    apart = np.min([np.maximum(west - lon - turn, lon + turn - east) for turn in (-360, 0, 360)], axis=0)
    return np.asarray((lat >= south - reach) & (lat <= north + reach) & (polar | (apart <= reach / shrink)))


def _cut_at_180(outlines: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Outlines whose longitudes jump at 180 degrees, as the parts on its two sides."""
    import shapely

    def unwrapped(lonlat: FloatArray) -> FloatArray:
        return np.column_stack([lonlat[:, 0] % 360, lonlat[:, 1]])

    rings = shapely.transform(outlines, unwrapped)
    west, _, east, _ = np.asarray(shapely.bounds(rings)).T
    # Only around a pole is there a jump wherever the circle is cut.
    polar = east - west > 180
    rings[polar] = [_cap(np.asarray(shapely.get_coordinates(ring))[:-1]) for ring in rings[polar]]
    eastern = shapely.intersection(rings, shapely.box(0, -90, 180, 90))
    western = shapely.intersection(rings, shapely.box(180, -90, 360, 90))
    western = shapely.transform(western, lambda lonlat: lonlat - np.array([360.0, 0.0]))
    return np.asarray(shapely.union(eastern, western), dtype=object)


def _cap(corners: FloatArray) -> Polygon:
    """The area between a pole and a ring of corners around it, longitudes 0 .. 360."""
    import shapely

    ring = corners[np.argsort(corners[:, 0])]
    pole = 90.0 if ring[0, 1] > 0 else -90.0
    start = np.interp(0.0, [ring[-1, 0] - 360, ring[0, 0]], [ring[-1, 1], ring[0, 1]])
    return shapely.Polygon([(0, pole), (0, start), *ring, (360, start), (360, pole)])
