"""Density from random waves: each report is a projection, hidden among equivalent places, without a formal epsilon."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.projection.fourier_kde import FourierKde
    from mapveil.projection.policy import Policy
    from mapveil.projection.query import Query

__all__ = ["FourierKde", "Policy", "Query"]

_MODULES = {
    "FourierKde": "fourier_kde",
    "Policy": "policy",
    "Query": "query",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.projection' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.projection.{_MODULES[name]}"), name)
