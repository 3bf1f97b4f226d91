"""The sum of reports at any points, wave by wave: the slow, obvious oracle of the transforms."""

from __future__ import annotations

import numpy as np

from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Reports

_BLOCK = 256  # waves


def direct_surface(reports: Reports, query: Query, points: FloatArray) -> FloatArray:
    """S of :mod:`mapveil.random_features.surface` at points of shape (dimension, points)."""
    frequencies = reports.frequencies.reshape(query.dimension, -1)
    strengths = reports.projections.reshape(-1)[:, None]
    total = np.zeros(points.shape[1])
    offset = points - np.asarray(query.origin)[:, None]
    for start in range(0, strengths.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        phase = np.tensordot(frequencies[:, part], offset, axes=(0, 0))
        total += (strengths[part] * np.exp(-1j * phase)).real.sum(axis=0)
    return total / query.features
