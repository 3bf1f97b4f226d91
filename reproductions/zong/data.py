r"""The people of Zong et al. (2023), section 4.1, and those at hand for its cities.

The synthetic sets are drawn from known densities: nine Gaussians on a square of side 2, and eight on an octagon of
radius 3, stretched along it by 1 and across by 0.16. The paper does not say which square is mapped: here it is what
lies within three standard deviations of the outermost means, [-2.5, 2.5] and [-6, 6] along each axis; whoever falls
outside is drawn again. ``b within 4`` and ``b within 5`` are the octagon on smaller squares, for comparison.

Erratum: the first entry of the octagon's covariances prints :math:`\cos^2(2i/4)`. Taken literally one of the eight is
no covariance (an eigenvalue is -0.28); the pattern of the others says :math:`\cos^2(\pi i/4)`, which is used.

The cities' own cuts of Gowalla and Brightkite cannot be had. Each row of :data:`CITIES` stands in for one, with the
paper's box and bandwidth (Table 1) where there are data inside that box.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.projection import METRES_PER_DEGREE
from mapveil.geo.region import Region
from mapveil.random_features.bandwidth import neighbour_bandwidth
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.random_features.query import EvenGrid
from mapveil_client.randomness.random import Randomness
from reproductions.data import shared_file

GRID: Final = 100
"""Points of the mapped grid along each axis, as in Figures 2 and 4."""

BANDWIDTH: Final = 0.55
"""h of both synthetic sets."""

SYNTHETIC: Final = ("a", "b", "b within 4", "b within 5")
"""The nine Gaussians, the octagon, and the octagon on smaller squares."""

_SIDES: Final = {"a": 2.5, "b": 6.0, "b within 4": 4.0, "b within 5": 5.0}
_NARROW: Final = 0.16
_NEIGHBOURS: Final = 500  # k of section 4.2.4 for real data
_LINE: Final = ((-10.0, 1.0), (0.0, 3.0), (5.0, 1.0))  # means and weights of Figure 3


class Scene(NamedTuple):
    """People, and what is asked of them. Not private."""

    name: str
    places: FloatArray  # (2, users), metres (or the paper's unit)
    grid: EvenGrid
    low: tuple[float, float]
    high: tuple[float, float]
    bandwidth: float
    degree: float  # metres in the paper's unit of length: 1, or those of a degree of latitude
    truth: FloatArray | None  # the density they are drawn from, at the grid's points, where it is known

    @property
    def users(self) -> int:
        """How many."""
        return int(self.places.shape[1])

    @property
    def side(self) -> float:
        """The shorter side of the region."""
        return min(high - low for low, high in zip(self.low, self.high, strict=True))

    def on_map(self, values: FloatArray) -> FloatArray:
        """Values at the grid's points as a picture: rows from north to south."""
        return np.asarray(values.reshape(self.grid.count).T[::-1])


class _Gaussians(NamedTuple):
    means: FloatArray  # (parts, 2)
    covariances: FloatArray  # (parts, 2, 2)


def _gaussians(name: str) -> _Gaussians:
    if name not in SYNTHETIC:
        raise ParameterError(f"no synthetic set is called {name!r}; expected one of {', '.join(SYNTHETIC)}")
    if name == "a":
        means = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)], dtype=np.float64)
        return _Gaussians(means, np.repeat(0.25 * np.eye(2)[None], 9, axis=0))
    angle = np.pi * np.arange(1, 9) / 4
    along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    outer = [part[:, :, None] * part[:, None, :] for part in (along, across)]
    return _Gaussians(3 * along, outer[0] + _NARROW**2 * outer[1])


def true_density(name: str, points: FloatArray) -> FloatArray:
    """The density that a synthetic set is drawn from at points of shape (2, points), shape (points,)."""
    parts = _gaussians(name)
    total = np.zeros(points.shape[1])
    for mean, covariance in zip(*parts, strict=True):
        off = points - mean[:, None]
        square = (off * np.linalg.solve(covariance, off)).sum(axis=0)
        total += np.exp(-0.5 * square) / (2 * math.pi * math.sqrt(np.linalg.det(covariance)))
    return np.asarray(total / parts.means.shape[0])


def synthetic_scene(name: str, users: int, rng: Randomness) -> Scene:
    """Draw people of a synthetic set, one of :data:`SYNTHETIC`."""
    parts, side, chance = _gaussians(name), _SIDES[name], rng.generator()
    roots = np.linalg.cholesky(parts.covariances)
    kept = np.zeros((2, 0))
    while kept.shape[1] < users:
        which = chance.integers(0, parts.means.shape[0], users)
        normal = chance.standard_normal((users, 2))
        drawn = (parts.means[which] + np.einsum("nij,nj->ni", roots[which], normal)).T
        kept = np.concatenate([kept, drawn[:, (np.abs(drawn) <= side).all(axis=0)]], axis=1)
    low, high = (-side, -side), (side, side)
    grid = _grid(low, high)
    truth = true_density(name, grid.points())
    return Scene(name, np.ascontiguousarray(kept[:, :users]), grid, low, high, BANDWIDTH, 1.0, truth)


def line_people(users: int, rng: Randomness) -> FloatArray:
    """The people of Figure 3, three Gaussians of deviation 2 on a line, shape (1, users)."""
    means, weights = np.array(_LINE).T
    chance = rng.generator()
    which = chance.choice(means.size, users, p=weights / weights.sum())
    return np.asarray(means[which] + 2 * chance.standard_normal(users))[None]


def line_density(points: FloatArray) -> FloatArray:
    """The density that the people of Figure 3 are drawn from."""
    means, weights = np.array(_LINE).T
    parts = np.exp(-0.5 * np.square((points[:, None] - means) / 2)) / (2 * math.sqrt(2 * math.pi))
    return np.asarray(parts @ (weights / weights.sum()))


class City(NamedTuple):
    """A cut of check-ins."""

    name: str
    file: str
    box: tuple[float, float, float, float]  # west, south, east, north
    times: str  # check-ins that a row stands for, in SQL
    degrees: float | None = None  # the bandwidth of Table 1, where this is its box
    what: str = "check-ins"


_LOS_ANGELES: Final = (-118.42099, 34.00617, -118.21599, 34.11246)
_TOKYO: Final = (139.75249, 35.65504, 139.77897, 35.70064)
_NEW_YORK: Final = (-74.03, 40.69, -73.90, 40.83)

CITIES: Final = (
    City("Gowalla, New York", "gowalla_nyc_checkins.parquet", _NEW_YORK, "1"),
    City(
        "Gowalla, San Francisco", "gowalla_us_user_venue_counts.parquet", (-122.45, 37.74, -122.38, 37.81), "count"
    ),
    City("Foursquare, Los Angeles", "foursquare_us_user_venue_counts.parquet", _LOS_ANGELES, "count", 7e-3),
    City("Foursquare, Washington", "foursquare_us_user_venue_counts.parquet", (-77.08, 38.86, -76.97, 38.94), "count"),
    City("Foursquare, Tokyo", "foursquare_tokyo_sequences.parquet", _TOKYO, "1", 1.4e-3, "visits"),
    City(
        "Brightkite, Los Angeles", "brightkite_us_last_checkin_per_user.parquet", _LOS_ANGELES, "1", 7e-3, "users"
    ),
    City("Brightkite, New York", "brightkite_us_last_checkin_per_user.parquet", _NEW_YORK, "1", 7e-3, "users"),
)  # fmt: skip
"""The last two have a row for each person and are small: their bandwidth is that of Los Angeles in either case."""


def read_city(shared: Path, city: City) -> tuple[FloatArray, FloatArray]:
    """Longitudes and latitudes of a cut, a row for each check-in: each is a virtual user, as in section 4.1.2."""
    import duckdb

    path = shared_file(shared, city.file)
    west, south, east, north = city.box
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT lon, lat, CAST({city.times} AS BIGINT) AS times FROM read_parquet(?) "
            "WHERE lon BETWEEN ? AND ? AND lat BETWEEN ? AND ? ORDER BY lon, lat, times",
            [str(path), west, east, south, north],
        ).fetchnumpy()
    times = np.asarray(found["times"], dtype=np.int64)
    return np.repeat(np.asarray(found["lon"]), times), np.repeat(np.asarray(found["lat"]), times)


def city_scene(shared: Path, city: City, seed: int) -> Scene:
    """A city's people on an even grid of metres, with Table 1's bandwidth or the paper's rule for it.

    The paper measures in degrees of either coordinate; here in metres, with a degree of latitude for the unit of its
    bandwidths and of the epsilons of its baseline.
    """
    lon, lat = read_city(shared, city)
    region = Region.from_bbox(*city.box)
    x, y = region.project(lon, lat)
    places = np.stack([x, y])
    x0, y0, x1, y1 = region.bounds_m
    if city.degrees is not None:
        bandwidth = city.degrees * METRES_PER_DEGREE
    else:
        rng = Randomness(seed).child(f"bandwidth/{city.name}")
        bandwidth = neighbour_bandwidth(places, rng, neighbours=_NEIGHBOURS)
    low, high = (x0, y0), (x1, y1)
    return Scene(city.name, places, _grid(low, high), low, high, bandwidth, METRES_PER_DEGREE, None)


def _grid(low: tuple[float, float], high: tuple[float, float]) -> EvenGrid:
    step = tuple((end - start) / (GRID - 1) for start, end in zip(low, high, strict=True))
    return EvenGrid(low, step, (GRID, GRID))
