from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram
from mapveil.mechanisms.multiscale import Multiscale
from mapveil.mechanisms.uniform_grid import UniformGrid
from mapveil.trust.queries import Setting
from mapveil_client.errors import ParameterError
from mapveil_client.morton import deinterleave


def level_of(mechanism, setting):
    """The level that the first query asks for."""
    (level,) = set(next(mechanism.plan(setting)).encoding.tree.level.tolist())
    return level


def a_setting(devices: int, depth: int = 10, shards: int | None = None) -> Setting:
    made = max(1, -(-devices // 10_000)) if shards is None else shards
    members = np.ones(1 << (2 * depth), dtype=np.int64)
    return Setting(depth, members, devices, made, Fraction(made, max(devices, 1)), 1)


def a_crowded_town(depth: int, users: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The density everywhere, and a sample of its people, in Morton order."""
    side = 1 << depth
    row, col = (axis / side for axis in deinterleave(np.arange(side * side)))
    streets = 1 + 0.5 * np.sin(60 * row + 5 * np.sin(9 * col)) * np.sin(50 * col)
    density = streets * np.exp(np.sin(7 * row + 1) + np.cos(6 * col))
    density /= density.sum()
    return density, np.random.default_rng(seed).multinomial(users, density)


def a_skewed_land(depth: int, users: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Most people in a few places hardly wider than a site."""
    side = 1 << depth
    row, col = deinterleave(np.arange(side * side))
    rng = np.random.default_rng(7)
    density = np.full(side * side, 1e-3)
    for size in rng.pareto(0.8, 40) + 0.1:
        down, across, width = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(0.3, 0.8)
        density += size * np.exp(-((row - down) ** 2 + (col - across) ** 2) / (2 * width**2))
    density /= density.sum()
    return density, np.random.default_rng(seed).multinomial(users, density)


def error(density: np.ndarray, values: np.ndarray) -> float:
    return float(np.square(values / values.sum() - density).mean())


@pytest.mark.parametrize(("users", "level"), [(10_000, 6), (100_000, 7), (1_000_000, 8)])
def test_the_rule_picks_a_level_before_anything_is_seen(users: int, level: int) -> None:
    assert level_of(Multiscale(epsilon=1, rounds=1), a_setting(users)) == level


def test_the_rule_follows_what_is_public() -> None:
    setting = a_setting(100_000)
    assert level_of(Multiscale(epsilon=Fraction(1, 100), rounds=1), setting) == 4
    assert level_of(Multiscale(epsilon=1, rounds=1), a_setting(100_000, shards=1)) == 8
    assert level_of(Multiscale(epsilon=1, rounds=1, concentration=16, longest=None), setting) == 9
    assert level_of(Multiscale(epsilon=1, rounds=1, concentration=16), setting) == 8
    assert level_of(Multiscale(epsilon=1, rounds=1, longest=5000), setting) == 6
    assert level_of(Multiscale(epsilon=1, depth=3), setting) == 3
    assert level_of(Multiscale(epsilon=1), setting) == 5
    # However much is spent, there is no finer map than one of a person a cell.
    assert level_of(Multiscale(epsilon=10**6, rounds=1), a_setting(4096)) == 6


@pytest.mark.parametrize("of", ["devices", "population"])
def test_one_round_asks_one_level_with_the_whole_budget(play, crowd, of) -> None:
    made = play(Multiscale(epsilon=2, rounds=1, depth=3, of=of), crowd(5, 2000), seed=1)
    (query,) = made.queries
    assert query.epsilon == 2
    assert query.encoding.length == 64
    (measured,) = made.made.measurements
    np.testing.assert_array_equal(measured.noisy, made.answers[0].values)
    np.testing.assert_array_equal(np.bincount(measured.groups), 16)


def test_without_noise_the_devices_own_map_comes_back(play, crowd) -> None:
    people = crowd(4, 2000)
    made = play(Multiscale(epsilon=1, depth=4, of="devices"), people)
    np.testing.assert_allclose(made.made.values, people, atol=1e-6)
    coarse = play(Multiscale(epsilon=1, rounds=1, depth=2, of="devices"), people)
    np.testing.assert_allclose(
        coarse.made.values.reshape(16, -1).sum(axis=1), people.reshape(16, -1).sum(axis=1), atol=1e-6
    )


@pytest.mark.parametrize("rounds", [1, 2])
def test_nobody_is_put_where_nobody_can_be_and_the_rest_adds_up(play, crowd, rounds: int) -> None:
    members = np.random.default_rng(1).integers(0, 3, 1024)
    members[:256] = 0
    people = crowd(5, 5000, members=members)
    made = play(Multiscale(epsilon=1, depth=2, rounds=rounds), people, members, seed=2)
    values = made.made.values
    assert (values >= 0).all()
    assert not values[members == 0].any()
    assert values.sum() == pytest.approx(5000, rel=0.02)
    for measured in made.made.measurements:
        assert (measured.groups[:256] == -1).all()  # a block of them
        assert (measured.groups[members > 0] >= 0).all()


def test_the_second_round_asks_where_people_are(play) -> None:
    density, people = a_skewed_land(7, 20_000, 0)
    made = play(Multiscale(epsilon=1), people, shards=2, seed=3)
    first, second = made.queries
    assert 0 <= 1 - (first.epsilon + second.epsilon) < 1e-9  # parts of a budget round down
    assert float(first.epsilon) == pytest.approx(0.15)
    sites = np.arange(people.size)
    owner = second.encoding.positions(sites)[:, 0]
    assert (owner >= 0).all()
    size = np.bincount(owner)
    crowded = density > np.quantile(density, 0.99)
    assert size[owner[crowded]].mean() < size[owner[~crowded]].mean() / 4
    # Leaves are quarters of quarters of the blocks.
    block = first.encoding.positions(sites)[:, 0]
    assert np.unique(np.stack([owner, block]), axis=1).shape[1] == second.encoding.length


def test_a_map_that_is_crowded_everywhere_is_asked_for_cells_of_one_size(play) -> None:
    """One round's level for the second budget, at no more than 5 % more error than one round."""
    errors: dict[int, list[float]] = {1: [], 2: []}
    for seed in range(4):
        density, people = a_crowded_town(8, 20_000, seed)
        for rounds in errors:
            made = play(Multiscale(epsilon=1, rounds=rounds), people, shards=2, seed=seed)
            errors[rounds].append(error(density, made.made.values))
        assert [query.purpose for query in made.queries] == ["every cell of level 5", "every cell of level 6"]
        assert [measured.noisy.size for measured in made.made.measurements] == [1024, 4096]
        assert "spread over the whole map" in made.made.notes[-1]
    assert np.mean(errors[2]) < 1.05 * np.mean(errors[1])


def test_one_hot_spot_is_divided_where_all_else_is_crowded(play) -> None:
    _, people = a_crowded_town(8, 20_000, 1)
    people[77] += (
        1_000  # 5 % at one cell: too few to change the concentration of 1,024 blocks beyond any doubt
    )
    made = play(Multiscale(epsilon=1), people, shards=2, seed=1)
    assert made.queries[1].purpose == "leaves of the blocks"


@pytest.mark.parametrize("devices", [5_000, 20_000])
def test_a_flat_map_is_asked_for_cells_of_one_size_and_loses_little_to_one_round(play, devices: int) -> None:
    density = 1 + 0.2 * np.sin(
        np.arange(4**6) / 4**6 * 12
    )  # along the curve of sites: blocks differ by a fifth
    density /= density.sum()
    errors: dict[int, list[float]] = {1: [], 2: []}
    for seed in range(12):
        people = np.random.default_rng(seed).multinomial(devices, density)
        for rounds in errors:
            made = play(Multiscale(epsilon=1, rounds=rounds), people, seed=seed)
            errors[rounds].append(error(density, made.made.values))
        assert made.queries[1].purpose.startswith("every cell of level")
    assert np.mean(errors[2]) < 1.05 * np.mean(errors[1])


def test_a_map_of_few_users_is_cut_by_what_is_expected(play) -> None:
    _, few = a_crowded_town(6, 800, 1)
    assert play(Multiscale(epsilon=1), few, seed=1).queries[1].purpose == "leaves of the blocks"


@pytest.mark.parametrize("longest", [1, 2, 20, 100, 400, 1_500, 6_000])
@pytest.mark.parametrize("make", [a_crowded_town, a_skewed_land])
def test_no_device_sends_more_than_the_longest_vector_in_both_rounds(play, make, longest: int) -> None:
    _, people = make(8, 50_000, 0)
    made = play(Multiscale(epsilon=1, longest=longest), people, shards=5, seed=1)
    sent = [query.encoding.length for query in made.queries]
    assert len(sent) == min(longest, 2)
    assert longest / 6 < sum(sent) <= longest


def test_much_budget_measures_the_leaves_exactly(play) -> None:
    _, people = a_skewed_land(6, 20_000, 1)
    made = play(Multiscale(epsilon=10**6, depth=2, of="devices", leaf_signal=0.1), people, seed=4)
    owner = made.queries[1].encoding.positions(np.arange(people.size))[:, 0]
    np.testing.assert_allclose(
        np.bincount(owner, made.made.values), np.bincount(owner, people), rtol=1e-3, atol=1e-2
    )


def test_two_rounds_of_a_level_that_cannot_be_divided_are_one(play, crowd) -> None:
    made = play(Multiscale(epsilon=1, depth=9), crowd(3, 100), seed=1)
    (query,) = made.queries
    assert query.epsilon == 1


@pytest.mark.parametrize(("users", "shards"), [(10_000, 1), (100_000, 10)])
def test_it_has_less_error_than_algorithm_2_and_the_uniform_grid_for_no_longer_a_vector(
    play, users: int, shards: int
) -> None:
    errors: dict[str, list[float]] = {}
    lengths: dict[str, list[int]] = {}
    grid = level_of(UniformGrid(epsilon=1), a_setting(users, depth=8))
    ask = {
        "algorithm 2": AdaptiveHistogram(epsilon=1),
        "grid": UniformGrid(epsilon=1),
        "as the grid": Multiscale(epsilon=1, rounds=1, depth=grid),
        "coarser": Multiscale(epsilon=1, rounds=1, depth=grid - 1),
        "one round": Multiscale(epsilon=1, rounds=1),
    }
    for seed in range(3):
        density, people = a_crowded_town(8, users, seed)
        for name, mechanism in ask.items():
            made = play(mechanism, people, shards=shards, seed=seed)
            errors.setdefault(name, []).append(error(density, np.maximum(made.made.values, 0)))
            lengths.setdefault(name, []).append(sum(query.encoding.length for query in made.queries))
    mean = {name: float(np.mean(found)) for name, found in errors.items()}
    assert mean["as the grid"] < 0.95 * mean["grid"]
    assert mean["one round"] < 0.95 * mean["grid"]
    assert max(lengths["coarser"]) <= min(lengths["algorithm 2"])
    assert mean["coarser"] < mean["algorithm 2"]


def test_a_second_round_earns_its_cost_on_a_skewed_map(play) -> None:
    errors: dict[int, list[float]] = {1: [], 2: []}
    lengths: dict[int, int] = {}
    for seed in range(3):
        density, people = a_skewed_land(8, 50_000, seed)
        for rounds in errors:
            made = play(Multiscale(epsilon=1, rounds=rounds), people, shards=5, seed=seed)
            errors[rounds].append(error(density, made.made.values))
            lengths[rounds] = sum(query.encoding.length for query in made.queries)
    assert np.mean(errors[2]) < 0.5 * np.mean(errors[1])
    assert lengths[2] < lengths[1]


def test_knowing_how_people_live_pays_on_a_skewed_map(play) -> None:
    errors: dict[float, list[float]] = {1.0: [], 16.0: []}
    for seed in range(3):
        density, people = a_skewed_land(8, 10_000, seed)
        for known in errors:
            made = play(Multiscale(epsilon=1, rounds=1, concentration=known), people, seed=seed)
            errors[known].append(error(density, made.made.values))
    assert np.mean(errors[16.0]) < 0.7 * np.mean(errors[1.0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 3},
        {"depth": -1},
        {"concentration": 0.5},
        {"longest": 0},
        {"of": "everybody"},
        {"first_share": 1.0},
        {"leaf_signal": 0.0},
        {"shifts": 0},
    ],
)
def test_senseless_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Multiscale(epsilon=1, **wrong)  # type: ignore[arg-type]
