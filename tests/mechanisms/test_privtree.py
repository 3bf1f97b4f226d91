from __future__ import annotations

import math
from collections import deque
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms import privtree
from mapveil.mechanisms.privtree import PrivTree
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.trust.queries import Raster
from mapveil_client.errors import ParameterError
from mapveil_client.level_encoding import level_members
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
MUCH = 10**11
TILINGS = {
    "quadtree": mv.Quadtree(REGION, depth=5),
    "oblong": mv.Grid(REGION, rows=9, columns=21),
    "one row": mv.Grid(REGION, rows=1, columns=13),
}


def some_sums(tiling: Tiling, users: int = 2000, seed: int = 0) -> UserSums:
    generator = np.random.default_rng(seed)
    weights = generator.pareto(0.5, tiling.size) + 1e-6
    return UserSums(generator.multinomial(users, weights / weights.sum()).astype(np.int64) * UNIT, tiling)


def grow_slowly(
    members: tuple[npt.NDArray[np.int64], ...],
    sums: tuple[npt.NDArray[np.int64], ...],
    epsilon: Fraction,
    theta: float,
    noise: deque[int],
) -> set[tuple[int, int]]:
    """Algorithm 2 of the paper with a queue and exact fractions, node by node."""
    lam = Fraction(7, 3) / epsilon * UNIT
    delta, bound = math.ceil(lam * Fraction(math.log(4))), round(theta * UNIT)
    leaves = set()
    queue = deque([(0, 0)])
    while queue:
        level, node = queue.popleft()
        biased = max(int(sums[level][node]) - level * delta, bound - delta)
        drawn = noise.popleft()
        if level < len(members) - 1 and biased + drawn > bound:
            queue.extend(
                (level + 1, child) for child in range(4 * node, 4 * node + 4) if members[level + 1][child]
            )
        else:
            leaves.add((level, node))
    return leaves


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(TILINGS)),
    epsilon=st.sampled_from([Fraction(1, 10), Fraction(1), Fraction(3)]),
    theta=st.sampled_from([0.0, 5.0, -2.0]),
    users=st.sampled_from([0, 30, 3000]),
    seed=st.integers(0, 2**32),
)
def test_grows_the_tree_of_the_slow_oracle(
    name: str, epsilon: Fraction, theta: float, users: int, seed: int
) -> None:
    tiling = TILINGS[name]
    drawn: deque[int] = deque()

    def recorded(count: int, epsilon: Fraction, sensitivity: int, rng: Randomness) -> npt.NDArray[np.int64]:
        noise = discrete_laplace(count, epsilon, sensitivity, rng)
        drawn.extend(noise.tolist())
        return noise

    sums = some_sums(tiling, users, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privtree, "discrete_laplace", recorded)
        heat = PrivTree(epsilon=2 * epsilon, theta=theta).release(sums, rng=seed)
    raster = Raster.of(tiling.lattice())
    users = np.zeros(raster.members.size, dtype=np.int64)
    np.add.at(users, raster.site, sums.sums)
    leaves = grow_slowly(level_members(raster.members), level_members(users), epsilon, theta, drawn)
    groups = heat.measurements[0].groups
    made = set()
    for level in range(raster.depth + 1):
        ancestors = raster.site >> (2 * (raster.depth - level))
        made |= {(level, int(node)) for node in np.unique(ancestors) if (level, int(node)) in leaves}
    assert made == leaves
    # The groups of the map are the leaves' cells, no more and no less.
    assert np.unique(groups).size == len(leaves) == heat.measurements[0].noisy.size
    for level, node in leaves:
        inside = raster.site >> (2 * (raster.depth - level)) == node
        assert np.unique(groups[inside]).size == 1
        value = max(heat.measurements[0].noisy[groups[inside][0]], 0) / inside.sum()
        np.testing.assert_allclose(heat.values[inside], value, rtol=1e-12)


def test_the_noise_of_a_decision_has_the_papers_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Fraction, int]] = []

    def none(count: int, epsilon: Fraction, sensitivity: int, rng: Randomness) -> npt.NDArray[np.int64]:
        asked.append((epsilon, sensitivity))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(privtree, "discrete_laplace", none)
    PrivTree(epsilon=2).release(some_sums(TILINGS["quadtree"]), rng=1)
    # lambda = (2 * 4 - 1) / (4 - 1) / epsilon_1 users, with epsilon_1 = 1.
    assert set(asked) == {(Fraction(3, 7), UNIT)}


def test_one_lattice_unit_costs_no_more_than_its_part_of_epsilon() -> None:
    """The exact cost of one unit on the worst path, from the discrete law's survival function."""
    epsilon, unit = 1.5, 64  # a coarse lattice, so that whole sums stay small
    lam = 7 / 3 / epsilon * unit
    delta = math.ceil(lam * math.log(4))
    q = math.exp(-1 / lam)

    def log_split(x: int) -> float:  # theta = 0: ln Pr[X >= 1 - x]
        t = 1 - x
        return math.log(q**t / (1 + q)) if t >= 0 else math.log1p(-(q ** (1 - t)) / (1 + q))

    worst = 0.0
    for last in range(1 - delta, 1):  # the last affected node's biased count; the ones above it, at least
        path = [last] + [last + j * delta for j in range(1, 12)]
        worst = max(worst, sum(log_split(x) - log_split(x - 1) for x in path if x > -delta))
    assert worst <= epsilon / unit * (1 + 1e-9)
    assert worst > 0.9 * epsilon / unit, "the bound should be nearly tight, or noise is wasted"
    falls = [
        math.log1p(-math.exp(log_split(x - 1))) - math.log1p(-math.exp(log_split(x))) for x in range(-99, 99)
    ]
    assert max(falls) <= 1 / lam * (1 + 1e-9)


def test_without_noise_a_crowd_is_followed_to_its_cell() -> None:
    tiling = TILINGS["quadtree"]
    sums = np.zeros(tiling.size, dtype=np.int64)
    sums[[5, 700]] = np.array([1000, 3000]) * UNIT
    heat = PrivTree(epsilon=MUCH).release(UserSums(sums, tiling), rng=1)
    np.testing.assert_allclose(heat.values, sums / UNIT, atol=1e-6)
    assert heat.measurements[0].noisy.size < 64


def test_without_noise_the_total_of_an_oblong_grid_stays() -> None:
    tiling = mv.Grid(REGION, rows=300, columns=300)
    sums = some_sums(tiling)
    values = PrivTree(epsilon=MUCH).release(sums, rng=1).values
    assert values.sum() == pytest.approx(2000)


def test_the_tree_and_its_leaves_share_the_budget() -> None:
    shares = (
        PrivTree(epsilon=1, tree_share=0.25).release(some_sums(TILINGS["oblong"]), rng=1).guarantee.shares
    )
    assert [(share.purpose, share.epsilon) for share in shares] == [
        ("the tree", Fraction(1, 4)),
        ("its leaves", Fraction(3, 4)),
    ]


def test_an_empty_map_grows_a_small_tree() -> None:
    # A node at the floor is split with probability 1/8, so there is half a child for each.
    tiling = mv.Quadtree(REGION, depth=7)
    nobody = UserSums(np.zeros(tiling.size, dtype=np.int64), tiling)
    leaves = [PrivTree(epsilon=1).release(nobody, rng=seed).measurements[0].noisy.size for seed in range(60)]
    assert np.mean(leaves) < 12


@pytest.mark.parametrize("wrong", [{"theta": float("inf")}, {"tree_share": 0}, {"tree_share": 1}])
def test_senseless_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        PrivTree(epsilon=1, **wrong)  # type: ignore[arg-type]
