"""Users' shares: against exact fractions, user by user; sums, sensitivities and errors."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.contribution import ROUNDINGS, round_shares
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9
SCALES = st.one_of(st.integers(1, 50), st.integers(1, 1 << 31), st.just(1 << 31))


def users_of(weights):
    return st.lists(st.lists(weights, max_size=12), max_size=8)


def columns(users, dtype):
    offsets = np.concatenate([[0], np.cumsum([len(user) for user in users])]).astype(np.int64)
    return offsets, np.array([weight for user in users for weight in user], dtype=dtype)


def largest_remainders(weights, scale):
    """The slow, obvious oracle: one user in exact fractions."""
    total = sum(map(Fraction, weights))
    if total == 0:
        return [0] * len(weights)
    exact = [scale * Fraction(weight) / total for weight in weights]
    shares = [math.floor(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda i: (shares[i] - exact[i], i))
    for i in order[: scale - sum(shares)]:
        shares[i] += 1
    return shares


@given(users_of(st.one_of(st.integers(0, 9), st.integers(0, 2**31 - 1))), SCALES)
def test_largest_remainders_of_counts_are_the_oracles(users, scale):
    offsets, weight = columns(users, np.int64)
    shares = round_shares(offsets, weight, scale, "largest-remainder", Randomness(1))
    assert shares.dtype == np.int64
    wanted = [share for user in users for share in largest_remainders(user, scale)]
    assert shares.tolist() == wanted


@given(users_of(st.integers(0, 2**20)), st.integers(-300, 300), SCALES)
def test_counts_as_floats_of_any_size_give_the_same(users, exponent, scale):
    offsets, weight = columns(users, np.int64)
    floats = np.ldexp(weight.astype(float), exponent)
    assert np.array_equal(
        round_shares(offsets, floats, scale, "largest-remainder", Randomness(1)),
        round_shares(offsets, weight, scale, "largest-remainder", Randomness(1)),
    )


@given(
    users_of(st.one_of(st.integers(0, 2**63 - 1), st.integers(2**31, 2**33), st.integers(0, 3))),
    SCALES,
    st.sampled_from(ROUNDINGS),
)
def test_shares_of_huge_weights_are_near_and_keep_their_sum(users, scale, method):
    offsets, weight = columns(users, np.int64)
    shares = round_shares(offsets, weight, scale, method, Randomness(1))
    assert (shares >= 0).all()
    for first, last in itertools.pairwise(offsets):
        some, total = shares[first:last].tolist(), sum(map(int, weight[first:last]))
        if total == 0:
            assert sum(some) == 0
            continue
        if method == "largest-remainder":
            assert sum(some) == scale
        else:
            assert abs(sum(some) - scale) < last - first
            assert sum(some) <= scale + int(last - first)
        for share, exact in zip(some, weight[first:last].tolist(), strict=True):
            # One unit of rounding, and 2^-30 of the largest weight for each entry of the user.
            slack = 1 + scale * float(last - first) * 2.0**-30
            assert abs(share - scale * Fraction(exact, total)) <= slack


@given(users_of(st.floats(0, 1e300)), SCALES)
def test_largest_remainders_always_sum_to_the_scale(users, scale):
    offsets, weight = columns(users, float)
    shares = round_shares(offsets, weight, scale, "largest-remainder", Randomness(1))
    for first, last in itertools.pairwise(offsets):
        assert shares[first:last].sum() == (scale if weight[first:last].any() else 0)


@given(users_of(st.integers(0, 1000)), st.integers(1, 10**6), st.integers(0, 100))
def test_stochastic_shares_are_the_two_integers_around_the_exact_one(users, scale, seed):
    offsets, weight = columns(users, np.int64)
    shares = round_shares(offsets, weight, scale, "stochastic", Randomness(seed))
    exact = [
        scale * Fraction(w) / sum(user) if sum(user) else Fraction(0)
        for user in users
        for w in map(int, user)
    ]
    for share, wanted in zip(shares.tolist(), exact, strict=True):
        assert math.floor(wanted) <= share <= math.ceil(wanted)


def test_stochastic_shares_are_unbiased_and_independent_and_the_test_has_power():
    users, weights, scale = 200_000, np.array([1, 2, 4, 6]), 10
    offsets = np.arange(users + 1) * 4
    shares = round_shares(offsets, np.tile(weights, users), scale, "stochastic", Randomness(3)).reshape(-1, 4)
    exact = scale * weights / weights.sum()
    up = shares - np.floor(exact).astype(np.int64)
    for entry in range(4):
        chance = exact[entry] % 1
        assert stats.binomtest(int(up[:, entry].sum()), users, chance).pvalue > CERTAIN
        for factor in (0.7, 1.3):
            assert stats.binomtest(int(up[:, entry].sum()), users, min(chance * factor, 1)).pvalue < CERTAIN
    table = np.bincount(up[:, 0] * 2 + up[:, 1], minlength=4).reshape(2, 2)
    assert stats.chi2_contingency(table).pvalue > CERTAIN


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 1000), st.integers(0, 20))
def test_no_user_moves_the_sums_by_more_than_the_sensitivity(weights, scale, seed):
    offsets, weight = columns([weights], np.int64)
    for method in ROUNDINGS:
        shares = round_shares(offsets, weight, scale, method, Randomness(seed))
        assert shares.sum() <= scale + (len(weights) if method == "stochastic" else 0)


def test_stochastic_rounding_exceeds_the_scale_so_its_sensitivity_must():
    offsets, weight = np.array([0, 500]), np.ones(500, dtype=np.int64)
    sums = {int(round_shares(offsets, weight, 250, "stochastic", Randomness(s)).sum()) for s in range(20)}
    assert max(sums) > 250


def test_no_users_and_users_of_no_places_have_no_shares():
    for method in ROUNDINGS:
        for offsets, weight in (([0], []), ([0, 0, 0], []), ([0, 2], [0, 0]), ([0, 0, 1], [0.0])):
            shares = round_shares(np.array(offsets), np.array(weight), 7, method, Randomness(1))
            assert shares.tolist() == [0] * len(weight)


@pytest.mark.parametrize("weight", [[-1, 2], [math.nan, 1], [math.inf, 1]])
def test_weights_that_are_no_amounts_are_refused(weight):
    with pytest.raises(InputError, match="finite numbers from 0"):
        round_shares(np.array([0, 2]), np.array(weight), 7, "stochastic", Randomness(1))


@pytest.mark.parametrize("offsets", [[0, 1], [1, 2], [0, 2, 1, 2], [], [[0, 2]]])
def test_offsets_that_do_not_divide_the_entries_are_refused(offsets):
    with pytest.raises(InputError, match="do not divide 2 entries"):
        round_shares(np.array(offsets, dtype=np.int64), np.array([1, 1]), 7, "stochastic", Randomness(1))


def test_unknown_methods_and_scales_are_refused():
    with pytest.raises(ParameterError, match="largest-remainder, stochastic"):
        round_shares(np.array([0]), np.array([]), 7, "nearest", Randomness(1))
    for scale in (0, (1 << 31) + 1):
        with pytest.raises(ParameterError, match=r"1 to 2\^31"):
            round_shares(np.array([0]), np.array([]), scale, "stochastic", Randomness(1))
