"""Constrained inference against plain least squares."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapveil.local.estimators.tree_consistency import make_consistent


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 10**6), st.booleans())
def test_it_is_the_least_squares_solution(top: int, depth: int, seed: int, known: bool) -> None:
    generator = np.random.default_rng(seed)
    children, widths = [], [top]
    for _ in range(depth):
        count = generator.integers(1, 4, widths[-1])
        children.append(count)
        widths.append(int(count.sum()))
    estimates = [generator.normal(size=width) for width in widths]
    variances = generator.uniform(0.2, 3, len(widths)).tolist()
    rows, right, leaf_of = [], [], np.arange(widths[-1])
    parents = [leaf_of]
    for count in reversed(children):
        parents.append(np.repeat(np.arange(count.size), count)[parents[-1]])
    for level, parent in enumerate(reversed(parents)):
        for node in range(widths[level]):
            rows.append((parent == node) / np.sqrt(variances[level]))
            right.append(estimates[level][node] / np.sqrt(variances[level]))
    a, b = np.array(rows, dtype=float), np.array(right)
    total = 1.0 if known else None
    if known:  # Lagrange
        n = widths[-1]
        system = np.block([[a.T @ a, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        wanted = np.linalg.solve(system, np.append(a.T @ b, 1.0))[:n]
    else:
        wanted = np.linalg.lstsq(a, b, rcond=None)[0]
    np.testing.assert_allclose(make_consistent(estimates, variances, children, total), wanted, atol=1e-8)
