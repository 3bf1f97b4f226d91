"""Synthetic cities of three shapes, as tables and as rasters; the same seed gives the same city."""

from __future__ import annotations

from typing import Final

import numpy as np

import mapveil as mv
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import check

SHAPES: Final = ("flat", "skewed", "hot spot")
SIDE: Final = 128
"""Rows and columns of a raster."""

HOT: Final = 0.12
"""Fraction of the users of a hot-spot city who are at its one hot spot: about that of a stadium or an airport."""

_METRES: Final = 12.0  # spread of the rows at a place, about a receiver's error
_NEAR_HOME: Final = 300.0  # metres, spread of the rows of a user of the flat city
_PER_DEGREE: Final = 111_000.0


def synthetic_table(shape: str, users: int, seed: int) -> mv.Points:
    """A table of visits, about 8 of a user; in a hot-spot city some users are always at one place."""
    check(shape in SHAPES, "shape", f"one of {', '.join(SHAPES)}", shape)
    drawn, region = np.random.default_rng([seed, 1]), mv.Region.from_bbox(*mv.synthetic.SEA_BOX)
    west, south, east, north = region.bbox
    if shape == "flat":
        user = np.repeat(np.arange(users), 1 + drawn.poisson(7, users))
        home = drawn.uniform((west, south), (east, north), (users, 2))[user]
        at = home + drawn.normal(0.0, _NEAR_HOME / _PER_DEGREE, home.shape)
        inside = region.contains(at[:, 0], at[:, 1])
        lon, lat = np.where(inside[:, None], at, home).T
        return mv.Points.from_arrays(user, lon, lat, region=region, source=f"synthetic flat city {seed}")
    city = mv.synthetic.city(users=users, seed=seed, region=region)
    if shape == "skewed":
        return city
    rows = city.arrays()
    there = np.isin(rows.users, drawn.choice(np.unique(rows.users), round(HOT * users), replace=False))
    at = drawn.uniform(0.2, 0.8, 2)
    jitter = drawn.normal(0.0, _METRES / _PER_DEGREE, (2, rows.users.size))
    return mv.Points.from_arrays(
        rows.users,
        np.where(there, west + at[0] * (east - west) + jitter[0], rows.lon),
        np.where(there, south + at[1] * (north - south) + jitter[1], rows.lat),
        region=region,
        source=f"synthetic hot-spot city {seed}",
    )


def synthetic_raster(shape: str, users: int, seed: int) -> mv.Counts:
    """Users drawn from a random density on 128 x 128 cells of open sea."""
    check(shape in SHAPES, "shape", f"one of {', '.join(SHAPES)}", shape)
    drawn = np.random.default_rng([seed, 2])
    roughness = {"flat": 0.15, "skewed": 2.5, "hot spot": 0.6}[shape]
    density = np.exp(roughness * _smooth_field(drawn)).ravel()
    density /= density.sum()
    if shape == "hot spot":
        density *= 1 - HOT
        density[drawn.integers(density.size)] += HOT
    tiling = mv.Grid(mv.Region.from_bbox(*mv.synthetic.SEA_BOX), rows=SIDE, columns=SIDE)
    return mv.Counts(drawn.multinomial(users, density).astype(np.int64), tiling, f"synthetic raster {seed}")


def _smooth_field(drawn: np.random.Generator) -> FloatArray:
    """Gaussian noise added up over scales of 1 to 64 cells, of variance one."""
    field = np.zeros((SIDE, SIDE))
    for level in range(1, 8):
        block = SIDE >> level
        field += np.kron(drawn.normal(size=(1 << level, 1 << level)), np.ones((block, block))) / level
    return np.asarray((field - field.mean()) / field.std())
