"""Grid: equal rows and columns of a region."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mapveil.geo.raster import Raster, RasterCells
from mapveil.geo.region import Region
from mapveil.geo.tiling import Lattice, SqlKey
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError

_LARGEST_SIDE = 1 << 31


@dataclass(frozen=True)
class Grid(RasterCells):
    """A region in equal rows and columns; cell ``row * columns + column``, the first in the north-west.

    By default the cells have exactly the same area. With a polygon as region, the cells whose centre lies
    outside it keep their codes, but no place is located to them (see :meth:`inside`).

    Parameters
    ----------
    region : Region
        What is divided.
    rows, columns : int
        How often from north to south and from west to east, 1 .. 2**31, at most 2**62 cells.

    Raises
    ------
    ParameterError
        Too few or too many rows or columns.

    Examples
    --------
    >>> grid = Grid(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), rows=2, columns=3)
    >>> grid.locate(np.array([-74.03, -73.90, -73.80]), np.array([40.83, 40.69, 40.70])).tolist()
    [0, 5, -1]
    """

    region: Region
    rows: int
    columns: int

    def __post_init__(self) -> None:
        for name, value in (("rows", self.rows), ("columns", self.columns)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST_SIDE:
                raise ParameterError(f"{name} is {value!r}; a whole number from 1 to 2**31 is accepted")

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.rows * self.columns

    @property
    def spec(self) -> str:
        """The tiling as the command line writes it, ``grid:ROWSxCOLUMNS``."""
        return f"grid:{self.rows}x{self.columns}"

    @cached_property
    def raster(self) -> Raster:
        """The rows and columns."""
        return Raster(self.region, self.rows, self.columns)

    def locate(self, lon: FloatArray, lat: FloatArray) -> IntArray:
        """The cell of each place (WGS84 degrees), -1 outside."""
        return self.raster.codes(lon, lat, lambda row, col: row * self.columns + col)

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """The same through SQL; None for a polygon or a CRS without a closed form."""
        key = self.raster.key_sql(lon, lat)
        return None if key is None else SqlKey(key, lambda keys: keys)

    def lattice(self) -> Lattice:
        """The grid in the north-west corner of the smallest square that holds it."""
        row, col = self._row_col(None)
        inside = None if self.region.polygon is None else self.inside()
        return Lattice((max(self.rows, self.columns) - 1).bit_length(), row, col, inside)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record from which :func:`mapveil.geo.tiling_from_dict` makes it again."""
        return {"kind": "grid", "region": self.region.to_dict(), "rows": self.rows, "columns": self.columns}

    def _row_col(self, cells: IntArray | None) -> tuple[IntArray, IntArray]:
        codes = np.arange(self.size) if cells is None else np.asarray(cells, dtype=np.int64)
        row, col = np.divmod(codes, self.columns)
        return row, col
