from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mapveil.mechanisms.uniform_grid import UniformGrid, cells_at, nearest_level, noise_deviation
from mapveil.trust.queries import Setting
from mapveil_client.errors import ParameterError


def level_of(mechanism, setting):
    """The level that the first query asks for."""
    (level,) = set(next(mechanism.plan(setting)).encoding.tree.level.tolist())
    return level


def a_setting(
    devices: int, depth: int = 10, shards: int | None = None, members: np.ndarray | None = None
) -> Setting:
    made = max(1, -(-devices // 10_000)) if shards is None else shards
    everywhere = np.ones(1 << (2 * depth), dtype=np.int64) if members is None else members
    return Setting(depth, everywhere, devices, made, Fraction(made, max(devices, 1)), 1)


@pytest.mark.parametrize(("users", "level"), [(10_000, 5), (100_000, 6), (1_000_000, 7)])
def test_the_rule_picks_the_level_that_is_best_on_the_papers_image(users: int, level: int) -> None:
    assert level_of(UniformGrid(epsilon=1), a_setting(users)) == level


def test_the_rule_follows_the_budget_the_shards_and_the_constant() -> None:
    one = a_setting(160_000, shards=1)
    assert noise_deviation(one, 0.5) == pytest.approx(np.sqrt(8))
    assert level_of(UniformGrid(epsilon=1, c=10), one) == 7  # n epsilon / c = 16,000
    assert level_of(UniformGrid(epsilon=Fraction(1, 4)), one) == 6
    assert level_of(UniformGrid(epsilon=1, c=160), one) == 5
    assert level_of(UniformGrid(epsilon=1), a_setting(160_000, shards=16)) == 6
    assert level_of(UniformGrid(epsilon=1), a_setting(1)) == 0
    assert level_of(UniformGrid(epsilon=1, depth=9), a_setting(10, depth=4)) == 4


def test_only_cells_where_anybody_can_be_are_counted_and_asked_about(play, crowd) -> None:
    members = np.zeros(256, dtype=np.int64)
    members[:64] = 3  # one quarter of the raster
    assert cells_at(a_setting(10, 4, members=members), 2).tolist() == [0, 1, 2, 3]
    assert nearest_level(a_setting(10, 4, members=members), 16.0) == 3
    people = crowd(4, 5000, members=members)
    made = play(UniformGrid(epsilon=1, depth=3), people, members, seed=1)
    assert made.queries[0].encoding.length == 16
    assert not made.made.values[members == 0].any()
    assert (made.made.measurements[0].groups[members == 0] == -1).all()


@pytest.mark.parametrize("level", range(5))
def test_without_noise_each_cell_holds_its_people_evenly(play, crowd, level: int) -> None:
    people = crowd(4, 3000)
    made = play(UniformGrid(epsilon=1, depth=level), people)
    inside = 4 ** (4 - level)
    even = np.repeat(people.reshape(-1, inside).sum(axis=1) / inside, inside)
    np.testing.assert_allclose(made.made.values, even)
    (query,) = made.queries
    assert query.epsilon == 1
    assert query.encoding.length == 4**level


@pytest.mark.parametrize("clip", [True, False])
def test_negative_sums_are_clipped_where_asked(play, clip: bool) -> None:
    made = play(UniformGrid(epsilon=1, depth=4, clip=clip), np.zeros(256, dtype=np.int64), seed=2, devices=10)
    raw = made.answers[0].values
    assert raw.min() < 0
    np.testing.assert_array_equal(made.made.values, np.maximum(raw, 0) if clip else raw)


@pytest.mark.parametrize("wrong", [{"depth": -1}, {"depth": 24}, {"c": 0}, {"c": float("inf")}])
def test_senseless_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        UniformGrid(epsilon=1, **wrong)
