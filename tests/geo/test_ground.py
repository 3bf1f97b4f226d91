"""The ground of the package: what is land, lake and sea, and which places are named."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

from mapveil.geo.ground import Shapes, cut_lines, ground_of, places_in

NEW_YORK = (-74.3, 40.45, -73.6, 40.95)


def covers(rings: Shapes, lon: float, lat: float) -> bool:
    """Whether a place is inside by the even-odd rule: rings that a ray to the east crosses."""
    crossed = 0
    for start, end in zip(rings.start[:-1], rings.start[1:], strict=True):
        x, y = rings.lon[start:end], rings.lat[start:end]
        spans = (y[:-1] > lat) != (y[1:] > lat)
        at = x[:-1][spans] + (lat - y[:-1][spans]) * (x[1:] - x[:-1])[spans] / (y[1:] - y[:-1])[spans]
        crossed += int((at > lon).sum())
    return crossed % 2 == 1


@pytest.mark.parametrize(
    ("box", "place", "land", "lake"),
    [
        (NEW_YORK, (-73.97, 40.78), True, False),  # Central Park
        (NEW_YORK, (-74.05, 40.50), False, False),  # Lower New York Bay
        ((103.5, 1.1, 104.2, 1.6), (103.82, 1.36), True, False),  # Singapore
        ((103.5, 1.1, 104.2, 1.6), (103.85, 1.20), False, False),  # its strait
        ((-88.5, 41.2, -86.0, 43.0), (-87.0, 42.3), True, True),  # Lake Michigan
        ((46.0, 36.0, 55.0, 47.5), (51.0, 42.0), False, False),  # the Caspian is a hole of the land
    ],
)
def test_land_lakes_and_sea_are_where_they_are(box, place, land, lake):
    ground = ground_of(box)
    assert (covers(ground.land, *place), covers(ground.lakes, *place)) == (land, lake)


def test_a_cut_is_the_same_land_as_the_whole_within_the_box():
    outer, inner = ground_of((-74.4, 40.4, -73.5, 41.0)).land, ground_of(NEW_YORK).land
    there = np.random.default_rng(3).uniform((-74.29, 40.46), (-73.61, 40.94), (200, 2))
    assert [covers(outer, *place) for place in there] == [covers(inner, *place) for place in there]
    west, south, east, north = NEW_YORK
    assert inner.lon.min() >= west
    assert inner.lon.max() <= east
    assert inner.lat.min() >= south
    assert inner.lat.max() <= north


def test_places_come_by_population_and_as_many_as_asked_for():
    names = ground_of(NEW_YORK, most_places=5).places.name
    assert names[:2] == ("New York City", "Brooklyn")
    assert len(names) == 5
    lisbon = ground_of((-9.5, 38.4, -8.9, 39.0)).places
    assert lisbon.name[0] == "Lisbon"
    assert ((lisbon.lon >= -9.5) & (lisbon.lon <= -8.9)).all()
    assert places_in(lisbon, (-9.2, 38.6, -9.0, 38.8)).name[0] == "Lisbon"


def test_a_border_lies_between_its_countries():
    borders = ground_of((7.5, 47.4, 7.7, 47.7)).borders  # Basel
    lines = [
        shapely.LineString(np.column_stack([borders.lon[a:b], borders.lat[a:b]]))
        for a, b in zip(borders.start[:-1], borders.start[1:], strict=True)
    ]
    assert shapely.distance(shapely.union_all(lines), shapely.Point(7.59, 47.585)) < 0.05


def test_the_world_has_less_detail_than_its_file():
    world = ground_of((-180, -90, 180, 90), most_places=50)
    assert 5_000 < world.land.lon.size < 50_000
    assert "Shanghai" in world.places.name
    assert covers(world.land, 10.0, 50.0)


def test_open_ocean_is_empty():
    ground = ground_of((-40.0, 20.0, -39.0, 21.0))
    assert ground.land.lon.size == ground.lakes.lon.size == ground.borders.lon.size == 0
    assert ground.places.name == ()


def test_lines_are_cut_where_they_leave_and_come_back():
    zigzag = Shapes(np.array([-2.0, 2.0, 2.0, -2.0]), np.array([0.0, 0.0, 0.5, 0.5]), np.array([0, 4]))
    cut = cut_lines(zigzag, (-1.0, -1.0, 1.0, 1.0))
    assert cut.start.tolist() == [0, 2, 4]
    assert np.abs(cut.lon).max() == 1.0
