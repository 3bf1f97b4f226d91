"""The example check-ins: small, inside the box, without the ids and times of their source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapveil as mv

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "checkins_nyc.parquet"
SOURCE = ROOT / "../shared/data/gowalla_nyc_checkins.parquet"


def test_the_example_is_small_and_whole() -> None:
    assert EXAMPLE.stat().st_size <= 2_000_000
    table = pq.read_table(EXAMPLE)
    assert table.schema == pa.schema(
        {"user_id": pa.int32(), "day": pa.date32(), "lat": pa.float64(), "lon": pa.float64()}
    )
    assert table.num_rows == 108_152
    assert np.unique(table["user_id"]).size == 5_898
    for name, low, high in (("lon", -74.03, -73.90), ("lat", 40.69, 40.83)):
        values = np.asarray(table[name])
        assert low <= values.min()
        assert values.max() <= high
        np.testing.assert_array_equal(values, np.round(values, 5))


def test_the_example_is_read_as_points() -> None:
    points = mv.read_points(EXAMPLE)
    assert points.columns == ("user_id", "lon", "lat", "day", None, None, None, None)
    points.check()


def test_its_ids_and_order_are_not_those_of_the_source() -> None:
    if not SOURCE.exists():
        pytest.skip("no ../shared/data beside the repository")
    table, source = pq.read_table(EXAMPLE), pq.read_table(SOURCE)
    ids, old = np.unique(table["user_id"]), np.unique(source["user_id"])
    assert np.intersect1d(ids, old).size == 0
    # Nor do they follow the order of the source's: first rows of users, by new id and by old.
    user, lon = np.asarray(source["user_id"]), np.asarray(source["lon"])
    lat = np.asarray(source["lat"])
    inside = (lon > -74.03) & (lon < -73.90) & (lat > 40.69) & (lat < 40.83)
    rows_new = np.bincount(np.searchsorted(ids, np.asarray(table["user_id"])))
    rows_old = np.unique(user[inside], return_counts=True)[1]
    assert np.array_equal(np.sort(rows_new), np.sort(rows_old))
    assert abs(np.corrcoef(rows_new, rows_old)[0, 1]) < 0.1


def test_its_citation_is_beside_it() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for part in ("Cho", "Leskovec", "KDD 2011", "terms", "make_checkins_nyc.py"):
        assert part in text
