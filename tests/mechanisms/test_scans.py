"""The number of readings of a table in a release, all of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mapveil as mv
from mapveil.geo.tables import StreamTable
from mapveil.privacy.population import see
from mapveil.random_features.fourier_kde import FourierKde
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil_client.errors import InputError

REGION = mv.Region.from_bbox(139.4, 35.5, 139.9, 35.9)
USERS = 3000


class Counted:
    """A table whose readings are counted; each reading yields other rows if ``hostile``."""

    def __init__(self, *, hostile: bool = False) -> None:
        rows = mv.synthetic.city(users=USERS, seed=1, region=REGION).arrays()
        self.frame = pa.table({"user_id": rows.users, "lon": rows.lon, "lat": rows.lat})
        self.readings, self.hostile = 0, hostile
        self.points = mv.read_points(StreamTable(self.frame.schema, self.batches, "counted"))
        self.readings = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.readings += 1
        frame = self.frame
        if self.hostile:
            frame = frame.filter(np.random.default_rng(self.readings).random(frame.num_rows) < 0.3)
        yield from frame.to_batches(10_000)


@pytest.mark.parametrize("region", [REGION, None], ids=["region", "no region"])
@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_a_release_reads_its_table_once(trust: str, region: mv.Region | None, tmp_path) -> None:
    counted = Counted()
    account = mv.Account.open("city", budget=20, ledger=tmp_path / "ledger.sqlite")
    mv.release(counted.points, "quadtree:4", epsilon=8, region=region, trust=trust, account=account)
    assert account.spent > 0
    assert counted.readings == 1


def test_a_local_collection_reads_its_table_once(tmp_path) -> None:
    counted = Counted()
    account = mv.Account.open("city", budget=20, ledger=tmp_path / "ledger.sqlite")
    mv.release(counted.points, "quadtree:3", epsilon=2, region=REGION, trust="local", account=account)
    assert counted.readings == 1


@pytest.mark.parametrize(
    "mechanism",
    [
        mv.mechanisms.Multiscale(epsilon=2),
        mv.mechanisms.Multiscale(epsilon=2, trust=SecureAggregation()),
        mv.mechanisms.GeneralizedRandomizedResponse(epsilon=2),
        FourierKde(bandwidth_m=400),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_mechanism_reads_its_table_once_and_checks_its_outputs_too(mechanism: Any, tmp_path: Path) -> None:
    counted, cells = Counted(hostile=True), mv.Places([139.5, 139.6, 139.7], [35.6, 35.7, 35.8], REGION)
    account = mv.Account.open("city", budget=20, ledger=tmp_path / "ledger.sqlite")
    with pytest.raises(InputError, match="GeoTIFF holds a raster"):
        mechanism.release(counted.points, cells, account=replace(account, outputs=(tmp_path / "m.tif",)))
    assert (account.spent, counted.readings) == (0, 0)
    mechanism.release(counted.points, mv.Quadtree(REGION, depth=3), account=account)
    assert counted.readings == 1


def test_the_copy_gives_the_same_map() -> None:
    points = Counted().points
    cells = mv.Quadtree(REGION, depth=4)
    direct = mv.mechanisms.Multiscale(epsilon=1).release(points, cells, rng=5)
    np.testing.assert_array_equal(mv.release(points, cells, epsilon=1, rng=5).values, direct.values)


def test_a_table_that_differs_from_reading_to_reading_is_one_table_while_it_is_held() -> None:
    counted = Counted(hostile=True)
    with counted.points.held_once() as held:
        assert len({held.arrays().lon.size for _ in range(3)}) == 1
        with held.held_once() as again:
            assert again is held
    assert counted.readings == 1
    assert counted.points.arrays().lon.size != counted.points.arrays().lon.size


IDS = {
    "HUGEINT": "170141183460469231731687303715884000000 + range",
    "DECIMAL(38, 0)": "9007199254740993 + range",
    "UBIGINT": "18446744073709500000 + range",
    "BLOB": "encode('u' || range)",
    "VARCHAR": "'u' || range",
    "TIMESTAMP": "TIMESTAMP '2025-01-01' + INTERVAL (range) MICROSECOND",
}


@pytest.mark.parametrize(("kind", "made"), IDS.items(), ids=IDS)
def test_the_copy_tells_ids_apart_as_the_table_does(kind: str, made: str) -> None:
    points = mv.read_points(f"SELECT ({made})::{kind} AS user_id, -74.0 AS lon, 40.7 AS lat FROM range(1000)")
    with points.held_once() as held:
        assert np.unique(held.arrays().users).size == 1000
        digests = []
        for table in (held, points):
            with see(table, bytes(32)) as seen:
                digests.append(seen.digest)
        assert digests[0] == digests[1]


def test_the_copy_lies_in_a_folder_of_its_owner_and_is_removed() -> None:
    points = mv.synthetic.city(users=20, seed=1)
    with points.held_once() as held:
        (path,) = held.table.paths
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert {each.name for each in path.parent.iterdir()} == {"points.parquet"}
    assert not path.parent.exists()
