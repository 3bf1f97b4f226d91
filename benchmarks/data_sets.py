"""The data sets of the benchmarks, each with a role that ``data_sets.csv`` fixes by name: tune, test or left out.

Code that chooses a default opens data by :func:`tuning_set` and :func:`tuning_city`, which refuse the test role, in a
sandbox where no other data file can be read (:mod:`benchmarks.tuning_sandbox`). A set that the table does not name has
the test role.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np

import mapveil as mv
from benchmarks.synthetic_sets import synthetic_raster, synthetic_table
from mapveil_client.errors import InputError, ParameterError

Role = Literal["tune", "test", "left out"]
LEFT_OUT: Final[Role] = "left out"
"""The role of files that are no set of their own: too few users, or the same people as another set."""

TABLE: Final = Path(__file__).with_name("data_sets.csv")

RASTERS: Final = (".npz", ".npy", ".tif", ".tiff")
TABLES: Final = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".geojson", ".geoparquet")

FIRST_TEST_SEED: Final = 1000
"""Synthetic cities of this seed and above have the test role."""

_LOW, _HIGH = 0.005, 0.995
"""Quantiles of longitude and of latitude between which the map of a table without a box lies. They are rounded outwards
to rows, so that the map holds every row of a table of at most 200."""


class DataSet(NamedTuple):
    """One row of the table, or a file that the table does not name."""

    name: str
    role: Role
    shape: str  # flat, skewed or hot spot; empty where nobody said
    file: str  # without suffix; "synthetic table" or "synthetic raster"
    box: tuple[
        float, ...
    ] = ()  # west, south, east, north, degrees; of a table without: the middle 99 % of its rows
    weight: str | None = None  # the column of visits of a row
    users: int = 0  # of a synthetic one
    seed: int = 0

    @property
    def synthetic(self) -> bool:
        """Whether it is made here and not read."""
        return self.file.startswith("synthetic ")


def data_sets() -> tuple[DataSet, ...]:
    """The table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            DataSet(
                row["name"],
                cast(Role, row["role"]),
                row["shape"],
                row["file"],
                tuple(map(float, row["box"].split())),
                row["weight"] or None,
                int(row["users"] or 0),
                int(row["seed"] or 0),
            )
            for row in csv.DictReader(file)
        )


def sets_of(path: Path) -> tuple[DataSet, ...]:
    """The data sets in a file: those that the table cuts from it, or the whole file in the test role."""
    stem = stem_of(path)
    cut = tuple(each for each in data_sets() if each.file == stem and not each.synthetic)
    return cut or (DataSet(stem, "test", "", stem),)


def stem_of(path: Path) -> str:
    """A file's name without its suffix (``.csv.gz`` is one)."""
    return path.name.removesuffix(".gz").rpartition(".")[0]


def files_in(folder: Path) -> list[Path]:
    """The tables and rasters of a folder by name; of files that differ in the suffix only, the first.

    Raises
    ------
    InputError
        No such folder, or none of its files is a table or a raster by its suffix.
    """
    folder = folder.expanduser()  # the Makefile quotes it
    if not folder.is_dir():
        raise InputError(
            f"{folder}: {'is a file' if folder.exists() else 'no such folder'}; expected a folder"
        )
    suffixes = (*RASTERS, *TABLES)
    found = {
        stem_of(path): path
        for path in sorted(folder.iterdir(), reverse=True)
        if path.is_file() and path.name.lower().endswith(suffixes)
    }
    if not found:
        raise InputError(f"{folder}: no data; expected tables or rasters ({', '.join(suffixes)})")
    return sorted(found.values())


def other_files(folder: Path) -> list[str]:
    """Names in a folder that :func:`files_in` passes over, hidden ones apart."""
    taken = {path.name for path in files_in(folder)}
    names = sorted(path.name for path in folder.expanduser().iterdir())
    return [each for each in names if each not in taken and each[0] != "."]


def asked_for(folder: Path | None, synthetic: bool, role: str | None) -> list[tuple[DataSet, Path | None]]:
    """The data sets of a folder that are not left out, and the synthetic ones, each with its file.

    Raises
    ------
    InputError
        There is no data set, or none of the role.
    """
    asked: list[tuple[DataSet, Path | None]] = []
    if folder is not None:
        asked += [(data, path) for path in files_in(folder) for data in sets_of(path)]
    if synthetic or folder is None:
        asked += [(data, None) for data in data_sets() if data.synthetic]
    chosen = [(data, path) for data, path in asked if data.role != LEFT_OUT and role in (None, data.role)]
    if not chosen:
        raise InputError(f"{folder}: no data set has the role {role or 'tune or test'}")
    return chosen


def tuning_set(name: str, folder: Path | None = None) -> mv.Points | mv.Counts:
    """Open a data set to choose defaults on; ``folder`` holds its file where it is not synthetic.

    Raises
    ------
    ParameterError
        The set has another role; a set that the table does not name has the test role.
    """
    found = next((each for each in data_sets() if each.name == name), None)
    if found is None or found.role != "tune":
        raise ParameterError(
            f"data set {name!r} must have the role tune in {TABLE.name}, got {found.role if found else 'test'}: "
            "nothing may be tuned on it"
        )
    if found.synthetic:
        return open_set(found, None)
    if folder is None:
        raise ParameterError(f"data set {name!r} needs the folder of its file {found.file}")
    path = next((path for path in files_in(folder) if stem_of(path) == found.file), None)
    if path is None:
        raise InputError(f"{folder}: no file {found.file}; expected one for data set {name!r}")
    return open_set(found, path)


def tuning_city(users: int, seed: int, *, region: mv.Region | None = None) -> mv.Points:
    """A synthetic city to choose defaults on (:func:`mapveil.synthetic.city`).

    Raises
    ------
    ParameterError
        The seed is one of the test role.
    """
    if seed >= FIRST_TEST_SEED:
        raise ParameterError(f"seed must be below {FIRST_TEST_SEED} for tuning, got {seed}: of the test role")
    return mv.synthetic.city(users=users, seed=seed, region=region)


def open_set(
    data: DataSet, path: Path | None, columns: Mapping[str, Any] | None = None
) -> mv.Points | mv.Counts:
    """Open a data set of either role; a table comes with its region. Not for code that tunes.

    Parameters
    ----------
    data : DataSet
        The data set.
    path : Path or None
        Its file; None for a synthetic one.
    columns : mapping, optional
        Arguments of :func:`mapveil.read_points` for a table that the repository's table does not name.

    Raises
    ------
    InputError
        The file cannot be read, or a table's rows cannot be used.
    """
    if path is None:
        make = synthetic_table if data.file == "synthetic table" else synthetic_raster
        return make(data.shape, data.users, data.seed)
    if path.name.lower().endswith(RASTERS):
        return mv.read_counts(path)
    if data.box:
        region = mv.Region.from_bbox(*data.box)
        return mv.read_points(path, weight=data.weight, region=region, on_bad_rows="drop")
    given = dict(columns or {})
    usable = mv.read_points(path, **{**given, "on_bad_rows": "drop"})
    return mv.read_points(path, region=_middle(usable), **given)


def _middle(points: mv.Points) -> mv.Region:
    """The box of the middle 99 % of longitudes and latitudes. Reads the data: for evaluation only."""
    rows = points.arrays()
    if rows.lon.size == 0:
        raise InputError(
            f"{points.source}: no row can be used; expected user, longitude and latitude in degrees"
        )
    west, south = (float(np.quantile(axis, _LOW, method="lower")) for axis in (rows.lon, rows.lat))
    east, north = (float(np.quantile(axis, _HIGH, method="higher")) for axis in (rows.lon, rows.lat))
    margin = 1e-4  # degrees, so that rows at one place have a box with an area
    return mv.Region.from_bbox(
        max(west - margin, -180.0),
        max(south - margin, -90.0),
        min(east + margin, 180.0),
        min(north + margin, 90.0),
    )
