"""Grid: equal rows and columns of a region."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mapveil.geo.raster import Raster, RasterShapes
from mapveil.geo.region import Region
from mapveil.geo.tiling import SqlKey
from mapveil_client.cells import GridCells


@dataclass(frozen=True)
class Grid(GridCells, RasterShapes):
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
    >>> import numpy as np
    >>> grid = Grid(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), rows=2, columns=3)
    >>> grid.locate(np.array([-74.03, -73.90, -73.80]), np.array([40.83, 40.69, 40.70])).tolist()
    [0, 5, -1]
    """

    region: Region

    @cached_property
    def raster(self) -> Raster:
        """The rows and columns."""
        return Raster(self.region, self.rows, self.columns)

    def locate_sql(self, lon: str, lat: str) -> SqlKey | None:
        """The same through SQL; None for a polygon or a CRS without a closed form."""
        key = self.raster.key_sql(lon, lat)
        return None if key is None else SqlKey(key, lambda keys: keys)
