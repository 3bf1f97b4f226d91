"""The sites and visits of Wang et al. (2022), section 6.1, and those at hand for its data sets.

Each data set is what lies in a box of about 40 x 30 km; its sites are the most visited venues, or the most visited
cells where it has positions and no venues, as many as in the paper's Table 2. A visit counts as one person, as the
paper's numbers of users do; of positions, as many as the paper's users are drawn once for all.

Deviation: the shared data have no New York of Foursquare; Tokyo stands in for it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.places import Places
from mapveil.geo.region import Region
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness
from reproductions.data import shared_file

Box = tuple[float, float, float, float]


class DataSet(NamedTuple):
    """What is read of one file."""

    name: str
    file: str
    box: Box  # west, south, east, north, degrees
    sites: int  # at most
    weight: str = "1"  # visits of a row, SQL
    step: tuple[float, float] | None = None  # width and height of a cell, degrees, where there are no venues
    people: int | None = None  # so many visits are drawn; all without
    paper: tuple[int, int] = (0, 0)  # sites and users of Table 2


class Scene(NamedTuple):
    """Sites, and how many people are at each. Not private."""

    name: str
    domain: Domain
    visits: IntArray  # shape (sites,)

    @property
    def people(self) -> int:
        """How many."""
        return int(self.visits.sum())

    @property
    def cells(self) -> IntArray:
        """The site of each person, shape (people,)."""
        return np.repeat(np.arange(self.visits.size), self.visits)


_GOWALLA: Final = "gowalla_us_user_venue_counts.parquet"
_FOURSQUARE: Final = "foursquare_us_user_venue_counts.parquet"

GOWALLA: Final = DataSet(
    "Gowalla, Austin", _GOWALLA, (-97.96, 30.165, -97.54, 30.435), 1738, "count", paper=(1738, 1_120_147)
)
GEOLIFE: Final = DataSet(
    "Geolife, Beijing",
    "geolife_beijing_15s.parquet",
    (116.125, 39.815, 116.595, 40.085),
    566,
    step=(0.0094, 0.0072),
    people=104_488,
    paper=(566, 104_488),
)
PORTO: Final = DataSet(
    "Taxis, Porto",
    "porto_taxi_1000trips_points.parquet",
    (-8.84, 41.02, -8.36, 41.29),
    374,
    step=(0.0036, 0.0027),
    people=34_438,
    paper=(374, 34_438),
)
FOURSQUARE: Final = DataSet(
    "Foursquare, Tokyo",
    "foursquare_tokyo_sequences.parquet",
    (139.50, 35.55, 139.94, 35.82),
    3202,
    paper=(3202, 701_528),
)

SETS: Final = (GOWALLA, GEOLIFE, PORTO, FOURSQUARE)
"""The paper's four, in its order."""

MERGED: Final = (FOURSQUARE, GOWALLA, GEOLIFE, PORTO)
"""The cities of Tables 13 and 14, in the order in which they are merged."""

BEYOND: Final = (
    DataSet("Foursquare, San Francisco", _FOURSQUARE, (-122.55, 37.60, -122.30, 37.90), 4096, "count"),
    DataSet("Foursquare, Los Angeles", _FOURSQUARE, (-118.45, 33.90, -118.05, 34.20), 4096, "count"),
    DataSet("Gowalla, Austin", _GOWALLA, (-97.96, 30.165, -97.54, 30.435), 1738, "count"),
    DataSet("Gowalla, New York", "gowalla_nyc_checkins.parquet", (-74.05, 40.65, -73.85, 40.85), 2000),
)
"""Four cities whose sites are venues: all of them in two, the most visited in two."""


def sites_sql(step: tuple[float, float] | None) -> str:
    """The columns x and y of a row's site: its venue, or the middle of its cell of ``step`` degrees."""
    if step is None:
        return "lon AS x, lat AS y"
    width, height = step
    return f"(FLOOR(lon / {width}) + 0.5) * {width} AS x, (FLOOR(lat / {height}) + 0.5) * {height} AS y"


@functools.lru_cache(maxsize=16)
def read_scene(shared: Path, data: DataSet) -> Scene:
    """Read the sites and visits of a data set."""
    lon, lat, visits = _most_visited(shared, data)
    if data.people is not None and data.people < visits.sum():
        generator = Randomness(1).child(f"people/{data.name}").generator()
        visits = generator.multivariate_hypergeometric(visits, data.people, method="marginals")
    return Scene(data.name, Domain(Places(lon, lat, Region.from_bbox(*data.box))), visits.astype(np.int64))


@functools.lru_cache(maxsize=8)
def merged_scene(shared: Path, sets: tuple[DataSet, ...]) -> Scene:
    """Several cities as one domain, with all their visits."""
    if not sets:
        raise ParameterError("no city is given; expected at least one")
    parts = [read_scene(shared, data) for data in sets]
    centres = [scene.domain.tiling.centres() for scene in parts]
    lon, lat = (np.concatenate([np.asarray(each) for each in axis]) for axis in zip(*centres, strict=True))
    boxes = np.array([data.box for data in sets])
    region = Region.from_bbox(*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0))
    visits = np.concatenate([scene.visits for scene in parts])
    name = f"{len(sets)} {'city' if len(sets) == 1 else 'cities'}"
    return Scene(name, Domain(Places(lon, lat, region)), visits)


def _most_visited(
    shared: Path, data: DataSet
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], IntArray]:
    import duckdb

    path = shared_file(shared, data.file)
    west, south, east, north = data.box
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT {sites_sql(data.step)}, SUM({data.weight}) AS visits FROM read_parquet(?) GROUP BY x, y "
            "HAVING x > ? AND y > ? AND x < ? AND y < ? ORDER BY visits DESC, x, y LIMIT ?",
            [str(path), west, south, east, north, data.sites],
        ).fetchnumpy()
    lon, lat = (np.asarray(found[name], dtype=np.float64) for name in ("x", "y"))
    if lon.size < 2:
        raise InputError(f"{path}: holds {lon.size} sites in {data.box}; expected two or more")
    return lon, lat, np.asarray(found["visits"], dtype=np.float64).astype(np.int64)
