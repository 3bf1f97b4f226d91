"""Uniform integers: words that would favour some values are drawn again, the rest map evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness, uniform_below, uniform_below_each

BOUNDS = st.one_of(st.integers(1, 1 << 24), st.integers(1, 1 << 62))


@given(BOUNDS, st.integers(0, 2**64))
def test_values_are_below_the_bound_and_repeat_with_the_seed(bound, seed):
    drawn = uniform_below(50, bound, Randomness(seed))
    assert drawn.min() >= 0
    assert drawn.max() < bound
    assert np.array_equal(drawn, uniform_below(50, bound, Randomness(seed)))


@pytest.mark.parametrize("bound", [3, 1000, 1254, 65_537, (1 << 24) - 1, 1 << 24])
def test_short_words_are_accepted_where_every_value_has_as_many(prescribed, bound):
    # Value v owns the words w with v <= bound * w / 2^32 < v + 1; the first few of some values are refused.
    words_each = (1 << 32) // bound
    for value in {0, 1, bound // 2, bound - 1}:
        first = -(-(value << 32) // bound)
        last = -(-((value + 1) << 32) // bound) - 1
        accepted = 0
        for word in [*range(first, first + 3), last]:
            stream = prescribed([word], [(1 << 31) + 1])
            drawn = uniform_below(1, bound, stream)[0]
            if stream.given:
                assert drawn == value
                accepted += 1
            else:
                assert drawn == bound // 2  # what the second word gives
        refused = last - first + 1 - words_each
        assert accepted == 4 - refused
        assert refused in (0, 1)


@pytest.mark.parametrize("bound", [(1 << 24) + 1, 3 << 40, (1 << 62) - 1, 1 << 62])
def test_long_words_are_accepted_below_the_last_multiple(prescribed, bound):
    end = (1 << 64) // bound * bound
    for word in (0, bound - 1, bound, end - 1):
        assert uniform_below(1, bound, prescribed([word]))[0] == word % bound
    for word in {min(end, 2**64 - 1), 2**64 - 1} if end < 1 << 64 else ():
        assert uniform_below(1, bound, prescribed([word], [5]))[0] == 5


@given(st.lists(st.integers(1, (1 << 63) - 1), min_size=1, max_size=5))
def test_each_bound_accepts_below_its_own_last_multiple(prescribed, bounds):
    given = np.array(bounds, dtype=np.int64)
    ends = [(1 << 64) // bound * bound for bound in bounds]
    drawn = uniform_below_each(given, prescribed([end - 1 for end in ends]))
    assert drawn.tolist() == [bound - 1 for bound in bounds]
    uneven = [at for at, end in enumerate(ends) if end < 1 << 64]
    stream = prescribed([min(end, 2**64 - 1) for end in ends], *([[0] * len(uneven)] if uneven else []))
    assert (uniform_below_each(given, stream)[uneven] == 0).all()
    assert not stream.given


def test_values_are_even_and_the_test_has_power():
    drawn = uniform_below(400_000, 1254, Randomness(3))
    counts = np.bincount(drawn, minlength=1254)
    assert stats.chisquare(counts).pvalue > 1e-9
    uneven = np.where(np.arange(1254) < 627, 1.05, 0.95) * drawn.size / 1254
    assert stats.chisquare(counts, uneven).pvalue < 1e-9
    pairs = np.bincount((drawn[::2] % 16) * 16 + drawn[1::2] % 16, minlength=256)
    residue = np.bincount(np.arange(1254) % 16) / 1254
    assert stats.chisquare(pairs, np.outer(residue, residue).ravel() * pairs.sum()).pvalue > 1e-9


def test_a_bound_outside_its_range_is_refused():
    for bound in (0, -1, (1 << 62) + 1):
        with pytest.raises(ParameterError, match=r"must be|expected"):
            uniform_below(1, bound, Randomness(1))
    with pytest.raises(ParameterError, match="1 or more"):
        uniform_below_each(np.array([3, 0]), Randomness(1))


def test_nothing_is_drawn_where_nothing_is_asked():
    assert uniform_below(0, 5, Randomness(1)).shape == (0,)
    assert uniform_below_each(np.zeros(0, dtype=np.int64), Randomness(1)).shape == (0,)
