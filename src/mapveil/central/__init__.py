"""Mechanisms of the trusted curator: epsilon-DP of what is released, one file each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.central.adaptive_grid import AdaptiveGrid
    from mapveil.central.emd_heatmap import EmdHeatmap
    from mapveil.central.laplace_histogram import LaplaceHistogram
    from mapveil.central.mechanism import CentralMechanism
    from mapveil.central.multiscale_heatmap import MultiscaleHeatmap
    from mapveil.central.private_region import choose_region
    from mapveil.central.privtree import PrivTree
    from mapveil.central.spatial_decomposition import SpatialDecomposition
    from mapveil.central.thresholded_histogram import ThresholdedHistogram

__all__ = [
    "AdaptiveGrid",
    "CentralMechanism",
    "EmdHeatmap",
    "LaplaceHistogram",
    "MultiscaleHeatmap",
    "PrivTree",
    "SpatialDecomposition",
    "ThresholdedHistogram",
    "choose_region",
]

_MODULES = {
    "AdaptiveGrid": "adaptive_grid",
    "CentralMechanism": "mechanism",
    "EmdHeatmap": "emd_heatmap",
    "LaplaceHistogram": "laplace_histogram",
    "MultiscaleHeatmap": "multiscale_heatmap",
    "PrivTree": "privtree",
    "SpatialDecomposition": "spatial_decomposition",
    "ThresholdedHistogram": "thresholded_histogram",
    "choose_region": "private_region",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.central' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.central.{_MODULES[name]}"), name)
