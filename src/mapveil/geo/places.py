"""Places: a finite list of sites; whoever is somewhere is at the nearest one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.region import Region, reprojected
from mapveil.geo.tiling import Bounds, SqlKey
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.tiles_and_sites import SiteCells

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


_FEW_PAIRS: Final = 1 << 20
_LEAST_GAP_M: Final = 1e-4  # metres; in 4,200 random layouts GEOS drew right cells from here on, not at 1e-6
_GUARD_DISTANCE: Final = 2.0  # in diagonals of the region


@dataclass(frozen=True, eq=False)
class Places(SiteCells):
    """A public list of sites (:class:`~mapveil_client.tiles_and_sites.SiteCells`), with Voronoi cells as outlines.

    The list must be public: a list taken from the users' own table tells where somebody was.

    Parameters
    ----------
    lon, lat : array of float, shape (sites,)
        Distinct sites in the region, degrees; at least 0.1 mm apart for polygons.
    region : Region
        Region to divide. Locations outside it belong to no site.
    names : sequence of str, optional
        Names of the sites.
    max_distance_m : float, optional
        Locations farther than this from every site belong to none.

    Examples
    --------
    >>> region = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    >>> sites = Places(np.array([-74.00, -73.95]), np.array([40.71, 40.80]), region)
    >>> sites.locate(np.array([-73.99]), np.array([40.72])).tolist()
    [0]
    """

    region: Region

    @cached_property
    def _tree(self) -> cKDTree:
        from scipy.spatial import cKDTree

        return cKDTree(self._plane)

    def _nearest(self, at: FloatArray) -> IntArray:
        if len(at) * self.size <= _FEW_PAIRS:
            return super()._nearest(at)
        _, near = self._tree.query(at, distance_upper_bound=self._limit)
        return np.where(near < self.size, near, -1)

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """None: the nearest site is no SQL expression."""
        return None

    @cached_property
    def _flat_cells(self) -> npt.NDArray[np.object_]:
        """The sites' Voronoi cells within the region, in metres.

        Four guard sites bound every cell of a site: without them, cells of nearly collinear sites have corners too
        far away for GEOS to intersect. A guard lies at least 1.5 diagonals from every point of the region, and every
        site at most one, so no guard takes any of the region.
        """
        import shapely

        gap = np.asarray(self._tree.query(self._plane, k=[2])[0])[:, 0]
        if gap.min() < _LEAST_GAP_M:
            raise InputError(
                f"places: site {int(gap.argmin())} is {gap.min():.2g} m from another site; sites must be at least "
                f"{_LEAST_GAP_M:g} m apart: merge the two"
            )

        frame = reprojected(self.region.outline(), self.region.metric_projection.project)
        low, high = np.reshape(shapely.bounds(frame), (2, 2))
        middle = (low + high) / 2
        reach = _GUARD_DISTANCE * float(np.hypot(*(high - low)))
        guards = reach * np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 0.0], [0.0, 1.0]])
        sites = shapely.multipoints(np.concatenate([self._plane - middle, guards]))
        cells = shapely.get_parts(shapely.voronoi_polygons(sites, ordered=True))[: self.size]
        # Of sites on one circle, such as those of a lattice, a few cells touch themselves.
        cells = shapely.make_valid(shapely.transform(cells, lambda xy: xy + middle))
        if self.max_distance_m is not None:
            disks = shapely.buffer(shapely.points(self._plane), self.max_distance_m, quad_segs=64)
            cells = shapely.intersection(cells, disks)
        return np.asarray(shapely.intersection(cells, frame), dtype=object)

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Voronoi cells of the given sites within the region as shapely polygons, degrees."""
        import shapely

        outlines = reprojected(self._flat(cells), self.region.metric_projection.unproject)
        # Degrees are rounded anew; by structure, so that no lines are left of what touched itself.
        return np.asarray(
            shapely.make_valid(outlines, method="structure", keep_collapsed=False), dtype=object
        )

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the polygons, degrees."""
        import shapely

        return Bounds(*np.asarray(shapely.bounds(self.polygons(cells)), dtype=np.float64).T)

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the polygons, square metres."""
        import shapely

        return np.asarray(shapely.area(self._flat(cells)))

    def _flat(self, cells: IntArray | None) -> npt.NDArray[np.object_]:
        return self._flat_cells if cells is None else self._flat_cells[cells]
