"""Synthetic cities look like tables of people: repeatable, inside, heavy-tailed, around home."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.synthetic import SEA_BOX, city
from mapveil_client.errors import ParameterError


def test_the_seed_decides_everything() -> None:
    first, again, other = (np.sort(city(50, seed).arrays().lon) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_every_user_is_there_and_every_row_is_inside() -> None:
    for region in (None, triangle()):
        made = city(400, 3, region=region)
        made.check()
        rows = made.arrays()
        assert np.unique(rows.users).size == 400
        assert made.region is not None
        assert made.region.contains(rows.lon, rows.lat).all()
        assert made.region.bbox == (SEA_BOX if region is None else region.bbox)


def test_visits_have_a_heavy_tail_and_repeat_places() -> None:
    rows = city(5000, 4).arrays()
    visits = np.bincount(rows.users)
    assert 7 < visits.mean() < 9
    assert np.median(visits) < 0.75 * visits.mean()
    assert visits.max() > 10 * visits.mean()
    # A few cells hold most of the people, as in a city; in a uniform one they hold their share.
    tiling = mv.Quadtree(mv.Region.from_bbox(*SEA_BOX), 6)
    cells = np.sort(np.bincount(tiling.locate(rows.lon, rows.lat), minlength=tiling.size))[::-1]
    assert cells[: tiling.size // 20].sum() > 0.35 * cells.sum()
    # Somebody with many visits goes to far fewer places.
    busiest = rows.users == np.argmax(visits)
    places = np.unique(np.round(np.stack([rows.lon, rows.lat], 1)[busiest], 3), axis=0)
    assert len(places) < visits.max() / 2


def test_people_stay_near_home() -> None:
    rows = city(2000, 5).arrays()
    order = np.argsort(rows.users, kind="stable")
    users, lon, lat = rows.users[order], rows.lon[order], rows.lat[order]
    same = users[1:] == users[:-1]
    own = np.hypot(np.diff(lon)[same], np.diff(lat)[same])
    shuffled = np.random.default_rng(0).permutation(len(lon))
    apart = np.hypot(lon - lon[shuffled], lat - lat[shuffled])
    assert own.mean() < 0.6 * apart.mean()


@pytest.mark.parametrize("name", ["users", "centres", "places", "rows_per_user", "reach_m"])
def test_parameters_are_checked(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be a number of at least 1"):
        city(**{"users": 10, "seed": 1, name: 0})


def triangle() -> mv.Region:
    corners = [[8.0, 47.0], [8.3, 47.0], [8.0, 47.2], [8.0, 47.0]]
    return mv.Region.from_polygon({"type": "Polygon", "coordinates": [corners]})
