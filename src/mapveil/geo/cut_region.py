"""Cut a box down to the bins that hold people, from noisy sums over its columns and rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.region import Region


class Bins(NamedTuple):
    """First and last of a row of bins."""

    first: int
    last: int


def kept_bins(noisy: npt.NDArray[np.float64], threshold: float) -> Bins | None:
    """First and last bin above the threshold, with one bin of margin; None where there is none.

    Examples
    --------
    >>> kept_bins(np.array([0.0, 1.0, 9.0, 8.0, 0.0, 0.0]), 5.0)
    Bins(first=1, last=4)
    """
    above = np.flatnonzero(noisy > threshold)
    if above.size == 0:
        return None
    return Bins(max(int(above[0]) - 1, 0), min(int(above[-1]) + 1, noisy.size - 1))


def cut_region(region: Region, columns: Bins, rows: Bins, bins: int) -> Region:
    """The part of a box between two of its ``bins`` columns and two of its rows; row 0 is the northmost."""
    x0, y0, x1, y1 = region.bounds_m
    width, height = (x1 - x0) / bins, (y1 - y0) / bins
    xs = np.array([x0 + columns.first * width, x0 + (columns.last + 1) * width])
    ys = np.array([y1 - (rows.last + 1) * height, y1 - rows.first * height])
    lon, lat = region.unproject(xs, ys)
    return Region.from_bbox(float(lon[0]), float(lat[0]), float(lon[1]), float(lat[1]))
