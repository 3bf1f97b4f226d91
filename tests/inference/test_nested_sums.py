"""Totals from nested sums: against dense least squares on 300 cells."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

from mapveil.inference.nested_sums import NestedSums
from mapveil.maps.measurement import Measurement
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError

CELLS, UNIT = 300, 1 << 28


def measured(divisor: int, epsilon: Fraction, terms: float = 1.0, seed: int = 0) -> Measurement:
    groups = np.arange(CELLS) // divisor
    noisy = np.random.default_rng(seed + divisor).normal(5, 9, int(groups[-1]) + 1)
    return Measurement(groups, noisy, epsilon, UNIT, terms=terms)


TREES = {
    "single": [(2, Fraction(1), 1.0)],
    "blocks and parts": [(12, Fraction(1, 4), 1.0), (2, Fraction(3, 4), 2.5)],
    "all": [
        (300, Fraction(1, 20), 1.0),
        (60, Fraction(1, 9), 1.0),
        (12, Fraction(1, 4), 3.0),
        (3, Fraction(1), 1.0),
    ],
    "one division twice": [(6, Fraction(1, 2), 1.0), (6, Fraction(1, 3), 1.0), (300, Fraction(1), 1.0)],
}


def dense(
    sums: NestedSums, given: list[Measurement], cells: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A, y and the variances, in the order of the tree: coarsest first."""
    rows, noisy, variances = [], [], []
    for each in sorted(given, key=lambda each: each.noisy.size):
        for group in np.unique(each.groups[cells]):
            row = np.zeros(sums.cells.size)
            row[np.unique(sums.leaf[cells[each.groups[cells] == group]])] = 1
            rows.append(row)
            noisy.append(each.noisy[group])
            variances.append(each.deviation() ** 2)
    return np.array(rows), np.array(noisy), np.array(variances)


@pytest.mark.parametrize("name", list(TREES))
def test_estimates_coefficients_and_variances_are_those_of_dense_least_squares(name: str) -> None:
    rng = np.random.default_rng(4)
    given = [measured(*each) for each in TREES[name]]
    inside = rng.random(CELLS) < 0.85
    sums = NestedSums(given[::-1], inside)
    a, y, variance = dense(sums, given[::-1], np.flatnonzero(inside))
    weighted = a / variance[:, None]
    leaves = sums.cells.size
    np.testing.assert_allclose(sums.estimate, np.linalg.solve(a.T @ weighted, weighted.T @ y), atol=1e-9)
    zones = np.where(rng.random((9, leaves)) < 0.4, rng.random((9, leaves)), 0.0)
    zones[0], zones[1] = 1.0, np.eye(leaves)[3]
    wanted = weighted @ np.linalg.solve(a.T @ weighted, zones.T)
    weights = csr_array(zones)
    np.testing.assert_allclose(np.vstack(sums.coefficients(weights)), wanted, atol=1e-12)
    np.testing.assert_allclose(a.T @ wanted, zones.T, atol=1e-9)
    for error, column in zip(sums.errors(weights), wanted.T, strict=True):
        exact = float(np.sum(column**2 * variance))
        assert error.variance == pytest.approx(exact, rel=1e-9)
        # The law's coefficients are rounded up by 2.2 % at most.
        assert exact * (1 - 1e-9) <= error.noise.variance <= exact * 1.05


def test_a_weight_of_one_stays_one() -> None:
    sums = NestedSums([measured(1, Fraction(1))], np.ones(CELLS, dtype=bool))
    error = next(iter(sums.errors(csr_array(np.ones((1, CELLS))))))
    assert error.noise.variance == pytest.approx(error.variance, rel=1e-12)
    assert error.noise.terms.tolist() == [300]


def test_errors_come_in_the_order_of_the_zones_however_many() -> None:
    sums = NestedSums([measured(12, Fraction(1)), measured(2, Fraction(1))], np.ones(CELLS, dtype=bool))
    zones = csr_array(np.tril(np.ones((150, 150))))
    from mapveil.inference import nested_sums

    together = [each.variance for each in sums.errors(zones)]
    most, nested_sums._AT_ONCE = nested_sums._AT_ONCE, 100
    try:
        apart = [each.variance for each in sums.errors(zones)]
    finally:
        nested_sums._AT_ONCE = most
    assert together == pytest.approx(apart)


def test_groups_that_overlap_are_refused() -> None:
    with pytest.raises(InputError, match="not nested"):
        NestedSums([measured(4, Fraction(1)), measured(6, Fraction(1))], np.ones(CELLS, dtype=bool))


def test_groups_that_leave_out_cells_are_refused() -> None:
    groups = np.arange(CELLS)
    groups[7] = -1
    given = [Measurement(groups, np.zeros(CELLS), Fraction(1), UNIT)]
    with pytest.raises(InputError, match="leave out cells"):
        NestedSums(given, np.ones(CELLS, dtype=bool))
    inside = np.arange(CELLS) != 7
    assert NestedSums(given, inside).leaf[7] == -1


def test_weights_of_adaptive_groups_stay_unbiased() -> None:
    """Any weights keep A'a = w; the variance is that of the coefficients, and little above the optimum."""
    rng = np.random.default_rng(4)
    given = [measured(*each) for each in TREES["all"]]
    inside = rng.random(CELLS) < 0.85
    best, sums = NestedSums(given, inside), NestedSums(given, inside, adaptive=True)
    a, y, variance = dense(sums, given, np.flatnonzero(inside))
    zones = np.where(rng.random((9, sums.cells.size)) < 0.4, rng.random((9, sums.cells.size)), 0.0)
    weights = csr_array(zones)
    found = np.vstack(sums.coefficients(weights))
    np.testing.assert_allclose(a.T @ found, zones.T, atol=1e-9)
    np.testing.assert_allclose(found.T @ y, zones @ sums.estimate, atol=1e-9)
    for error, optimum, column in zip(sums.errors(weights), best.errors(weights), found.T, strict=True):
        assert error.variance == pytest.approx(float(np.sum(column**2 * variance)), rel=1e-9)
        assert optimum.variance * (1 - 1e-9) <= error.variance <= 1.3 * optimum.variance
