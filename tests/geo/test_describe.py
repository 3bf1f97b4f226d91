"""Descriptions of a table for its curator, which say that they are not private."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
POLYGON = mv.Region.from_polygon(
    {"type": "Polygon", "coordinates": [[[-74, 40.7], [-73.9, 40.7], [-74, 40.8], [-74, 40.7]]]}
)


def test_the_facts_are_those_of_the_table() -> None:
    points = mv.Points.from_arrays(
        ["a", "a", "a", "b", "c"],
        [-74.0, -73.95, 2.0, -73.95, -73.95],
        [40.7, 40.71, 48.0, 40.79, np.nan],
        time=np.array(
            ["2025-01-01", "2025-01-05", "2025-01-02", "2025-01-03", "2025-02-01"], dtype="datetime64[D]"
        ),
    )
    found = mv.describe(points, REGION)
    assert (found.rows, found.users, found.bad_rows, found.inside) == (4, 2, 1, 3)
    assert (found.rows_per_user["least"], found.rows_per_user["most"]) == (1, 3)
    assert found.bbox == (-74.0, 40.7, 2.0, 48.0)
    assert found.times == ("2025-01-01", "2025-01-05")
    assert "row 5, column 'lat' is 'nan'" in (found.first_bad or "")
    assert str(found).splitlines()[0].startswith("NOT PRIVATE")
    assert repr(found) == "Description(arrays)"
    assert json.loads(json.dumps(found.to_dict()))["private"] is False
    assert mv.describe(points, POLYGON).inside == 2


def test_days_that_are_not_read_have_no_order(tmp_path: Path) -> None:
    rows = "user_id,lon,lat,day\na,-74,40.7,31/12/2025\na,-74,40.7,01/02/2026\nb,-74,40.7,2026-01-15\n"
    (tmp_path / "t.csv").write_text(rows, encoding="utf-8")
    found = mv.describe(mv.read_points(tmp_path / "t.csv"))
    assert found.times is None
    assert found.unread_times == (2, "01/02/2026")
    assert "times: 2 of 3 are not read, such as '01/02/2026'" in str(found)


@pytest.mark.parametrize(("lon", "lat", "region"), [(40.75, -74.0, REGION), (40.75, 139.7, None)])
def test_exchanged_columns_are_suspected(lon: float, lat: float, region: mv.Region | None) -> None:
    points = mv.Points.from_arrays([1, 2], [lon, lon], [lat, lat])
    assert mv.describe(points, region).swapped
    assert "are lat and lon swapped?" in str(mv.describe(points, region))
    assert not mv.describe(mv.Points.from_arrays([1], [10.0], [50.0]), region).swapped


def test_a_table_without_rows_is_described() -> None:
    found = mv.describe(mv.Points.from_arrays([], [], []), REGION)
    assert (found.rows, found.users, found.inside, found.bbox) == (0, 0, 0, None)
