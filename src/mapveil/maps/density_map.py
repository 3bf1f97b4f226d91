"""The answer: an estimate of users per cell, with everything that is known about it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.geo.tiling import Tiling
from mapveil.maps.layer import Layer
from mapveil.maps.round_cost import RoundCost
from mapveil.maps.software import software_version
from mapveil.privacy.discrete_laplace import laplace_quantile, laplace_variance
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError

if TYPE_CHECKING:
    from os import PathLike

    import xarray
    from matplotlib.axes import Axes

    from mapveil.pictures.colours import ScaleKind


INTERVAL_ALPHA: Final = 0.05
"""Exports carry bounds that hold for each cell with probability at least one minus this."""

SUFFIXES: Final = (".tif", ".tiff", ".parquet", ".geojson", ".json", ".png", ".html")
"""What :meth:`DensityMap.save` can write, by the suffix of the file."""


class Interval(NamedTuple):
    """Bounds on every cell's true sum, users."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy sums over groups of cells: what the mechanism actually saw of the data.

    Parameters
    ----------
    groups : ndarray of int64, shape (cells,)
        The group each cell belongs to, -1 for none.
    noisy : ndarray of float64, shape (groups,)
        Noisy sum of each group, users.
    epsilon : Fraction
        The noise on each is discrete Laplace of this epsilon, at sensitivity ``sensitivity``.
    unit : int
        Lattice units per user.
    terms : float
        The noise is a sum of so many discrete Laplace variables: more than one over several shards of devices.
    sensitivity : int, optional
        Units that one user changes all sums by, where it is not ``unit``.
    """

    groups: IntArray
    noisy: FloatArray
    epsilon: Fraction
    unit: int
    terms: float = 1.0
    sensitivity: int | None = None

    def deviation(self) -> float:
        """Standard deviation of the noise on each sum, users."""
        sensitivity = self.unit if self.sensitivity is None else self.sensitivity
        return math.sqrt(self.terms * laplace_variance(self.epsilon, sensitivity)) / self.unit

    def half_width(self, alpha: float) -> float:
        """Half the width of a two-sided interval of coverage 1 - alpha around a noisy sum, users."""
        sensitivity = self.unit if self.sensitivity is None else self.sensitivity
        if self.terms == 1:
            return laplace_quantile(alpha, self.epsilon, sensitivity) / self.unit
        from mapveil.privacy.laplace_sum import laplace_sum_quantile

        return laplace_sum_quantile(alpha, self.terms, self.epsilon, sensitivity) / self.unit


@dataclass(frozen=True, eq=False)
class DensityMap:
    """A released map: estimated users per cell, with its guarantee.

    Each user counts 1 in total, divided over the cells they were in.

    Parameters
    ----------
    values : ndarray of float64, shape (tiling.size,)
        Estimated users per cell.
    tiling : Tiling
        The cells.
    guarantee : Guarantee
        What was promised.
    method : str
        Name of the mechanism, as ``mapveil methods`` lists it.
    parameters : dict
        The mechanism's parameters, JSON-ready.
    measurements : tuple of Measurement
        The noisy sums it was made from.
    notes : tuple of str
        What a reader of the map must know, such as an estimate that came out empty.
    elsewhere : float
        Users merged out of small cells, see :meth:`merge_below`.
    rounds : tuple of RoundCost
        What each round cost a device, where devices were asked.
    version : str
        The version of Mapveil that made it.
    faint : float
        Density that chance alone puts anywhere, users per km²; 0 where it is not known. Colours begin there.
    """

    values: FloatArray
    tiling: Tiling
    guarantee: Guarantee
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: float = 0.0
    rounds: tuple[RoundCost, ...] = ()
    version: str = ""
    faint: float = 0.0

    def __post_init__(self) -> None:
        if self.values.shape != (self.tiling.size,):
            raise ParameterError(
                f"values have shape {self.values.shape}; ({self.tiling.size},) is accepted for {self.tiling.spec}"
            )
        if not self.version:
            object.__setattr__(self, "version", software_version())

    def per_km2(self) -> FloatArray:
        """Estimated density, users per square kilometre, shape (cells,).

        Without georeference nothing is known of kilometres: it is users per unit cell of the raster.
        """
        area = self.tiling.area_m2() / (1e6 if self.tiling.region.georeferenced else 1.0)
        # A site can be nearest to no place of a polygon: a cell without area.
        return np.divide(self.values, area, out=np.zeros(self.tiling.size), where=area > 0)

    def normalised(self) -> FloatArray:
        """The values over their sum (uniform by area where the sum is zero), shape (cells,)."""
        kept = np.maximum(self.values, 0.0)
        total = kept.sum()
        if total > 0:
            return np.asarray(kept / total)
        area = self.tiling.area_m2()
        return np.asarray(area / area.sum())

    def error(self, alpha: float = 0.05) -> Interval:
        r"""Bounds that hold for each cell's true sum with probability at least 1 - alpha.

        A cell's sum is at most that of any group it belongs to, and is that group's sum where it is
        its only member. With K measurements covering the cell, each has the two-sided quantile of its noise at
        :math:`\alpha / K`:

        .. math:: \max(0, \max_k \tilde{s}_k - t_k) \le s \le \min_k \tilde{s}_k + t_k

        where: :math:`\tilde{s}_k` is the noisy sum of the cell's group in measurement k, :math:`t_k`
        is ``measurement.half_width(alpha / K)``, and the lower bound uses single-cell groups only.

        The bounds are pointwise and concern the noise alone: they are about the people in the table, not about
        those who are not in it. Run by: anybody who holds the map; costs no privacy.

        Parameters
        ----------
        alpha : float
            Probability that one cell's bounds fail, in (0, 1).

        Raises
        ------
        ParameterError
            ``alpha`` is outside (0, 1), or the map carries no measurements.
        """
        if not 0 < alpha < 1:
            raise ParameterError(f"alpha is {alpha!r}; a number between 0 and 1 is accepted")
        if not self.measurements:
            raise ParameterError(f"a map of {self.method} carries no measurements, so it has no error bounds")
        lower = np.zeros(self.tiling.size)
        upper = np.full(self.tiling.size, np.inf)
        for measurement in self.measurements:
            half = measurement.half_width(alpha / len(self.measurements))
            covered = measurement.groups >= 0
            group = np.where(covered, measurement.groups, 0)
            noisy = measurement.noisy[group]
            alone = np.bincount(measurement.groups[covered], minlength=measurement.noisy.size)[group] == 1
            upper = np.where(covered, np.minimum(upper, noisy + half), upper)
            lower = np.where(covered & alone, np.maximum(lower, noisy - half), lower)
        return Interval(lower, np.maximum(upper, lower))

    def interval(self) -> Interval | None:
        """The bounds that every export carries: ``error(INTERVAL_ALPHA)``, None without measurements."""
        return self.error(INTERVAL_ALPHA) if self.measurements else None

    def layers(self) -> tuple[Layer, ...]:
        """What every export carries for each cell beside users and their bounds; nothing here."""
        return ()

    def merge_below(self, minimum: float) -> DensityMap:
        """Move every cell whose estimate is below ``minimum`` users into the elsewhere bucket.

        Post-processing: costs no privacy, and protects no one by itself.
        """
        if not (np.isfinite(minimum) and minimum >= 0):
            raise ParameterError(f"minimum is {minimum!r}; a number of users of at least 0 is accepted")
        small = self.values < minimum
        moved = float(self.values[small].sum())
        return replace(
            self,
            values=np.where(small, 0.0, self.values),
            elsewhere=self.elsewhere + moved,
            notes=(*self.notes, f"cells estimated below {minimum:g} users are merged into 'elsewhere'"),
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
            "unit": "users per cell",
            "interval": {"alpha": INTERVAL_ALPHA, "of": "each cell's true sum"}
            if self.measurements
            else None,
            "elsewhere": self.elsewhere,
            "notes": list(self.notes),
            **({"faint_per_km2": self.faint} if self.faint else {}),
            **({"rounds": [each.to_dict() for each in self.rounds]} if self.rounds else {}),
        }

    def metadata_json(self) -> str:
        """:meth:`metadata` as canonical JSON."""
        return json.dumps(self.metadata(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def plot(self, ax: Axes | None = None, *, scale: ScaleKind = "log", title: str | None = None) -> Axes:
        """Draw the map with its guarantee; see :func:`mapveil.pictures.picture.plot_map`."""
        from mapveil.pictures.picture import plot_map

        return plot_map(self, ax, scale=scale, title=title)

    def to_xarray(self) -> xarray.Dataset:
        """The map as a dataset; see :func:`mapveil.formats.dataset.as_dataset`."""
        from mapveil.formats.dataset import as_dataset

        return as_dataset(self)

    def to_geotiff(self, path: str | PathLike[str]) -> None:
        """Write a Cloud-Optimised GeoTIFF; see :func:`mapveil.formats.geotiff.write_geotiff`."""
        from mapveil.formats.geotiff import write_geotiff

        write_geotiff(self, path)

    def to_geoparquet(self, path: str | PathLike[str]) -> None:
        """Write GeoParquet; see :func:`mapveil.formats.geoparquet.write_geoparquet`."""
        from mapveil.formats.geoparquet import write_geoparquet

        write_geoparquet(self, path)

    def to_geojson(self, path: str | PathLike[str], *, skip_empty: bool = False) -> None:
        """Write GeoJSON; see :func:`mapveil.formats.geojson.write_geojson`."""
        from mapveil.formats.geojson import write_geojson

        write_geojson(self, path, skip_empty=skip_empty)

    def to_png(
        self, path: str | PathLike[str], *, scale: ScaleKind = "log", title: str | None = None
    ) -> None:
        """Write a picture; see :func:`mapveil.pictures.picture.write_png`."""
        from mapveil.pictures.picture import write_png

        write_png(self, path, scale=scale, title=title)

    def to_html(self, path: str | PathLike[str], *, title: str | None = None) -> None:
        """Write a page that works offline; see :func:`mapveil.pictures.page.write_page`."""
        from mapveil.pictures.page import write_page

        write_page(self, path, title=title)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the format that the suffix names.

        Parameters
        ----------
        path : path-like
            Ends in .tif, .tiff, .parquet, .geojson, .json (GeoJSON), .png or .html.

        Raises
        ------
        InputError
            Another suffix, cells the format cannot hold, or a file that cannot be written.
        MissingExtra
            The format needs an extra that is not installed.
        """
        suffix = Path(path).suffix.lower()
        if suffix in (".tif", ".tiff"):
            self.to_geotiff(path)
        elif suffix == ".parquet":
            self.to_geoparquet(path)
        elif suffix in (".geojson", ".json"):
            self.to_geojson(path)
        elif suffix == ".png":
            self.to_png(path)
        elif suffix == ".html":
            self.to_html(path)
        else:
            raise InputError(f"{path}: no format has that suffix; accepted: {', '.join(SUFFIXES)}")

    def _repr_html_(self) -> str:
        from mapveil.pictures.picture import notebook_html

        return notebook_html(self)

    def __repr__(self) -> str:
        return f"DensityMap({self.method}, {self.tiling.spec}, {self.tiling.size} cells)\n{self.guarantee!r}"
