"""Ready-made counts: a raster where each unit is one user at one location, and its readers."""

import hashlib
import json
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil_client.contribution import WEIGHT_UNITS
from mapveil_client.errors import InputError, require

_EDGES: Final = ("west", "south", "east", "north")
_DEGREES: Final = "EPSG:4326"
_ACCEPTED: Final = "expected a raster of counts (.npz, .npy, .tif)"
_LARGEST: Final = 1 << 34
"""Users in all; sums are kept in units of 2^-28 user as int64."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Users per cell, each user in exactly one cell; an alternative to ``Points`` everywhere.

    Parameters
    ----------
    values : ndarray of int64, shape (tiling.size,)
        Whole users per cell, none negative (an :class:`InputError` otherwise).
    tiling : Tiling
        The cells.
    source : str
        Name of the source in messages.
    """

    values: npt.NDArray[np.int64]
    tiling: Tiling
    source: str = "counts"

    def __post_init__(self) -> None:
        if self.values.shape != (self.tiling.size,):
            raise InputError(
                f"{self.source}: {self.values.shape} values for the {self.tiling.size} cells "
                f"of {self.tiling.spec}"
            )
        if self.values.dtype != np.int64 or (self.values.size and int(self.values.min()) < 0):
            raise InputError(f"{self.source}: counts must be whole numbers (int64), none negative")

    def fingerprint(self) -> bytes:
        """32 bytes that tell these counts on these cells from others, for the ledger."""
        cells = json.dumps(self.tiling.to_dict(), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(f"mapveil counts 1 {cells}\n".encode())
        digest.update(np.ascontiguousarray(self.values, dtype="<i8").data)
        return digest.digest()

    def __repr__(self) -> str:
        # No totals: a repr ends up in logs, and the total is data.
        return f"Counts({self.source}, {self.tiling.spec})"


def read_counts(
    source: str | PathLike[str],
    *,
    key: str | None = None,
    region: Region | None = None,
    crs: str | None = None,
) -> Counts:
    """Read a raster whose unit is one user at one place; row 0 is the northmost. Run by: the curator.

    Cells without a value (NaN, or the raster's own "no data") hold nobody. Values that are not whole are
    rounded by :func:`whole_users`.

    Parameters
    ----------
    source : path
        ``.npz`` with one two-dimensional array (or ``values``, or ``key``) and, where it is georeferenced, ``west``,
        ``south``, ``east``, ``north`` in units of ``crs`` (EPSG:4326 by default); ``.npy``; or ``.tif`` with one band,
        north up (extra ``geo``).
    key : str, optional
        Name of the array in the archive.
    region : Region, optional
        Box that the raster covers, instead of the file's.
    crs : str, optional
        Reference system of the file's edges, instead of the file's.

    Returns
    -------
    Counts
        On a :class:`Grid` of the raster's rows and columns, over a region without georeference where none is given.

    Raises
    ------
    InputError
        No such file, another format, no such array, or values that are negative or infinite.
    MissingExtra
        A GeoTIFF, without rasterio.
    """
    values, grid = read_raster(source, key=key, region=region, crs=crs)
    row, column = divmod(int(values.argmax()), values.shape[1])
    if values[row, column] > _LARGEST:
        raise InputError(
            f"{source}: {_place(row, column)} is {values[row, column]:g}; expected a number of users from 0 to 2^34"
        )
    if values.sum() > _LARGEST:
        raise InputError(f"{source}: more than 2^34 users in all; expected fewer")
    return Counts(whole_users(values).reshape(-1), grid, str(source))


def read_raster(
    source: str | PathLike[str],
    *,
    key: str | None = None,
    region: Region | None = None,
    crs: str | None = None,
) -> tuple[npt.NDArray[np.float64], Grid]:
    """Read a raster of amounts per cell as they stand in the file; see :func:`read_counts` for the parameters.

    Returns
    -------
    values : ndarray of float64, shape (rows, columns)
        Amount of every cell, 0 where there is no data, row 0 the northmost.
    grid : Grid
        The cells.
    """
    path = Path(source)
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; {_ACCEPTED}")
    suffix = path.suffix.lower()
    if suffix in (".npz", ".npy"):
        values, place = _from_numpy(path, key, crs)
    elif suffix in (".tif", ".tiff"):
        values, place = _from_geotiff(path, crs)
    else:
        raise InputError(f"{path}: {suffix or 'a name without a suffix'} is not known; {_ACCEPTED}")
    if region is not None and region.polygon is not None:
        raise InputError(f"{path}: region {region}: a raster covers a box; expected a box")
    real = _checked(values, path)
    rows, columns = real.shape
    where = region or place or Region.without_georeference(columns, rows)
    return real, Grid(where, rows=rows, columns=columns)


def whole_users(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    r"""Whole numbers nearest to real ones such that their sum is kept: the largest remainders are rounded up.

    .. math:: w_c = \lfloor v_c \rfloor + [\,c \text{ is among the } k \text{ largest remainders}\,], \qquad
              k = \lfloor \tfrac12 + \textstyle\sum_c (v_c - \lfloor v_c \rfloor) \rfloor

    where: :math:`v` is ``values``, finite, not negative and read to a millionth. Of equal remainders, those of the
    first cells count as larger. No value moves by one or more, and the sum by at most 1/2. One whole user more in a
    cell is exactly one more in the result, because the remainders stay: so rounding costs no privacy. The arithmetic
    is of whole millionths, since floats of 0.3 and 1.3 have different remainders. Run by: the curator.

    Examples
    --------
    >>> whole_users(np.array([0.25, 0.5, 0.25, 2.0])).tolist()
    [0, 1, 0, 2]
    """
    result, remainder = np.divmod(np.rint(values * WEIGHT_UNITS).astype(np.int64), WEIGHT_UNITS)
    up = (2 * int(remainder.sum()) + WEIGHT_UNITS) // (2 * WEIGHT_UNITS)
    result.reshape(-1)[np.argsort(-remainder.reshape(-1), kind="stable")[:up]] += 1
    return result


def _checked(values: npt.NDArray[Any], path: Path) -> npt.NDArray[np.float64]:
    if values.ndim != 2 or values.size == 0:
        raise InputError(f"{path}: an array of shape {values.shape}; expected two dimensions (rows, columns)")
    if values.dtype.kind not in "iufb":
        raise InputError(f"{path}: values of type {values.dtype}; expected numbers")
    real = np.asarray(values, dtype=np.float64)
    if np.isnan(real).all():
        raise InputError(f"{path}: no cell has data; expected amounts of at least 0")
    real = np.where(np.isnan(real), 0.0, real)
    bad = np.argwhere((real < 0) | np.isinf(real))
    if bad.size:
        row, column = (int(index) for index in bad[0])
        raise InputError(
            f"{path}: {_place(row, column)} is {real[row, column]:g}; expected an amount of at least 0"
        )
    return real


def _place(row: int, column: int) -> str:
    return f"row {row}, column {column} (from 0 in the north-west)"


def _from_numpy(path: Path, key: str | None, crs: str | None) -> tuple[npt.NDArray[Any], Region | None]:
    try:
        # Opened here, because NumPy leaves the file open when it is no archive.
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded, None
            with loaded as archive:
                arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: not a complete NumPy file of numbers ({_first_line(error)})") from error
    values = _chosen(arrays, key, path)
    if not all(edge in arrays for edge in _EDGES):
        return values, None
    try:
        west, south, east, north = (float(arrays[edge]) for edge in _EDGES)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: west, south, east and north must be one number each") from error
    return values, Region.from_bounds_in(crs or str(arrays.get("crs", _DEGREES)), west, south, east, north)


def _chosen(arrays: dict[str, npt.NDArray[Any]], key: str | None, path: Path) -> npt.NDArray[Any]:
    """The array asked for, or ``values``, or the only one of two dimensions."""
    names = ", ".join(repr(name) for name in arrays) or "none"
    if key is not None:
        if key not in arrays:
            raise InputError(f"{path}: no array {key!r}; its arrays are {names}")
        return arrays[key]
    if "values" in arrays:
        return arrays["values"]
    rasters = [array for array in arrays.values() if array.ndim == 2]
    if len(rasters) != 1:
        raise InputError(
            f"{path}: {len(rasters)} arrays of two dimensions among {names}; expected one, or key=NAME"
        )
    return rasters[0]


def _from_geotiff(path: Path, crs: str | None) -> tuple[npt.NDArray[Any], Region | None]:
    rasterio = require("rasterio", "geo")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(path) as raster:
                bands, transform = raster.count, raster.transform
                declared = raster.crs.to_wkt() if raster.crs is not None else None
                values = raster.read(1, masked=True).astype(np.float64).filled(np.nan)
    except rasterio.errors.RasterioError as error:
        raise InputError(f"{path}: not a complete GeoTIFF ({_first_line(error)})") from error
    if bands != 1:
        raise InputError(f"{path}: {bands} bands; expected a raster of one band")
    if crs is None and declared is None:
        return values, None
    if transform.b or transform.d or transform.e > 0 or transform.a < 0:
        raise InputError(f"{path}: the raster is turned or flipped; expected a north-up raster")
    rows, columns = values.shape
    west, north = transform.c, transform.f
    box = (west, north + rows * transform.e, west + columns * transform.a, north)
    return values, Region.from_bounds_in(crs or str(declared), *box)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
