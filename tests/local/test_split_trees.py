"""Users divided over trees of sites, against the same division box by box."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.split_trees import SplitTrees, site_tree, usual_concentration
from mapveil_client.local.domain import Domain

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def places(sites: int) -> Domain:
    generator = np.random.default_rng(sites)
    lon, lat = generator.uniform(-74.0, -73.92, sites), generator.uniform(40.70, 40.82, sites)
    return Domain(mv.Places(lon, lat, REGION))


def slowly(domain: Domain, number: int, users: np.ndarray, unevenness: np.ndarray) -> np.ndarray:
    """The formula of the module's header, one box after another."""
    made = np.zeros(domain.size)
    for turn in range(number):
        order = site_tree(domain.plane, turn * math.pi / 2 / number).order

        def divide(first: int, size: int, whole: float, level: int, order: np.ndarray = order) -> None:
            if size == 1:
                made[order[first]] += whole
                return
            one = size // 2
            r = one / size
            k = 2 * usual_concentration(domain, np.array([float(size)]))[0] / unevenness[level] + 1
            held = users[order[first : first + size]].sum()
            theta = (users[order[first : first + one]].sum() + k * r) / (held + k)
            divide(first, one, whole * theta, level + 1)
            divide(first + one, size - one, whole * (1 - theta), level + 1)

        divide(0, domain.size, 1.0, 0)
    return made / made.sum()


@pytest.mark.parametrize(
    "domain",
    [
        *(places(sites) for sites in (2, 3, 5, 64, 65, 101, 127, 128, 700)),
        Domain(mv.Grid(REGION, rows=7, columns=9)),
    ],
    ids=lambda domain: f"{domain.tiling.spec} {domain.size}",
)
@pytest.mark.parametrize("number", [1, 3])
def test_all_trees_at_once_divide_as_box_by_box(domain: Domain, number: int) -> None:
    trees = SplitTrees(domain, number)
    generator = np.random.default_rng(1)
    users = generator.gamma(0.3, 20, domain.size) * (generator.random(domain.size) < 0.6)
    for unevenness in (np.ones(trees.levels), generator.uniform(0.1, 5, trees.levels)):
        trees.unevenness[:] = unevenness
        wanted = slowly(domain, number, users, unevenness)
        np.testing.assert_allclose(trees.smooth(users), wanted, rtol=1e-11)


@pytest.mark.parametrize("sites", [2, 3, 33, 64])
def test_divisions_are_of_the_first_trees_boxes(sites: int) -> None:
    domain = places(sites)
    trees = SplitTrees(domain, 2)
    tree = site_tree(domain.plane, 0.0)
    p = np.random.default_rng(2).dirichlet(np.ones(sites))
    for level in range(trees.levels):
        boxes = [
            (first, size)
            for first, size in zip(*(part.tolist() for part in tree.levels[level]), strict=True)
            if size > 1
        ]
        at = trees.divisions(p, level)
        parts = [p[tree.order[first : first + size]].sum() for first, size in boxes]
        halves = [p[tree.order[first : first + size // 2]].sum() for first, size in boxes]
        np.testing.assert_allclose(at.fraction, parts)
        np.testing.assert_allclose(at.half, np.array(halves) / parts)
        np.testing.assert_allclose(at.even_half, [size // 2 / size for _, size in boxes])
