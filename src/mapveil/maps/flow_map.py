"""Flows: an estimate of how many go from each cell to each other one, with everything that is known about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.tiling import Tiling
from mapveil.maps.software import software_version
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.axes import Axes
    from scipy.sparse import csr_array


FLOW_SUFFIXES: Final = (".parquet", ".geojson", ".json", ".csv", ".png", ".html")
"""What :meth:`FlowMap.save` can write, by the suffix of the file."""


class Ends(NamedTuple):
    """Where flows begin and end, WGS84 degrees (cells without georeference); every array has shape (flows,)."""

    origin_lon: FloatArray
    origin_lat: FloatArray
    destination_lon: FloatArray
    destination_lat: FloatArray


@dataclass(frozen=True, eq=False)
class FlowMap:
    """Estimated trips from cells to cells: the flows that were kept, largest first.

    Parameters
    ----------
    origin, destination : ndarray of int64, shape (flows,)
        Cells; no pair twice.
    trips : ndarray of float64, shape (flows,)
        Estimated trips of each pair.
    tiling : Tiling
        The cells.
    guarantee : Guarantee
        What was promised.
    method : str
        How it was made.
    deviation : ndarray of float64, shape (flows,), optional
        Standard deviation of an unbiased estimate of each pair's trips, from the randomization alone.
    elsewhere : float
        Estimated trips of the pairs that are not among these.
    parameters : dict
        The parameters, JSON-ready.
    notes : tuple of str
        What a reader must know.
    version : str
        The version of Mapveil that made it.

    Raises
    ------
    ParameterError
        The arrays differ in length, a cell is not of the tiling, a pair is there twice, or trips are negative or
        not finite.

    Examples
    --------
    >>> import mapveil as mv
    >>> grid = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=2)
    >>> promise = mv.Guarantee(trust="local", epsilon=None, bounding="", neighbours="")
    >>> flows = FlowMap.from_matrix([[0, 3, 0, 0], [9, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]], grid, promise, "by hand")
    >>> flows.origin.tolist(), flows.destination.tolist(), flows.trips.tolist()
    ([1, 0, 2], [0, 1, 3], [9.0, 3.0, 1.0])
    >>> flows.merge_below(2).elsewhere
    1.0
    """

    origin: IntArray
    destination: IntArray
    trips: FloatArray
    tiling: Tiling
    guarantee: Guarantee
    method: str
    deviation: FloatArray | None = None
    elsewhere: float = 0.0
    parameters: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    version: str = ""

    def __post_init__(self) -> None:
        origin, destination = (np.asarray(part, dtype=np.int64) for part in (self.origin, self.destination))
        trips = np.asarray(self.trips, dtype=np.float64)
        shapes = {origin.shape, destination.shape, trips.shape}
        if self.deviation is not None:
            shapes.add(self.deviation.shape)
        if len(shapes) > 1 or trips.ndim != 1:
            raise ParameterError(
                f"flows have arrays of shapes {sorted(shapes)}; one-dimensional ones of one length are accepted"
            )
        for name, cells in (("origin", origin), ("destination", destination)):
            if cells.size and not (cells.min() >= 0 and cells.max() < self.tiling.size):
                raise ParameterError(
                    f"a flow's {name} is no cell of {self.tiling.spec}; 0 to {self.tiling.size - 1} is accepted"
                )
        if np.unique(origin * self.tiling.size + destination).size < trips.size:
            raise ParameterError("flows: a pair of cells is there twice; one flow a pair is accepted")
        if not (np.isfinite(trips).all() and (trips >= 0).all()):
            raise ParameterError(
                "flows: trips are negative or not finite; estimates of at least 0 are accepted"
            )
        order = np.lexsort((destination, origin, -trips))
        object.__setattr__(self, "origin", origin[order])
        object.__setattr__(self, "destination", destination[order])
        object.__setattr__(self, "trips", trips[order])
        if self.deviation is not None:
            object.__setattr__(self, "deviation", self.deviation[order])
        if not self.version:
            object.__setattr__(self, "version", software_version())

    @classmethod
    def from_matrix(
        cls,
        joint: npt.ArrayLike,
        tiling: Tiling,
        guarantee: Guarantee,
        method: str,
        *,
        least: float = 0.0,
        **about: Any,
    ) -> FlowMap:
        """The flows of a matrix of trips: the positive entries of at least ``least``; the others go elsewhere.

        Parameters
        ----------
        joint : array_like, shape (cells, cells)
            Trips from each cell (row) to each cell (column).
        tiling, guarantee, method
            As for :class:`FlowMap`.
        least : float
            The smallest flow to keep, trips.
        **about
            Further fields of :class:`FlowMap`; ``deviation`` as a matrix.
        """
        trips = np.asarray(joint, dtype=np.float64)
        if trips.shape != (tiling.size, tiling.size):
            raise ParameterError(
                f"a matrix of shape {trips.shape}; ({tiling.size}, {tiling.size}) is accepted for {tiling.spec}"
            )
        origin, destination = np.nonzero((trips > 0) & (trips >= least))
        kept = trips[origin, destination]
        deviation = about.pop("deviation", None)
        return cls(
            origin,
            destination,
            kept,
            tiling,
            guarantee,
            method,
            deviation=None if deviation is None else np.asarray(deviation)[origin, destination],
            elsewhere=max(float(trips.sum() - kept.sum()), 0.0) + about.pop("elsewhere", 0.0),
            **about,
        )

    @property
    def total(self) -> float:
        """Estimated trips in all, those elsewhere too."""
        return float(self.trips.sum()) + self.elsewhere

    @property
    def size(self) -> int:
        """Number of flows."""
        return int(self.trips.size)

    def matrix(self) -> csr_array:
        """The flows as a sparse matrix, shape (cells, cells): rows are origins."""
        from scipy.sparse import coo_array

        size = self.tiling.size
        return coo_array((self.trips, (self.origin, self.destination)), shape=(size, size)).tocsr()

    def departures(self) -> FloatArray:
        """Trips of the flows that begin in each cell, shape (cells,)."""
        return np.bincount(self.origin, self.trips, self.tiling.size).astype(np.float64)

    def arrivals(self) -> FloatArray:
        """Trips of the flows that end in each cell, shape (cells,)."""
        return np.bincount(self.destination, self.trips, self.tiling.size).astype(np.float64)

    def between(self, origin: int, destination: int) -> float:
        """Trips of one pair, 0 where it was not kept."""
        found = (self.origin == origin) & (self.destination == destination)
        return float(self.trips[found].sum())

    @cached_property
    def ends(self) -> Ends:
        """Where each flow begins and ends."""
        origin, destination = (self.tiling.centres(cells) for cells in (self.origin, self.destination))
        return Ends(origin.lon, origin.lat, destination.lon, destination.lat)

    def lengths_m(self) -> FloatArray:
        """How far apart the ends are on the ellipsoid, metres (cells without georeference), shape (flows,)."""
        ends = self.ends
        if not self.tiling.region.georeferenced:
            return np.asarray(
                np.hypot(ends.origin_lon - ends.destination_lon, ends.origin_lat - ends.destination_lat)
            )
        from pyproj import Geod

        return np.asarray(Geod(ellps="WGS84").inv(*ends)[2], dtype=np.float64)

    def merge_below(self, minimum: float) -> FlowMap:
        """Move every flow estimated below ``minimum`` trips elsewhere.

        Post-processing: costs no privacy, and protects no one by itself.
        """
        if not (np.isfinite(minimum) and minimum >= 0):
            raise ParameterError(f"minimum is {minimum!r}; a number of trips of at least 0 is accepted")
        note = f"flows estimated below {minimum:g} trips are merged into 'elsewhere'"
        return replace(self._kept(self.trips >= minimum), notes=(*self.notes, note))

    def largest(self, count: int) -> FlowMap:
        """The ``count`` largest flows; the others go elsewhere."""
        if count < 0:
            raise ParameterError(f"count is {count!r}; a number of flows of at least 0 is accepted")
        return self._kept(np.arange(self.size) < count)

    def _kept(self, kept: npt.NDArray[np.bool_]) -> FlowMap:
        return replace(
            self,
            origin=self.origin[kept],
            destination=self.destination[kept],
            trips=self.trips[kept],
            deviation=None if self.deviation is None else self.deviation[kept],
            elsewhere=self.elsewhere + float(self.trips[~kept].sum()),
        )

    def metadata(self) -> dict[str, Any]:
        """The JSON-ready record that every export carries."""
        return {
            "software": "mapveil",
            "version": self.version,
            "method": self.method,
            "parameters": self.parameters,
            "guarantee": self.guarantee.to_dict(),
            "guarantee_in_words": self.guarantee.in_words(),
            "tiling": self.tiling.to_dict(),
            "unit": "trips per pair of cells",
            "flows": self.size,
            "elsewhere": self.elsewhere,
            "notes": list(self.notes),
        }

    def metadata_json(self) -> str:
        """:meth:`metadata` as canonical JSON."""
        return json.dumps(self.metadata(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def plot(self, ax: Axes | None = None, *, title: str | None = None, arcs: int = 200) -> Axes:
        """Draw the largest flows as arcs; see :func:`mapveil.pictures.flow_picture.plot_flows`."""
        from mapveil.pictures.flow_picture import plot_flows

        return plot_flows(self, ax, title=title, arcs=arcs)

    def save(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write the format that the suffix names; a CSV's metadata lie beside it in ``NAME.csv-metadata.json``.

        Parameters
        ----------
        path : path-like
            Ends in .parquet (GeoParquet), .geojson, .json (GeoJSON), .csv, .png or .html.
        title : str, optional
            Head of a picture or page.

        Raises
        ------
        InputError
            Another suffix, or a file that cannot be written.
        MissingExtra
            The format needs an extra that is not installed.
        """
        suffix = Path(path).suffix.lower()
        if suffix in (".png", ".html"):
            from mapveil.pictures.flow_page import write_flow_page
            from mapveil.pictures.flow_picture import write_flow_png

            (write_flow_png if suffix == ".png" else write_flow_page)(self, path, title=title)
        elif suffix in FLOW_SUFFIXES:
            from mapveil.formats.flow_table import write_flow_csv, write_flow_geojson, write_flow_geoparquet

            writers = {".parquet": write_flow_geoparquet, ".csv": write_flow_csv}
            writers.get(suffix, write_flow_geojson)(self, path)
        else:
            raise InputError(f"{path}: no format has that suffix; accepted: {', '.join(FLOW_SUFFIXES)}")

    def _repr_html_(self) -> str:
        from mapveil.pictures.flow_picture import flow_notebook_html

        return flow_notebook_html(self)

    def __repr__(self) -> str:
        return f"FlowMap({self.method}, {self.tiling.spec}, {self.size} flows)\n{self.guarantee!r}"
