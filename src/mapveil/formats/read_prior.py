"""Read a prior from a raster or from an earlier release of Mapveil."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from mapveil.formats.read_map import NOT_READ_BACK, NotAMap, read_map
from mapveil.geo.counts import read_raster
from mapveil.maps.density_map import DensityMap
from mapveil.maps.prior import Prior, file_digest
from mapveil_client.errors import InputError, require

_RASTERS: Final = (".npz", ".npy", ".tif", ".tiff")
_LICENCES: Final = ("licence", "license", "tifftag_copyright", "copyright", "rights")
"""Names, in lower case, of a raster's tags or of an archive's texts that state a licence."""

_LONGEST: Final = 200  # characters of a licence


def read_prior(path: str | PathLike[str]) -> Prior:
    """Read a prior: a public raster of amounts per cell, or a map that Mapveil released. Run by: whoever estimates.

    Cells of a raster without data count as empty. Its values may have any unit, since only their ratios count.

    Parameters
    ----------
    path : path-like
        A raster (.npz, .npy or .tif, see :func:`mapveil.geo.counts.read_counts`), whose user states by giving it that
        it is public; or a map that Mapveil wrote (.tif, .parquet, .geojson, .gpkg or .csv).

    Raises
    ------
    InputError
        No such file; a table of locations, which is not public; values that are negative or infinite; or no people.
    MissingExtra
        A GeoTIFF, without rasterio.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/census.npz"
    >>> np.savez(path, values=np.ones((4, 4)), west=-74.1, south=40.6, east=-73.8, north=40.9, licence="CC0")
    >>> read_prior(path).to_dict()["licence"]
    'CC0'
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: {'is a folder' if file.is_dir() else 'no such file'}; expected a prior")
    digest = file_digest(file)
    suffix = file.suffix.lower()
    try:
        if suffix not in (".npz", ".npy"):
            return Prior.of_map(read_map(file), name=file.name, digest=digest)
    except NotAMap:
        if suffix in NOT_READ_BACK:
            raise
        if suffix not in _RASTERS:
            raise InputError(
                f"{file}: a prior must be a raster ({', '.join(_RASTERS)}) or a map that Mapveil released, got "
                "neither: a table of locations is not public"
            ) from None
    values, grid = read_raster(file)
    return Prior(
        name=file.name, digest=digest, licence=_licence(file), values=values.reshape(-1), tiling=grid
    )


def as_prior(given: Prior | DensityMap | str | PathLike[str]) -> Prior:
    """The prior of a file or of a map; a prior as it is."""
    if isinstance(given, Prior):
        return given
    return Prior.of_map(given) if isinstance(given, DensityMap) else read_prior(given)


def _licence(file: Path) -> str | None:
    """The licence that a raster states."""
    if file.suffix.lower() in (".tif", ".tiff"):
        rasterio = require("rasterio", "geo")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(file) as opened:
                stated = {name.lower(): str(text) for name, text in opened.tags().items()}
    elif file.suffix.lower() == ".npz":
        with np.load(file, allow_pickle=False) as archive:
            texts = {name: archive[name] for name in archive.files if name.lower() in _LICENCES}
        stated = {name.lower(): str(text) for name, text in texts.items() if text.ndim == 0}
    else:
        return None
    found = next((stated[name] for name in _LICENCES if stated.get(name, "").strip()), None)
    return None if found is None else " ".join(found.split())[:_LONGEST]
