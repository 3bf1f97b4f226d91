from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.tiling import Tiling
from mapveil.inference.nested_rounds import block_inference
from mapveil.mechanisms.adaptive_grid import AdaptiveGrid
from mapveil.trust.curator import Curator
from mapveil_client.errors import ParameterError

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
MUCH = 10**11


def some_sums(tiling: Tiling, users: int = 2000, seed: int = 0) -> UserSums:
    generator = np.random.default_rng(seed)
    weights = generator.pareto(0.7, tiling.size) + 1e-6
    return UserSums(generator.multinomial(users, weights / weights.sum()).astype(np.int64) * UNIT, tiling)


@pytest.mark.parametrize(
    ("users", "epsilon", "m1"),
    [(1, 1, 10), (16_000, 1, 10), (16_400, 1, 11), (1_000_000, 1, 80), (1_000_000, 0.1, 25), (0, 1, 10)],
)
def test_the_first_grid_follows_its_formula(users: int, epsilon: float, m1: int) -> None:
    assert AdaptiveGrid(epsilon=1).first_grid(users, epsilon) == m1


@given(noisy=st.floats(-1e4, 1e6), epsilon=st.floats(1e-3, 10), c=st.floats(0.1, 100))
def test_the_second_grids_follow_their_formula(noisy: float, epsilon: float, c: float) -> None:
    made = AdaptiveGrid(epsilon=1, c=c).second_grids(np.array([noisy]), epsilon, c / 2)
    slow = 1 if noisy <= 0 else math.ceil(math.sqrt(noisy * epsilon / (c / 2)))
    assert made.tolist() == [max(slow, 1)]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), coarse=st.floats(0.1, 5), fine=st.floats(0.1, 5))
def test_inference_equals_least_squares(seed: int, coarse: float, fine: float) -> None:
    generator = np.random.default_rng(seed)
    parts = generator.integers(1, 6, 4)
    parent = np.repeat(np.arange(4), parts)
    v, u = generator.normal(10, 5, 4), generator.normal(3, 5, parent.size)
    matrix = np.concatenate([np.eye(parent.size) * fine, (parent == np.arange(4)[:, None]) * coarse])
    slow = np.linalg.lstsq(matrix, np.concatenate([u * fine, v * coarse]), rcond=None)[0]
    made = block_inference(v, u, parent, coarse**-2, fine**-2)
    np.testing.assert_allclose(made, slow, atol=1e-8)


def test_inference_is_the_papers_formula_where_the_grid_is_whole() -> None:
    alpha, m2 = 0.3, 3
    v, u = np.array([20.0]), np.arange(9.0)
    weight = alpha**2 * m2**2 / ((1 - alpha) ** 2 + alpha**2 * m2**2)
    inferred = weight * 20 + (1 - weight) * u.sum()
    made = block_inference(v, u, np.zeros(9, dtype=np.int64), alpha**-2, (1 - alpha) ** -2)
    np.testing.assert_allclose(made, u + (inferred - u.sum()) / m2**2)


def blocks_slowly(lengths: int, parts: int) -> list[int]:
    return [position * parts // lengths for position in range(lengths)]


def test_without_noise_the_map_is_even_within_blocks_of_the_stated_sizes() -> None:
    tiling = mv.Grid(REGION, rows=40, columns=30)
    sums = some_sums(tiling)
    truth = sums.sums.reshape(40, 30) / UNIT
    # c is as large as the budget, so that the formulas ask for few parts although there is no noise.
    heat = AdaptiveGrid(epsilon=MUCH, trust=Curator(users=2000), c=float(MUCH)).release(sums, rng=1)
    values = heat.values.reshape(40, 30)
    m1 = max(10, math.ceil(math.ceil(math.sqrt(2000)) / 4))
    rows, columns = np.array(blocks_slowly(40, m1)), np.array(blocks_slowly(30, m1))
    blocks = 0
    for i in range(m1):
        for j in range(m1):
            inside = np.ix_(rows == i, columns == j)
            block, made = truth[inside], values[inside]
            m2 = max(1, math.ceil(math.sqrt(round(block.sum()) * 0.5 / 0.5)))
            down, across = (min(m2, size) for size in block.shape)
            r, c = (
                np.array(blocks_slowly(size, p)) for size, p in zip(block.shape, (down, across), strict=True)
            )
            for k in range(down):
                for n in range(across):
                    part = np.ix_(r == k, c == n)
                    np.testing.assert_allclose(made[part], block[part].mean(), atol=1e-6)
                    blocks += 1
    assert heat.measurements[0].noisy.size == m1 * m1
    assert heat.measurements[1].noisy.size == blocks


def test_the_measured_groups_nest() -> None:
    heat = AdaptiveGrid(epsilon=1).release(some_sums(mv.Grid(REGION, rows=300, columns=300)), rng=2)
    total, coarse, fine = heat.measurements
    assert not total.groups.any()
    pairs = np.unique(np.stack([fine.groups, coarse.groups]), axis=1)
    assert pairs.shape[1] == fine.noisy.size  # every part lies in one block
    assert coarse.noisy.size == 100


def test_a_declared_number_costs_nothing_and_a_noisy_one_its_share() -> None:
    sums = some_sums(mv.Quadtree(REGION, depth=6))
    declared = AdaptiveGrid(epsilon=1, trust=Curator(users=2000), alpha=0.25).release(sums, rng=3).guarantee
    assert [(s.purpose, float(s.epsilon)) for s in declared.shares] == [
        ("first grid", 0.25),
        ("second grid", 0.75),
    ]
    bought = AdaptiveGrid(epsilon=1, trust=Curator(users_share=0.1)).release(sums, rng=3).guarantee
    spent = [float(share.epsilon) for share in bought.shares]
    np.testing.assert_allclose(spent, [0.1, 0.45, 0.45], rtol=1e-9)


def test_the_true_number_of_users_is_never_read() -> None:
    # With a declared number, a tenfold crowd must not change the first grid.
    tiling = mv.Quadtree(REGION, depth=6)
    sizes = {
        AdaptiveGrid(epsilon=10, trust=Curator(users=10**6))
        .release(some_sums(tiling, users), rng=4)
        .measurements[0]
        .noisy.size
        for users in (10, 100_000)
    }
    assert sizes == {64 * 64}


def test_cells_where_nobody_can_be_stay_empty() -> None:
    outline = {
        "type": "Polygon",
        "coordinates": [[[-74.03, 40.69], [-73.90, 40.69], [-73.90, 40.83], [-74.03, 40.69]]],
    }
    from shapely.geometry import shape

    region = mv.Region.from_polygon(shape(outline))
    tiling = mv.Grid(region, rows=40, columns=50)
    inside = tiling.inside()
    assert 0 < inside.sum() < inside.size
    sums = np.where(inside, 10 * UNIT, 0)
    for mechanism in (AdaptiveGrid(epsilon=0.1), AdaptiveGrid(epsilon=MUCH)):
        values = mechanism.release(UserSums(sums, tiling), rng=5).values
        assert not values[~inside].any()
    np.testing.assert_allclose(values[inside], 10.0, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"alpha": 0}, {"alpha": 1}, {"c": 0}, {"c2": 0}])
def test_senseless_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        AdaptiveGrid(epsilon=1, **wrong)  # type: ignore[arg-type]
