"""Private information retrieval: ask one server for a cell of a map without telling it which."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapveil.retrieval.client import Client
    from mapveil.retrieval.database import Database
    from mapveil.retrieval.faults import OutdatedHint
    from mapveil.retrieval.map_records import MapRecords, map_database
    from mapveil.retrieval.server import Server
    from mapveil.retrieval.shape import Shape

__all__ = ["Client", "Database", "MapRecords", "OutdatedHint", "Server", "Shape", "map_database"]

_MODULES = {
    "Client": "client",
    "Database": "database",
    "MapRecords": "map_records",
    "OutdatedHint": "faults",
    "Server": "server",
    "Shape": "shape",
    "map_database": "map_records",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.retrieval' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.retrieval.{_MODULES[name]}"), name)
