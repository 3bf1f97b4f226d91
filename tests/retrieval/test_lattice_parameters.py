"""How often an answer may be wrong: the bound holds, and is not far off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import fftconvolve

from mapveil.retrieval.lattice_parameters import (
    DEVIATION,
    LARGEST_COLUMNS,
    LARGEST_ROWS,
    MODULUS_BITS,
    PLAIN,
    SCALE_BITS,
    failure_log2,
    largest_error,
)

SIGMA = float(DEVIATION)


def test_the_moduli_fit():
    assert PLAIN << SCALE_BITS == 1 << MODULUS_BITS


@pytest.mark.parametrize("terms", [1, 16, 64])
def test_a_sum_of_errors_is_sub_gaussian_of_its_own_variance(terms):
    k = np.arange(-400, 401)
    law = np.exp(-(k**2) / (2 * SIGMA**2))
    law /= law.sum()
    total = law
    for _ in range(int(math.log2(terms))):
        total = fftconvolve(total, total)
    reach = np.abs(np.arange(total.size) - total.size // 2)
    for deviations in (1, 2, 3, 4, 5):
        t = deviations * SIGMA * math.sqrt(terms)
        exact = total[reach >= t].sum()
        bound = 2 * math.exp(-(t**2) / (2 * SIGMA**2 * terms))
        assert bound / 20 < exact <= bound


@pytest.mark.parametrize(("rows", "columns"), [(1, 1 << 16), (8192, 1 << 15), (1 << 20, 1 << 16)])
def test_the_bound_is_the_union_of_its_parts(rows, columns):
    per_byte = 2 * math.exp(-((2**23) ** 2) / (2 * SIGMA**2 * columns * 128**2))
    assert math.isclose(
        failure_log2(rows, columns),
        math.log2(rows * per_byte + (columns + 1024) * 2.0**-88),
        rel_tol=1e-9,
    )


def test_no_accepted_shape_fails_more_often_than_promised():
    assert failure_log2(LARGEST_ROWS, LARGEST_COLUMNS) < -50
    # Twice the columns would not do: the limit is there for a reason.
    assert failure_log2(LARGEST_ROWS, 2 * LARGEST_COLUMNS) > -40


@pytest.mark.parametrize(("rows", "columns"), [(24, 100), (8192, 8192), (1 << 20, 1 << 16)])
def test_the_largest_error_covers_the_normal_tail(rows, columns):
    z = largest_error(rows, columns) / (SIGMA * 128 * math.sqrt(columns))
    assert rows * 2 * stats.norm.sf(z) < 2.0**-40
    assert largest_error(rows, columns) < 1 << (SCALE_BITS - 1)
