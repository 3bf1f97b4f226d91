"""The sum of reports on a grid by the transform, and at any points by its definition."""

from __future__ import annotations

import numpy as np

from mapveil.random_features.surface import evaluate_on_grid
from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.query import EvenGrid, Query
from mapveil_client.random_features.report import Reports

_BLOCK = 256  # frequencies


def kernel_sum(reports: Reports, query: Query, grid: EvenGrid | None = None) -> FloatArray:
    """S of :mod:`mapveil.random_features.surface` on a grid, by default the query's."""
    at = grid or query.grid
    assert at is not None
    return evaluate_on_grid(reports, query, at) / query.features


def direct_surface(reports: Reports, query: Query, points: FloatArray) -> FloatArray:
    """S at points of shape (dimension, points), by its definition."""
    frequencies = reports.frequencies.reshape(query.dimension, -1)
    strengths = reports.projections.reshape(-1)[:, None]
    total = np.zeros(points.shape[1])
    offset = points - np.asarray(query.origin)[:, None]
    for start in range(0, strengths.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        phase = np.tensordot(frequencies[:, part], offset, axes=(0, 0))
        total += (strengths[part] * np.exp(-1j * phase)).real.sum(axis=0)
    return total / query.features
