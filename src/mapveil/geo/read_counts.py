"""Read a ready raster of counts: NumPy archives and GeoTIFF."""

from __future__ import annotations

import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mapveil.errors import InputError, require
from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region

__all__ = ["read_counts"]

_EDGES = ("west", "south", "east", "north")


def read_counts(
    source: str | PathLike[str], *, key: str | None = None, region: Region | None = None
) -> Counts:
    """Read a raster whose unit is one user at one place; row 0 is the northmost. Run by: the curator.

    Values that are not whole are rounded to the nearest whole number (halves to even) before anything
    else; NaN and a raster's own "no data" count as nobody.

    Parameters
    ----------
    source : path
        ``.npz`` with one two-dimensional array (or ``key``) and, where it has a place, ``west``, ``south``,
        ``east``, ``north`` and ``crs``; or ``.tif`` with one band.
    key : str, optional
        Name of the array in the archive; ``values``, or the only one.
    region : Region, optional
        Where the raster lies, instead of what the file says.

    Returns
    -------
    Counts
        On a ``Grid`` of the raster's rows and columns.

    Raises
    ------
    InputError
        No such file, another format, no such array, or values that are negative or infinite.
    """
    path = Path(source)
    if not path.is_file():
        raise InputError(f"{path}: no such file; a raster of counts (.npz, .tif) is accepted")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        values, place = _from_archive(path, key)
    elif suffix in (".tif", ".tiff"):
        values, place = _from_geotiff(path)
    else:
        raise InputError(
            f"{path}: the format of {suffix or 'a name without suffix'} is not known; accepted: .npz .tif"
        )
    whole = _whole_users(values, path)
    rows, columns = whole.shape
    where = region or place or Region.without_georeference(columns, rows)
    return Counts(whole.reshape(-1), Grid(where, rows=rows, columns=columns), str(path))


def _whole_users(values: npt.NDArray[Any], path: Path) -> npt.NDArray[np.int64]:
    if values.ndim != 2 or values.size == 0:
        raise InputError(
            f"{path}: an array of shape {values.shape}; two dimensions (rows, columns) are accepted"
        )
    if values.dtype.kind not in "iufb":
        raise InputError(f"{path}: values of type {values.dtype}; numbers are accepted")
    real = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    bad = np.argwhere((real < 0) | (real > 2**40))
    if bad.size:
        row, column = (int(index) for index in bad[0])
        raise InputError(
            f"{path}: row {row}, column {column} is {real[row, column]:g}; 0 to 2**40 is accepted"
        )
    return np.rint(real).astype(np.int64)


def _from_archive(path: Path, key: str | None) -> tuple[npt.NDArray[Any], Region | None]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive.files)
            rasters = [name for name in names if archive[name].ndim == 2]
            chosen = key or ("values" if "values" in names else rasters[0] if len(rasters) == 1 else None)
            if chosen is None or chosen not in names:
                raise InputError(
                    f"{path}: no array {chosen or 'values'!r} among {', '.join(names)}; name one by key"
                )
            values = archive[chosen]
            if not all(edge in names for edge in _EDGES):
                return values, None
            box = [float(archive[edge]) for edge in _EDGES]
            crs = str(archive["crs"]) if "crs" in names else "EPSG:4326"
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not readable as a NumPy archive ({error})") from error
    return values, Region.from_bounds_in(crs, *box)


def _from_geotiff(path: Path) -> tuple[npt.NDArray[Any], Region | None]:
    rasterio = require("rasterio", "geo")
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(path) as raster:
                values = raster.read(1, masked=True).astype(np.float64).filled(np.nan)
                crs, transform, bounds = raster.crs, raster.transform, raster.bounds
    except rasterio.errors.RasterioError as error:
        raise InputError(f"{path}: not readable as GeoTIFF ({error})") from error
    if crs is None:
        return values, None
    if transform.b or transform.d or transform.e > 0 or transform.a < 0:
        raise InputError(f"{path}: the raster is turned or flipped; north-up rasters are accepted")
    return values, Region.from_bounds_in(crs.to_wkt(), *bounds)
