"""Mechanisms over secure sums: nobody sees a location, the server sees noisy sums only."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.distributed.adaptive_grid import AdaptiveGrid
    from mapveil.distributed.adaptive_histogram import AdaptiveHistogram
    from mapveil.distributed.count_min_histogram import CountMinHistogram
    from mapveil.distributed.flat_histogram import FlatHistogram
    from mapveil.distributed.hierarchical_histogram import HierarchicalHistogram
    from mapveil.distributed.local_laplace import LocalLaplace
    from mapveil.distributed.mechanism import DistributedMechanism
    from mapveil.distributed.multiscale_histogram import MultiscaleHistogram
    from mapveil.distributed.private_region import find_region
    from mapveil.distributed.proportion_histogram import ProportionHistogram
    from mapveil.distributed.query import NoisySums, Query, Setting
    from mapveil.distributed.spatial_decomposition import SpatialDecomposition
    from mapveil.distributed.uniform_grid import UniformGrid

_MODULES = {
    "AdaptiveGrid": "adaptive_grid",
    "AdaptiveHistogram": "adaptive_histogram",
    "CountMinHistogram": "count_min_histogram",
    "DistributedMechanism": "mechanism",
    "FlatHistogram": "flat_histogram",
    "HierarchicalHistogram": "hierarchical_histogram",
    "LocalLaplace": "local_laplace",
    "MultiscaleHistogram": "multiscale_histogram",
    "NoisySums": "query",
    "ProportionHistogram": "proportion_histogram",
    "Query": "query",
    "Setting": "query",
    "SpatialDecomposition": "spatial_decomposition",
    "UniformGrid": "uniform_grid",
    "find_region": "private_region",
}

__all__ = [
    "AdaptiveGrid",
    "AdaptiveHistogram",
    "CountMinHistogram",
    "DistributedMechanism",
    "FlatHistogram",
    "HierarchicalHistogram",
    "LocalLaplace",
    "MultiscaleHistogram",
    "NoisySums",
    "ProportionHistogram",
    "Query",
    "Setting",
    "SpatialDecomposition",
    "UniformGrid",
    "find_region",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.distributed' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.distributed.{_MODULES[name]}"), name)
