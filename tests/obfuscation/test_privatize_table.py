"""A privatized file: columns and types, emptied columns, ranges, the guarantee inside, input that cannot be used."""

from __future__ import annotations

import decimal
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from mapveil.geo.measurements import Measurements
from mapveil.geo.read_measurements import read_measurements
from mapveil.obfuscation.privatize import privatize, write_privatized
from mapveil.obfuscation.privatized_file import METADATA_KEY, ROWS_KEY, privatized_guarantee, privatized_names
from mapveil.obfuscation.privatizers.gaussian_noise import GaussianNoise
from mapveil.obfuscation.privatizers.local_gaussian import LocalGaussian
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil.privacy.claim import Assumes
from mapveil_client.errors import InputError
from mapveil_client.report_account import ReportBudget

ROWS = 120


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Columns of every type that rows come in; two rows lack their signal strength."""
    draw = np.random.default_rng(1)
    strength = pd.array(draw.integers(-100, -60, ROWS), dtype="Int16")
    strength[[3, 7]] = pd.NA
    return pd.DataFrame(
        {
            "note": [f"seen at {at}" for at in range(ROWS)],
            "user_id": np.arange(ROWS) % 3,
            "time": pd.date_range("2024-05-01", periods=ROWS, freq="min"),
            "lat": draw.normal(35.5, 0.01, ROWS),
            "lon": draw.normal(24.0, 0.01, ROWS).astype(np.float32),
            "rss_dbm": strength,
            "tower": draw.integers(0, 250, ROWS).astype(np.uint8),
            "price": [decimal.Decimal(int(each)) / 100 for each in draw.integers(0, 9_999, ROWS)],
        }
    )


@pytest.fixture(scope="module")
def read(frame: pd.DataFrame) -> Measurements:
    return read_measurements(frame)


@pytest.fixture(scope="module")
def noise(frame: pd.DataFrame) -> FittedPrivatizer:
    return GaussianNoise(sigma=0.5).fit(read_measurements(frame), rng=1)


def test_columns_and_types_are_those_of_the_source(frame: pd.DataFrame, noise: FittedPrivatizer) -> None:
    read = read_measurements(frame)
    assert noise.names == ("lat", "lon", "rss_dbm", "tower", "price")
    made = privatize(noise, frame, rng=1)
    before = pyarrow.Table.from_pandas(frame, preserve_index=False)
    assert made.table.column_names == before.column_names
    kinds = {field.name: field.type for field in made.table.schema}
    assert kinds["lon"] == pyarrow.float32()
    assert kinds["rss_dbm"] == pyarrow.int16()
    assert kinds["tower"] == pyarrow.uint8()
    assert pyarrow.types.is_decimal(kinds["price"])
    assert pyarrow.types.is_timestamp(kinds["time"])
    assert made.emptied == ("note", "user_id", "time")
    assert all(made.table[name].null_count == len(made.table) for name in made.emptied)
    # Rows without a strength are left out: the others are privatized, each by its own noise.
    assert len(made.table) == ROWS - 2
    shift = made.table["lat"].to_numpy() - read.rows[:, 0]
    assert np.std(shift) == pytest.approx(0.5 * float(noise.normalisation.scale[0]), rel=0.3)
    privatized = noise.privatize_measurements(read, rng=1).rows
    np.testing.assert_allclose(made.table["lat"].to_numpy(), privatized[:, 0])
    np.testing.assert_array_equal(made.table["rss_dbm"].to_numpy(), np.rint(privatized[:, 2]))
    np.testing.assert_allclose(
        np.asarray(made.table["price"].to_pandas(), dtype=float),
        privatized[:, 4].clip(-99.99, 99.99),
        atol=0.006,
    )


def test_what_is_kept_is_as_it_was(frame: pd.DataFrame, noise: FittedPrivatizer) -> None:
    made = privatize(noise, frame, keep=("time", "note"), rng=1)
    assert made.emptied == ("user_id",)
    expected = frame["note"].drop([3, 7]).tolist()
    assert made.table["note"].to_pylist() == expected


def test_the_guarantee_names_kept_columns_as_not_protected(
    frame: pd.DataFrame, noise: FittedPrivatizer, tmp_path: Path
) -> None:
    table = frame.rename(columns={"note": "{note}"})
    made = privatize(noise, table, keep=("user_id", "{note}"), rng=1)
    words = made.guarantee.in_words()
    assert "not protected: the columns that were kept as they were ('user_id', '{note}')" in words
    assert "where the kept columns do not tell it" in words
    write_privatized(made, tmp_path / "kept.parquet")
    assert privatized_guarantee(tmp_path / "kept.parquet") == made.guarantee
    none = privatize(noise, frame, rng=1).guarantee
    assert "kept" not in none.in_words()


@pytest.mark.parametrize("name", ["lat", "nowhere"])
def test_what_cannot_be_kept_is_refused(frame: pd.DataFrame, noise: FittedPrivatizer, name: str) -> None:
    with pytest.raises(
        InputError, match=f"'{name}' cannot be kept; columns that are not privatized: note, us"
    ):
        privatize(noise, frame, keep=(name,))


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.floats(1, 1000))
def test_values_stay_in_the_range_of_their_column(
    frame: pd.DataFrame, read: Measurements, noise: FittedPrivatizer, seed: int, sigma: float
) -> None:
    wild = FittedPrivatizer(GaussianNoise(sigma=sigma), noise.normalisation, noise.state)
    made = privatize(wild, frame, rng=seed).table.to_pandas()
    assert made["lat"].between(-90, 90).all()
    assert made["lon"].between(-180, 180).all()
    assert made["rss_dbm"].between(-160, 0).all()
    assert made["tower"].between(0, 255).all()
    assert made["price"].astype(float).abs().max() < 1_000


def test_a_column_reaches_both_ends_of_its_type_and_the_reader_is_told(frame: pd.DataFrame) -> None:
    wild = GaussianNoise(sigma=1000).fit(read_measurements(frame), rng=1)
    made = privatize(wild, frame, rng=2)
    assert set(made.table["tower"].to_pylist()) >= {0, 255}
    assert any("of the privatized rss_dbm were brought into -160 .. 0" in note for note in made.notes)


def test_large_whole_numbers_do_not_wrap_round(frame: pd.DataFrame) -> None:
    large = frame.assign(tower=(np.arange(ROWS, dtype=np.int64) - 60) * (1 << 56))
    read = read_measurements(large, features=["tower"])  # named: numbers this large are left out otherwise
    fitted = GaussianNoise(sigma=5).fit(read, rng=1)
    made = privatize(fitted, large, rng=3).table["tower"].to_numpy()
    wanted = fitted.privatize_measurements(read, rng=3).rows[:, 3]
    assert (np.abs(wanted) > 2.0**63).any()
    assert (np.sign(made) == np.sign(wanted)).all()


def test_text_of_an_untyped_table_becomes_numbers(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    frame.drop(columns=["price"]).to_csv(path, index=False)
    fitted = GaussianNoise(sigma=0.1).fit(read_measurements(path), rng=1)
    made = privatize(fitted, path, rng=2)
    write_privatized(made, tmp_path / "private.csv")
    back = pd.read_csv(tmp_path / "private.csv")
    assert list(back.columns) == [name for name in frame.columns if name != "price"]
    assert back["lat"].dtype == np.float64
    assert back["user_id"].isna().all()
    # Whether all true values are whole shows in no column's type.
    fractional = pd.read_csv(path).assign(rss_dbm=lambda rows: rows["rss_dbm"] + 0.5)
    fractional.to_csv(tmp_path / "fractional.csv", index=False)
    other = privatize(fitted, tmp_path / "fractional.csv", rng=2)
    assert made.table.schema.types == other.table.schema.types
    assert made.table.schema.field("rss_dbm").type == pyarrow.float64()


def test_the_record_of_a_file_says_nothing_exact_of_its_users(
    frame: pd.DataFrame, noise: FittedPrivatizer
) -> None:
    def record(table: pd.DataFrame, budget: ReportBudget | None) -> dict[str, object]:
        made = privatize(noise, table, budget=budget, rng=1)
        assert Assumes.PERIOD_PUBLIC() in made.guarantee.assumptions
        found: dict[str, object] = json.loads(made.table.schema.metadata[METADATA_KEY])
        return found

    more = frame.assign(user_id=0)  # one user with all rows in place of three
    assert record(frame, None)["per_user"] is None
    budget = ReportBudget(None, reports=1000)
    assert record(frame, budget) == record(more, budget)
    assert record(frame, budget)["per_user"] == {"epsilon": None, "delta": 1e-5, "reports": 1000}
    assert (
        privatize(noise, frame.drop(columns="time"), rng=1).guarantee.assumptions
        == noise.guarantee().assumptions
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_file_says_what_was_promised(frame: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"private{suffix}"
    fitted = LocalGaussian(epsilon=8).fit(read_measurements(frame), rng=1)
    made = privatize(fitted, frame)
    write_privatized(made, path)
    assert privatized_guarantee(path) == made.guarantee
    assert made.guarantee.epsilon == 8
    assert not made.guarantee.seeded
    assert privatized_names(path) == fitted.names
    # A server reads it as it reads any other table.
    again = read_measurements(frame.assign(user_id=0).drop(columns=["note"]))
    assert again.names == fitted.names


def test_other_rows_beside_the_record_of_a_csv_are_refused(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Such as the raw rows, under the same name: a server must not take them for private."""
    path = tmp_path / "private.csv"
    write_privatized(privatize(LocalGaussian(epsilon=8).fit(read_measurements(frame), rng=1), frame), path)
    assert privatized_guarantee(path) is not None
    whole = path.read_bytes()
    frame.to_csv(path, index=False)
    with pytest.raises(
        InputError, match=r"its rows are not those that the record in private\.csv-metadata\.json"
    ):
        privatized_guarantee(path)
    path.write_bytes(whole)
    beside = tmp_path / "private.csv-metadata.json"
    record = json.loads(beside.read_text())
    del record[ROWS_KEY]  # an earlier version wrote none
    beside.write_text(json.dumps(record))
    assert privatized_guarantee(path) is not None


def test_other_rows_under_the_metadata_of_a_parquet_file_are_refused(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "private.parquet"
    made = privatize(LocalGaussian(epsilon=8).fit(read_measurements(frame), rng=1), frame)
    write_privatized(made, path)
    written = parquet.read_table(path)
    assert privatized_guarantee(path) == privatized_guarantee(written.slice(0, 50)) == made.guarantee
    raw = pyarrow.Table.from_pandas(frame.drop([3, 7]), preserve_index=False).cast(written.schema)
    # The same rows in another order of bytes are refused too: other programs do not renew the hash.
    for other in (raw.replace_schema_metadata(written.schema.metadata), written.slice(0, 50)):
        parquet.write_table(other, path)
        with pytest.raises(
            InputError, match=r"not those that the record in .*another program rewrote the file"
        ):
            privatized_guarantee(path)


def test_rows_added_to_a_file_are_not_covered(
    frame: pd.DataFrame, noise: FittedPrivatizer, tmp_path: Path
) -> None:
    made = privatize(noise, frame).table
    raw = pyarrow.Table.from_pandas(frame.head(1)).select(made.column_names).cast(made.schema)
    parquet.write_table(pyarrow.concat_tables([made, raw]), tmp_path / "more.parquet")  # it keeps the record
    for source in (tmp_path / "more.parquet", pyarrow.concat_tables([made, raw])):
        with pytest.raises(InputError, match=r"119 rows, its record is of 118: others were added"):
            privatized_guarantee(source)
    # A selection of reports is no less private.
    assert privatized_guarantee(made.slice(0, 50)) == privatized_guarantee(made)


def test_a_seed_repeats_and_is_confessed(frame: pd.DataFrame, noise: FittedPrivatizer) -> None:
    one, same, other = (privatize(noise, frame, rng=seed) for seed in (1, 1, None))
    assert one.table.equals(same.table)
    assert not one.table.equals(other.table)
    assert one.guarantee.seeded
    assert not other.guarantee.seeded


@pytest.mark.parametrize("written", [b"no json", b"[]", b'{"guarantee": {"trust": 3}, "privatized": 4}'])
def test_a_record_that_is_none_is_refused(frame: pd.DataFrame, tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "odd.parquet"
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    parquet.write_table(table.replace_schema_metadata({METADATA_KEY: written}), path)
    with pytest.raises(InputError, match=r"odd\.parquet: .*cannot be read"):
        privatized_guarantee(path)
    parquet.write_table(table.replace_schema_metadata({METADATA_KEY: b"{}"}), path)
    assert privatized_guarantee(path) is None


def test_other_files_promise_nothing(tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("not Parquet")
    assert privatized_guarantee(path) is None
    assert privatized_names(path) is None


def test_other_suffixes_are_refused(frame: pd.DataFrame, noise: FittedPrivatizer, tmp_path: Path) -> None:
    made = privatize(noise, frame)
    with pytest.raises(InputError, match=r"written as \.parquet or \.csv"):
        write_privatized(made, tmp_path / "private.xlsx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sequence", [1, 4])
def test_reports_come_in_no_order_of_the_source_and_runs_stay_together(sequence: int) -> None:
    """The attack: the row before is of the same phone, a moment earlier."""
    count = 400
    frame = pd.DataFrame(
        {
            "user_id": np.arange(count) // 100,
            "lat": 35 + np.arange(count) / 1e4,
            "lon": 24.0 + np.arange(count) % 7 / 1e4,
            "rss_dbm": -60 - np.arange(count) % 40,
        }
    )
    fitted = GaussianNoise(sigma=1e-6, sequence=sequence).fit(read_measurements(frame), rng=1)
    came = np.rint((privatize(fitted, frame).table["lat"].to_numpy() - 35) * 1e4).astype(np.int64)
    assert sorted(came) == list(range(count))
    runs = came.reshape(-1, sequence)
    assert (np.diff(runs, axis=1) == 1).all()
    follows = np.mean(np.abs(np.diff(runs[:, 0] // 100)) == 0)
    assert follows < 0.5  # four users: one in four, 0.22 to 0.28 of 400, more spread of 100 runs
    kept = np.rint((privatize(fitted, frame, rng=1).table["lat"].to_numpy() - 35) * 1e4).astype(np.int64)
    assert kept.tolist() == list(range(count))
