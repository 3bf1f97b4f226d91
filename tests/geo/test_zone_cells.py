"""Zones as cells: their locations, their records, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.tiling import Tiling
from mapveil.geo.zone_cells import ZoneCells
from mapveil.geo.zones import Zones
from mapveil_client.errors import InputError

BOXES = [shapely.box(0, 0, 1, 1), shapely.box(1, 0, 3, 1), shapely.Polygon([(0, 1), (3, 1), (1, 3)])]
ZONES = ZoneCells(Zones.read(BOXES))


@given(st.lists(st.tuples(st.floats(-1, 4), st.floats(-1, 4)), min_size=1, max_size=20))
def test_a_location_is_in_the_first_zone_that_holds_it(places: list[tuple[float, float]]) -> None:
    lon, lat = np.array(places).T
    slow = [next((i for i, box in enumerate(BOXES) if box.intersects(shapely.Point(p))), -1) for p in places]
    assert ZONES.locate(lon, lat).tolist() == slow


def test_is_a_tiling_that_its_record_makes_again() -> None:
    assert isinstance(ZONES, Tiling)
    again = tiling_from_dict(json.loads(json.dumps(ZONES.to_dict())))
    assert shapely.equals(again.polygons(), ZONES.polygons()).all()
    assert again.to_dict() == ZONES.to_dict()
    assert (again.area_m2() > 0).all()
    lon, lat = again.centres()
    assert again.locate(lon, lat).tolist() == [0, 1, 2]


def test_overlapping_zones_and_a_single_one_are_refused() -> None:
    with pytest.raises(InputError, match="must not overlap, got 1 pair that does: 1 and 2"):
        ZoneCells(Zones.read([shapely.box(0, 0, 2, 1), shapely.box(1, 0, 3, 1)]))
    with pytest.raises(InputError, match="two polygons or more, got 1"):
        ZoneCells(Zones.read([shapely.box(0, 0, 1, 1)]))
