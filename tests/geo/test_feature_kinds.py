"""Kinds of features: inferred by name, identifiers never by default, categories as asked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mapveil.geo.feature_kinds import FeatureKind, kind_of
from mapveil.geo.read_measurements import read_measurements
from mapveil_client.errors import InputError


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            FeatureKind.IDENTIFIER,
            [
                *(
                    "cell_id",
                    "raw_cell_id",
                    "arfcn",
                    "phone_id",
                    "Cell ID",
                    "lac",
                    "IMEI",
                    "bssid",
                    "node_hex",
                ),
                *(
                    "rawCellId",
                    "eNodeB",
                    "eNodeBID",
                    "physCellId",
                    "pci1",
                    "cell",
                    "cell_1",
                    "trackingAreaCode",
                ),
                *(
                    "msisdn",
                    "phone_number",
                    "simSerialNumber",
                    "advertisingId",
                    "ip_address",
                    "uid",
                    "userName",
                ),
            ],
        ),
        (
            FeatureKind.CATEGORY,
            ["mnc", "mcc", "network_mode", "band", "is_moving", "building", "networkType", "plmn"],
        ),
        (
            FeatureKind.NUMBER,
            [
                *("speed_kmh", "rss5_dbm", "h_accuracy_m", "wap001_dbm", "ul_kbps", "width", "floor"),
                *("cell_count", "number_of_cells", "phone_battery", "site_distance_m", "final_lat"),
            ],
        ),
    ],
)
def test_names_of_the_shared_data_are_told_apart(kind: FeatureKind, names: list[str]) -> None:
    assert {name: kind_of(name) for name in names} == dict.fromkeys(names, kind)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "user_id": np.arange(60) % 3,
            "lat": draw.normal(35.5, 0.01, 60),
            "lon": draw.normal(24.0, 0.01, 60),
            "rss_dbm": draw.integers(-100, -60, 60),
            "cell_id": draw.choice([60551, 60561], 60),
            "mnc": draw.choice([1, 5, 10], 60),
            "speed": draw.normal(30, 5, 60),
        }
    )


def test_identifiers_are_left_out_and_categories_marked(frame: pd.DataFrame) -> None:
    read = read_measurements(frame)
    assert read.names == ("lat", "lon", "rss_dbm", "mnc", "speed")
    assert read.categories == (3,)
    assert any("identifiers" in note and "cell_id" in note for note in read.notes)


def test_identifiers_by_any_name_are_left_out(frame: pd.DataFrame) -> None:
    users = frame["user_id"].to_numpy()
    told = frame.assign(
        calibration_db=users * 1.37,
        carrier=[f"ssid of {row}" for row in range(60)],
        band=np.where(users == 0, 3, 7),  # one value for each user, but two users share one of two values
    )
    read = read_measurements(told)
    assert read.names == ("lat", "lon", "rss_dbm", "mnc", "speed")
    assert any("one value for each user: calibration_db, band" in note for note in read.notes)
    assert any("of one user each: carrier" in note for note in read.notes)
    # A sixth user shares the second band: too few bands to name users by.
    six = told.assign(user_id=np.arange(60) % 6, band=np.where(np.arange(60) % 6 == 0, 3, 7))
    assert "band" in read_measurements(six).names
    assert "carrier" in read_measurements(told, categories=["carrier"]).names
    assert "calibration_db" in read_measurements(told, identifiers=True).names


def test_whoever_names_columns_confirms_or_overrides(frame: pd.DataFrame) -> None:
    named = read_measurements(frame, features=["speed"], categories=["cell_id"])
    assert (named.names[3:], named.categories) == (("speed", "cell_id"), (4,))
    numbers = read_measurements(frame, features=["mnc"], categories=[])
    assert numbers.categories == ()
    assert read_measurements(frame, features=["cell_id"], identifiers=True).names[3:] == ("cell_id",)
    with pytest.raises(InputError, match=r"column 'cell_id' is an identifier.*as a category"):
        read_measurements(frame, features=["cell_id", "speed"])


def test_identifiers_and_clocks_are_known_by_their_values(frame: pd.DataFrame) -> None:
    draw = np.random.default_rng(2)
    users = frame["user_id"].to_numpy()
    told = frame.assign(
        adid=users * 17 + draw.integers(0, 3, 60),  # two to four of each user, of nobody else
        x_tag=users * 7919.5 + 13 * draw.integers(0, 2, 60),
        tel=draw.choice(draw.integers(6_900_000_000, 6_999_999_999, 4), 60),  # shared, and large
        stamp=1_365_292_563_000 + 60_000 * np.arange(60),
        ts2=1_365_292_563.25 + 60.5 * np.arange(60),
        rss1_dbm=draw.integers(-100, -60, 60),
        altitude_m=users + draw.normal(40, 5, 60).round(),
        northing_m=5_748_000.5 + draw.normal(0, 100, 60),
    )
    read = read_measurements(told)
    kept = ("lat", "lon", "rss_dbm", "mnc", "speed", "rss1_dbm", "altitude_m", "northing_m")
    assert read.names == kept
    notes = "; ".join(read.notes)
    assert "few values for each user, hardly ever another's: adid, x_tag" in notes
    assert "numbers as large as identifiers or epoch times: tel, stamp, ts2" in notes
    assert read_measurements(told, features=["adid", "stamp"]).names[3:] == ("adid", "stamp")
