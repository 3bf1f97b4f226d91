"""Utility site by site and by distance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mapveil as mv
from mapveil.local.estimators.site_metrics import utility
from mapveil.metrics.metrics import kl
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def places(sites: int = 60) -> Domain:
    generator = np.random.default_rng(7)
    lon, lat = generator.uniform(-74.0, -73.92, sites), generator.uniform(40.70, 40.82, sites)
    return Domain(mv.Places(lon, lat, REGION))


def two(size: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return generator.dirichlet(np.ones(size)), generator.dirichlet(np.ones(size))


def test_single_sites_are_the_usual_metrics_and_one_square_is_nothing() -> None:
    domain = places()
    p, q = two(domain.size)
    made = utility(domain, 7 * p, 3 * q, scales_m=(0, 1e6))
    single, whole = made.scales
    assert (single.areas, whole.areas) == (60, 1)
    assert single.l1 == pytest.approx(np.abs(p - q).sum())
    assert single.kl == pytest.approx(kl(p, q))
    assert whole.l1 == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(made.error, q - p)


def test_nested_squares_lose_distance() -> None:
    domain = places()
    p, q = two(domain.size)
    scales = utility(domain, p, q, scales_m=(0, 500, 1000, 2000, 4000, 8000)).scales
    for finer, coarser in itertools.pairwise(scales):
        assert coarser.l1 <= finer.l1 + 1e-12
        assert coarser.kl <= finer.kl + 1e-9
        assert coarser.areas <= finer.areas


def test_squares_are_those_of_a_slow_count() -> None:
    domain = places(25)
    p, q = two(25)
    x, y = domain.plane
    boxes: dict[tuple[int, int], float] = {}
    for i in range(25):
        key = (int((x[i] - x.min()) // 1500), int((y[i] - y.min()) // 1500))
        boxes[key] = boxes.get(key, 0.0) + q[i] - p[i]
    scale = utility(domain, p, q, scales_m=(1500,)).scales[0]
    assert scale.areas == len(boxes)
    assert scale.l1 == pytest.approx(sum(abs(each) for each in boxes.values()))


def test_everybody_moved_by_one_way_is_that_far() -> None:
    domain = places()
    x, y = domain.plane
    p, q = np.zeros(60), np.zeros(60)
    p[3] = q[9] = 5.0
    far = np.hypot(x[3] - x[9], y[3] - y[9])
    # The network's ways are a little longer than the straight line.
    assert far * 0.99 <= utility(domain, p, q).emd_m <= far * 1.42
    assert utility(domain, p, p).emd_m == 0


def test_hits_are_the_part_of_the_fullest() -> None:
    domain = places(10)
    p = np.arange(10, 0, -1.0)
    q = p.copy()
    q[[0, 5]] = q[[5, 0]]
    made = utility(domain, p, q, top=(1, 2, 10, 11))
    assert made.hits == {1: 0.0, 2: 0.5, 10: 1.0}


@pytest.mark.parametrize(
    "change",
    [
        {"scales_m": (-1.0,)},
        {"scales_m": (float("nan"),)},
        {"top": (0,)},
        {"truth": np.zeros(10)},
        {"estimate": np.ones(9)},
        {"estimate": -np.ones(10)},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(change: dict) -> None:
    given = {"truth": np.ones(10), "estimate": np.ones(10), **change}
    with pytest.raises(ParameterError, match="must be"):
        utility(places(10), given.pop("truth"), given.pop("estimate"), **given)
