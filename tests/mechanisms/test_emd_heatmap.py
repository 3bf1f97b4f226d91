from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.tiling import Tiling
from mapveil.inference.tree_median import KeptTree, Masses
from mapveil.mechanisms.emd_heatmap import EmdHeatmap, Selection, select
from mapveil.trust.queries import Raster
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import level_members

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
MUCH = 10**11


def some_sums(tiling: Tiling, users: int = 500, seed: int = 0, power: float = 0.7) -> UserSums:
    generator = np.random.default_rng(seed)
    weights = generator.pareto(power, tiling.size) + 1e-6
    return UserSums(generator.multinomial(users, weights / weights.sum()).astype(np.int64) * UNIT, tiling)


def select_slowly(noisy: list[list[float]], members: list[list[int]], width: int) -> list[list[int]]:
    """Algorithm 2, lines 3 to 7, as it is printed, with Python lists."""
    kept = [[node for node, count in enumerate(members[0]) if count]]
    for values, count in zip(noisy[1:], members[1:], strict=True):
        children = [4 * node + digit for node in kept[-1] for digit in range(4) if count[4 * node + digit]]
        kept.append(sorted(sorted(children, key=lambda node: (-values[node], node))[:width]))
    return kept


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    width=st.integers(1, 25),
    first=st.integers(0, 2),
    levels=st.integers(1, 3),
    ties=st.booleans(),
)
def test_selection_equals_the_slow_one(seed: int, width: int, first: int, levels: int, ties: bool) -> None:
    generator = np.random.default_rng(seed)
    leaves = (generator.random(4 ** (first + levels - 1)) < 0.6).astype(np.int64)
    members = [leaves.reshape(4**level, -1).sum(axis=1) for level in range(first, first + levels)]
    noisy = [generator.integers(0, 3, m.size) if ties else generator.normal(size=m.size) for m in members]
    chosen = select([values.astype(float) for values in noisy], members, width)
    slow = select_slowly([v.tolist() for v in noisy], [m.tolist() for m in members], width)
    assert [nodes.tolist() for nodes in chosen.nodes] == slow
    for level, parents in enumerate(chosen.tree.parents):
        np.testing.assert_array_equal(chosen.nodes[level][parents], chosen.nodes[level + 1] // 4)
        for position, node in enumerate(slow[level]):
            left_out = [
                child
                for child in range(4 * node, 4 * node + 4)
                if members[level + 1][child] and child not in slow[level + 1]
            ]
            assert chosen.tree.open[level][position] == bool(left_out)


@pytest.mark.parametrize(("width", "q"), [(1, 0), (3, 0), (4, 1), (15, 1), (16, 2), (20, 2), (20_000, 7)])
def test_the_first_level_is_the_base_four_logarithm_of_the_width(width: int, q: int) -> None:
    assert EmdHeatmap(epsilon=1, width=width).first_level(12) == q
    assert EmdHeatmap(epsilon=1, width=width).first_level(0) == 0


def test_budgets_fall_by_the_decay_from_the_first_level_and_spend_everything() -> None:
    tiling = mv.Quadtree(REGION, depth=6)
    heat = EmdHeatmap(epsilon="1/3", decay=0.8).release(some_sums(tiling), rng=1)
    spent = [float(share.epsilon) for share in heat.guarantee.shares]
    assert [share.purpose for share in heat.guarantee.shares] == [f"level {i}" for i in range(2, 7)]
    np.testing.assert_allclose(np.array(spent[1:]) / spent[:-1], 0.8, rtol=1e-9)
    exact = sum((share.epsilon for share in heat.guarantee.shares), Fraction(0))
    assert Fraction(1, 3) - Fraction(1, 10**9) < exact <= Fraction(1, 3)
    assert [share.epsilon for share in heat.guarantee.shares] == [m.epsilon for m in heat.measurements]


def test_without_noise_a_sparse_map_comes_back_exactly() -> None:
    tiling = mv.Quadtree(REGION, depth=7)
    sums = np.zeros(tiling.size, dtype=np.int64)
    sums[np.random.default_rng(5).choice(tiling.size, 20, replace=False)] = np.arange(1, 21) * UNIT
    heat = EmdHeatmap(epsilon=MUCH).release(UserSums(sums, tiling), rng=1)
    np.testing.assert_allclose(heat.values, sums / UNIT, atol=1e-9)


def test_without_noise_left_out_mass_is_spread_over_the_left_out_cells_of_its_parent() -> None:
    tiling = mv.Quadtree(REGION, depth=1)
    sums = np.array([5, 1, 2, 2], dtype=np.int64) * UNIT
    heat = EmdHeatmap(epsilon=MUCH, width=1).release(UserSums(sums, tiling), rng=1)
    np.testing.assert_allclose(heat.values, [5, 5 / 3, 5 / 3, 5 / 3], atol=1e-9)


def densities_slowly(
    chosen: Selection, masses: Masses, members: tuple[npt.NDArray[np.int64], ...]
) -> dict[int, float]:
    """Users per cell of each leaf, one left-out child at a time."""
    depth = len(members) - 1
    found = dict.fromkeys(range(members[-1].size), 0.0)
    for level in range(depth):
        below = set(chosen.nodes[level + 1].tolist())
        for node, mass in zip(chosen.nodes[level].tolist(), masses.left_out[level], strict=True):
            free = [c for c in range(4 * node, 4 * node + 4) if c not in below and members[level + 1][c]]
            cells = sum(members[level + 1][c] for c in free)
            width = 4 ** (depth - level - 1)
            for child in free:
                for leaf in range(child * width, (child + 1) * width):
                    found[leaf] += mass / cells
    for node, mass in zip(chosen.nodes[-1].tolist(), masses.kept[-1], strict=True):
        found[node] += mass / members[-1][node]
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 20))
def test_the_map_is_the_reconstruction_of_what_was_measured(seed: int, width: int) -> None:
    """From the measurements a map carries, by the oracles alone, the same map comes out."""
    from mapveil.inference.tree_median import reconstruct

    tiling = mv.Grid(REGION, rows=7, columns=13)
    mechanism = EmdHeatmap(epsilon=1, width=width)
    heat = mechanism.release(some_sums(tiling, seed=seed), rng=seed)
    lattice = tiling.lattice()
    raster = Raster.of(lattice)
    q = mechanism.first_level(lattice.depth)
    members = level_members(raster.members)[q:]
    noisy = [np.zeros(held.size) for held in members]
    for values, held, made in zip(noisy, members, heat.measurements, strict=True):
        values[held > 0] = made.noisy  # nodes where nobody can be are not measured
    slow = select_slowly([v.tolist() for v in noisy], [m.tolist() for m in members], width)
    nodes = tuple(np.array(level, dtype=np.int64) for level in slow)
    parents = tuple(
        np.array([above.index(node // 4) for node in below], dtype=np.int64)
        for above, below in pairwise(slow)
    )
    is_open = tuple(
        np.array(
            [
                any(members[i + 1][c] and c not in slow[i + 1] for c in range(4 * n, 4 * n + 4))
                for n in slow[i]
            ]
        )
        for i in range(len(slow) - 1)
    )
    kept = tuple(values[level] for values, level in zip(noisy, nodes, strict=True))
    chosen = Selection(nodes, kept, KeptTree(parents, is_open))
    # Members of levels above q matter to nobody: leaves are counted from level q's nodes.
    found = densities_slowly(chosen, reconstruct(chosen.tree, kept), members)
    np.testing.assert_allclose(heat.values, [found[code] for code in raster.site], atol=1e-9)
    total = np.maximum(kept[0], 0).sum()
    assert heat.values.sum() == pytest.approx(total, rel=1e-9, abs=1e-9)


def test_a_grid_that_is_not_a_power_of_two_loses_nobody() -> None:
    tiling = mv.Grid(REGION, rows=300, columns=300)
    sums = some_sums(tiling)
    heat = EmdHeatmap(epsilon=MUCH).release(sums, rng=1)
    assert heat.values.sum() == pytest.approx(500)
    assert heat.values.shape == (90_000,)


def test_an_empty_reconstruction_is_said_and_even() -> None:
    tiling = mv.Quadtree(REGION, depth=3)
    empty = UserSums(np.zeros(64, dtype=np.int64), tiling)
    for seed in range(200):
        heat = EmdHeatmap(epsilon=1, width=1).release(empty, rng=seed)
        if not heat.values.any():
            break
    assert "empty" in heat.notes[0]
    np.testing.assert_allclose(heat.normalised(), 1 / 64)


def test_is_nearer_in_the_earth_movers_distance_than_the_baselines() -> None:
    from mapveil.metrics.emd import emd

    city = mv.synthetic.city(users=200, seed=2)
    tiling = mv.Quadtree(city.region, depth=5)
    lattice = tiling.lattice()
    from mapveil.engines import user_sums

    sums = user_sums(city, tiling)
    truth = lattice.to_square(sums.sums.astype(float))

    def distance(mechanism: mv.mechanisms.SumMechanism) -> float:
        return float(
            np.mean(
                [emd(truth, lattice.to_square(mechanism.release(sums, rng=s).normalised())) for s in range(4)]
            )
        )

    ours = distance(EmdHeatmap(epsilon=1))
    assert ours < 0.8 * distance(mv.mechanisms.LaplaceHistogram(epsilon=1))
    assert ours < 0.8 * distance(mv.mechanisms.ThresholdedHistogram(epsilon=1))


@pytest.mark.parametrize(
    "wrong",
    [{"width": 0}, {"width": 2.5}, {"width": True}, {"decay": 0.5}, {"decay": 1.1}, {"decay": float("nan")}],
)
def test_senseless_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        EmdHeatmap(epsilon=1, **wrong)  # type: ignore[arg-type]
