"""The locations of a device, which never leave it, and the three ways in which its answers look at them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Cells
from mapveil_client.contribution import WEIGHT_UNITS, Devices, Outside
from mapveil_client.errors import InputError, Secret
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import PlaceChoice
from mapveil_client.randomness.random import Randomness, uniform_below
from mapveil_client.terms import CollectionTerms
from mapveil_client.tiles_and_sites import nearest

if TYPE_CHECKING:
    from mapveil_client.public_windows import PublicWindows


class Visited(NamedTuple):
    """Locations inside a region. Secret."""

    lon: FloatArray  # degrees
    lat: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Whereabouts(Secret):
    """The locations of one device. Secret.

    Parameters
    ----------
    lon, lat : ndarray of float64, shape (locations,)
        Degrees WGS84, finite.
    weights : ndarray of float64, shape (locations,), optional
        Weight of each location within this device, from 0; equal by default.
    times : ndarray of float64, shape (locations,), optional
        Seconds since 1970, UTC, of each location, for series.
    categories : tuple of str or None, optional
        Category of each location, for series by category.

    Raises
    ------
    InputError
        A location, a weight or a time is not a finite number.

    Examples
    --------
    >>> Whereabouts(np.array([-73.97]), np.array([40.77]))
    Whereabouts(not shown)
    """

    lon: FloatArray
    lat: FloatArray
    weights: FloatArray | None = None
    times: FloatArray | None = None
    categories: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        lon, lat = (np.atleast_1d(np.asarray(axis, dtype=np.float64)) for axis in (self.lon, self.lat))
        if lon.ndim != 1 or lon.shape != lat.shape or not bool((np.isfinite(lon) & np.isfinite(lat)).all()):
            raise InputError("a device's locations are no pairs of finite degrees; expected as many of each")
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64)
            if weights.shape != lon.shape or not bool((np.isfinite(weights) & (weights >= 0)).all()):
                raise InputError("the weights of a device's locations are not one number from 0 for each")
            object.__setattr__(self, "weights", weights)
        if self.times is not None:
            times = np.asarray(self.times, dtype=np.float64)
            if times.shape != lon.shape or not bool(np.isfinite(times).all()):
                raise InputError("the times of a device's locations are not one number of seconds for each")
            object.__setattr__(self, "times", times)
        if self.categories and len(self.categories) != lon.size:
            raise InputError("the categories of a device's locations are not one for each")
        object.__setattr__(self, "lon", lon)
        object.__setattr__(self, "lat", lat)

    def within(self, windows: "PublicWindows", window: int) -> Self | None:
        """Its locations in one window of a series; None without any. Run by: the client.

        Raises
        ------
        InputError
            The locations have no times, or no categories, and the windows need them.
        """
        found = np.flatnonzero(self._windows(windows) == window)
        if not found.size:
            return None
        weights = None if self.weights is None else self.weights[found]
        return type(self)(self.lon[found], self.lat[found], weights)

    def _windows(self, windows: "PublicWindows") -> IntArray:
        """The window of each place; without a place none is missing, and the device answers as one that is nowhere."""
        if not self.lon.size:
            return np.zeros(0, dtype=np.int64)
        return windows.numbers(self.times, self.categories)

    def _units(self) -> IntArray:
        """The whole weight of each place: millionths where there are weights."""
        if self.weights is None:
            return np.ones(self.lon.size, dtype=np.int64)
        return np.floor(self.weights * WEIGHT_UNITS + 0.5).astype(np.int64)

    def _visits(self, cells: IntArray) -> tuple[IntArray, IntArray]:
        """The cells, or other numbers of the locations, ascending, and the whole weight of each."""
        found, inverse = np.unique(cells, return_inverse=True)
        total = np.zeros(found.size, dtype=np.int64)
        np.add.at(total, inverse, self._units())
        return found[total > 0], total[total > 0]

    def devices(self, terms: CollectionTerms) -> Devices:
        """Its locations as sites of the tiling's lattice, for sums: one row. Run by: the client.

        Those of a series are labelled by their windows; a location in none is nowhere.

        Raises
        ------
        InputError
            The locations have no times, or no categories, and the windows need them.
        """
        cells, series = terms.cells.locate(self.lon, self.lat), terms.series
        if series is None:
            cells, weight = self._visits(cells)
            return Devices(np.where(cells >= 0, terms.sites[cells], -1), np.array([0, cells.size]), weight)
        windows = self._windows(series)
        found, weight = self._visits(
            np.where((cells >= 0) & (windows >= 0), cells * series.count + windows, -1)
        )
        cells, windows = np.divmod(found, series.count)
        sites = np.where(found >= 0, terms.sites[cells], -1)
        return Devices(sites, np.array([0, sites.size]), weight, windows)

    def cell(self, domain: Domain, choice: PlaceChoice, outside: str, rng: Randomness) -> int | None:
        """The one cell of the domain that a report is about; None where the device abstains. Run by: the client.

        Parameters
        ----------
        choice : str
            ``"most-visited"``, of equal ones the first; or ``"random"``, in proportion to the weights.
        outside : str
            A location outside the domain does not count (``"drop"``), counts at the ``"nearest"`` site, or makes the
            device abstain (``"refuse"``).
        """
        cells = domain.tiling.locate(self.lon, self.lat)
        away = ~np.isin(cells, domain.cells) if domain.size != domain.tiling.size else cells < 0
        if outside == Outside.REFUSE and bool(away.any()):
            return None
        if outside == Outside.NEAREST:
            cells = cells.copy()
            at = domain.tiling.region.metric_projection.project(self.lon[away], self.lat[away])
            cells[away] = domain.cells[nearest(np.column_stack(at), domain.plane.T)[0]]
        else:
            cells = np.where(away, -1, cells)
        found, weight = self._visits(cells)
        inside = found >= 0
        found, weight = found[inside], weight[inside]
        if not found.size:
            return None
        if choice == "most-visited":
            return int(found[np.argmax(weight)])
        ends = np.cumsum(weight)
        drawn = int(uniform_below(1, int(ends[-1]), rng)[0])
        return int(found[np.searchsorted(ends, drawn, side="right")])

    def visits(self, tiling: Cells, places: str) -> Visited:
        """Its locations inside the region of a tiling, for random Fourier features. Run by: the client.

        ``places`` is ``"mean"`` for all of them, or ``"most-visited"`` for the mean of those in the one cell with the
        largest weight.
        """
        weights = self._units() / (1 if self.weights is None else WEIGHT_UNITS)
        inside = tiling.region.contains(self.lon, self.lat) & (weights > 0)
        lon, lat, weights = self.lon[inside], self.lat[inside], weights[inside]
        if places == "most-visited" and lon.size:
            found, inverse = np.unique(tiling.locate(lon, lat), return_inverse=True)
            best = inverse == np.argmax(np.bincount(inverse, weights, found.size))
            x, y = tiling.region.metric_projection.project(lon[best], lat[best])
            mean = [np.atleast_1d(np.average(axis, weights=weights[best])) for axis in (x, y)]
            lon, lat = tiling.region.metric_projection.unproject(*mean)
            weights = np.ones(1)
        return Visited(lon, lat, weights)

    def __repr__(self) -> str:
        return "Whereabouts(not shown)"
