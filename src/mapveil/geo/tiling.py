"""The protocol of tilings: how a place becomes a cell, and what a cell covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.cells import Cells
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.region import Region


class Bounds(NamedTuple):
    """Cell bounding boxes, WGS84 degrees."""

    west: FloatArray
    south: FloatArray
    east: FloatArray
    north: FloatArray


class SqlKey(NamedTuple):
    """A cell as SQL computes it: an integer key, and the function from distinct keys to cells.

    Rows are grouped by a key of plain arithmetic, because SQL is slow at interleaving bits. The arithmetic tells a cell
    but near its edges; there ``exact`` decides, called by SQL as the function :data:`EXACT_KEY`.
    """

    steps: tuple[tuple[str, str], ...]  # name and expression of columns to be computed before the key
    key: str  # of a location where ``inside`` holds
    inside: str | None  # the condition for a location in a cell; None where the key of any other is -1
    cells: Callable[[IntArray], IntArray]
    exact: Callable[[FloatArray, FloatArray], IntArray]  # keys of locations, by the cells' edges

    @property
    def expression(self) -> str:
        """The key of any location, -1 outside."""
        return self.key if self.inside is None else f"(CASE WHEN {self.inside} THEN {self.key} ELSE -1 END)"


EXACT_KEY: Final = "mapveil_locate"
"""Name in SQL of a function of longitude and latitude: the key of a location by the cells' edges."""


@runtime_checkable
class Tiling(Cells, Protocol):
    """A finite division of a region into cells with codes 0 .. size - 1.

    ``locate`` gives -1 outside. Everything here depends on the region and the tiling's parameters only, never on
    data.
    """

    @property
    def region(self) -> Region:
        """The region that is divided."""

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """:meth:`locate` as one SQL expression over two column expressions; None where there is none."""

    def bounds(self, cells: IntArray | None = None) -> Bounds:
        """Bounding boxes of the given cells (all by default)."""

    def polygons(self, cells: IntArray | None = None) -> npt.NDArray[np.object_]:
        """Outlines of the given cells as shapely polygons, WGS84 degrees."""

    def area_m2(self, cells: IntArray | None = None) -> FloatArray:
        """Areas of the given cells in square metres."""


def as_tiling(cells: Cells) -> Tiling:
    """Cells with their outlines; an :class:`InputError` where a client read them from a record, without outlines."""
    if not isinstance(cells, Tiling):
        raise InputError(f"cells must be a tiling of mapveil.geo, got {cells.spec} as a client reads it")
    return cells
