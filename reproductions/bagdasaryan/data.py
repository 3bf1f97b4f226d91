"""The data of the reproduction of Bagdasaryan et al. (2022): pictures of density read as people, and Tokyo's visits.

Manhattan is the paper's own picture. Lagos and Mayotte are not at hand; three other public rasters stand for them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mapveil.geo.counts import Counts, read_counts
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.read_points import read_points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil_client.arrays import FloatArray
from mapveil_client.contribution import Devices
from mapveil_client.errors import InputError
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness
from reproductions.data import shared_file

MANHATTAN: Final = "Manhattan"
TOKYO: Final = "Tokyo"

IMAGES: Final = {
    MANHATTAN: "manhattan_luminosity_1024.npz",
    "Singapore": "population_singapore_100m.npz",
    "Massachusetts": "population_density_massachusetts_500m.npz",
    "Madagascar": "population_madagascar_5km.npz",
}
"""Rasters whose every unit of brightness, population or density is read as one user at one place."""

PAPER_USERS: Final = 54_599_988
"""Users that the paper reads from its picture."""

TOKYO_DEPTH: Final = 6
_TOKYO_FILE: Final = "foursquare_tokyo_sequences.parquet"
_BUMP: Final = (200.0, 900.0, 150.0)


class Scene(NamedTuple):
    """People to be asked, and the map they make. Not private."""

    people: Counts | Devices
    tiling: Tiling
    plain: FloatArray  # users per cell of those people, without noise


class Tokyo(NamedTuple):
    """Visits of Tokyo's users on the paper's grid. Not private."""

    devices: Devices
    tiling: Quadtree
    visits: FloatArray  # all visits, per cell: the truth of the paper
    users: FloatArray  # each user counts 1, per cell: what is asked for
    homes: FloatArray  # each user at the place visited most, per cell


@lru_cache(maxsize=len(IMAGES))
def read_image(shared: Path, name: str) -> Counts:
    """One of :data:`IMAGES` as counts of users."""
    return read_counts(shared_file(shared, IMAGES[name]))


@lru_cache(maxsize=1)
def read_tokyo(shared: Path) -> Tokyo:
    """The check-ins of Foursquare's Tokyo users on 64 x 64 cells of their own box, as the paper cuts them."""
    points = read_points(shared_file(shared, _TOKYO_FILE))
    found = points.arrays()
    box = found.lon.min(), found.lat.min(), found.lon.max(), found.lat.max()
    tiling = Quadtree(Region.from_bbox(*(float(edge) for edge in box)), TOKYO_DEPTH)
    devices = devices_of(Points.from_arrays(found.users, found.lon, found.lat, source=TOKYO), tiling)
    if devices.starts is None or devices.weights is None:
        raise AssertionError("devices of a table come with their places and weights")
    whose, weight = devices.device(), devices.weights.astype(np.float64)
    # A quadtree's cells are its sites.
    visits = np.bincount(devices.sites, weight, tiling.size).astype(np.float64)
    share = weight / np.bincount(whose, weight)[whose]
    order = np.lexsort((-devices.weights, whose))
    homes = devices.sites[order][np.unique(whose[order], return_index=True)[1]]
    return Tokyo(
        devices,
        tiling,
        visits,
        np.bincount(devices.sites, share, tiling.size).astype(np.float64),
        np.bincount(homes, minlength=tiling.size).astype(np.float64),
    )


def sample_counts(counts: Counts, users: int | None, rng: np.random.Generator) -> Counts:
    """The counts of ``users`` people drawn without replacement, of all for ``None``."""
    if users is None:
        return counts
    there = int(counts.values.sum())
    if not 0 < users <= there:
        raise InputError(f"{counts.source}: a sample of {users} users; expected 1 to {there}")
    drawn = rng.multivariate_hypergeometric(counts.values, users, method="marginals")
    return Counts(np.asarray(drawn, dtype=np.int64), counts.tiling, counts.source)


@lru_cache(maxsize=2)
def sampled(shared: Path, name: str, users: int | None, seed: int, trial: int) -> Scene:
    """A trial's people on one image: the same ones whatever is asked of them."""
    counts = read_image(shared, name)
    drawn = sample_counts(counts, users, Randomness(seed).child(f"sample/{name}/{users}/{trial}").generator())
    return Scene(drawn, drawn.tiling, drawn.values.astype(np.float64))


def evened(values: FloatArray, tiling: Tiling, level: int) -> FloatArray:
    r"""The map at a coarser level of the quadtree: each node's sum spread evenly over its cells.

    .. math:: f(x) = \frac{1}{a_v} \sum_{y \in v} f_0(y), \qquad x \in v

    where: :math:`f_0` is ``values``, v the node of level ``level`` over cell x, and :math:`a_v` its number of cells.
    """
    lattice = tiling.lattice()
    node = interleave(lattice.row, lattice.col) >> (2 * (lattice.depth - level))
    total, cells = np.bincount(node, values), np.bincount(node)
    return np.asarray(total[node] / cells[node])


def image_of(values: FloatArray, tiling: Tiling) -> FloatArray:
    """Values per cell as rows (from the north) and columns."""
    lattice = tiling.lattice()
    image = np.zeros((int(lattice.row.max()) + 1, int(lattice.col.max()) + 1), dtype=values.dtype)
    image[lattice.row, lattice.col] = values
    return image


def bump(tiling: Tiling) -> FloatArray:
    r"""The infected part of each cell of the paper's appendix B: a Gaussian about (200, 900), lower Manhattan.

    .. math:: \rho(x, y) = \exp\left(-\frac{(x - 200)^2 + (y - 900)^2}{2 \sigma^2}\right)

    where: x is the column and y the row from the north. The paper gives no width: :math:`\sigma` = 150 cells is our
    choice. The centre and the width are in 1024ths of the lattice, so that smaller rasters carry the same picture.
    """
    lattice = tiling.lattice()
    unit = (1 << lattice.depth) / 1024
    column, row, sigma = (value * unit for value in _BUMP)
    return np.asarray(np.exp(-((lattice.col - column) ** 2 + (lattice.row - row) ** 2) / (2 * sigma**2)))
