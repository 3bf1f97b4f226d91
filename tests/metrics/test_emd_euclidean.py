"""The Euclidean earth mover's distance against transport over all pairs, on cells that are square and not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from mapveil.metrics.emd import emd
from mapveil.metrics.emd_euclidean import emd_euclidean
from mapveil.metrics.emd_network import compass_network


def over_all_pairs(p: np.ndarray, q: np.ndarray, cell: tuple[float, float]) -> float:
    row, column = np.divmod(np.arange(p.size), p.shape[1])
    cost = np.hypot((row[:, None] - row) * cell[1], (column[:, None] - column) * cell[0])
    leaves, enters = np.kron(np.eye(p.size), np.ones(p.size)), np.kron(np.ones(p.size), np.eye(p.size))
    sides = np.concatenate([p.ravel() / p.sum(), q.ravel() / q.sum()])
    return float(linprog(cost.ravel(), A_eq=np.vstack([leaves, enters])[:-1], b_eq=sides[:-1]).fun)


@pytest.mark.parametrize("cell", [(1.0, 1.0), (100.0, 137.0), (3.0, 1.0)])
@pytest.mark.parametrize("shape", [(5, 6), (1, 7), (6, 2)])
def test_within_its_bound_of_transport_over_all_pairs(
    shape: tuple[int, int], cell: tuple[float, float]
) -> None:
    longer = compass_network(*shape, *cell)[1]
    for seed in range(4):
        p, q = np.random.default_rng(seed).pareto(0.8, (2, *shape))
        exact, found = over_all_pairs(p, q, cell), emd_euclidean(p, q, cell=cell)
        assert (
            exact * 2 / (1 + longer) * (1 - 1e-6) <= found <= exact * 2 * longer / (1 + longer) * (1 + 1e-6)
        )
        assert found <= emd(p, q, cell=cell)


def test_straight_lines_in_all_directions_are_within_the_bound() -> None:
    truth = np.zeros((21, 21))
    truth[10, 10] = 1.0
    longer = compass_network(21, 21, 1.0, 1.0)[1]
    assert longer == pytest.approx(1 / math.cos(math.atan(0.5) / 2))
    for row, column in ((0, 0), (0, 10), (3, 20), (20, 13), (5, 0), (10, 11)):
        estimate = np.zeros((21, 21))
        estimate[row, column] = 1.0
        ratio = emd_euclidean(truth, estimate, cell=(1.0, 1.0)) / math.hypot(row - 10, column - 10)
        assert 2 / (1 + longer) - 1e-9 <= ratio <= 2 * longer / (1 + longer) + 1e-9
    assert emd_euclidean(truth, truth) == 0
