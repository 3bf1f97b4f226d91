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
