"""Trips: tables of ends and of positions, whose rows may come in any order and under many names."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mapveil as mv
from mapveil.analysis.trips import Trips, cells_of_trips, has_destinations, read_trajectories, read_trips
from mapveil.geo.read_points import open_table
from mapveil.mechanisms.methods import find_method
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

POSITIONS = pd.DataFrame(
    {
        "user_id": ["a", "a", "b", "b", "a", "b", "a"],
        "trip_id": [1, 1, 1, 1, 2, 1, 2],
        "time": pd.Timestamp("2020-01-01")
        + pd.to_timedelta([30, 0, 86400, 86460, 172800, 86430, 172810], unit="s"),
        "lon": [1.1, 1.0, 2.0, 2.2, 3.0, 2.1, 3.1],
        "lat": [48.1, 48.0, 49.0, 49.2, 50.0, 49.1, 50.1],
    }
)  # fmt: skip
ENDS = pd.DataFrame(
    {"user": [7, 7, 9], "lon": [1.0, 1.5, 2.0], "lat": [48.0, 48.5, 49.0],
     "dest_lon": [1.2, 1.6, 2.2], "dest_lat": [48.2, 48.6, 49.2]}
)  # fmt: skip


def test_positions_are_put_in_order_trip_by_trip() -> None:
    read = read_trajectories(POSITIONS)
    assert read.count == 3
    assert read.users.tolist() == [0, 0, 1]
    assert read.lon.tolist() == [1.0, 1.1, 3.0, 3.1, 2.0, 2.1, 2.2]
    assert np.diff(read.start).tolist() == [2, 2, 3]
    departures = read.seconds[read.start[:-1]]
    assert (departures - departures[0]).tolist() == [0, 2 * 86400, 86400]
    assert (read.seconds[1] - read.seconds[0]) == 30


@pytest.mark.parametrize("kind", ["text", "number", "date with zone"])
def test_times_of_any_kind_are_seconds(kind: str) -> None:
    table = POSITIONS.copy()
    if kind == "text":
        table["time"] = table["time"].dt.strftime("%Y-%m-%d %H:%M:%S")
    elif kind == "number":
        table["time"] = (table["time"] - pd.Timestamp("2020-01-01")).dt.total_seconds()
    else:
        table["time"] = table["time"].dt.tz_localize("UTC")
    read, plain = read_trajectories(table), read_trajectories(POSITIONS)
    assert np.diff(read.seconds).tolist() == np.diff(plain.seconds).tolist()


def test_the_ends_of_trajectories_are_their_first_and_last_positions() -> None:
    trips = read_trips(POSITIONS)
    assert trips.origin_lon.tolist() == [1.0, 3.0, 2.0]
    assert trips.destination_lat.tolist() == [48.1, 50.1, 49.2]
    assert trips.users.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "names",
    [
        ("lon", "lat", "dest_lon", "dest_lat"),
        ("pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude"),
        ("Start Lng", "Start Lat", "End Lng", "End Lat"),
        ("lon_o", "lat_o", "lon_d", "lat_d"),
    ],
)
def test_ends_are_found_under_their_usual_names(names: tuple[str, ...]) -> None:
    table = ENDS.rename(columns=dict(zip(("lon", "lat", "dest_lon", "dest_lat"), names, strict=True)))
    trips = read_trips(table)
    assert trips.ends[0].tolist() == [1.0, 1.5, 2.0]
    assert trips.ends[3].tolist() == [48.2, 48.6, 49.2]
    assert has_destinations(table)


def test_ends_can_be_named() -> None:
    table = ENDS.rename(columns={"dest_lon": "wx", "dest_lat": "wy"})
    assert not has_destinations(table)
    assert read_trips(table, destination=("wx", "wy")).destination_lon.tolist() == [1.2, 1.6, 2.2]
    with pytest.raises(InputError, match="no column 'zz'"):
        read_trips(table, destination=("wx", "zz"))


@pytest.mark.parametrize("times", ["dates", "numbers"])
def test_what_was_opened_can_be_read_again(tmp_path: Path, times: str) -> None:
    path, plain = tmp_path / "trips.csv", POSITIONS.copy()
    if times == "numbers":
        plain["time"] = (plain["time"] - pd.Timestamp("2020-01-01")).dt.total_seconds()
    plain.to_csv(path, index=False)
    table = open_table(path)
    assert not has_destinations(table)
    assert read_trajectories(table).count == read_trips(table).count == 3
    assert np.diff(read_trajectories(table).seconds).tolist() == [30, 172770, 10, -86410, 30, 30]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"time": None}, "no column of time"),
        ({"trip_id": None}, "trip ids"),
        ({"time": "never"}, "row 2: the time is missing"),
        ({"lat": 91.0}, "row 2"),
    ],
)
def test_a_bad_table_of_positions_is_one_line(change: dict, says: str) -> None:
    table = POSITIONS.copy()
    for name, value in change.items():
        if value is None:
            table = table.drop(columns=name)
        else:
            table[name] = table[name].astype(object if isinstance(value, str) else float)
            table.loc[1, name] = value
            if isinstance(value, str):
                table[name] = table[name].astype(str)
    with pytest.raises(InputError, match=says) as raised:
        read_trajectories(table)
    assert "\n" not in str(raised.value)


def test_a_table_without_degrees_is_told_the_options_of_trips() -> None:
    named = ENDS.rename(columns={"lon": "east", "lat": "north"})
    assert read_trips(named, origin=("east", "north")).ends[0].tolist() == [1.0, 1.5, 2.0]
    with pytest.raises(
        InputError, match=r"no lon and lat among .*; expected usual names, or columns by origin$"
    ) as raised:
        read_trips(named)
    assert raised.value.in_flags().endswith("or columns by --origin LON,LAT")
    with pytest.raises(InputError, match=r"expected usual names$"):
        read_trajectories(POSITIONS.rename(columns={"lon": "east", "lat": "north"}))
    with pytest.raises(InputError, match="if it is in metres, convert the ends of trips to degrees first"):
        read_trips(ENDS.assign(lon=583_960.0))


@pytest.mark.parametrize("value", [np.nan, 181.0])
def test_a_bad_destination_names_its_row(value: float) -> None:
    table = ENDS.copy()
    table.loc[2, "dest_lon"] = value
    with pytest.raises(
        InputError, match=r"row 3, column 'dest_lon' is .*; expected the longitude of a destination"
    ):
        read_trips(table)


def test_no_trips_and_unequal_ends_are_refused() -> None:
    some, none = np.zeros(2), np.zeros(0)
    with pytest.raises(InputError, match="no trips"):
        Trips(np.zeros(0, dtype=np.int64), none, none, none, none)
    with pytest.raises(InputError, match="equal lengths"):
        Trips(np.zeros(2, dtype=np.int64), some, some, some, none)


def test_a_repr_shows_no_place() -> None:
    stream = io.StringIO()
    print(read_trips(ENDS), read_trajectories(POSITIONS), file=stream)
    assert not any(digits in stream.getvalue() for digits in ("1.2", "48", "3.1"))


REGION = mv.Region.from_bbox(0.0, 48.0, 2.0, 50.0)
DOMAIN = Domain(mv.Grid(REGION, rows=2, columns=2))


def trips_of(users, origins, destinations) -> Trips:
    (a, b), (c, d) = np.array(origins, dtype=float).T, np.array(destinations, dtype=float).T
    return Trips(np.array(users), a, b, c, d)


INSIDE = ([0.5, 49.5], [1.5, 49.5], [0.5, 48.5], [1.5, 48.5])


def test_cells_of_all_trips() -> None:
    trips = trips_of([0, 0, 1], [INSIDE[0], INSIDE[1], INSIDE[2]], [INSIDE[3]] * 3)
    origins, destinations = cells_of_trips(trips, DOMAIN, "drop", Randomness(1), one_each=False)
    assert origins.tolist() == [0, 1, 2]
    assert destinations.tolist() == [3, 3, 3]


def test_a_trip_outside_is_silent_nearest_or_refused() -> None:
    trips = trips_of([0, 1], [INSIDE[0], INSIDE[0]], [INSIDE[3], [9.0, 48.2]])
    silent = cells_of_trips(trips, DOMAIN, "drop", Randomness(1), one_each=False)
    assert silent[0].tolist() == [0]
    nearest = cells_of_trips(trips, DOMAIN, "nearest", Randomness(1), one_each=False)
    assert nearest[1].tolist() == [3, 3]
    with pytest.raises(InputError, match="got one outside"):
        cells_of_trips(trips, DOMAIN, "refuse", Randomness(1), one_each=False)


def test_one_trip_of_each_user_any_with_the_same_odds() -> None:
    users = np.repeat(np.arange(4000), 3)
    trips = trips_of(users, [INSIDE[at % 3] for at in range(12_000)], [INSIDE[3]] * 12_000)
    origins, _ = cells_of_trips(trips, DOMAIN, "drop", Randomness(5), one_each=True)
    assert origins.size == 4000
    counts = np.bincount(origins, minlength=3)
    # Six deviations of a third each; the first trip of everybody would be 4000 of one.
    assert np.abs(counts - 4000 / 3).max() < 6 * np.sqrt(4000 * 2 / 9)


@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_a_map_of_single_locations_refuses_trips_before_any_charge(trust: str, tmp_path: Path) -> None:
    trips: Any = trips_of([0, 1], [INSIDE[0], INSIDE[1]], [INSIDE[2], INSIDE[3]])
    cells = mv.Quadtree(mv.Region.from_bbox(0.0, 48.0, 2.0, 50.0), depth=2)
    account = mv.Account.open("trips", budget=3, ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(InputError, match=r"rows are trips.* by lon=NAME and lat=NAME.* mv\.flows"):
        mv.release(trips.as_points(), cells, epsilon=1, trust=trust, account=account)
    with pytest.raises(ParameterError, match=r"got a Trips; flows are made of trips: mv\.flows"):
        mv.release(trips, cells, epsilon=1, trust=trust, account=account)
    with pytest.raises(InputError, match=r"rows are trips.* mv\.flows"):
        find_method(None, trust).make(Fraction(1), None).release(trips, cells, account=account)
    assert not account.entries
