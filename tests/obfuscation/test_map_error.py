"""The error of a map of reports: intervals cover the truth on days that nothing was learnt from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from mapveil.analysis.signal_mapping import signal_map, with_map_error
from mapveil.geo.measurements import LAT, LON, RSS, Measurements
from mapveil.geo.region import Region
from mapveil.maps.signal_map import SignalMap
from mapveil.obfuscation.export.privatizer_file import decode_privatizer, encode_privatizer
from mapveil.obfuscation.privatize import fit_privatizer, privatize, write_privatized
from mapveil.obfuscation.privatized_file import (
    METADATA_KEY,
    privatized_map_error,
    privatized_provenance,
    read_privatized,
)
from mapveil.obfuscation.privatizers.average_case import average_case
from mapveil.obfuscation.privatizers.map_error import MapError, learn_map_error
from mapveil.obfuscation.privatizers.privatizer import FittedPrivatizer
from mapveil.privacy.claim import Reveals
from mapveil_client.errors import InputError, ParameterError

REGION = Region.from_bbox(24.0, 35.5, 24.02, 35.52)
DAY_US = 86_400_000_000


def walks(days: int, seed: int, rows: int = 60) -> Measurements:
    """Walks of ten users: a slope of 20 dB over 2 km, an error of 3 dB per user's day and one of 4 dB per row."""
    draw = np.random.default_rng(seed)
    users, day = (each.ravel() for each in np.meshgrid(np.arange(10), np.arange(days), indexing="ij"))
    own = 3 * draw.normal(size=users.size)
    at = np.repeat(np.arange(users.size), rows)
    lat, lon = draw.uniform(35.5, 35.52, at.size), draw.uniform(24.0, 24.02, at.size)
    strength = -90 + 1000 * (lat - 35.5) + own[at] + 4 * draw.normal(size=at.size)
    return Measurements(
        np.stack([lat, lon, strength], axis=1),
        ("lat", "lon", "rss_dbm"),
        users[at],
        tuple(map(str, range(10))),
        day[at] * DAY_US,
        np.arange(at.size),
    )


@pytest.fixture(scope="module")
def codes() -> FittedPrivatizer:
    return fit_privatizer(walks(6, 1), "codebook", {"mu": 1, "size": 20}, rng=1, days=None)


def covered(found: SignalMap, rows: Measurements) -> float:
    cell = found.tiling.locate(rows.rows[:, LON], rows.rows[:, LAT])
    inside = found.known[cell] & (cell >= 0)
    off = np.abs(found.mean_dbm[cell] - rows.rows[:, RSS])[inside]
    return float((off <= 1.96 * found.deviation_db[cell][inside]).mean())


@pytest.mark.parametrize("model", ["linear", "random-forest"])
def test_intervals_of_privatized_rows_cover_later_days(codes: FittedPrivatizer, model: str) -> None:
    # Codes 300 m and more apart; the reports alone vary far less than the truth around their map.
    reports = codes.privatize_measurements(walks(6, 2), rng=3)
    reports = reports.take(np.isfinite(reports.rows).all(axis=1))
    promise, later = codes.guarantee(seeded=True), walks(6, 4)
    found = [
        covered(
            signal_map(
                reports, "grid:8x8", region=REGION, guarantee=promise, model=model, error=error, rng=5
            ),
            later,
        )
        for error in (None, codes.map_error)
    ]
    # 3,600 rows of 60 users' days: a rate of .95 is within .02 of it.
    assert 0.93 <= found[1] <= 0.995
    assert found[0] < found[1]


def test_the_mean_of_a_cell_has_the_error_of_a_visit_too(codes: FittedPrivatizer) -> None:
    reports = codes.privatize_measurements(walks(6, 2), rng=3)
    promise, error = codes.guarantee(seeded=True), codes.map_error
    assert error is not None
    plain = SignalMap.from_measurements(reports, signal_map(
        reports, "grid:8x8", region=REGION, guarantee=promise).tiling, promise, hole_dbm=-85)  # fmt: skip
    made = with_map_error(plain, error)
    more = (made.deviation_db**2 - plain.deviation_db**2)[plain.known]
    assert more.size > 4
    np.testing.assert_allclose(more, error.visit_db**2)
    np.testing.assert_array_equal(made.mean_dbm, plain.mean_dbm)
    assert made.holes.any()
    assert not made.holes_told().any()
    assert "privatized" in made.scene().reading


def test_a_map_of_reports_says_when_no_error_was_learnt(codes: FittedPrivatizer) -> None:
    reports = codes.privatize_measurements(walks(6, 2), rng=3)
    made = signal_map(reports, "grid:8x8", region=REGION, guarantee=codes.guarantee(seeded=True))
    assert "about reports, not about the truth" in made.notes[-1]


def test_a_known_shift_is_found() -> None:
    true = walks(40, 7, rows=20)
    sent = true.rows.copy()
    sent[:, RSS] = -60.0  # whatever is true: the error is the distance of the truth from it
    error = learn_map_error(true, sent, np.random.default_rng(1))
    assert error is not None
    root = float(np.sqrt(np.square(true.rows[:, RSS] + 60).mean()))
    # 400 users' days of 20 rows: Student's quantile is .3 % above the normal one.
    assert error.row_db == pytest.approx(root, rel=0.02)


def test_a_few_days_widen_it(codes: FittedPrivatizer) -> None:
    true = walks(1, 8, rows=400)
    many = replace(true, time=true.time + np.arange(len(true)) % 40 * DAY_US)
    sent = true.rows.copy()
    sent[:, RSS] = -60.0
    few, other = (learn_map_error(each, sent, np.random.default_rng(1)) for each in (true, many))
    assert few is not None
    assert other is not None
    assert few.row_db > 1.1 * other.row_db  # 2.26 of 9 degrees of freedom against 1.97 of 399


def own_places(users: int) -> Measurements:
    """Users 2 km apart over 10 days: an error of 10 dB that a user's rows share on every day, 1 dB per row."""
    draw = np.random.default_rng(9)
    at = np.repeat(np.arange(users), 400)
    own = np.where(np.arange(users) % 2, 10.0, -10.0)
    lat, lon = 35.5 + 0.02 * at + draw.uniform(0, 0.001, at.size), 24.0 + draw.uniform(0, 0.001, at.size)
    rows = np.stack([lat, lon, -90 + own[at] + draw.normal(size=at.size)], axis=1)
    names, time = ("lat", "lon", "rss_dbm"), np.arange(at.size) % 10 * DAY_US
    return Measurements(rows, names, at, tuple(map(str, range(users))), time, np.arange(at.size))


def test_the_halves_share_no_user_where_there_are_four() -> None:
    # The map at a user's places is of other users' reports, and errs by both own errors: 0 or 20 dB.
    # Halves of users' days would know each user's own error from another day, and find about 1 dB.
    for seed in range(5):
        true = own_places(4)
        error = learn_map_error(true, true.rows, np.random.default_rng(seed))
        assert error is not None
        assert error.split == "users"
        assert error.row_db > 8
    few = own_places(3)
    error = learn_map_error(few, few.rows, np.random.default_rng(1))
    assert error is not None
    assert error.split == "users' days"
    assert error.row_db < 2


def test_a_map_and_its_file_say_what_the_halves_were() -> None:
    reports = walks(2, 2)
    promise = average_case(Reveals.UNDOCUMENTED())
    for split in ("users", "users' days"):
        error = MapError.of_record({"row_db": 3.0, "visit_db": 1.0, "split": split})
        made = signal_map(reports, "grid:4x4", region=REGION, guarantee=promise, error=error)
        assert made.notes[-1].endswith(f"between halves of its {split}")
    # Files written before halves were of users.
    old = MapError.of_record({"row_db": 3.0, "visit_db": 1.0})
    assert old is not None
    assert old.split == "users' days"
    with pytest.raises(ParameterError, match="split must be users or users' days"):
        MapError.of_record({"row_db": 1, "visit_db": 1, "split": "rows"})


def test_no_error_of_one_day_or_of_empty_reports() -> None:
    true = walks(1, 1).take(np.arange(60))
    assert learn_map_error(true, true.rows, np.random.default_rng(1)) is None
    several = walks(2, 1)
    empty = np.full_like(several.rows, np.nan)
    assert learn_map_error(several, empty, np.random.default_rng(1)) is None


def test_files_carry_it(codes: FittedPrivatizer, tmp_path) -> None:
    assert decode_privatizer(encode_privatizer(codes), "file").map_error == codes.map_error
    table = "SELECT 'a' AS user_id, 35.51 AS lat, 24.0 + i / 1000 AS lon, -80 - i AS rss_dbm FROM range(9) AS t(i)"
    for suffix in (".parquet", ".csv"):
        path = tmp_path / f"private{suffix}"
        write_privatized(privatize(codes, table, rng=1), path)
        assert privatized_map_error(path) == codes.map_error
    assert privatized_map_error(table) is None
    with pytest.raises(ParameterError, match="row_db must be a finite number"):
        MapError.of_record({"row_db": -1, "visit_db": 1})


def written(fitted: FittedPrivatizer, path: Path, seed: int) -> Path:
    true = walks(6, seed)
    columns = dict(zip(true.names, true.rows.T, strict=True))
    times = pyarrow.array(true.time + seed * 10 * DAY_US, pyarrow.timestamp("us", "UTC"))
    table = pyarrow.table({"user": true.users, **columns, "time": times})
    write_privatized(privatize(fitted, table, user="user", rng=seed), path)
    return path


def test_files_of_one_privatizer_are_read_as_one(codes: FittedPrivatizer, tmp_path: Path) -> None:
    files = [written(codes, tmp_path / f"part{seed}.parquet", seed) for seed in (2, 3)]
    one, pattern = files[0], str(tmp_path / "part*.parquet")
    error, promise = privatized_map_error(one), read_privatized(one)[1]
    assert error is not None
    assert promise is not None
    for source in (pattern, files, parquet.read_table(one)):
        assert privatized_map_error(source) == error
        assert read_privatized(source)[1] == promise
    early, late, both = map(privatized_provenance, (*files, pattern))
    assert early is not None
    assert late is not None
    assert both == early._replace(last=late.last)
    assert early.last < late.first


def test_files_that_were_not_privatized_alike_are_refused(codes: FittedPrivatizer, tmp_path: Path) -> None:
    other = fit_privatizer(walks(6, 1), "codebook", {"mu": 1, "size": 30}, rng=1, days=None)
    first, second = tmp_path / "a1.parquet", tmp_path / "a2.parquet"
    written(codes, first, 2)
    written(other, second, 2)
    plain = parquet.read_table(first)
    for _ in ("another privatizer", "no record"):
        with pytest.raises(InputError, match=r"a1\.parquet and .*a2\.parquet: were not privatized alike"):
            read_privatized(str(tmp_path / "a*.parquet"))
        parquet.write_table(plain.replace_schema_metadata(None), second)


@pytest.mark.parametrize("damage", ["no guarantee", "another guarantee", "no JSON", "a list"])
def test_a_damaged_record_is_refused_and_not_taken_for_none(
    codes: FittedPrivatizer, tmp_path: Path, damage: str
) -> None:
    path = written(codes, tmp_path / "reports.parquet", 2)
    table = parquet.read_table(path)
    record = json.loads(table.schema.metadata[METADATA_KEY])
    if damage == "no guarantee":
        del record["guarantee"]
    record["guarantee"] = "none" if damage == "another guarantee" else record.get("guarantee")
    text = {"no JSON": "{", "a list": "[]"}.get(damage, json.dumps(record))
    parquet.write_table(
        table.replace_schema_metadata({METADATA_KEY: text.encode()}), path, compression="zstd"
    )
    with pytest.raises(InputError, match=r"reports\.parquet: .*cannot be read"):
        read_privatized(path)


def test_an_error_counts_without_a_guarantee_and_undocumented_rows_are_named(codes: FittedPrivatizer) -> None:
    reports = codes.privatize_measurements(walks(6, 2), rng=3)
    plain = signal_map(reports, "grid:8x8", region=REGION)
    assert "Nothing documents these rows" in plain.notes[-1]
    made = signal_map(reports, "grid:8x8", region=REGION, error=codes.map_error)
    assert codes.map_error is not None
    more = np.square(made.deviation_db) - np.square(plain.deviation_db)
    np.testing.assert_allclose(more[made.known & np.isfinite(more)], codes.map_error.visit_db**2)
    assert not made.holes_known
