"""A device's locations: one row of what a table's devices are, for sums, reports and random features alike."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from mapveil.geo.grid import Grid
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.local.reported_cells import cells_of_users
from mapveil.random_features.visits import visits_of
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.public_windows import PublicWindows
from mapveil_client.randomness.random import Randomness

REGION = Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
USERS = 60


def table(weighted: bool):
    """Users with one to six rows around the region, some outside it."""
    rng = np.random.default_rng(8)
    user = np.repeat(np.arange(USERS), rng.integers(1, 7, USERS))
    lon = rng.uniform(-74.05, -73.88, user.size)
    lat = rng.uniform(40.68, 40.84, user.size)
    lon[:1], lat[:1] = -73.97, 40.77
    weights = np.round(rng.exponential(2.0, user.size), 3) + 0.001 if weighted else None
    points = Points.from_arrays(user, lon, lat, weight=weights, region=REGION)
    own = [
        Whereabouts(lon[user == each], lat[user == each], None if weights is None else weights[user == each])
        for each in range(USERS)
    ]
    return points, own


@pytest.mark.parametrize("weighted", [False, True])
def test_a_device_is_a_row_of_the_tables_devices(new_terms, weighted: bool) -> None:
    points, own = table(weighted)
    tiling = Quadtree(REGION, 4)
    terms = new_terms(tiling=tiling.to_dict())
    whole = devices_of(points, tiling)
    for index, places in enumerate(own):
        row, mine = whole.between(index, index + 1), places.devices(terms)
        assert mine.count == row.count == 1
        order, others = np.argsort(mine.sites), np.argsort(row.sites)
        assert mine.sites[order].tolist() == row.sites[others].tolist()
        assert mine.weights[order].tolist() == row.weights[others].tolist()


@pytest.mark.parametrize("outside", ["drop", "nearest"])
def test_a_device_reports_about_the_cell_that_the_table_says(outside: str) -> None:
    points, own = table(weighted=True)
    domain = Domain(Grid(REGION, 6, 5))
    whole = cells_of_users(points, domain, "most-visited", outside, Randomness(1))
    mine = [places.cell(domain, "most-visited", outside, Randomness(1)) for places in own]
    assert [cell for cell in mine if cell is not None] == whole.tolist()
    assert (None in mine) == (outside == "drop")


def test_a_random_cell_comes_as_often_as_its_weight_says() -> None:
    domain = Domain(Grid(REGION, 1, 2))
    places = Whereabouts(
        np.array([-74.0, -73.92, -73.91]), np.array([40.7, 40.7, 40.8]), np.array([1.0, 1.5, 1.5])
    )
    rng = Randomness(4)
    drawn = [places.cell(domain, "random", "drop", rng) for _ in range(4000)]
    score = (drawn.count(0) - 1000) / (4000 * 0.25 * 0.75) ** 0.5
    assert abs(score) < 6
    assert abs((drawn.count(0) - 4000 / 3) / (4000 * 2 / 9) ** 0.5) > 6  # as often as its rows would be


def test_a_place_outside_is_refused_or_silent() -> None:
    domain = Domain(Grid(REGION, 3, 3))
    both = Whereabouts(np.array([-73.97, 2.35]), np.array([40.77, 48.85]))
    assert both.cell(domain, "most-visited", "refuse", Randomness(1)) is None
    assert both.cell(domain, "most-visited", "drop", Randomness(1)) == 4


@pytest.mark.parametrize("choice", ["mean", "most-visited"])
def test_random_features_see_the_visits_that_the_table_says(choice) -> None:
    points, own = table(weighted=True)
    tiling = Quadtree(REGION, 2)
    visits = list(visits_of(points, tiling, choice))
    seen = [places.visits(tiling, choice) for places in own]
    seen = [each for each in seen if each.lon.size]
    assert len(seen) == sum(each.devices for each in visits)
    rows = [
        (each.places[:, first:last], shares[first:last])
        for each in visits
        for starts in [np.arange(each.devices + 1) if each.starts is None else each.starts]
        for shares in [np.ones(each.places.shape[1]) if each.starts is None else each.shares()]
        for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]
    for (right, share), mine in zip(rows, seen, strict=True):
        plane = np.stack(tiling.region.metric_projection.project(mine.lon, mine.lat))
        assert np.sort(plane[0]) == pytest.approx(np.sort(right[0]), abs=1e-6)
        weight = mine.weights / mine.weights.sum()
        assert float(plane[1] @ weight) == pytest.approx(float(right[1] @ share), rel=1e-12)


def test_places_are_checked_and_never_shown() -> None:
    for lon, lat, weights in (
        ([np.nan], [40.0], None),
        ([1.0, 2.0], [40.0], None),
        ([1.0], [40.0], [-1.0]),
        ([1.0], [40.0], [1.0, 2.0]),
        ([1.0], [np.inf], None),
    ):
        given = None if weights is None else np.array(weights)
        with pytest.raises(InputError, match="device's locations"):
            Whereabouts(np.array(lon), np.array(lat), given)
    place = Whereabouts(np.array([-73.97]), np.array([40.77]))
    assert "73" not in repr(place)
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(place)


def test_a_device_without_weight_is_nowhere(new_terms) -> None:
    nobody = Whereabouts(np.array([-73.97]), np.array([40.77]), np.array([0.0]))
    assert nobody.devices(new_terms()).count == 1
    assert nobody.devices(new_terms()).sites.size == 0
    assert nobody.cell(Domain(Grid(REGION, 2, 2)), "most-visited", "drop", Randomness(1)) is None


@pytest.mark.parametrize("windows", [{"by": "weekday"}, {"by": "purpose", "values": ("work", "leisure")}])
def test_a_device_without_places_is_nowhere_in_a_series(new_terms, windows) -> None:
    """It answers like everybody: that it leaves for want of times would tell that it was in no place."""
    series = PublicWindows(**windows)
    nowhere = Whereabouts(np.zeros(0), np.zeros(0))
    devices = nowhere.devices(new_terms(windows=series.to_dict()))
    assert (devices.count, devices.sites.size) == (1, 0)
    assert nowhere.within(series, 0) is None
    with pytest.raises(InputError, match="have no"):
        Whereabouts(np.array([-73.97]), np.array([40.77])).within(series, 0)
