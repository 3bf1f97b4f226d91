"""Places: a finite list of sites; whoever is somewhere is at the nearest one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.region import Region
from mapveil.geo.tiling import Bounds, Centres, Lattice, SqlKey
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


_DEEPEST: Final = 12
_SPARE_LEVELS: Final = 3
_FEW_PAIRS: Final = 1 << 20
_LEAST_GAP_M: Final = 1e-4  # metres; in 4,200 random layouts GEOS drew right cells from here on, not at 1e-6
_GUARD_DISTANCE: Final = 2.0  # in diagonals of the region


@dataclass(frozen=True, eq=False)
class Places:
    """A public list of sites; a place belongs to the nearest site, and site i is cell i.

    Nearest is meant in metres of the region's plane (of an equal-area cylinder around the region's middle where
    that plane is in degrees): exact enough for a city, not for a continent. The list must be public: a list
    taken from the people's own table tells where somebody was.

    Parameters
    ----------
    lon, lat : array of float, shape (sites,)
        The sites, degrees; no two alike, nor within 0.1 mm where polygons are asked for.
    region : Region
        What is divided. Places outside it belong to no site.
    names : sequence of str, optional
        What the sites are called.
    max_distance_m : float, optional
        Places farther than this from every site belong to none.

    Raises
    ------
    InputError
        Fewer than two sites, duplicates, a site that is no place or lies outside the region.

    Examples
    --------
    >>> region = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    >>> sites = Places(np.array([-74.00, -73.95]), np.array([40.71, 40.80]), region)
    >>> sites.locate(np.array([-73.99]), np.array([40.72])).tolist()
    [0]
    """

    lon: FloatArray
    lat: FloatArray
    region: Region
    names: tuple[str, ...] | None = None
    max_distance_m: float | None = None

    def __post_init__(self) -> None:
        lon, lat = (np.asarray(values, dtype=np.float64) for values in (self.lon, self.lat))
        if lon.ndim != 1 or lon.shape != lat.shape or lon.size < 2:
            raise InputError(
                f"places: {lon.shape} longitudes and {lat.shape} latitudes; two or more pairs are accepted"
            )
        bad = np.flatnonzero(~((np.abs(lon) <= 180) & (np.abs(lat) <= 90)))
        if bad.size:
            raise InputError(
                f"places: site {bad[0]} is at {lon[bad[0]]}, {lat[bad[0]]}; degrees are accepted"
            )
        _, index, count = np.unique(np.stack([lon, lat]), axis=1, return_index=True, return_counts=True)
        if (count > 1).any():
            raise InputError(
                f"places: site {int(index[count > 1][0])} is there twice; distinct sites are accepted"
            )
        object.__setattr__(self, "lon", lon)
        object.__setattr__(self, "lat", lat)
        outside = np.flatnonzero(~self.region.contains(lon, lat))
        if outside.size:
            raise InputError(f"places: site {int(outside[0])} lies outside the region {self.region}")
        if self.names is not None and len(self.names) != lon.size:
            raise InputError(f"places: {len(self.names)} names for {lon.size} sites; one each is accepted")
        if self.max_distance_m is not None and not self.max_distance_m > 0:
            raise ParameterError(f"max_distance_m is {self.max_distance_m!r}; metres above 0 are accepted")

    @property
    def size(self) -> int:
        """Number of sites."""
        return int(self.lon.size)

    @property
    def spec(self) -> str:
        """``places:N`` with the number of sites."""
        return f"places:{self.size}"

    @cached_property
    def _plane(self) -> FloatArray:
        """The sites in metres, shape (sites, 2)."""
        return np.column_stack(self.region.metric_projection.project(self.lon, self.lat))

    @cached_property
    def _tree(self) -> cKDTree:
        from scipy.spatial import cKDTree

        return cKDTree(self._plane)

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The nearest site of each place (WGS84 degrees), -1 outside the region or too far away."""
        lon, lat = np.asarray(lon, dtype=np.float64).ravel(), np.asarray(lat, dtype=np.float64).ravel()
        cells = np.full(lon.shape, -1, dtype=np.int64)
        inside = self.region.contains(lon, lat)
        limit = np.inf if self.max_distance_m is None else np.nextafter(self.max_distance_m, np.inf)
        at = np.column_stack(self.region.metric_projection.project(lon[inside], lat[inside]))
        if len(at) * self.size <= _FEW_PAIRS:
            # A phone asks about its own few places, and has no SciPy.
            away = np.sqrt(np.square(at[:, None] - self._plane).sum(axis=2))
            near = np.argmin(away, axis=1)
            cells[inside] = np.where(np.take_along_axis(away, near[:, None], 1)[:, 0] < limit, near, -1)
            return cells
        _, nearest = self._tree.query(at, distance_upper_bound=limit)
        cells[inside] = np.where(nearest < self.size, nearest, -1)
        return cells

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """None: the nearest site is no SQL expression."""
        return None

    def centres(self, cells: IntArray | None = None) -> Centres:
        """The given sites."""
        return Centres(self.lon, self.lat) if cells is None else Centres(self.lon[cells], self.lat[cells])

    @cached_property
    def _flat_cells(self) -> npt.NDArray[np.object_]:
        """The sites' Voronoi cells within the region, in metres.

        Four guard sites surround the region. Each lies at least 1.5 diagonals from every point of the region, and
        every site at most one, so no guard takes any of the region; the guards bound every cell of a site. Without
        them, cells of nearly collinear sites have corners so far away that GEOS cannot intersect them.
        """
        import shapely

        gap = np.asarray(self._tree.query(self._plane, k=[2])[0])[:, 0]
        if gap.min() < _LEAST_GAP_M:
            raise InputError(
                f"places: site {int(gap.argmin())} is {gap.min():.2g} m from another site; sites must be at least "
                f"{_LEAST_GAP_M:g} m apart: merge the two"
            )

        def flat(lonlat: FloatArray) -> FloatArray:
            return np.column_stack(self.region.metric_projection.project(lonlat[:, 0], lonlat[:, 1]))

        frame = shapely.transform(self.region.outline(), flat)
        low, high = np.reshape(shapely.bounds(frame), (2, 2))
        middle = (low + high) / 2
        reach = _GUARD_DISTANCE * float(np.hypot(*(high - low)))
        guards = reach * np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 0.0], [0.0, 1.0]])
        sites = shapely.multipoints(np.concatenate([self._plane - middle, guards]))
        cells = shapely.get_parts(shapely.voronoi_polygons(sites, ordered=True))[: self.size]
        cells = shapely.transform(cells, lambda xy: xy + middle)
        if self.max_distance_m is not None:
            disks = shapely.buffer(shapely.points(self._plane), self.max_distance_m, quad_segs=64)
            cells = shapely.intersection(cells, disks)
        return np.asarray(shapely.intersection(cells, frame), dtype=object)

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """What is nearest to each given site, within the region, as shapely polygons, degrees."""
        import shapely

        chosen = self._flat_cells if cells is None else self._flat_cells[cells]
        return np.asarray(
            shapely.transform(
                chosen,
                lambda xy: np.column_stack(self.region.metric_projection.unproject(xy[:, 0], xy[:, 1])),
            ),
            dtype=object,
        )

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the polygons, degrees."""
        import shapely

        return Bounds(*np.asarray(shapely.bounds(self.polygons(cells)), dtype=np.float64).T)

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the polygons, square metres."""
        import shapely

        return np.asarray(shapely.area(self._flat_cells if cells is None else self._flat_cells[cells]))

    def lattice(self) -> Lattice:
        """The sites on a raster fine enough that few share one of its sites."""
        depth = min(_DEEPEST, (self.size - 1).bit_length() // 2 + _SPARE_LEVELS)
        x0, y0, x1, y1 = self.region.bounds_m
        side = 1 << depth
        x, y = self.region.project(self.lon, self.lat)
        col = ((x - x0) / (x1 - x0) * side).astype(np.int64)
        row = ((y1 - y) / (y1 - y0) * side).astype(np.int64)
        return Lattice(depth, np.clip(row, 0, side - 1), np.clip(col, 0, side - 1))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.tiling_from_dict` makes it again."""
        return {
            "kind": "places",
            "region": self.region.to_dict(),
            "lon": self.lon.tolist(),
            "lat": self.lat.tolist(),
            "names": None if self.names is None else list(self.names),
            "max_distance_m": self.max_distance_m,
        }
