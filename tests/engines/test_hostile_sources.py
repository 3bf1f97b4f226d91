"""The contribution bound over sources that differ from reading to reading: a user counts one at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapveil as mv
from mapveil.engines import UNIT, user_sums
from mapveil.engines.contributions import user_cells, user_rows
from mapveil.geo.tables import StreamTable
from mapveil.local.reported_cells import cells_of_users
from mapveil.random_features.visits import visits_of
from mapveil.trust.secure_aggregation.clients import devices_of
from mapveil_client.contribution import encode_places
from mapveil_client.level_encoding import LevelEncoding
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

USERS, ROWS = 64, 20_000
REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
TILING = mv.Grid(REGION, columns=USERS, rows=64)


def visits() -> pa.Table:
    """Rows of 64 users: user u is only ever in column u of the grid, whose sum is therefore the norm of the user."""
    generator = np.random.default_rng(7)
    user = generator.integers(0, USERS, ROWS)
    west, south, east, north = REGION.bbox
    return pa.table(
        {
            "user_id": user,
            "lon": west + (user + 0.5) / USERS * (east - west),
            "lat": generator.uniform(south + 1e-6, north, ROWS),
            "visits": generator.integers(1, 100, ROWS),
        }
    )


def growing(path: Path) -> StreamTable:
    """A file to which somebody appends rows between readings."""
    frame = visits()
    pq.write_table(frame.slice(0, ROWS // 20), path)
    readings = iter(range(2, 21))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pq.read_table(path).to_batches()
        pq.write_table(frame.slice(0, ROWS // 20 * next(readings)), path)

    return StreamTable(frame.schema, batches, "a growing file")


def relation(path: Path) -> duckdb.DuckDBPyRelation:
    pq.write_table(visits(), path)
    return duckdb.connect().sql(f"SELECT * FROM '{path}' WHERE random() < 0.1")


def sql(text: str) -> Callable[[Path], str]:
    def make(path: Path) -> str:
        pq.write_table(visits(), path)
        return text.format(f"'{path}'")

    return make


SOURCES: dict[str, Callable[[Path], object]] = {
    "a sample by chance": sql("SELECT * FROM {} WHERE random() < 0.1"),
    "a sample of the engine's": sql("SELECT * FROM {} USING SAMPLE 10% (bernoulli)"),
    "some rows by chance": sql("SELECT * FROM {} ORDER BY random() LIMIT 2000"),
    "weights by chance": sql("SELECT user_id, lon, lat, 1 + floor(1000 * random()) AS visits FROM {}"),
    "a relation run anew": relation,
    "a growing file": growing,
}


@pytest.fixture(params=[None, "visits"], ids=["rows", "weights"])
def weight(request: pytest.FixtureRequest) -> str | None:
    return request.param


@pytest.fixture(params=SOURCES.values(), ids=SOURCES)
def points(request: pytest.FixtureRequest, weight: str | None, tmp_path: Path) -> mv.Points:
    return mv.read_points(request.param(tmp_path / "visits.parquet"), weight=weight)


def test_exact_sums_hold_no_more_than_one_of_any_user(points: mv.Points) -> None:
    for _ in range(3):
        norms = user_sums(points, TILING).sums.reshape(64, USERS).sum(axis=0)
        assert norms.max() <= UNIT
        shares = user_cells(points, TILING)
        assert max(part.sum() for part in np.split(shares.shares, shares.starts[1:-1])) <= UNIT


def test_a_client_of_a_secure_sum_divides_one(points: mv.Points) -> None:
    devices = devices_of(points, TILING)
    assert devices.count <= USERS
    scale = 1 << 10
    encoding = LevelEncoding.of_members(6, (6,), np.ones(4**6, dtype=np.int64))
    vectors = encode_places(devices, encoding, scale, "largest-remainder", Randomness(1))
    assert np.bincount(vectors.client, np.abs(vectors.value), devices.count).max() <= scale


def test_a_client_reports_about_one_cell(points: mv.Points) -> None:
    for choice in ("most-visited", "random"):
        cells = cells_of_users(points, Domain(TILING), choice, "drop", Randomness(1))
        assert np.bincount(cells % USERS).max() == 1  # the column is the user


def test_a_client_projects_one_distribution(points: mv.Points) -> None:
    devices = 0
    for part in visits_of(points, TILING, chunk=997):
        devices += part.devices
        shares = part.shares()
        assert shares is None or np.add.reduceat(shares, part.starts[:-1]).max() == pytest.approx(1)
    assert devices <= USERS


def test_no_user_is_in_two_chunks(points: mv.Points) -> None:
    seen = [set(part.user.tolist()) for part in user_rows(points, TILING, chunk=997)]
    assert len(seen) > 1
    assert sum(map(len, seen)) == len(set.union(*seen)) <= USERS


def test_one_copy_serves_a_whole_release(points: mv.Points) -> None:
    with points.held_once() as held:
        first, second = (user_sums(held, TILING).sums for _ in range(2))
    np.testing.assert_array_equal(first, second)
