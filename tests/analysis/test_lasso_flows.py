"""The Lasso on marginals, against a dense solver and its own optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mapveil.analysis.lasso_flows import estimate_lasso
from mapveil_client.errors import ParameterError


def design(size: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    matrix = np.zeros((2 * size, first.size))
    matrix[first, np.arange(first.size)] = 1
    matrix[size + second, np.arange(first.size)] = 1
    return matrix


def problem(seed: int, size: int, kept: float):
    generator = np.random.default_rng(seed)
    first, second = np.nonzero(generator.random((size, size)) < kept)
    if first.size == 0:
        first, second = np.array([0]), np.array([size - 1])
    origins, destinations = (
        generator.dirichlet(np.ones(size)) + generator.normal(0, 0.02, size) for _ in range(2)
    )
    return origins, destinations, first, second


@given(seed=st.integers(0, 10_000), size=st.integers(2, 6), penalty=st.sampled_from([0.001, 0.01, 0.1, 0.5]))
@settings(max_examples=25, deadline=None)
def test_the_objective_is_that_of_a_dense_solver(seed: int, size: int, penalty: float) -> None:
    origins, destinations, first, second = problem(seed, size, 0.6)
    matrix, wanted = design(size, first, second), np.concatenate([origins, destinations])
    weight = penalty * max((matrix.T @ wanted).max(), 0)

    def objective(w: np.ndarray) -> float:
        return 0.5 * float(((wanted - matrix @ w) ** 2).sum()) + weight * float(w.sum())

    slow = minimize(
        objective,
        np.full(first.size, 0.1),
        jac=lambda w: matrix.T @ (matrix @ w - wanted) + weight,
        method="L-BFGS-B",
        bounds=[(0, None)] * first.size,
        options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 10_000},
    )
    found = estimate_lasso(origins, destinations, first, second, penalty=penalty)
    assert (found.frequency >= 0).all()
    assert objective(found.frequency) <= slow.fun + 2e-7 * 0.5 * float(wanted @ wanted) + 1e-12


@given(seed=st.integers(0, 10_000), penalty=st.sampled_from([0.01, 0.2]))
@settings(max_examples=15, deadline=None)
def test_nothing_can_be_moved_for_a_gain(seed: int, penalty: float) -> None:
    origins, destinations, first, second = problem(seed, 8, 0.5)
    found = estimate_lasso(origins, destinations, first, second, penalty=penalty, gap=1e-12)
    matrix, wanted = design(8, first, second), np.concatenate([origins, destinations])
    slope = matrix.T @ (matrix @ found.frequency - wanted) + penalty * (matrix.T @ wanted).max()
    assert slope.min() > -1e-5
    assert np.abs(slope[found.frequency > 1e-4]).max(initial=0) < 1e-4
    assert found.gap + 1e-15 >= 0


def test_candidates_that_decide_it_are_found() -> None:
    # With as many candidates as a permutation has pairs the marginals tell everything.
    generator = np.random.default_rng(0)
    first, second = np.arange(10), generator.permutation(10)
    truth = generator.dirichlet(np.ones(10))
    origins, destinations = np.zeros(10), np.zeros(10)
    origins[first], destinations[second] = truth, truth
    found = estimate_lasso(origins, destinations, first, second, penalty=1e-4, gap=1e-13)
    np.testing.assert_allclose(found.frequency, truth, atol=1e-3)


def test_marginals_alone_do_not_tell_pairs() -> None:
    # Two quite different sets of trips with the same ends have one and the same estimate.
    swapped, straight = np.array([[0, 0.5], [0.5, 0]]), np.array([[0.5, 0], [0, 0.5]])
    first, second = np.nonzero(np.ones((2, 2)))
    made = [estimate_lasso(j.sum(1), j.sum(0), first, second).frequency for j in (swapped, straight)]
    np.testing.assert_array_equal(*made)


def test_a_larger_penalty_keeps_less() -> None:
    origins, destinations, first, second = problem(3, 8, 0.7)
    sums = [
        estimate_lasso(origins, destinations, first, second, penalty=penalty).frequency.sum()
        for penalty in (0.01, 0.1, 0.5, 0.99)
    ]
    assert sums == sorted(sums, reverse=True)
    assert sums[-1] < 0.1 * sums[0]


def test_nothing_is_kept_of_negative_marginals() -> None:
    found = estimate_lasso(np.full(3, -0.1), np.full(3, -0.1), np.arange(3), np.arange(3))
    assert not found.frequency.any()


@pytest.mark.parametrize(("penalty", "count"), [(0.0, 3), (1.0, 3), (float("nan"), 3), (0.1, 0)])
def test_what_is_refused(penalty: float, count: int) -> None:
    with pytest.raises(ParameterError, match=r"must be|expected"):
        estimate_lasso(np.ones(3), np.ones(3), np.arange(count), np.arange(count), penalty=penalty)
