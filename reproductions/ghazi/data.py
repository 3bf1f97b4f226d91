"""The data of the reproduction of Ghazi et al. (2023): check-ins of busy cells, and ready grids.

Gowalla and Brightkite as the paper has them are not at hand whole. What stands for them here is stated in
:data:`CHECK_INS`: one file per service, so that nobody is counted twice.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.evaluation.sampled_people import UserShares
from mapveil.geo.counts import Counts
from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil_client.arrays import FloatArray, IntArray
from reproductions.data import shared_file

BOX: Final = (-135.0, 0.0, -60.0, 50.0)
"""West, south, east, north of the paper's "continental US", degrees."""

PARTS: Final = 300
"""The paper divides the box into this many rows and columns."""

CHECK_INS: Final = {
    "gowalla": ("gowalla_us_user_venue_counts.parquet", "count"),
    "brightkite": ("brightkite_us_last_checkin_per_user.parquet", "1"),
}
"""File and weight of a row: check-ins of a user at a venue, and each user's last check-in."""

GRIDS: Final = {
    "Gowalla, world": "dpbench_gowalla_256.npz",
    "Beijing taxis": "dpbench_beijing_taxi_start_256.npz",
    "San Francisco cabs": "dpbench_sf_cabs_start_256.npz",
    "Manhattan": "manhattan_luminosity_1024.npz",
    "Singapore": "population_singapore_100m.npz",
    "Massachusetts": "population_density_massachusetts_500m.npz",
    "Madagascar": "population_madagascar_5km.npz",
}
"""Ready rasters of counts: DPBench's and populations."""


class City(NamedTuple):
    """One cell of the partition. Not private."""

    name: str  # its middle, degrees
    region: Region
    check_ins: int
    users: int  # distinct
    code: int  # row * PARTS + column, row 0 the southmost


@dataclass(frozen=True, eq=False)
class CheckIns:
    """All check-ins in the box, shape (rows,), and the cell of the partition that each lies in."""

    user: IntArray  # dense over all services together
    lon: FloatArray  # degrees
    lat: FloatArray
    weight: FloatArray  # check-ins that the row stands for
    cell: IntArray  # row * PARTS + column of the partition, in equal degrees, as in the paper

    def cities(self, least_users: int) -> list[City]:
        """The cells with enough distinct users, the one with most check-ins first."""
        cells, index = np.unique(self.cell, return_inverse=True)
        check_ins = np.bincount(index, self.weight)
        visited = np.unique(self.cell * (int(self.user.max()) + 1) + self.user) // (int(self.user.max()) + 1)
        users = np.unique(visited, return_counts=True)[1]
        order = np.lexsort((cells, -check_ins))
        return [
            _city(int(cells[place]), int(check_ins[place]), int(users[place]))
            for place in order
            if users[place] >= least_users
        ]

    def shares(self, city: City, depth: int) -> UserShares:
        """Every user's distribution over the city's 2**depth rows and columns."""
        kept = self.cell == city.code
        points = Points.from_arrays(
            self.user[kept], self.lon[kept], self.lat[kept], weight=self.weight[kept], source=city.name
        )
        return UserShares.from_points(points, Quadtree(city.region, depth))


def _city(code: int, check_ins: int, users: int) -> City:
    west, south, east, north = BOX
    row, column = divmod(code, PARTS)
    width, height = (east - west) / PARTS, (north - south) / PARTS
    box = (
        west + column * width,
        south + row * height,
        west + (column + 1) * width,
        south + (row + 1) * height,
    )
    middle_lon, middle_lat = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    name = f"{middle_lat:.2f}N {-middle_lon:.2f}W"
    return City(name, Region.from_bbox(*box), check_ins, users, code)


@functools.lru_cache(maxsize=1)
def read_check_ins(shared: Path) -> CheckIns:
    """Read the check-ins that stand for Gowalla and Brightkite inside :data:`BOX`."""
    import duckdb

    west, south, east, north = BOX
    parts = []
    with duckdb.connect() as connection:
        for place, (name, weight) in enumerate(CHECK_INS.values()):
            path = str(shared_file(shared, name)).replace("'", "''")
            parts.append(
                f"SELECT {place} AS service, user_id, lon, lat, CAST({weight} AS DOUBLE) AS weight "
                f"FROM read_parquet('{path}') "
                f"WHERE lon >= {west} AND lon < {east} AND lat >= {south} AND lat < {north}"
            )
        found = connection.execute(
            "SELECT dense_rank() OVER (ORDER BY service, user_id) - 1 AS person, lon, lat, weight "
            f"FROM ({' UNION ALL '.join(parts)}) AS rows ORDER BY person, lon, lat, weight"
        ).fetchnumpy()
    lon, lat = np.asarray(found["lon"]), np.asarray(found["lat"])
    column = np.floor((lon - west) / (east - west) * PARTS).astype(np.int64)
    row = np.floor((lat - south) / (north - south) * PARTS).astype(np.int64)
    return CheckIns(
        np.asarray(found["person"], dtype=np.int64),
        lon,
        lat,
        np.asarray(found["weight"]),
        np.clip(row, 0, PARTS - 1) * PARTS + np.clip(column, 0, PARTS - 1),
    )


def read_grids(shared: Path, names: Sequence[str] = tuple(GRIDS)) -> dict[str, Counts]:
    """The ready grids as whole users per cell, without georeference (distances are in widths)."""
    grids = {}
    for name in names:
        path = shared_file(shared, GRIDS[name])
        with np.load(path) as content:
            values = np.nan_to_num(np.asarray(content["values"], dtype=np.float64))
        counts = np.rint(np.maximum(values, 0.0)).astype(np.int64)
        rows, columns = counts.shape
        tiling = Grid(Region.without_georeference(columns, rows), rows=rows, columns=columns)
        grids[name] = Counts(counts.ravel(), tiling, source=name)
    return grids
