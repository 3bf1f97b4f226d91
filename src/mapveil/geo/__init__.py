"""Where: regions, points, counts and the tilings that divide a region into cells."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Functions that share their module's name: loaded later, the module would take the name's place.
from mapveil.geo.parse_tiling import parse_tiling, tiling_from_dict
from mapveil.geo.read_counts import read_counts
from mapveil.geo.read_measurements import read_measurements
from mapveil.geo.read_points import read_points, read_source
from mapveil_client.cells import Lattice

if TYPE_CHECKING:
    from mapveil.geo.counts import Counts
    from mapveil.geo.grid import Grid
    from mapveil.geo.hexagons import Hexagons
    from mapveil.geo.measurements import Measurements
    from mapveil.geo.places import Places
    from mapveil.geo.points import Points
    from mapveil.geo.quadtree import Quadtree
    from mapveil.geo.region import Region
    from mapveil.geo.tiling import HierarchicalTiling, Tiling
    from mapveil.geo.web_mercator import WebMercatorTiles

__all__ = [
    "Counts",
    "Grid",
    "Hexagons",
    "HierarchicalTiling",
    "Lattice",
    "Measurements",
    "Places",
    "Points",
    "Quadtree",
    "Region",
    "Tiling",
    "WebMercatorTiles",
    "parse_tiling",
    "read_counts",
    "read_measurements",
    "read_points",
    "read_source",
    "tiling_from_dict",
]

_MODULES = {
    "Counts": "counts",
    "Grid": "grid",
    "Hexagons": "hexagons",
    "HierarchicalTiling": "tiling",
    "Measurements": "measurements",
    "Places": "places",
    "Points": "points",
    "Quadtree": "quadtree",
    "Region": "region",
    "Tiling": "tiling",
    "WebMercatorTiles": "web_mercator",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mapveil.geo' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mapveil.geo.{_MODULES[name]}"), name)
