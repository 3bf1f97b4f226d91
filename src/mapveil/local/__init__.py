"""Local differential privacy: every report is randomized on the device, nobody is trusted with a place."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mapveil_client.local.domain import Domain

if TYPE_CHECKING:
    from mapveil.local.randomizers.disk_area import DiskArea
    from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
    from mapveil.local.randomizers.hadamard_response import HadamardResponse
    from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing
    from mapveil.local.randomizers.local_hashing import LocalHashing
    from mapveil.local.randomizers.planar_laplace import PlanarLaplace
    from mapveil.local.randomizers.staircase_response import StaircaseResponse
    from mapveil.local.randomizers.subset_selection import SubsetSelection
    from mapveil.local.randomizers.unary_encoding import UnaryEncoding

__all__ = [
    "DiskArea",
    "Domain",
    "GeneralizedRandomizedResponse",
    "HadamardResponse",
    "HierarchicalHashing",
    "LocalHashing",
    "PlanarLaplace",
    "StaircaseResponse",
    "SubsetSelection",
    "UnaryEncoding",
]

_MODULES = {
    "DiskArea": "randomizers.disk_area",
    "GeneralizedRandomizedResponse": "randomizers.generalized_response",
    "HadamardResponse": "randomizers.hadamard_response",
    "HierarchicalHashing": "randomizers.hierarchical_hashing",
    "LocalHashing": "randomizers.local_hashing",
    "PlanarLaplace": "randomizers.planar_laplace",
    "StaircaseResponse": "randomizers.staircase_response",
    "SubsetSelection": "randomizers.subset_selection",
    "UnaryEncoding": "randomizers.unary_encoding",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.local' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.local.{_MODULES[name]}"), name)
