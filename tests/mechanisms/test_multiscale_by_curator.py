from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.release import release
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Setting
from mapveil_client.errors import ParameterError

DEPTH = 6


def a_city(users: int = 3000) -> Counts:
    tiling = Quadtree(Region.from_bbox(0, 0, 1, 1), depth=DEPTH)
    lattice = tiling.lattice()
    rng = np.random.default_rng(4)
    density = sum(
        np.exp(-((lattice.row - r) ** 2 + (lattice.col - c) ** 2) / (2 * width**2))
        for r, c, width in [(20, 30, 3), (40, 10, 5), (50, 50, 2)]
    )
    return Counts(rng.multinomial(users, density / density.sum()).astype(np.int64), tiling)


def distance(map_values: np.ndarray, truth: Counts) -> float:
    kept = np.maximum(map_values, 0)
    return float(np.abs(kept / kept.sum() - truth.values / truth.values.sum()).sum())


def test_it_spends_no_more_than_its_budget() -> None:
    for users in (None, 3000):
        heat = Multiscale(epsilon="1/3", trust=Curator(users=users)).release(a_city(), rng=1)
        assert sum(share.epsilon for share in heat.guarantee.shares) <= Fraction(1, 3)
        assert len(heat.guarantee.shares) == len(heat.measurements)


@pytest.mark.parametrize("epsilon", [0.2, 1, 5])
def test_it_is_nearer_the_truth_than_noise_on_every_cell(epsilon: float) -> None:
    from mapveil.mechanisms.laplace_histogram import LaplaceHistogram

    city = a_city()
    ours = np.mean(
        [distance(Multiscale(epsilon=epsilon).release(city, rng=s).values, city) for s in range(3)]
    )
    plain = np.mean(
        [distance(LaplaceHistogram(epsilon=epsilon).release(city, rng=s).values, city) for s in range(3)]
    )
    assert ours < 0.75 * plain


def test_the_same_seed_gives_the_same_map() -> None:
    first, second = (Multiscale(epsilon=1).release(a_city(), rng=9).values for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_without_noise_to_speak_of_the_counts_come_back() -> None:
    city = a_city()
    heat = Multiscale(epsilon=1e6, depth=DEPTH).release(city, rng=1)
    np.testing.assert_allclose(heat.values, city.values, atol=0.01)


def test_the_interval_holds_the_truth() -> None:
    city = a_city()
    bounds = Multiscale(epsilon=1).release(city, rng=2).error(alpha=0.01)
    held = (bounds.lower <= city.values) & (city.values <= bounds.upper)
    assert held.mean() > 0.97


def test_the_first_level_rises_with_signal() -> None:
    setting = Setting(6, np.ones(4096, dtype=np.int64), None, 1, Fraction(1), 1, curator=True)
    levels = [Multiscale(epsilon=1).level(setting, n, Fraction(1)) for n in (1e-9, 10, 200, 3000, 1e9)]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0, DEPTH)
    assert 0 < levels[2] < levels[3] < DEPTH


def test_the_second_round_is_finer_where_the_people_are() -> None:
    city = a_city(users=20_000)
    heat = Multiscale(epsilon=1, depth=2).release(city, rng=1)
    groups = heat.measurements[-1].groups
    lattice = city.tiling.lattice()
    sizes = np.bincount(groups)[groups]
    dense, empty = (sizes[(lattice.row == r) & (lattice.col == c)][0] for r, c in [(20, 30), (3, 60)])
    assert dense < empty


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_share": 0.0},
        {"leaf_signal": 0.0},
        {"shifts": 0},
        {"depth": -1},
    ],
)
def test_a_parameter_outside_its_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Multiscale(epsilon=1, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("declared", [30, 300_000])
def test_a_number_of_users_far_from_the_noisy_one_is_not_believed(declared: int) -> None:
    city = a_city(users=3000)
    right, wrong = (
        Multiscale(epsilon=1, trust=Curator(users=users)).release(city, rng=5).values
        for users in (3000, declared)
    )
    np.testing.assert_allclose(distance(wrong, city), distance(right, city), rtol=0.1)


@pytest.mark.parametrize(("declared", "wrong"), [(30, True), (3000, False), (300_000, True)])
def test_a_map_says_where_its_sums_contradict_the_declared_number_of_users(
    declared: int, wrong: bool
) -> None:
    made = Multiscale(epsilon=1, trust=Curator(users=declared)).release(a_city(users=3000), rng=5)
    said = [note for note in made.notes if f"the declared number of users, {declared:,}, is not that" in note]
    assert len(said) == wrong


def test_an_aim_changes_the_design_and_not_the_promise() -> None:
    plain, aimed = (Multiscale(epsilon="1/3", aim=aim).release(a_city(), rng=1) for aim in (None, "totals"))
    assert aimed.guarantee.epsilon == plain.guarantee.epsilon == Fraction(1, 3)
    assert sum(share.epsilon for share in aimed.guarantee.shares) == Fraction(1, 3)
    assert aimed.measurements[-1].noisy.size != plain.measurements[-1].noisy.size


def test_an_isolated_hot_spot_is_measured_to_its_cell() -> None:
    tiling = a_city().tiling
    counts = np.random.default_rng(3).multinomial(700, np.full(4**DEPTH, 1 / 4**DEPTH))
    counts[1234] += 100
    city = Counts(counts.astype(np.int64), tiling)
    shown = [Multiscale(epsilon=1).release(city, rng=seed).values[1234] for seed in range(8)]
    assert np.median(shown) > 50


def test_a_flat_map_comes_out_nearly_flat() -> None:
    counts = np.random.default_rng(3).multinomial(700, np.full(4**DEPTH, 1 / 4**DEPTH))
    city = Counts(counts.astype(np.int64), a_city().tiling)
    blocks = [
        np.add.reduceat(np.sort(Multiscale(epsilon="0.1").release(city, rng=seed).values), [0, 2048])
        for seed in range(8)
    ]
    assert np.median([high / max(low, 1e-9) for low, high in blocks]) < 2


@pytest.mark.parametrize("users", [1_500, 6_000])
def test_a_flat_table_with_default_cells_is_measured_once_in_each_round(users: int) -> None:
    """What the choice of cells bought is one reply; each other query has one of its own."""
    rng = np.random.default_rng(3)
    lon, lat = rng.random((2, users))
    points = Points.from_arrays(user=np.arange(users), lon=lon, lat=lat)
    for seed in range(3):
        heat = release(points, region=a_city().tiling.region, epsilon="0.5", account=None, rng=seed)
        epsilons = [measurement.epsilon for measurement in heat.measurements]
        assert epsilons == [share.epsilon for share in heat.guarantee.shares]
        assert len({share.purpose for share in heat.guarantee.shares}) == len(epsilons)


def test_more_epsilon_is_no_worse_on_a_line_of_people() -> None:
    """Below epsilon 0.63 a curator asks for blocks and leaves, above for every cell."""
    tiling = a_city().tiling
    lattice = tiling.lattice()
    line = (lattice.row == lattice.col).astype(np.float64)
    city = Counts(np.random.default_rng(3).multinomial(20_000, line / line.sum()).astype(np.int64), tiling)
    below, above = (
        [distance(Multiscale(epsilon=epsilon).release(city, rng=seed).values, city) for seed in range(8)]
        for epsilon in ("0.57", "0.7")
    )
    assert np.mean(above) < 1.05 * np.mean(below)
