"""read_measurements: the columns it takes, what it leaves out, and one line for every bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapveil.geo.read_measurements import read_measurements
from mapveil_client.errors import InputError, ParameterError

COLUMNS: dict[str, list[Any]] = {
    "user_id": ["bob", "ann", "bob", "cid"],
    "time": ["2024-05-01 12:00:00", "2024-05-01 12:00:01", "2024-05-02 00:00:00", "2024-05-03 00:00:00"],
    "lon": [24.01, 24.02, 24.03, 24.04],
    "lat": [35.51, 35.52, 35.53, 35.54],
    "speed": [1.5, 0.0, 2.5, 3.0],
    "rss_dbm": [-71, -80, -95, -60],
    "lac": [312, 312, 312, 312],
    "network": ["GSM", "GSM", "UMTS", "GSM"],
}
TABLE = pa.table({**COLUMNS, "time": pa.array(pd.to_datetime(COLUMNS["time"]))})


def changed(**columns: list[Any]) -> pa.Table:
    return pa.table({**{name: TABLE[name] for name in TABLE.column_names}, **columns})


@pytest.mark.parametrize("suffix", ["parquet", "csv", "tsv", "csv.gz", "arrow", "pandas", "polars", "sql"])
def test_every_source_gives_the_same(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"signal.{suffix}"
    source: Any = path
    match suffix:
        case "parquet":
            pq.write_table(TABLE, path)
        case "csv" | "tsv" | "csv.gz":
            pd.DataFrame(COLUMNS).to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
        case "arrow":
            source = TABLE
        case "pandas":
            source = TABLE.to_pandas()
        case "polars":
            source = pl.from_arrow(TABLE)
        case "sql":
            pq.write_table(TABLE, tmp_path / "t.parquet")
            source = f"SELECT * FROM '{tmp_path / 't.parquet'}'"
    read = read_measurements(source)
    assert (read.names, read.categories) == (("lat", "lon", "rss_dbm", "speed", "network"), (4,))
    expected = np.array([*(COLUMNS[name] for name in read.names[:4]), [0, 0, 1, 0]]).T
    assert (read.rows == expected).all()
    assert read.texts == {"network": {"GSM": 0, "UMTS": 1}}
    assert read.user_ids == ("ann", "bob", "cid")
    assert read.users.tolist() == [1, 0, 1, 2]
    assert read.positions.tolist() == [0, 1, 2, 3]
    assert read.time is not None
    assert (read.time == pd.to_datetime(COLUMNS["time"]).astype("datetime64[us]").astype(np.int64)).all()
    left_out = "left out, identifiers: lac"
    assert left_out in read.notes


def test_features_are_taken_in_the_order_they_are_named_in() -> None:
    read = read_measurements(TABLE, features=["lac", "speed"], identifiers=True)
    assert read.names == ("lat", "lon", "rss_dbm", "lac", "speed")
    assert read_measurements(TABLE, features=[]).names == ("lat", "lon", "rss_dbm")
    assert read.notes == ()


def test_any_column_can_be_the_signal_and_the_user() -> None:
    table = TABLE.rename_columns(["who", "time", "lon", "lat", "speed", "level", "lac", "network"])
    with pytest.raises(InputError, match="no column of user ids"):
        read_measurements(table)
    with pytest.raises(InputError, match="no column of signal strength among 'user_id', 'time', 'lon'"):
        read_measurements(TABLE.rename_columns({"rss_dbm": "level"}))
    assert read_measurements(table, user="who", rss="level").names[2] == "level"


def test_the_best_usual_name_is_the_signal() -> None:
    table = changed(rssi=[-50, -51, -52, -53]).append_column("RSRP_dBm", pa.array([-90, -91, -92, -93]))
    assert read_measurements(table).names[2] == "rss_dbm"
    assert read_measurements(table.drop_columns("rss_dbm")).names[2] == "RSRP_dBm"


def test_rows_with_a_missing_value_are_left_out_and_counted() -> None:
    long = pa.concat_tables([TABLE] * 100)
    speed = [float(at % 7) for at in range(400)]
    speed[7] = None
    lon = long["lon"].to_pylist()
    lon[9] = None
    table = pa.table({**{name: long[name] for name in long.column_names}, "speed": speed, "lon": lon})
    read = read_measurements(table)
    assert len(read) == 398
    assert read.positions.tolist() == [at for at in range(400) if at not in (7, 9)]
    assert read.notes[-1] == "2 of 400 rows are left out: a value is missing"
    filled = read_measurements(table, fill=-1)
    assert len(filled) == 399
    assert filled.rows[7, 3] == -1


def test_a_column_with_many_missing_values_is_left_out_or_filled() -> None:
    table = changed(speed=[1.0, None, 2.0, 3.0])
    assert read_measurements(table).names == ("lat", "lon", "rss_dbm", "network")
    assert any(
        "missing in more than 1% of the rows: speed" in note for note in read_measurements(table).notes
    )
    assert read_measurements(table, features=["speed"]).positions.tolist() == [0, 2, 3]
    assert read_measurements(table, fill=-105).rows[:, 3].tolist() == [1.0, -105.0, 2.0, 3.0]
    # A value that is the same wherever it is present still varies when its absence counts.
    heard = changed(speed=[-70.0, None, -70.0, None])
    assert "speed" in read_measurements(heard, fill=-105).names


def test_users_without_a_whole_row_are_in_no_code() -> None:
    table = changed(rss_dbm=[-71, None, -95, -60])
    read = read_measurements(table)
    assert read.user_ids == ("bob", "cid")
    assert read.users.tolist() == [0, 0, 1]


def test_text_that_is_no_number_leaves_a_column_out_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pd.DataFrame(COLUMNS).rename(columns={"network": "street"}).to_csv(path, index=False)
    notes = read_measurements(path).notes
    assert "left out, not numbers: street" in notes
    with pytest.raises(InputError, match="row 1, column 'street' is 'GSM'; expected a finite number"):
        read_measurements(path, features=["street"])


def test_a_nan_among_numbers_is_an_error_even_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pd.DataFrame({**COLUMNS, "speed": [1.5, float("nan"), 2.5, 3.0]}).to_csv(path, index=False, na_rep="nan")
    with pytest.raises(
        InputError, match="row 2, column 'speed' is 'nan'; expected a finite number, or null where"
    ):
        read_measurements(path)
    # An empty field is missing, and so is a frame's NaN.
    pd.DataFrame({**COLUMNS, "speed": [1.5, float("nan"), 2.5, 3.0]}).to_csv(path, index=False)
    assert read_measurements(path, features=["speed"]).positions.tolist() == [0, 2, 3]
    frame = TABLE.to_pandas().assign(speed=[1.5, float("nan"), 2.5, 3.0])
    assert read_measurements(frame, features=["speed"]).positions.tolist() == [0, 2, 3]


BAD: list[tuple[dict[str, list[Any]], str]] = [
    (
        {"rss_dbm": [-71, -80, 12, -60]},
        "row 3, column 'rss_dbm' is '12'; expected a signal strength from -160 to 0 dBm",
    ),
    ({"rss_dbm": [-71, -999, -95, -60]}, "row 2, column 'rss_dbm' is '-999'"),
    (
        {"rss_dbm": [-71.0, -80.0, -95.0, float("nan")]},
        "row 4, column 'rss_dbm' is 'nan'; expected a finite number",
    ),
    ({"speed": [float("inf"), 0.0, 1.0, 2.0]}, "row 1, column 'speed' is 'inf'; expected a finite number"),
    ({"lat": [35.5, 35.5, 135.5, 35.5]}, "row 3, column 'lat' is '135.5'; expected a latitude"),
    ({"lon": [24.0, 24.0, 240.5, 24.0]}, "row 3, column 'lon' is '240.5'; expected a longitude"),
    ({"user_id": ["a", None, "b", "c"]}, "row 2 has no user id"),
    ({"rss_dbm": [None, None, None, None]}, "missing in every row|column 'rss_dbm' for rss is of type"),
]


@pytest.mark.parametrize(("columns", "message"), BAD)
def test_a_bad_value_is_named_with_its_row(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_measurements(changed(**columns))
    assert "\n" not in str(caught.value)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="no column 'power' for rss"):
        read_measurements(TABLE, rss="power")
    with pytest.raises(InputError, match="column 'time' for rss is of type timestamp"):
        read_measurements(TABLE, rss="time")
    with pytest.raises(InputError, match="no column 'power'; its columns are"):
        read_measurements(TABLE, features=["power"])
    with pytest.raises(InputError, match="column 'moment' is of type timestamp"):
        read_measurements(TABLE.append_column("moment", TABLE["time"]), features=["moment"])
    with pytest.raises(InputError, match="'lat' is named twice"):
        read_measurements(TABLE, features=["lat"])
    with pytest.raises(ParameterError, match="a sequence of column names"):
        read_measurements(TABLE, features="speed")
    with pytest.raises(ParameterError, match="fill must be"):
        read_measurements(TABLE, fill=float("inf"))
    with pytest.raises(ParameterError, match=r"fill must be from -160 to 0 dBm .* got 7"):
        read_measurements(changed(rss_dbm=[-71, None, -95, -60]), fill=7)
    with pytest.raises(InputError, match="holds no rows"):
        read_measurements(TABLE.slice(0, 0))


def test_times_may_be_seconds_and_a_column_without_times_is_not_used() -> None:
    seconds = read_measurements(changed(time=[1.5, 2.0, 3.0, 4.0]))
    assert seconds.time is not None
    assert seconds.time.tolist() == [1_500_000, 2_000_000, 3_000_000, 4_000_000]
    unread = changed(time=["today", "2024-05-01", "soon", "late"])
    assert read_measurements(unread).time is None
    assert any(
        "column 'time' is not used: it holds no time of the years 1 to 9999 in 3 rows" in n
        for n in read_measurements(unread).notes
    )
    with pytest.raises(
        InputError, match="row 1, column 'time' is 'today'; expected a time of the years 1 to 9999"
    ):
        read_measurements(unread, time="time")


def test_a_repr_tells_no_values() -> None:
    assert repr(read_measurements(TABLE)) == "Measurements(Table: lat, lon, rss_dbm, speed, network)"


def test_points_of_a_frame_in_any_reference_system_are_places() -> None:
    geopandas = pytest.importorskip("geopandas")
    rows = {"user_id": ["a", "b"], "rss_dbm": [-80.0, -90.0]}
    frame = geopandas.GeoDataFrame(
        rows, geometry=geopandas.points_from_xy([24.0, 24.1], [35.5, 35.6]), crs=4326
    )
    read = read_measurements(frame.to_crs(32635))
    assert read.names == ("lat", "lon", "rss_dbm")
    np.testing.assert_allclose(read.rows[:, :2], [[35.5, 24.0], [35.6, 24.1]], atol=1e-8)
    with pytest.raises(InputError, match="points with a CRS"):
        read_measurements(frame.set_crs(None, allow_override=True))


@pytest.mark.parametrize("held", ["[1]", "{'a': 1}", "MAP {'a': 1}"])
def test_user_ids_are_no_lists_or_records(held: str) -> None:
    with pytest.raises(
        InputError, match=r"column 'user_id' for user holds lists or records.*expected one number"
    ):
        read_measurements(f"SELECT {held} AS user_id, 35.5 AS lat, 24.0 AS lon, -71 AS rss_dbm")


def test_times_are_of_the_years_1_to_9999() -> None:
    late = (
        "SELECT 1 AS user_id, 35.5 AS lat, 24.0 AS lon, -71 AS rss_dbm, moment AS time "
        "FROM (VALUES (TIMESTAMP '9999-12-31 23:59:59'), (TIMESTAMP '10000-01-01')) AS rows(moment)"
    )
    read = read_measurements(late)
    assert read.time is None
    assert any("no time of the years 1 to 9999 in 1 rows" in note for note in read.notes)
    with pytest.raises(InputError, match=r"row 2, column 'time' is .10000-01-01.*years 1 to 9999"):
        read_measurements(late, time="time")


@pytest.mark.parametrize("strength", ["7", "'nan'::DOUBLE"])
def test_errors_end_with_what_is_expected(strength: str) -> None:
    with pytest.raises(InputError, match=r"[a-z]$"):
        read_measurements(f"SELECT 1 AS user_id, 35.5 AS lat, 24.0 AS lon, {strength} AS rss_dbm")
