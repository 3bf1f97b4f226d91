"""Released maps as databases: what a client reads is what the map says, cell for cell."""

from __future__ import annotations

import numpy as np
import pytest

import mapveil as mv
from mapveil.retrieval.map_records import MapRecords, map_database
from mapveil.retrieval.pir_client import Client
from mapveil.retrieval.pir_server import Server
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.randomness.random import Randomness

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
PLACES = np.random.default_rng(1)
TILINGS = {
    "quadtree": mv.Quadtree(REGION, depth=4),
    "grid": mv.Grid(REGION, rows=7, columns=5),
    "hexagons": mv.Hexagons(REGION, 7),
    "tiles": mv.WebMercatorTiles(REGION, 13),
    "places": mv.Places(PLACES.uniform(-74.03, -73.90, 90), PLACES.uniform(40.69, 40.83, 90), REGION),
}


def released(tiling):
    rng = np.random.default_rng(2)
    users = [str(i) for i in range(300)]
    points = mv.Points.from_arrays(users, rng.uniform(-74.03, -73.90, 300), rng.uniform(40.69, 40.83, 300))
    return mv.mechanisms.LaplaceHistogram(epsilon=1).release(points, tiling, rng=Randomness(3))


def connected(database):
    server = Server(database, compiled=False)
    client = Client(server.offer())
    for message in server.hint_messages():
        client.receive_hint(message)
    return server, client


@pytest.mark.parametrize("name", TILINGS)
def test_any_map_cell_for_cell(name):
    heat = released(TILINGS[name])
    server, client = connected(map_database(heat, ("users", "lower", "upper"), queries=1))
    record = MapRecords.of(client.offer.about)
    assert record.tiling.spec == heat.tiling.spec
    assert record.metadata["guarantee_in_words"] == heat.guarantee.in_words()
    bounds = heat.error()
    expected = np.stack([heat.values, bounds.lower, bounds.upper], axis=1)
    rng = Randomness(4)
    found = {}
    for cell in range(0, heat.tiling.size, client.offer.shape.per_column):
        message, opening = client.query(cell, rng)
        column = client.open_column(opening, server.answer(message))
        for at, row in enumerate(record.values(column.records)):
            found[column.first + at] = row
    assert np.array_equal(np.array([found[cell] for cell in range(heat.tiling.size)]), expected)


@pytest.mark.parametrize("name", TILINGS)
def test_a_client_finds_its_cell_by_itself(name):
    tiling = TILINGS[name]
    record = MapRecords.of(map_database(released(tiling)).about)
    lon, lat = tiling.centres()
    assert record.cell(lon[3], lat[3]) == tiling.locate(lon[3:4], lat[3:4])[0]


def test_a_place_outside_is_refused_and_not_repeated():
    record = MapRecords.of(map_database(released(TILINGS["grid"])).about)
    with pytest.raises(InputError, match="inside the map") as caught:
        record.cell(-70.125, 41.5)
    assert "70.125" not in str(caught.value)


def test_users_alone_are_the_default():
    heat = released(TILINGS["grid"])
    database = map_database(heat)
    record = MapRecords.of(database.about)
    assert record.fields == ("users",)
    assert [float(record.values(database.record(i))[0]) for i in range(35)] == heat.values.tolist()


@pytest.mark.parametrize("fields", [(), ("users", "users"), ("users", "people")])
def test_fields_that_the_map_has_not(fields):
    with pytest.raises(ParameterError, match="users, lower, upper"):
        map_database(released(TILINGS["grid"]), fields)


def test_a_new_release_is_another_version():
    heat = released(TILINGS["grid"])
    assert map_database(heat).version == map_database(heat).version
    assert map_database(heat).version != map_database(heat.merge_below(1.0)).version


@pytest.mark.parametrize(
    "about", [b"", b"{}", b"[1]", b"\xff", b'{"fields":["users"],"map":{"tiling":{"kind":"x"}}}']
)
def test_an_offer_of_something_else(about):
    with pytest.raises(InputError):
        MapRecords.of(about)


def test_records_of_another_length():
    record = MapRecords.of(map_database(released(TILINGS["grid"])).about)
    with pytest.raises(InputError, match="a record of users must have 8 bytes, got 7"):
        record.values(bytes(7))
