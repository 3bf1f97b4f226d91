"""Maps for the tests of exports: any tiling, known values, one noisy sum a cell."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from mapveil.engines import UNIT
from mapveil.geo.grid import Grid
from mapveil.geo.hexagons import Hexagons
from mapveil.geo.places import Places
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.privacy.claim import Adversary, Assumes, Neighbouring, Share, TrustModel
from mapveil.privacy.guarantee import Guarantee

MapMaker = Callable[..., DensityMap]

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WITH_HOLE = Region.from_polygon(
    {
        "type": "Polygon",
        "coordinates": [
            [[-74.03, 40.69], [-73.95, 40.70], [-73.90, 40.83], [-74.0, 40.80], [-74.03, 40.69]],
            [[-73.98, 40.75], [-73.96, 40.75], [-73.96, 40.77], [-73.98, 40.77], [-73.98, 40.75]],
        ],
    }
)

TILINGS: dict[str, Callable[[], Tiling]] = {
    "grid": lambda: Grid(REGION, rows=5, columns=3),
    "quadtree": lambda: Quadtree(REGION, depth=3),
    "polygon": lambda: Grid(WITH_HOLE, rows=9, columns=7),
    "utm": lambda: Grid(Region.from_bounds_in("EPSG:26918", 580000, 4500000, 590000, 4520000), 6, 4),
    "degrees": lambda: Grid(Region.from_bounds_in("EPSG:4326", 103.6, 1.15, 104.1, 1.47), 4, 8),
    "tiles": lambda: WebMercatorTiles(WITH_HOLE, zoom=14),
    "no georeference": lambda: Quadtree(Region.without_georeference(16, 16), depth=3),
    "hexagons": lambda: Hexagons(REGION, resolution=7),
    "places": lambda: Places(
        np.array([-74.0, -73.95, -73.97, -73.92]), np.array([40.70, 40.72, 40.78, 40.80]), REGION
    ),
}


def make_guarantee(*, seeded: bool = False) -> Guarantee:
    return Guarantee(
        model=TrustModel.CURATOR,
        neighbours=Neighbouring.ADD_OR_REMOVE,
        epsilon=Fraction(1, 3),
        adversary=Adversary.RELEASE,
        assumptions=(Assumes.TABLE_SECRET(),),
        shares=(Share("every cell", Fraction(1, 3)),),
        seeded=seeded,
    )


@pytest.fixture
def make_map() -> MapMaker:
    """A map with awkward values: negative, zero, tiny, huge, not short in decimal."""

    def make(
        kind: str = "quadtree",
        *,
        measured: bool = True,
        seeded: bool = False,
        method: str = "laplace",
        notes: tuple[str, ...] = ("one note",),
        partial: bool = False,
    ) -> DensityMap:
        tiling = TILINGS[kind]()
        values = np.random.default_rng(7).laplace(5.0, 30.0, tiling.size) / 3
        values[:4] = (0.0, -1.25, 1e-9, 123456.789)
        groups = np.arange(tiling.size, dtype=np.int64)
        if partial:
            groups[-1] = -1  # a cell that no measurement covers has no upper bound
        measurements = (Measurement(groups, values, Fraction(1, 3), UNIT),) if measured else ()
        return DensityMap(
            values=values,
            tiling=tiling,
            guarantee=make_guarantee(seeded=seeded),
            method=method,
            parameters={"epsilon": "1/3", "clip": False},
            measurements=measurements,
            notes=notes,
        )

    return make
