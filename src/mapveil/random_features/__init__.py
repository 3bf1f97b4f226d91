"""Density from random waves: each report is a projection, hidden among equivalent places, without a formal epsilon."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mapveil_client.random_features.parameters import Policy
from mapveil_client.random_features.query import Query
from mapveil_client.random_features.report import Device

if TYPE_CHECKING:
    from mapveil.random_features.federated_kde import FederatedKde
    from mapveil.random_features.fourier_kde import FourierKde
    from mapveil.random_features.planar_laplace import PlanarLaplace
    from mapveil.random_features.private_fourier_kde import PrivateFourierKde
    from mapveil.random_features.zero_features import ZeroFeatures

__all__ = [
    "Device",
    "FederatedKde",
    "FourierKde",
    "PlanarLaplace",
    "Policy",
    "PrivateFourierKde",
    "Query",
    "ZeroFeatures",
]

_MODULES = {
    "FederatedKde": "federated_kde",
    "FourierKde": "fourier_kde",
    "PlanarLaplace": "planar_laplace",
    "PrivateFourierKde": "private_fourier_kde",
    "ZeroFeatures": "zero_features",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.random_features' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.random_features.{_MODULES[name]}"), name)
