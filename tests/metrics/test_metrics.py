"""Every metric against its formula as a plain loop, its range, and what it does with empty maps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mapveil as mv
from mapveil.maps.density_map import DensityMap
from mapveil.metrics.emd import emd
from mapveil.metrics.metrics import METRICS, compare
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.errors import ParameterError

EPSILON = 2.2204460492503131e-16
PAIRS = st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda shape: st.tuples(
        *[arrays(np.float64, shape, elements=st.one_of(st.just(0.0), st.floats(0.01, 100)))] * 2
    )
)


def normalised(values):
    total = sum(values)
    return [v / total for v in values] if total > 0 else [1 / len(values)] * len(values)


def ranks(values):
    return [sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2 for v in values]


def correlation(t, e):
    n = len(t)
    t_mean, e_mean = sum(t) / n, sum(e) / n
    t_flat = max(t) - min(t) <= 1e-11 * max(map(abs, t), default=0)
    e_flat = max(e) - min(e) <= 1e-11 * max(map(abs, e), default=0)
    if t_flat or e_flat:
        return float(t_flat and e_flat)
    cross = sum((a - t_mean) * (b - e_mean) for a, b in zip(t, e, strict=True))
    return cross / math.sqrt(sum((a - t_mean) ** 2 for a in t) * sum((b - e_mean) ** 2 for b in e))


def slow(name, truth, estimate):
    """The metric as one reads it on paper."""
    t, e = [float(v) for v in truth.ravel()], [float(v) for v in estimate.ravel()]
    p, q = normalised(t), normalised(e)
    cells = range(len(t))
    some = [i for i in cells if t[i] != 0]
    either = [i for i in cells if t[i] != 0 or e[i] != 0]
    match name:
        case "mse":
            return sum((t[i] - e[i]) ** 2 for i in cells) / len(t)
        case "l1":
            return sum(abs(t[i] - e[i]) for i in cells)
        case "l2":
            return math.sqrt(sum((t[i] - e[i]) ** 2 for i in cells))
        case "kl":
            return sum(p[i] * math.log(p[i] / (q[i] + EPSILON) + EPSILON) for i in cells)
        case "jensen_shannon":
            m = [(p[i] + q[i]) / 2 for i in cells]
            return sum(sum(r[i] * math.log(r[i] / m[i]) for i in cells if r[i] > 0) / 2 for r in (p, q))
        case "similarity":
            return sum(min(p[i], q[i]) for i in cells)
        case "top_ten":
            top = sorted(cells, key=lambda i: -p[i])[:10]
            return sum(min(p[i], q[i]) for i in top) / sum(p[i] for i in top)
        case "density_mse":
            return sum((p[i] - q[i]) ** 2 for i in cells) / len(t)
        case "pearson":
            return correlation(t, e)
        case "spearman":
            return correlation(ranks(t), ranks(e))
        case "mape":
            if not some:
                return math.inf if any(e) else 0.0
            return sum(abs(t[i] - e[i]) / abs(t[i]) for i in some) / len(some)
        case "floored_mape":
            if not some:
                return math.inf if any(e) else 0.0
            least = min(t[i] for i in some)
            return sum(abs(t[i] - e[i]) / (t[i] or least) for i in cells) / len(t)
        case "smape":
            return sum(2 * abs(t[i] - e[i]) / (t[i] + e[i]) for i in either) / max(len(either), 1)
        case "maape":
            total = sum(math.atan(abs(t[i] - e[i]) / t[i]) for i in some)
            return (total + sum(math.pi / 2 for i in cells if t[i] == 0 and e[i] != 0)) / len(t)
        case "emd":
            return emd(truth, estimate)
    raise AssertionError(name)


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=60, deadline=None)
@given(pair=PAIRS)
def test_equals_the_formula(name, pair):
    assert METRICS[name](*pair) == pytest.approx(
        slow(name, *pair), rel=2e-4 if name == "emd" else 1e-9, abs=1e-9
    )


BEST = {name: 1.0 if row.higher_is_better else 0.0 for name, row in METRICS.items()}
RANGES = {
    "kl": (-1e-12, 40),
    "jensen_shannon": (0, math.log(2) + 1e-12),
    "similarity": (0, 1 + 1e-12),
    "top_ten": (0, 1 + 1e-12),
    "pearson": (-1, 1),
    "spearman": (-1, 1),
    "smape": (0, 2),
    "maape": (0, math.pi / 2),
    "emd": (0, 2),
}


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=30, deadline=None)
@given(pair=PAIRS)
def test_is_best_at_the_truth_and_in_its_range(name, pair):
    metric = METRICS[name]
    assert metric(pair[0], pair[0]) == pytest.approx(BEST[name], abs=1e-9)
    low, high = RANGES.get(name, (0, math.inf))
    found = metric(*pair)
    assert low <= found <= high
    assert found <= 1 + 1e-9 if metric.higher_is_better else found >= -1e-12


@pytest.mark.parametrize("name", ["kl", "jensen_shannon", "similarity", "pearson", "spearman", "emd"])
def test_does_not_depend_on_the_scale(name):
    rng = np.random.default_rng(1)
    p, q = rng.random((2, 9, 9))
    assert METRICS[name](p, q) == pytest.approx(METRICS[name](1e6 * p, 1e-6 * q), rel=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_orders_a_near_and_a_far_estimate(name):
    rng = np.random.default_rng(2)
    truth = rng.gamma(0.5, size=(16, 16))
    near, far = truth * rng.uniform(0.9, 1.1, truth.shape), truth[::-1]
    metric = METRICS[name]
    assert (metric(truth, near) > metric(truth, far)) == metric.higher_is_better


EMPTY, UNIFORM, POINT = np.zeros((2, 2)), np.ones((2, 2)), np.array([[4.0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("name", "truth", "estimate", "expected"),
    [
        ("pearson", UNIFORM, UNIFORM * 3, 1.0),
        ("pearson", UNIFORM, POINT, 0.0),
        ("pearson", np.full((3, 3), 0.1) + 1e-18, np.eye(3), 0.0),
        ("spearman", EMPTY, EMPTY, 1.0),
        ("spearman", EMPTY, POINT, 0.0),
        ("kl", EMPTY, UNIFORM, 0.0),
        ("kl", POINT, POINT[::-1], 52 * math.log(2)),
        ("similarity", EMPTY, UNIFORM, 1.0),
        ("similarity", POINT, POINT[::-1], 0.0),
        ("jensen_shannon", POINT, POINT[::-1], math.log(2)),
        ("mape", EMPTY, EMPTY, 0.0),
        ("mape", EMPTY, POINT, math.inf),
        ("floored_mape", EMPTY, EMPTY, 0.0),
        ("floored_mape", EMPTY, POINT, math.inf),
        ("floored_mape", POINT, UNIFORM, 0.375),
        ("smape", EMPTY, EMPTY, 0.0),
        ("smape", EMPTY, POINT, 2.0),
        ("maape", EMPTY, POINT, math.pi / 8),
        ("emd", EMPTY, UNIFORM, 0.0),
        ("emd", POINT, POINT[::-1], 0.5),
    ],
)
def test_empty_and_constant_maps(name, truth, estimate, expected):
    assert METRICS[name](truth, estimate) == pytest.approx(expected, abs=1e-12, rel=1e-4)


def test_compare_takes_all_or_some():
    p, q = np.random.default_rng(3).random((2, 6, 6))
    everything = compare(p, q)
    assert list(everything) == list(METRICS)
    assert compare(p, q, ["kl", "l1"]) == {"kl": everything["kl"], "l1": everything["l1"]}
    with pytest.raises(ParameterError, match=r"must be one of mse.*, got 'L3'"):
        compare(p, q, ["L3"])


@pytest.mark.parametrize("name", METRICS)
def test_unusable_maps_are_refused(name):
    with pytest.raises(ParameterError, match="shapes"):
        METRICS[name](np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ParameterError, match="inf"):
        METRICS[name](np.ones((2, 2)), np.full((2, 2), np.inf))


def test_huge_values_stay_finite():
    p, q = np.random.default_rng(4).random((2, 4, 4)) * 1e300
    assert METRICS["similarity"](p, q) == pytest.approx(METRICS["similarity"](p / 1e300, q / 1e300))
    assert METRICS["pearson"](p, q) == pytest.approx(METRICS["pearson"](p / 1e300, q / 1e300))


def released(tiling, values=None):
    values = np.ones(tiling.size) if values is None else values
    promise = Guarantee(
        model=TrustModel.CURATOR,
        neighbours=Neighbouring.ADD_OR_REMOVE,
        epsilon=Fraction(1),
        adversary=Adversary.RELEASE,
    )
    return DensityMap(np.asarray(values, dtype=np.float64), tiling, promise, "test")


REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_maps_of_a_quadtree_equal_their_rasters():
    tree = mv.Quadtree(REGION, depth=4)
    rng = np.random.default_rng(5)
    p, q = rng.random((2, tree.size))
    lattice = tree.lattice()
    found = compare(released(tree, p), released(tree, q))
    expected = compare(lattice.to_square(p), lattice.to_square(q))
    assert found == pytest.approx(expected, rel=2e-4)


def test_negative_estimates_of_a_map_count_as_zero_in_a_distribution():
    grid = mv.Grid(REGION, rows=2, columns=3)
    p, q = np.arange(6.0), np.array([-3.0, 1, 2, -0.5, 4, 5])
    found = compare(released(grid, p), released(grid, q), ["kl", "similarity", "emd"])
    shape = (2, 3)
    assert found == pytest.approx(
        compare(p.reshape(shape), np.maximum(q, 0).reshape(shape), ["kl", "similarity", "emd"]), rel=2e-4
    )


def test_maps_of_other_tilings_are_refused():
    a, b = mv.Grid(REGION, rows=2, columns=3), mv.Grid(REGION, rows=3, columns=2)
    with pytest.raises(ParameterError, match="different tilings"):
        compare(released(a), released(b))
