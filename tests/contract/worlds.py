"""Tables that a release must not tell apart but by noisy sums: data sets of any kind, and adversarial neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import mapveil as mv
from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.methods import METHODS, Method
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Devices

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Quadtree(REGION, depth=4)
CLIENTS = 240
Rows = tuple[FloatArray, FloatArray, FloatArray]  # of one user: longitude, latitude, weight
PLANS = [method for method in METHODS if method.trust in ("central", "distributed", "operators")]
SMALL: Mapping[str, dict[str, Any]] = {"count-min": {"width": 64, "rows": 2}}
"""Options of methods whose sums are long by default."""

VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("central", "multiscale", {"users": 240}),
    ("central", "multiscale", {"depth": 2}),
    ("central", "multiscale", {"rounds": 1}),
    ("central", "adaptive", {"threshold": "equation-6"}),
    ("central", "privtree", {"theta": 20.0, "tree_share": 0.25}),
    ("central", "private-fourier-kde", {"bandwidth_m": 1500.0}),
    ("distributed", "adaptive", {"schedule": "even", "rounds": 3}),
    ("distributed", "multiscale", {"sample": 120, "redraw": True}),
    ("distributed", "uniform", {"shard_size": 50, "tolerated_dropout": 0.3, "corrupt": 0.1}),
    ("distributed", "laplace", {"rounding": "stochastic"}),
    ("distributed", "hierarchical", {"scale": 1}),
)
"""Parameters that take a plan or its trust model another way than their defaults do."""


class Row(NamedTuple):
    """A mechanism of the table, with its options."""

    method: Method
    options: Mapping[str, Any]

    def __str__(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.method.trust} {self.method.name} {options}".strip()


ROWS = [
    *(Row(method, SMALL.get(method.name, {})) for method in PLANS),
    *(
        Row(method, options)
        for trust, name, options in VARIANTS
        for method in PLANS
        if (method.trust, method.name) == (trust, name)
    ),
]


def tables_of_a_curator(tiling: Tiling) -> dict[str, UserSums]:
    """Exact sums that have nothing in common, not even the number of users."""
    generator = np.random.default_rng(1)
    crowd = np.zeros(tiling.size, dtype=np.int64)
    one, crowd[tiling.size // 5] = crowd.copy(), 70_000 * UNIT
    one[-1] = UNIT
    return {
        "scattered": UserSums(generator.integers(0, 9 * UNIT, tiling.size), tiling),
        "a crowd in one cell": UserSums(crowd, tiling),
        "one user": UserSums(one, tiling),
        "nobody": UserSums(np.zeros(tiling.size, dtype=np.int64), tiling),
    }


def locations_of_clients(tiling: Tiling) -> dict[str, Devices]:
    """Clients of one number, which is public, whose locations have nothing in common."""
    generator = np.random.default_rng(2)
    sites = 1 << (2 * tiling.lattice().depth)

    def clients(each: IntArray, locations: IntArray, weight: int) -> Devices:
        starts = np.concatenate([[0], np.cumsum(each)])
        return Devices(
            locations,
            starts,
            generator.integers(1, weight + 1, locations.size),
            generator.integers(0, 3, locations.size),
        )

    single, many = np.ones(CLIENTS, dtype=np.int64), generator.integers(0, 30, CLIENTS)
    return {
        "scattered": clients(many, generator.integers(-1, sites, int(many.sum())), 99),
        "a crowd in one cell": clients(single, np.full(CLIENTS, sites // 5), 1),
        "nobody": clients(single, np.full(CLIENTS, -1), 1),
    }


def adversarial_users(tiling: mv.Quadtree) -> dict[str, Rows]:
    """Rows of one user each, where contribution bounding is hardest."""
    lon, lat = tiling.centres()
    west, south, east, north = tiling.region.bbox
    ones = np.ones(tiling.size)
    border = (
        np.linspace(west, east, 1 + (1 << tiling.depth)),
        np.linspace(south, north, 1 + (1 << tiling.depth)),
    )
    ties = np.arange(7)
    return {
        "one row": (lon[:1], lat[:1], ones[:1]),
        "fifty rows in one cell": (np.full(50, lon[3]), np.full(50, lat[3]), np.ones(50)),
        "every cell": (lon, lat, ones),
        "three cells: shares that leave a remainder": (lon[:3], lat[:3], ones[:3]),
        "weights with equal remainders": (lon[ties], lat[ties], ties + 1.0),
        "a millionth beside a million": (lon[[2, 9]], lat[[2, 9]], np.array([1e-6, 1e6])),
        "shares just above whole units": (lon, lat, np.append(np.full(tiling.size - 1, 3.000001), 258.999745)),
        "on the borders of cells": (*border, np.ones(border[0].size)),
        "half outside": (np.append(lon[:8], np.full(8, 10.0)), np.append(lat[:8], np.full(8, 50.0)), np.ones(16)),
        "outside": (np.full(4, 10.0), np.full(4, 50.0), np.ones(4)),
    }  # fmt: skip


class Pair(NamedTuple):
    """Neighbouring exact sums of a curator: one user more or less."""

    name: str
    sums: IntArray
    neighbour: IntArray


def adversarial_pairs(tiling: mv.Quadtree) -> list[Pair]:
    """Each adversarial user added to a table; and, on sums, one user beside crowds that straddle thresholds."""
    users = adversarial_users(tiling)
    base = _table({"a": users["one row"], "b": users["every cell"]})
    before = user_sums(base, tiling).sums
    pairs = [
        Pair(name, before, user_sums(_table({"a": users["one row"], "b": users["every cell"], "c": rows}), tiling).sums)
        for name, rows in users.items()
    ]  # fmt: skip
    corners = np.array([0, tiling.size // 4, tiling.size // 2, 3 * tiling.size // 4])
    # PrivTree's tree costs most at a crowd some biases, 7 ln 4 / (3 epsilon), above the threshold (20 in one variant):
    # 55 users are one bias at a tree's epsilon of 1/17 and two at 2/17, which is noise 15 % small for 1/20 and 1/10.
    for crowd in (0, 1, 3, 6, 7, 12, 13, 19, 20, 26, 33, 55, 75, 100):
        sums = np.zeros(tiling.size, dtype=np.int64)
        sums[tiling.size // 3] = crowd * UNIT
        for name, cells in (("beside them", np.array([tiling.size // 3])), ("divided over the map", corners)):
            more = sums.copy()
            more[cells] += UNIT // cells.size
            pairs.append(Pair(f"{crowd} users in a cell and one {name}", sums, more))
    return pairs


def adversarial_table(tiling: mv.Quadtree) -> mv.Points:
    """Every adversarial user, and others; labels where a method asks for them."""
    users = adversarial_users(tiling)
    others = {f"user {i}": users["one row"] for i in range(CLIENTS - len(users))}
    return _table(users | others, label=True)


def adversarial_clients(tiling: mv.Quadtree) -> Devices:
    """The users of :func:`adversarial_table` as clients."""
    return devices_of(adversarial_table(tiling), tiling)


def _table(users: Mapping[str, Rows], *, label: bool = False) -> mv.Points:
    lon, lat, weight = (np.concatenate([rows[part] for rows in users.values()]) for part in range(3))
    who = np.repeat(list(users), [rows[0].size for rows in users.values()])
    labels = np.arange(lon.size) % 3 if label else None
    return mv.Points.from_arrays(who, lon, lat, weight=weight, label=labels)
