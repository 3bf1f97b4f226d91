"""Measurements in the cells of a tiling: which cell each lies in, and how far every cell is from one."""

from __future__ import annotations

import numpy as np

from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.tiling import Tiling
from mapveil_client.arrays import FloatArray, IntArray


def located(measurements: Measurements, tiling: Tiling) -> IntArray:
    """The cell of each measurement, -1 outside; a privatized location may be nowhere on Earth."""
    lat, lon = measurements.rows[:, LAT], measurements.rows[:, LON]
    cell = np.full(len(lat), -1, dtype=np.int64)
    real = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
    cell[real] = tiling.locate(lon[real], lat[real])
    return cell


def nearest_m(measurements: Measurements, tiling: Tiling) -> FloatArray:
    """Distance of each cell's centre from the nearest measurement, metres along a chord of the sphere."""
    from scipy.spatial import cKDTree

    def chord(lat: FloatArray, lon: FloatArray) -> FloatArray:
        lat, lon = np.radians(lat), np.radians(lon)
        return 6371008.8 * np.stack(
            [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1
        )

    centres = tiling.centres()
    places = chord(measurements.rows[:, LAT], measurements.rows[:, LON])
    return np.asarray(cKDTree(places).query(chord(centres.lat, centres.lon))[0])


def cell_means(measurements: Measurements, tiling: Tiling) -> tuple[IntArray, FloatArray]:
    """Number and mean strength (dBm) of the measurements in each cell; NaN where there are none."""
    cell = located(measurements, tiling)
    inside = cell >= 0
    counts = np.bincount(cell[inside], minlength=tiling.size)
    sums = np.bincount(cell[inside], measurements.rows[inside, RSS], tiling.size)
    return counts, np.divide(sums, counts, out=np.full(tiling.size, np.nan), where=counts > 0)
