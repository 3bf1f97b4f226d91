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
            ["cell_id", "raw_cell_id", "arfcn", "phone_id", "Cell ID", "lac", "IMEI", "bssid"],
        ),
        (FeatureKind.CATEGORY, ["mnc", "mcc", "network_mode", "band", "is_moving", "building"]),
        (
            FeatureKind.NUMBER,
            ["speed_kmh", "rss5_dbm", "h_accuracy_m", "wap001_dbm", "ul_kbps", "width", "floor"],
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


def test_whoever_names_columns_confirms_or_overrides(frame: pd.DataFrame) -> None:
    named = read_measurements(frame, features=["speed"], categories=["cell_id"])
    assert (named.names[3:], named.categories) == (("speed", "cell_id"), (4,))
    numbers = read_measurements(frame, features=["mnc"], categories=[])
    assert numbers.categories == ()
    assert read_measurements(frame, features=["cell_id"], identifiers=True).names[3:] == ("cell_id",)
    with pytest.raises(InputError, match=r"column 'cell_id' is an identifier.*as a category"):
        read_measurements(frame, features=["cell_id", "speed"])
