"""A prior is believed as far as noisy sums agree with it, and weights keep the members' sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.inference.nested_rounds import Leaves, Round
from mapveil.inference.prior_mixture import mixed_weights
from mapveil.mechanisms.multiscale import Multiscale
from mapveil_client.arrays import FloatArray, IntArray

SIDE = 16


def one_round(square: FloatArray, scale: float, seed: int = 0) -> tuple[list[Round], Leaves]:
    noise = np.random.default_rng(seed).laplace(0, scale, square.size)
    every = np.arange(square.size)
    side = np.ones(square.size, dtype=np.int64)
    rounds = [Round(square.reshape(-1) + noise, 2 * scale**2, side, every)]
    return rounds, Leaves(every.reshape(square.shape), np.ones(square.size, dtype=np.int64))


def uneven(seed: int, side: int = SIDE) -> FloatArray:
    density = np.random.default_rng(seed).pareto(1.2, (side, side))
    return np.asarray(density / density.sum())


def towards(weights: FloatArray, prior: FloatArray) -> float:
    """0 where the weights are even, 1 where they are the prior's: the regression of one on the other."""
    even = 1 / prior.size
    away = prior - even
    return float(((weights / weights.sum() - even) * away).sum() / (away**2).sum())


def test_a_true_prior_is_believed_and_a_wrong_one_is_not() -> None:
    truth = uneven(1)
    told = one_round(20_000 * truth, 2.0)
    members = np.ones((SIDE, SIDE), dtype=np.int64)
    assert towards(mixed_weights(*told, members, truth), truth) > 0.5
    wrong = truth[::-1, ::-1]
    assert abs(towards(mixed_weights(*told, members, wrong), wrong)) < 0.1


def test_without_a_signal_the_weights_stay_near_even() -> None:
    truth = uneven(2)
    told = one_round(np.zeros((SIDE, SIDE)), 50.0)
    found = mixed_weights(*told, np.ones((SIDE, SIDE), dtype=np.int64), truth)
    assert towards(found, truth) < 0.2


def test_a_prior_has_a_fifth_of_the_probability_before_anything_is_measured() -> None:
    one = Leaves(np.zeros((1, 1), dtype=np.int64), np.array([4]))
    total = Round(np.array([100.0]), 2.0, np.array([1]), np.array([0]))
    prior = np.array([[0.4, 0.4], [0.1, 0.1]])
    found = mixed_weights([total], one, np.ones((2, 2), dtype=np.int64), prior)
    # 0.2 of the probability on lambda above 0, whose mean there is 0.59. A prior of ten people (the least amount is
    # taken for one) has a weight of 10 / 11 in the whole: the upper half gets 0.5 + 0.3 * 0.118 * 10 / 11.
    assert found[0].sum() / 4 == pytest.approx(0.5322, abs=1e-4)


def test_what_is_believed_goes_on_below_what_was_measured() -> None:
    fine = uneven(3, 4 * SIDE)
    coarse = fine.reshape(SIDE, 4, SIDE, 4).sum(axis=(1, 3))
    members = np.ones(fine.shape, dtype=np.int64)
    found = mixed_weights(*one_round(50_000 * coarse, 2.0), members, fine)
    inside = found.reshape(SIDE, 4, SIDE, 4)
    truth = fine.reshape(SIDE, 4, SIDE, 4)
    heavy = np.unravel_index(coarse.argmax(), coarse.shape)
    block, true_block = inside[heavy[0], :, heavy[1]], truth[heavy[0], :, heavy[1]]
    assert np.corrcoef(block.reshape(-1), true_block.reshape(-1))[0, 1] > 0.99


def test_one_person_of_a_prior_says_little_about_the_rest_of_their_block() -> None:
    rng = np.random.default_rng(5)
    coarse = rng.permutation(np.r_[np.full(128, 1.0), np.full(128, 300.0)]).reshape(SIDE, SIDE)
    fine = np.zeros((SIDE, 4, SIDE, 4))
    fine[:, 1, :, 2] = coarse  # all people of the prior's blocks are in one site of each
    members = np.ones((4 * SIDE, 4 * SIDE), dtype=np.int64)
    found = mixed_weights(*one_round(5 * coarse, 2.0), members, fine.reshape(members.shape) / fine.sum())
    blocks = found.reshape(SIDE, 4, SIDE, 4)
    heaviest = blocks[:, 1, :, 2] / blocks.sum(axis=(1, 3))
    assert heaviest[coarse == 300].min() > 0.8
    assert heaviest[coarse == 1].max() < 0.4


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 100))
def test_weights_keep_the_members_and_the_places_where_nobody_can_be(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    members: IntArray = rng.integers(0, 3, (8, 8))
    members[0, 0] = 1
    prior = np.where(members > 0, rng.pareto(1.0, (8, 8)) * rng.integers(0, 2, (8, 8)), 0.0)
    of_site = np.where(members > 0, np.cumsum(members.reshape(-1) > 0).reshape(8, 8) - 1, -1)
    leaves = Leaves(of_site, members[members > 0])
    values = rng.laplace(5, scale, leaves.members.size)
    rounds = [Round(values, 2 * scale**2, np.ones(values.size, dtype=np.int64), np.arange(values.size))]
    found = mixed_weights(rounds, leaves, members, prior)
    assert found.sum() == pytest.approx(members.sum())
    assert (found >= 0).all()
    assert (found[members == 0] == 0).all()
    assert (found[members > 0] > 0).all()


def test_a_good_prior_makes_a_better_map_and_an_inverse_one_hardly_a_worse() -> None:
    import mapveil as mv
    from mapveil.engines import UserSums

    truth = uneven(4, 32).reshape(-1)
    tiling = mv.Grid(mv.Region.from_bbox(0, 0, 0.3, 0.3), rows=32, columns=32)
    people = UserSums(np.rint(3_000 * truth).astype(np.int64) << 28, tiling)

    def error(values: FloatArray | None) -> float:
        prior = None if values is None else mv.Prior(name="p", digest="", values=values, tiling=tiling)
        maps = [
            Multiscale(epsilon=0.5, prior=prior).release(people, account=None, rng=seed) for seed in range(3)
        ]
        return float(np.mean([np.abs(heat.normalised() - truth).sum() for heat in maps]))

    plain = error(None)
    assert error(truth) < 0.6 * plain
    assert error(1 / (truth + 1 / truth.size)) < 1.03 * plain
