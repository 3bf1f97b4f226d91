"""Local differential privacy: every report is randomized on the device, nobody is trusted with a place."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.local.domain import Domain
    from mapveil.local.generalized_response import GeneralizedRandomizedResponse
    from mapveil.local.staircase_response import StaircaseResponse

__all__ = ["Domain", "GeneralizedRandomizedResponse", "StaircaseResponse"]

_MODULES = {
    "Domain": "domain",
    "GeneralizedRandomizedResponse": "generalized_response",
    "StaircaseResponse": "staircase_response",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.local' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.local.{_MODULES[name]}"), name)
