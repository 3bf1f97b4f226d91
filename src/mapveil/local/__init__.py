"""Local differential privacy: every report is randomized on the device, nobody is trusted with a place."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.local.disk_area import DiskArea
    from mapveil.local.domain import Domain
    from mapveil.local.generalized_response import GeneralizedRandomizedResponse
    from mapveil.local.hadamard_response import HadamardResponse
    from mapveil.local.hierarchical_hashing import HierarchicalHashing
    from mapveil.local.local_hashing import LocalHashing
    from mapveil.local.planar_laplace import PlanarLaplace
    from mapveil.local.staircase_response import StaircaseResponse
    from mapveil.local.subset_selection import SubsetSelection
    from mapveil.local.unary_encoding import UnaryEncoding

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
    "DiskArea": "disk_area",
    "Domain": "domain",
    "GeneralizedRandomizedResponse": "generalized_response",
    "HadamardResponse": "hadamard_response",
    "HierarchicalHashing": "hierarchical_hashing",
    "LocalHashing": "local_hashing",
    "PlanarLaplace": "planar_laplace",
    "StaircaseResponse": "staircase_response",
    "SubsetSelection": "subset_selection",
    "UnaryEncoding": "unary_encoding",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.local' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.local.{_MODULES[name]}"), name)
