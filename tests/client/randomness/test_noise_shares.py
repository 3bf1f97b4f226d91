"""Noise shares: their law against exact sums and a dense sampler, with power; what they cost."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.noise_shares import noise_shares, own_epsilon
from mapveil_client.randomness.random import Randomness

CERTAIN = 1e-9


def polya_shares_dense(generator, clients, length, alpha, beta):
    """The slow, obvious oracle: a gamma and a Poisson variable for each of X and Y at every coordinate."""
    rate = generator.gamma(alpha, beta / (1 - beta), size=(2, clients, length))
    first, second = generator.poisson(rate)
    return first - second


def polya_law(shape, rate, size=1 << 15):
    """Pr[Z = k] at k modulo ``size``, from the generating function on the unit circle."""
    beta = math.exp(-rate)
    turn = 2 * np.pi * np.arange(size) / size
    transform = np.exp(shape * (2 * math.log1p(-beta) - np.log(1 - 2 * beta * np.cos(turn) + beta**2)))
    return np.maximum(np.fft.fft(transform).real / size, 0)


def fits(values, shape, rate):
    """P-value of integer values against the law of X - Y, bins of at least 20 expected."""
    law = polya_law(shape, rate)
    half = law.size // 2
    wanted = np.roll(law, half) * values.size
    observed = np.bincount(np.clip(values + half, 0, law.size - 1), minlength=law.size)
    group = np.unique(np.minimum(np.cumsum(wanted) // 20, values.size // 20 - 1), return_inverse=True)[1]
    wanted, observed = np.bincount(group, wanted), np.bincount(group, observed)
    return stats.chisquare(observed, wanted * (values.size / wanted.sum())).pvalue


def dense(noise, clients, length):
    values = np.zeros((clients, length), dtype=np.int64)
    np.add.at(values, (noise.client, noise.position), noise.value)
    return values


LAWS = [
    (Fraction(1, 20), Fraction(1), 1),
    (Fraction(1, 3), Fraction(1, 2), 1),
    (Fraction(1), Fraction(1), 4),
    (2.5, Fraction(3, 2), 10),
    (Fraction(1, 10), Fraction(1, 60), 1),  # magnitudes in bins
    (Fraction(1, 10), Fraction(1), 300),
]


@pytest.mark.parametrize(("alpha", "epsilon", "sensitivity"), LAWS)
def test_coordinates_follow_the_law_and_the_test_has_power(alpha, epsilon, sensitivity):
    noise = noise_shares(5000, 60, alpha, epsilon, sensitivity, Randomness(41))
    values = dense(noise, 5000, 60).ravel()
    rate = float(epsilon / sensitivity)
    assert fits(values, float(alpha), rate) > CERTAIN
    for factor in (0.7, 1.3):
        assert fits(values, float(alpha) * factor, rate) < CERTAIN
        assert fits(values, float(alpha), rate * factor) < CERTAIN


@pytest.mark.parametrize(("alpha", "epsilon", "sensitivity"), LAWS)
def test_the_dense_sampler_draws_the_same_law(alpha, epsilon, sensitivity):
    rate = float(epsilon / sensitivity)
    generator = Randomness(42).generator()
    oracle = polya_shares_dense(generator, 2000, 60, float(alpha), math.exp(-rate)).ravel()
    sparse = dense(noise_shares(2000, 60, alpha, epsilon, sensitivity, Randomness(43)), 2000, 60).ravel()
    cuts = np.unique(np.quantile(oracle, np.linspace(0.01, 0.99, 40)))
    cuts = np.unique(np.concatenate([cuts - 0.5, cuts + 0.5]))

    def alike(values):
        table = np.array(
            [np.bincount(np.searchsorted(cuts, v), minlength=cuts.size + 1) for v in (oracle, values)]
        )
        return stats.chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue

    assert alike(sparse) > CERTAIN
    wrong = dense(noise_shares(2000, 60, float(alpha) * 1.3, epsilon, sensitivity, Randomness(43)), 2000, 60)
    assert alike(wrong.ravel()) < CERTAIN


@pytest.mark.parametrize("survivors", [1, 2, 21, 850])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1, 1), (2, 3), (1, 8)])
def test_a_share_alone_costs_what_the_exact_law_says(survivors, epsilon, sensitivity):
    alpha, rate = Fraction(1, survivors), epsilon / sensitivity
    law = polya_law(float(alpha), rate)[:20]
    steps = np.log(law[:-1] / law[1:])
    assert np.all(np.diff(steps) <= 1e-6)  # log-convex: the first step costs most
    found = own_epsilon(alpha, Fraction(epsilon), sensitivity)
    assert found == pytest.approx(sensitivity * steps[0], rel=1e-6)
    assert found >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize("survivors", [17, 40])
def test_shares_of_enough_clients_sum_to_discrete_laplace_noise(survivors):
    noise = noise_shares(survivors * 100_000, 1, Fraction(1, survivors), Fraction(1), 2, Randomness(44))
    sums = dense(noise, survivors * 100_000, 1).reshape(-1, survivors).sum(axis=1)
    q = math.exp(-0.5)
    k = np.arange(-20, 21)
    law = (1 - q) / (1 + q) * q ** np.abs(k)
    observed = np.bincount(np.clip(sums, -21, 21) + 21, minlength=43)
    tail = (1 - law.sum()) / 2
    assert stats.chisquare(observed, np.concatenate([[tail], law, [tail]]) * sums.size).pvalue > CERTAIN
    # The shares of 30 % fewer clients do not pass for enough.
    if survivors == 17:
        fewer = dense(noise, survivors * 100_000, 1).reshape(-1, survivors)[:, 5:].sum(axis=1)
        observed = np.bincount(np.clip(fewer, -21, 21) + 21, minlength=43)
        assert stats.chisquare(observed, np.concatenate([[tail], law, [tail]]) * sums.size).pvalue < CERTAIN


def test_events_are_poisson_and_places_even():
    noise = noise_shares(20_000, 50, Fraction(1, 30), Fraction(1), 1, Randomness(45))
    assert (np.diff(noise.client) >= 0).all()
    mean = 2 * 50 / 30 * -math.log1p(-math.exp(-1))
    events = np.bincount(noise.client, minlength=20_000)
    k = np.arange(9)
    law = np.append(stats.poisson.pmf(k, mean), stats.poisson.sf(8, mean))
    assert stats.chisquare(np.bincount(np.minimum(events, 9), minlength=10), law * 20_000).pvalue > CERTAIN
    assert stats.chisquare(np.bincount(noise.position, minlength=50)).pvalue > CERTAIN
    assert noise.value.all()


def test_coordinates_signs_and_clients_are_independent():
    values = dense(noise_shares(40_000, 4, Fraction(1, 2), Fraction(1), 1, Randomness(46)), 40_000, 4)
    kinds = np.clip(values, -1, 1) + 1
    for one, other in (
        (kinds[:, 0], kinds[:, 1]),
        (kinds[:-1, 3], kinds[1:, 0]),
        (kinds[::2, 2], kinds[1::2, 2]),
    ):
        table = np.bincount(one * 3 + other, minlength=9).reshape(3, 3)
        assert stats.chi2_contingency(table).pvalue > CERTAIN


def test_a_million_coordinates_cost_what_their_events_do():
    arguments = (1, 1_000_000, Fraction(1, 10_000), Fraction(1), 1)
    noise_shares(*arguments, Randomness(1))
    tracemalloc.start()
    noise = noise_shares(*arguments, Randomness(2))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 30 < noise.value.size < 200
    assert peak < 100_000


@given(
    st.integers(0, 50),
    st.integers(1, 2000),
    st.fractions(Fraction(1, 1000), 3),
    st.fractions(Fraction(1, 1000), 5),
    st.integers(1, 1 << 28),
    st.integers(0, 2**32),
)
def test_entries_are_within_their_vectors_and_repeat_with_the_seed(
    clients, length, alpha, epsilon, sensitivity, seed
):
    alpha = alpha / length
    noise = noise_shares(clients, length, alpha, epsilon, sensitivity, Randomness(seed))
    assert noise.client.dtype == noise.position.dtype == noise.value.dtype == np.int64
    assert noise.client.shape == noise.position.shape == noise.value.shape
    assert (np.diff(noise.client) >= 0).all()
    assert ((noise.client >= 0) & (noise.client < max(clients, 1))).all()
    assert ((noise.position >= 0) & (noise.position < length)).all()
    again = noise_shares(clients, length, alpha, epsilon, sensitivity, Randomness(seed))
    assert all(np.array_equal(one, other) for one, other in zip(noise, again, strict=True))


@pytest.mark.parametrize("epsilon", [Fraction(1000), Fraction(10**12)])
def test_huge_epsilons_give_no_noise(epsilon):
    assert noise_shares(100, 100, 1, epsilon, 1, Randomness(1)).value.size == 0


@pytest.mark.parametrize("alpha", [0, -1, math.nan, math.inf, "many"])
def test_a_shape_is_a_number_above_zero(alpha):
    with pytest.raises(ParameterError, match="finite number above 0"):
        noise_shares(1, 10, alpha, Fraction(1), 1, Randomness(1))


@pytest.mark.parametrize(("clients", "length"), [(-1, 10), (1, 0)])
def test_numbers_outside_their_range_are_refused(clients, length):
    with pytest.raises(ParameterError, match=r"must be|expected"):
        noise_shares(clients, length, 1, Fraction(1), 1, Randomness(1))


def test_more_events_than_a_memory_holds_are_refused():
    with pytest.raises(ParameterError, match="fewer clients"):
        noise_shares(10_000, 1_000_000, 1, Fraction(1), 1, Randomness(1))


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)])
def test_a_scale_that_is_not_positive_is_refused(epsilon, sensitivity):
    with pytest.raises(ParameterError, match="sensitivity must be above 0"):
        noise_shares(1, 1, 1, epsilon, sensitivity, Randomness(1))
