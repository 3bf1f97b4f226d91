"""c, by the exact worst case."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.epsilon import keeps, power
from mapveil_client.local.domain import Codes
from mapveil_client.local.staircase_groups import (
    Steps,
    best_thresholds,
    block_extremes,
    blocks_at,
    calibrate,
    staircase_ratio,
)

BITS = 8


def codes_of(values: list[int]) -> Codes:
    code = np.array(sorted(set(values)))
    rank = np.arange(code.size)
    return Codes(code, rank, rank, BITS)


def exact_law(codes: Codes, thresholds: tuple[int, ...], c: Fraction) -> list[list[Fraction]]:
    """Equations 2 to 4 as they stand, in fractions: the slow, obvious oracle."""
    d, m = codes.code.size, len(thresholds)
    law = []
    for x in codes.code.tolist():
        group = []
        for y in codes.code.tolist():
            shared = BITS - (x ^ y).bit_length()
            group.append(next(j for j, t in enumerate(thresholds, start=1) if shared >= t))
        size = [group.count(j) for j in range(1, m + 1)]
        lowest = Fraction(m - 1) / ((m - 1) * d * c - (c - 1) * sum(j * n for j, n in enumerate(size)))
        step = lowest * (c - 1) / (m - 1)
        law.append([lowest * c - (j - 1) * step for j in group])
    return law


def worst(law: list[list[Fraction]]) -> Fraction:
    return max(max(column) / min(column) for column in zip(*law, strict=True))


CODES = st.lists(st.integers(0, (1 << BITS) - 1), min_size=2, max_size=14, unique=True).map(codes_of)


@settings(max_examples=60)
@given(CODES, st.integers(2, 4), st.integers(1, 400))
def test_the_ratio_is_that_of_the_papers_equations(codes: Codes, groups: int, more: int) -> None:
    thresholds = best_thresholds(codes, groups)
    extremes = block_extremes([blocks_at(codes, t) for t in thresholds[:-1]], codes.code.size)
    steps = Steps(more, 16)
    law = exact_law(codes, thresholds, steps.ratio)
    assert all(sum(row) == 1 for row in law)
    assert staircase_ratio(extremes, steps) == worst(law)


@settings(max_examples=40)
@given(CODES, st.integers(2, 4), st.fractions(min_value=Fraction(1, 50), max_value=8, max_denominator=50))
def test_c_is_the_largest_that_keeps_the_promise(codes: Codes, groups: int, epsilon: Fraction) -> None:
    thresholds = best_thresholds(codes, groups)
    extremes = block_extremes([blocks_at(codes, t) for t in thresholds[:-1]], codes.code.size)
    steps = calibrate(extremes, epsilon, 50)
    ratio = staircase_ratio(extremes, steps)
    assert keeps(ratio, epsilon)
    assert float(ratio) == pytest.approx(float(power(epsilon)), rel=1e-9)
    wider = Steps(steps.more + max(1, steps.more >> 20), steps.less)
    assert not keeps(staircase_ratio(extremes, wider), epsilon)
    assert steps.ratio <= power(epsilon)


def test_on_a_regular_grid_c_is_the_exponential() -> None:
    codes = codes_of(list(range(1 << BITS)))
    for thresholds in ((8, 0), (8, 4, 0), (8, 6, 2, 0)):
        extremes = block_extremes([blocks_at(codes, t) for t in thresholds[:-1]], codes.code.size)
        steps = calibrate(extremes, Fraction(2), 45)
        assert float(steps.ratio) == pytest.approx(np.exp(2), rel=1e-9)


def test_the_published_c_breaks_the_promise_on_uneven_domains() -> None:
    generator = np.random.default_rng(1)
    near = (200 + generator.integers(0, 12, 40)).tolist()
    codes = codes_of([*near, *generator.integers(0, 256, 20).tolist()])
    extremes = block_extremes([blocks_at(codes, t) for t in (8, 4)], codes.code.size)
    published = power(Fraction(1)) - 1
    real = staircase_ratio(extremes, Steps(published.numerator, published.denominator))
    assert 1.1 < np.log(float(real)) < 1.8


def test_the_extremes_are_few() -> None:
    codes = codes_of(list(itertools.chain(range(64), range(128, 192))))
    extremes = block_extremes([blocks_at(codes, t) for t in (8, 4)], codes.code.size)
    assert extremes.least.shape == (1, 3)
