"""The domain of a randomizer: the sites of a tiling that can hold anybody, in the order of their hierarchical codes.

It is public and depends on the tiling only; its fingerprint tells reports on it from those on another version.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Cells, GridCells, QuadtreeCells
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave
from mapveil_client.tiles_and_sites import TileCells

_TILE_LEVELS: Final = 23  # of the tile codes of scattered sites: 46 bits, cells of 4.8 m at the equator
_SITES = 1 << 26
_STEEPEST: Final = 85.05112877980659  # latitude at which the tiles end, degrees


class Codes(NamedTuple):
    """Hierarchical codes of the sites, sorted: sites that share a prefix are neighbours."""

    code: IntArray  # Morton codes, ascending, no two alike, shape (sites,)
    site: IntArray  # the site of each code
    rank: IntArray  # the position of each site among them
    bits: int  # length of a code, even


@dataclass(frozen=True, eq=False)
class Domain:
    """The places a report can be about; site i is the i-th cell of the tiling that can hold anybody.

    Parameters
    ----------
    tiling : Cells
        Any tiling. Cells whose centre lies outside the region's polygon are left out.

    Raises
    ------
    InputError
        Fewer than two sites, or more than 2**26.

    Examples
    --------
    >>> from mapveil_client.plane import Box
    >>> domain = Domain(QuadtreeCells(Box("", (0.0, 0.0, 16.0, 16.0), (0.0, 0.0, 16.0, 16.0)), depth=4))
    >>> domain.size, domain.codes.bits
    (256, 8)
    """

    tiling: Cells

    def __post_init__(self) -> None:
        if self.tiling.size > _SITES:
            raise InputError(f"{self.tiling.spec} must have {_SITES} sites at most, got {self.tiling.size}")
        if self.size < 2:
            raise InputError(
                f"{self.tiling.spec} must have two or more sites in {self.tiling.region}, got {self.size}"
            )

    @cached_property
    def _cells(self) -> IntArray | None:
        """The cell of each site where some cells are left out."""
        if self.tiling.region.is_box:
            return None
        inside = self.tiling.lattice().inside
        return None if inside is None or inside.all() else np.flatnonzero(inside)

    @property
    def size(self) -> int:
        """Number of sites, d."""
        return self.tiling.size if self._cells is None else int(self._cells.size)

    @property
    def cells(self) -> IntArray:
        """The tiling's cell of each site, ascending, shape (sites,)."""
        return np.arange(self.tiling.size) if self._cells is None else self._cells

    def sites_of(self, cells: npt.ArrayLike) -> IntArray:
        """The site of each cell. Run by: the client.

        Raises
        ------
        InputError
            A cell is outside the domain, such as the -1 of a place outside the region.
        """
        given = np.atleast_1d(np.asarray(cells))
        if given.dtype.kind not in "iu":
            raise InputError(f"cells must be whole numbers, got {given.dtype}")
        given = given.astype(np.int64, copy=False)
        sites, known = given, (given >= 0) & (given < self.tiling.size)
        if self._cells is not None:
            sites = np.minimum(np.searchsorted(self._cells, given), self.size - 1)
            known &= self._cells[sites] == given
        if not known.all():
            # Without its number: a message may be logged, and a cell is somebody's place.
            raise InputError(
                f"a cell is not among the {self.size} sites of {self.tiling.spec}; a place outside the region "
                "has no report, or that of the nearest site"
            )
        return sites

    def on_cells(self, values: npt.ArrayLike) -> FloatArray:
        """Values of sites as values of the tiling's cells, 0 for cells left out, shape (cells,)."""
        given = np.asarray(values, dtype=np.float64)
        if self._cells is None:
            return given
        made = np.zeros(self.tiling.size)
        made[self._cells] = given
        return made

    @cached_property
    def codes(self) -> Codes:
        """Hierarchical codes: rows and columns of a raster, or map tiles of level 23 for scattered sites.

        Deviation: sites of one tile, which have one code in the paper, have two or more further bits. Source: Wang
        et al. (2022), section 3.2, Figure 3.
        """
        if isinstance(self.tiling, (QuadtreeCells, GridCells, TileCells)):
            lattice = self.tiling.lattice()
            code = interleave(lattice.row[self.cells], lattice.col[self.cells])
            return _sorted(code, 2 * max(lattice.depth, 1))
        return _sorted(self._tile_codes(), 2 * _TILE_LEVELS)

    def _tile_codes(self) -> IntArray:
        centres = self.tiling.centres(self.cells)
        side = 1 << _TILE_LEVELS
        if self.tiling.region.georeferenced:
            lat = np.radians(np.clip(centres.lat, -_STEEPEST, _STEEPEST))
            x = (centres.lon + 180) / 360
            y = (1 - np.arcsinh(np.tan(lat)) / np.pi) / 2
        else:
            x0, y0, x1, y1 = self.tiling.region.bounds_m
            x, y = (centres.lon - x0) / (x1 - x0), (y1 - centres.lat) / (y1 - y0)
        row, col = (np.clip((part * side).astype(np.int64), 0, side - 1) for part in (y, x))
        return interleave(row, col)

    @cached_property
    def plane(self) -> FloatArray:
        """The sites' middles in metres (cells without georeference), shape (2, sites): x, then y."""
        return np.stack(self.tiling.region.metric_projection.project(*self.tiling.centres(self.cells)))

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that tell this domain from every other, and from other versions of itself."""
        record = json.dumps(self.tiling.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(f"mapveil domain 1 {record}".encode()).digest()[:16]


def _sorted(code: IntArray, bits: int) -> Codes:
    site = np.argsort(code, kind="stable")
    code = code[site]
    new = np.concatenate([[True], np.diff(code) != 0])
    if not new.all():
        first = np.flatnonzero(new)
        number = np.arange(code.size) - np.repeat(first, np.diff(np.append(first, code.size)))
        spare = 2 * ((int(number.max()).bit_length() + 1) // 2)
        code, bits = code << spare | number, bits + spare
    rank = np.empty_like(site)
    rank[site] = np.arange(site.size)
    return Codes(code, site, rank, bits)
