"""Mapveil: private maps of where people are.

The names below load on first use, so that ``import mapveil`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mapveil_client.version import __version__

_WHERE = {
    "Region": "mapveil.geo.region",
    "Measurements": "mapveil.geo.measurements",
    "Points": "mapveil.geo.points",
    "Counts": "mapveil.geo.counts",
    "Grid": "mapveil.geo.grid",
    "Quadtree": "mapveil.geo.quadtree",
    "WebMercatorTiles": "mapveil.geo.web_mercator",
    "Places": "mapveil.geo.places",
    "Hexagons": "mapveil.geo.hexagons",
    "read_points": "mapveil.geo.read_points",
    "read_counts": "mapveil.geo.read_counts",
    "read_measurements": "mapveil.geo.read_measurements",
    "DensityMap": "mapveil.maps.density_map",
    "SignalMap": "mapveil.maps.signal_map",
    "Guarantee": "mapveil.privacy.guarantee",
    "Ledger": "mapveil.privacy.ledger",
    "Randomness": "mapveil_client.randomness.random",
}
_PACKAGES = (
    "analysis",
    "attacks",
    "central",
    "distributed",
    "evaluation",
    "geo",
    "local",
    "maps",
    "obfuscation",
    "privacy",
    "random_features",
    "retrieval",
    "secure_sum",
    "synthetic",
)

if TYPE_CHECKING:
    from mapveil import (
        analysis,
        attacks,
        central,
        distributed,
        evaluation,
        geo,
        local,
        maps,
        obfuscation,
        privacy,
        random_features,
        retrieval,
        secure_sum,
        synthetic,
    )
    from mapveil.geo.counts import Counts
    from mapveil.geo.grid import Grid
    from mapveil.geo.hexagons import Hexagons
    from mapveil.geo.measurements import Measurements
    from mapveil.geo.places import Places
    from mapveil.geo.points import Points
    from mapveil.geo.quadtree import Quadtree
    from mapveil.geo.read_counts import read_counts
    from mapveil.geo.read_measurements import read_measurements
    from mapveil.geo.read_points import read_points
    from mapveil.geo.region import Region
    from mapveil.geo.web_mercator import WebMercatorTiles
    from mapveil.maps.density_map import DensityMap
    from mapveil.maps.signal_map import SignalMap
    from mapveil.privacy.guarantee import Guarantee
    from mapveil.privacy.ledger import Ledger
    from mapveil_client import errors as errors
    from mapveil_client.randomness.random import Randomness

__all__ = [
    "Counts",
    "DensityMap",
    "Grid",
    "Guarantee",
    "Hexagons",
    "Ledger",
    "Measurements",
    "Places",
    "Points",
    "Quadtree",
    "Randomness",
    "Region",
    "SignalMap",
    "WebMercatorTiles",
    "__version__",
    "analysis",
    "attacks",
    "central",
    "distributed",
    "errors",
    "evaluation",
    "geo",
    "local",
    "maps",
    "obfuscation",
    "privacy",
    "random_features",
    "read_counts",
    "read_measurements",
    "read_points",
    "retrieval",
    "secure_sum",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name == "errors":
        value = importlib.import_module("mapveil_client.errors")
    elif name in _PACKAGES:
        value = importlib.import_module(f"mapveil.{name}")
    else:
        raise AttributeError(f"module 'mapveil' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
