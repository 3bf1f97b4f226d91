"""Hexagons: the H3 cells of a region."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.errors import ParameterError
from mapveil.geo.region import Region
from mapveil.geo.tiling import Bounds, Centres, Lattice, SqlKey

__all__ = ["Hexagons"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FINEST: Final = 15
_LARGEST: Final = 1 << 23
_DEEPEST: Final = 12
_SPARE_LEVELS: Final = 2


@dataclass(frozen=True)
class Hexagons:
    """The H3 cells whose centre lies in a region; cell i is the i-th by H3 index.

    A place in such a cell counts although it may lie outside the region's own edge. Cells differ in area by a
    few percent.

    Parameters
    ----------
    region : Region
        What is divided.
    resolution : int
        H3's, 0 .. 15; at 8 a cell has about 0.7 square kilometres.

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
        if isinstance(resolution, bool) or not isinstance(resolution, int) or not 0 <= resolution <= _FINEST:
            raise ParameterError(
                f"resolution is {resolution!r}; a whole number from 0 to {_FINEST} is accepted"
            )
        if not self.region.georeferenced:
            raise ParameterError("a raster without georeference has no H3 cells; a region on Earth has")
        import h3

        expected = self.region.area_m2 / h3.average_hexagon_area(resolution, unit="m^2")
        if expected > _LARGEST:
            raise ParameterError(
                f"resolution {resolution} has about {expected:.0f} cells there; at most {_LARGEST} are "
                "accepted"
            )
        if self.h3_ids.size == 0:
            raise ParameterError(
                f"no H3 cell of resolution {resolution} has its centre in the region; a finer one is accepted"
            )

    @cached_property
    def h3_ids(self) -> npt.NDArray[np.uint64]:
        """The cells' H3 indices, ascending; shape (size,)."""
        import shapely
        from h3ronpy import ContainmentMode
        from h3ronpy.vector import cells_to_coordinates, wkb_to_cells

        # Generously around the region, then exactly by centre: one rule for boxes and polygons.
        wide = shapely.to_wkb(shapely.box(*self.region.bbox))
        found = np.unique(
            np.asarray(
                wkb_to_cells(
                    [wide], self.resolution, containment_mode=ContainmentMode.Covers, flatten=True
                ).to_numpy()
            )
        )
        places = cells_to_coordinates(found)
        lat, lon = (np.asarray(places[name].to_numpy()) for name in ("lat", "lng"))
        return np.asarray(found[self.region.contains(lon, lat)], dtype=np.uint64)

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

        places = cells_to_coordinates(self._ids(cells))
        return Centres(np.array(places["lng"].to_numpy()), np.array(places["lat"].to_numpy()))

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given cells as shapely polygons, degrees."""
        import pyarrow
        import shapely
        from h3ronpy.vector import cells_to_wkb_polygons

        outlines = pyarrow.array(cells_to_wkb_polygons(self._ids(cells)))
        return np.asarray(shapely.from_wkb(outlines.to_numpy(zero_copy_only=False)), dtype=object)

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
        depth = min(_DEEPEST, (self.size - 1).bit_length() // 2 + _SPARE_LEVELS)
        x, y = self.region.project(*self.centres())
        x0, y0, x1, y1 = self.region.bounds_m
        side = 1 << depth
        col = ((x - x0) / (x1 - x0) * side).astype(np.int64)
        row = ((y1 - y) / (y1 - y0) * side).astype(np.int64)
        return Lattice(depth, np.clip(row, 0, side - 1), np.clip(col, 0, side - 1))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.tiling_from_dict` makes it again."""
        return {"kind": "h3", "region": self.region.to_dict(), "resolution": self.resolution}
