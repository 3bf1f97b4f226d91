r"""A prior of where people are: a public map that an estimate may lean on, with its name, licence and hash.

A prior is post-processing: noise and budget are the same with it and without it, and so is the guarantee. It must not
depend on the people whom the new map protects, unless through a release of its own: whoever gives a file states that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np

from mapveil.geo.grid import Grid
from mapveil.geo.raster import RasterShapes
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.claim import AccountReference
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError

STATED: Final = "stated to be public"
EARLIER: Final = "earlier release"

_POINTS: Final = 2  # along a side of a cell of a raster, at least
_MOST_POINTS: Final = 1 << 24
_ROUNDING: Final = 1e-6  # points: boxes of one place differ by less
_CHUNK: Final = 1 << 18


class ExpectedFractions(NamedTuple):
    """A prior on the cells of a tiling."""

    fractions: FloatArray  # of all people, per cell, summing to 1
    covered: float  # fraction of the tiling's area that the prior covers; elsewhere the fractions are even


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A public distribution of people, on cells of its own.

    Parameters
    ----------
    name : str
        Name of the file, without its folder.
    digest : str
        SHA-256 of the file, hexadecimal.
    licence : str, optional
        The licence, where the file states one.
    released : bool
        Whether it is an earlier differentially private release of Mapveil; else its user states that it is public.
    account : AccountReference, optional
        The charge of an earlier release.
    seeded : bool
        Whether it is a release whose noise anybody with the seed can repeat.
    values : ndarray of float64, shape (tiling.size,)
        Amount of every cell, at least 0, of any unit.
    tiling : Tiling
        The cells.
    """

    name: str
    digest: str
    licence: str | None = None
    released: bool = False
    account: AccountReference | None = None
    seeded: bool = False
    values: FloatArray = field(compare=False, repr=False)
    tiling: Tiling = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        if not np.isfinite(self.values).all() or (self.values < 0).any():
            raise InputError(f"{self.name}: a prior must have amounts of at least 0 in every cell")
        if not self.values.any():
            raise InputError(f"{self.name}: all cells are 0; expected a prior with people")

    @classmethod
    def of_map(cls, heat: DensityMap, *, name: str = "", digest: str = "") -> Self:
        """An earlier release as a prior; an :class:`InputError` for a map without differential privacy."""
        guarantee = heat.guarantee
        if guarantee.epsilon is None:
            raise InputError(
                f"{name or 'the map'}: a prior must be a public raster or a map with an epsilon, got a map of "
                f"method {heat.method} without one, which is not differentially private"
            )
        text = heat.metadata_json().encode() + np.ascontiguousarray(heat.values, dtype="<f8").tobytes()
        return cls(
            name=name or heat.title or f"map of {heat.provenance.date}",
            digest=digest or hashlib.sha256(text).hexdigest(),
            released=True,
            account=guarantee.account,
            seeded=guarantee.seeded,
            values=np.maximum(heat.values, 0.0),
            tiling=heat.tiling,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record, without the values."""
        record: dict[str, Any] = {"name": self.name, "sha256": self.digest, "licence": self.licence}
        record["basis"] = EARLIER if self.released else STATED
        if self.account is not None:
            record |= {"account": self.account.name, "entries": list(self.account.entries)}
        return record

    def is_file(self, path: str) -> bool:
        """Whether a file is the one that the prior was read from, wherever it lies."""
        return Path(path).is_file() and file_digest(path) == self.digest

    def note(self, tiling: Tiling, moved: float | None = None) -> str:
        """A sentence for readers of a map on this tiling; of reports, with the fraction of users that it moved."""
        licence = f"licence {self.licence}" if self.licence else "no licence stated"
        known = licence if not self.released else "an earlier release"
        basis = known if self.released else f"{known}, {STATED}"
        covered = self.on(tiling).covered
        part = (
            ""
            if covered >= 1
            else f"; it covers {100 * covered:.3g} % of the cells' area, and is even elsewhere"
        )
        named = f"the prior {self.name} ({basis})"
        if moved is None:
            return f"the estimate leans on {named} as far as the noisy sums agree with it{part}"
        if moved == 0:
            return f"the estimate does not use {named}: reports this few and noisy do not confirm it{part}"
        elsewhere = f"{100 * moved:.3g} % of the users are elsewhere"
        return f"{elsewhere} than without {named}, since the reports confirm it{part}"

    def check_covers(self, tiling: Tiling) -> None:
        """Refuse a prior that says nothing of a tiling, before any budget is charged."""
        placed, needed = self.tiling.region.georeferenced, tiling.region.georeferenced
        if needed and not placed:
            raise ParameterError(
                f"prior {self.name} states no reference system and bounds, so its place in {tiling.region} is not "
                "known; give a GeoTIFF with a CRS, or a .npz with west, south, east, north (and crs)"
            )
        if placed and not needed:
            raise ParameterError(
                f"prior {self.name} lies on the earth, but the cells have no reference system: give both, or neither"
            )
        if self.on(tiling).covered == 0:
            raise ParameterError(
                f"prior {self.name} must cover cells of {tiling.region} with people, got none there: is it of another "
                "region?"
            )

    def on(self, tiling: Tiling) -> ExpectedFractions:
        """The prior on the cells of a tiling, from its density at points of them. Run by: whoever estimates.

        A cell takes the mean over points inside it, at least two by two, of the density of the prior's cells there.
        Cells that the prior does not cover have the mean density of the others.

        Parameters
        ----------
        tiling : Tiling
            The cells, of any region and reference system.
        """
        cells = json.dumps(tiling.to_dict(), sort_keys=True)
        known: ExpectedFractions | None = self._resampled.get(cells)
        if known is None:
            known = self._resampled[cells] = _on_cells(self, tiling)
        return known

    @cached_property
    def _resampled(self) -> dict[str, ExpectedFractions]:
        return {}


def file_digest(path: str | PathLike[str]) -> str:
    """SHA-256 of a file, hexadecimal."""
    with Path(path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _on_cells(prior: Prior, tiling: Tiling) -> ExpectedFractions:
    area = tiling.area_m2()
    if prior.tiling.region.georeferenced != tiling.region.georeferenced:
        return ExpectedFractions(area / area.sum(), 0.0)
    source_area = prior.tiling.area_m2()
    density = np.divide(prior.values, source_area, out=np.zeros(prior.values.size), where=source_area > 0)
    found, seen, points = (np.zeros(tiling.size) for _ in range(3))
    for cell, lon, lat in _points_of(tiling, _finest(prior.tiling, tiling)):
        source = prior.tiling.locate(lon, lat)
        known = source >= 0
        points += np.bincount(cell, minlength=tiling.size)
        seen += np.bincount(cell[known], minlength=tiling.size)
        found += np.bincount(cell[known], density[source[known]], tiling.size)
    inside = points > 0
    mean = np.divide(found, points, out=np.zeros(tiling.size), where=inside)
    covered = np.divide(seen, points, out=np.zeros(tiling.size), where=inside) * area
    whole, people = float(area[inside].sum()), float((mean * area).sum())
    if whole <= 0 or people <= 0:
        return ExpectedFractions(area / area.sum(), 0.0)
    even = np.where(inside, area, 0.0) - covered
    part = float(covered.sum()) / whole
    return ExpectedFractions(part * mean * area / people + even / whole, part if part < 1 - 1e-9 else 1.0)


def _finest(source: Tiling, tiling: Tiling) -> float:
    """Cells of the source along a side of the tiling's region, were the source even."""
    cells = source.size * tiling.region.area_m2 / max(source.region.area_m2, 1e-300)
    return math.sqrt(max(cells, 1.0))


def _points_of(tiling: Tiling, finest: float) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """Points of a tiling's cells, evenly over the region: cell, longitude, latitude."""
    raster = tiling.raster if isinstance(tiling, RasterShapes) else None
    side = math.ceil(math.sqrt(tiling.size))
    rows, columns = (side, side) if raster is None else (raster.rows, raster.columns)
    # Cells of no raster have a size of their own each: more points a cell.
    wanted = max(
        _POINTS if raster is not None else 4 * _POINTS, math.ceil(finest / max(rows, columns) - _ROUNDING)
    )
    each = max(min(wanted, math.isqrt(_MOST_POINTS // (rows * columns))), 1)
    grid = Grid(tiling.region, rows=rows * each, columns=columns * each)
    for start in range(0, grid.size, _CHUNK):
        lon, lat = grid.centres(np.arange(start, min(start + _CHUNK, grid.size)))
        cell = tiling.locate(lon, lat)
        yield cell[cell >= 0], lon[cell >= 0], lat[cell >= 0]
