"""Tables of integers: the law they hold is the law they were given, and the one that is drawn."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.randomness.logarithmic import SLOTS, draw_slots, slot_table
from mapveil_client.randomness.random import Randomness

weights = st.lists(st.integers(0, 10**6), min_size=1, max_size=40).filter(any)


@given(weights)
def test_the_table_holds_the_law_to_one_unit_an_outcome(units_of, weights):
    units = units_of(slot_table([Decimal(weight) for weight in weights], range(len(weights))))
    assert sum(units.values()) == 1 << 96
    for at, weight in enumerate(weights):
        assert abs(Fraction(units[at], 1 << 96) - Fraction(weight, sum(weights))) <= Fraction(
            len(weights), 1 << 96
        )


@given(weights, st.integers(-(2**15), 2**15 - 41))
def test_every_slot_gives_its_outcome(prescribed, weights, first):
    outcomes = range(first, first + len(weights))
    table = slot_table([Decimal(weight) for weight in weights], outcomes)
    slots = np.arange(table.first_escape)
    drawn = draw_slots(table, slots.size, prescribed(slots))
    for outcome, weight in zip(outcomes, weights, strict=True):
        assert abs(int((drawn == outcome).sum()) - SLOTS * weight / sum(weights)) <= 1


def test_a_law_of_one_outcome_never_escapes(prescribed):
    table = slot_table([Decimal(3)], [7])
    assert table.first_escape == SLOTS
    assert (draw_slots(table, SLOTS, prescribed(np.arange(SLOTS))) == 7).all()


@pytest.mark.parametrize("size", [3, 3000])
def test_samples_follow_the_law_and_the_test_has_power(size):
    law = np.arange(1, size + 1)
    drawn = draw_slots(slot_table([Decimal(int(w)) for w in law], range(size)), 200_000, Randomness(2))
    observed = np.bincount(drawn, minlength=size)
    group = np.arange(size) * min(size, 50) // size

    def fits(law):
        return stats.chisquare(
            np.bincount(group, observed), np.bincount(group, law) * drawn.size / law.sum()
        ).pvalue

    assert fits(law) > 1e-9
    assert fits(law**1.05) < 1e-9
