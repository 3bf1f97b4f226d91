"""Questions asked of maps and reports: who is near, who goes where, which way is free."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.analysis.neighbour_map import NeighbourMap
    from mapveil.analysis.origin_destination import OriginDestination
    from mapveil.analysis.trips import Trips, read_trips

__all__ = [
    "NeighbourMap",
    "OriginDestination",
    "Trips",
    "read_trips",
]

_MODULES = {
    "NeighbourMap": "neighbour_map",
    "OriginDestination": "origin_destination",
    "Trips": "trips",
    "read_trips": "trips",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.analysis.{_MODULES[name]}"), name)
