"""Density from random waves: each report is a projection, hidden among equivalent places, without a formal epsilon."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.random_features.device import Device
    from mapveil.random_features.federated_kde import FederatedKde
    from mapveil.random_features.fourier_kde import FourierKde
    from mapveil.random_features.frequencies import FrequencyStore
    from mapveil.random_features.planar_laplace import PlanarLaplace
    from mapveil.random_features.policy import Policy
    from mapveil.random_features.private_fourier_kde import PrivateFourierKde
    from mapveil.random_features.query import Query
    from mapveil.random_features.zero_features import ZeroFeatures

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
        raise AttributeError(f"module 'mapveil.random_features' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.random_features.{_MODULES[name]}"), name)
