"""Small domains and every mechanism on them, for the laws that all of them keep."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mapveil as mv
from mapveil.geo.tiling import Tiling
from mapveil.local.randomizers.disk_area import DiskArea
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing
from mapveil.local.randomizers.planar_laplace import PlanarLaplace
from mapveil.local.randomizers.staircase_response import StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection
from mapveil.local.randomizers.unary_encoding import UnaryEncoding
from mapveil_client.local.domain import Domain

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def scattered(sites: int, seed: int = 0) -> mv.Places:
    """Sites in clusters, as places are."""
    generator = np.random.default_rng(seed)
    middle = generator.uniform([-74.00, 40.72], [-73.93, 40.80], (5, 2))[generator.integers(0, 5, sites)]
    place = middle + generator.normal(0, 0.006, (sites, 2))
    return mv.Places(place[:, 0], place[:, 1], REGION)


TILINGS: dict[str, Tiling] = {
    "square": mv.Quadtree(REGION, depth=2),
    "oblong": mv.Grid(REGION, rows=3, columns=7),
    "scattered": scattered(23),
    "two": mv.Grid(REGION, rows=1, columns=2),
}
SYMBOLS = {
    "grr": GeneralizedRandomizedResponse,
    "srr": StaircaseResponse,
    "hr": HadamardResponse,
    "olh": LocalHashing,
    "olh-h": HierarchicalHashing,
    "disk": DiskArea,
    "planar-laplace": PlanarLaplace,
}
SETS = {"unary": UnaryEncoding, "subset": SubsetSelection}


def all_sets(sites: int) -> np.ndarray:
    """Every set of so many sites as bits, shape (2**sites, sites)."""
    return np.array(list(itertools.product([False, True], repeat=sites)))


def set_law(randomizer) -> np.ndarray:
    """The probability of every set from every site: the slow, obvious oracle, shape (sites, 2**sites)."""
    d = randomizer.size
    sets = all_sets(d)
    law = np.empty((d, len(sets)))
    for x in range(d):
        if hasattr(randomizer, "chances"):
            p = np.full(d, randomizer.other)
            p[x] = randomizer.held
            law[x] = np.where(sets, p, 1 - p).prod(axis=1)
        else:
            right = sets.sum(axis=1) == randomizer.subset
            weight = np.where(sets[:, x], randomizer.weights.more, randomizer.weights.less) * right
            law[x] = weight / weight.sum()
    return law


def chi_square_excess(counts: np.ndarray, law: np.ndarray) -> float:
    """How many standard deviations Pearson's statistic is above its mean, over all rows together."""
    expected = counts.sum(axis=1, keepdims=True) * law
    # Rare outcomes are put together, so that every class has some.
    rare = expected < 10
    total, freedom = 0.0, 0
    for row, many, few in zip(counts, expected, rare, strict=True):
        seen = np.append(row[~few], row[few].sum())
        wanted = np.append(many[~few], many[few].sum())
        kept = wanted > 1
        total += float((np.square(seen - wanted)[kept] / wanted[kept]).sum())
        freedom += int(kept.sum()) - 1
    return (total - freedom) / np.sqrt(2 * max(freedom, 1))


@pytest.fixture(params=TILINGS, ids=str)
def domain(request: pytest.FixtureRequest) -> Domain:
    return Domain(TILINGS[request.param])


@pytest.fixture(params=[Fraction(1, 2), Fraction(1), Fraction(3)], ids=lambda e: f"epsilon {float(e):g}")
def epsilon(request: pytest.FixtureRequest) -> Fraction:
    return request.param
