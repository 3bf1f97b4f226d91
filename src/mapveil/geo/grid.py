"""Grid: equal rows and columns of a region."""

from dataclasses import dataclass
from functools import cached_property

from mapveil.geo.raster import Raster, RasterShapes
from mapveil.geo.region import Region
from mapveil_client.cells import GridCells


@dataclass(frozen=True)
class Grid(GridCells, RasterShapes):
    """Equal rows and columns of a region (:class:`~mapveil_client.cells.GridCells`), with SQL and outlines.

    Cells have the same area, unless the region's plane is not an equal-area one. With a polygon as region, the cells
    whose centre lies outside it keep their codes, but no location is in them (see :meth:`inside`).

    Parameters
    ----------
    region : Region
        Region to divide.
    rows, columns : int
        1 to 2**31 each.

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
