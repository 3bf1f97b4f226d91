"""Provision: every pattern of leaving and corruption that was promised leaves noise enough."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.noise_shares import (
    promised_survivors,
    share_shape,
)

parts = st.fractions(0, Fraction(49, 100))


@given(st.integers(3, 300), parts, parts)
def test_the_fewest_honest_survivors_make_one_whole_and_no_fewer_are_assumed(size, dropout, corrupt):
    # The oracle tries every number of leavers and of corrupt clients that the promises allow.
    leavers = [n for n in range(size + 1) if Fraction(n, size) <= dropout]
    spies = [n for n in range(size + 1) if Fraction(n, size) <= corrupt]
    honest = size - max(leavers) - max(spies)
    assert honest * share_shape(size, dropout, corrupt) == 1
    assert promised_survivors(size, dropout) == size - max(leavers)


def test_the_papers_shape_where_nobody_is_corrupt():
    assert share_shape(10_000, 0.05) == Fraction(1, 9500)
    assert share_shape(10_000, 0.1) == Fraction(1, 9000)
    assert share_shape(10_000, 0) == Fraction(1, 10_000)
    assert share_shape(10_000, 0.05, 0.05) == Fraction(1, 9000)


@pytest.mark.parametrize("dropout", [0.1, "0.1", "1/10", Decimal("0.1"), Fraction(1, 10), np.float64(0.1)])
def test_parts_are_read_exactly(dropout):
    # In binary 0.1 * 10 is a little above 1 and 0.3 * 10 a little below 3.
    assert promised_survivors(10, dropout) == 9
    assert share_shape(10, dropout, 0.3) == Fraction(1, 6)


@pytest.mark.parametrize("part", [-0.1, 1, 1.5, math.nan, math.inf, "most", None, "1/0"])
def test_parts_outside_their_range_are_refused(part):
    with pytest.raises(ParameterError, match=r"dropout must be .*, got"):
        promised_survivors(10, part)
    with pytest.raises(ParameterError, match=r"corrupt must be .*, got"):
        share_shape(10, 0, part)


def test_a_shard_with_nobody_honest_is_refused():
    with pytest.raises(ParameterError, match="an honest client of 10"):
        share_shape(10, 0.5, 0.5)
    with pytest.raises(ParameterError, match="1 or more"):
        share_shape(0, 0)
