"""Density from random waves: each report is a projection, hidden among equivalent places, without a formal epsilon."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.projection.device import Device
    from mapveil.projection.federated_kde import FederatedKde
    from mapveil.projection.fourier_kde import FourierKde
    from mapveil.projection.frequencies import FrequencyStore
    from mapveil.projection.planar_laplace import PlanarLaplace
    from mapveil.projection.policy import Policy
    from mapveil.projection.private_fourier_kde import PrivateFourierKde
    from mapveil.projection.query import Query
    from mapveil.projection.zero_features import ZeroFeatures

__all__ = [
    "Device",
    "FederatedKde",
    "FourierKde",
    "FrequencyStore",
    "PlanarLaplace",
    "Policy",
    "PrivateFourierKde",
    "Query",
    "ZeroFeatures",
]

_MODULES = {
    "Device": "device",
    "FederatedKde": "federated_kde",
    "FourierKde": "fourier_kde",
    "FrequencyStore": "frequencies",
    "PlanarLaplace": "planar_laplace",
    "Policy": "policy",
    "PrivateFourierKde": "private_fourier_kde",
    "Query": "query",
    "ZeroFeatures": "zero_features",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.projection' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.projection.{_MODULES[name]}"), name)
