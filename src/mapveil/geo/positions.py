"""Positions of cells on the ground, in metres: exactly in rows and columns wherever they are."""

import numpy as np

from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.plane import Degrees, EqualAreaCylinder


def positions_m(tiling: Tiling) -> tuple[FloatArray, FloatArray]:
    """The cells' centres in the region's plane, metres east and north; a :class:`ParameterError` without georeference.

    A plane that is not an equal-area cylinder is replaced by the one around the region's middle, unless the cells are
    in rows and columns in the former only. Cells that share a column (or row) of the tiling's lattice share x (or y)
    exactly, and evenly spaced ones are exactly so, whenever they are within a millionth of the spacing.
    """
    region = tiling.region
    if not region.georeferenced:
        raise ParameterError("the region has no georeference, so it has no distances in metres; use emd")
    centres, lattice = tiling.centres(), tiling.lattice()
    own = region.projection
    cylinder = own if isinstance(own, EqualAreaCylinder) else ground_cylinder(region)
    x, y = cylinder.project(centres.lon, centres.lat)
    columns, rows = _on_lines(x, lattice.col), _on_lines(y, lattice.row)
    if columns is not None and rows is not None:
        return columns, rows
    if own is cylinder or isinstance(own, Degrees):
        return x, y
    # The grid of another plane is a lattice there; its mean stretch brings its lengths to the ground.
    x, y = own.project(centres.lon, centres.lat)
    corners = [np.asarray(value) for value in region.bounds_m]
    ground = np.sqrt(own.box_area_m2(*corners) / (region.width_m * region.height_m))
    x, y = x * ground, y * ground
    columns, rows = _on_lines(x, lattice.col), _on_lines(y, lattice.row)
    return (x, y) if columns is None or rows is None else (columns, rows)


def ground_cylinder(region: Region) -> EqualAreaCylinder:
    """The equal-area cylinder around a region's middle, true to scale there."""
    west, south, east, north = region.bbox
    return EqualAreaCylinder((south + north) / 2, (west + east) / 2)


def _on_lines(position: FloatArray, line: IntArray) -> FloatArray | None:
    """Positions as one value for each line of a lattice, evenly spaced if they are; None if on no lines."""
    count = np.bincount(line)
    used = np.flatnonzero(count)
    mean = np.zeros(count.size)
    mean[used] = np.bincount(line, weights=position)[used] / count[used]
    if used.size == 1:
        return np.full(position.size, mean[used[0]]) if np.ptp(position) < 1e-3 else None
    near = 1e-6 * np.abs(np.diff(mean[used])).min()
    if np.abs(position - mean[line]).max() > near:
        return None
    spacing = (mean[used[-1]] - mean[used[0]]) / (used[-1] - used[0])
    even = (np.arange(count.size) - used[0]) * spacing
    if np.abs(even + mean[used[0]] - mean)[used].max() <= near:
        # Whole multiples of the spacing, so that gaps are so in floating point too.
        return np.asarray(even[line])
    return np.asarray(mean[line])
