"""``mapveil release --trust distributed``: what is charged, and when; what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapveil as mv
from mapveil.geo.parse_tiling import tiling_from_dict

REGION = mv.Region.from_bbox(139.4, 35.5, 139.9, 35.9)
BOX = "139.4,35.5,139.9,35.9"


@pytest.fixture
def checkins(tmp_path: Path) -> Path:
    city = mv.synthetic.city(users=1500, seed=2, region=REGION).arrays()
    path = tmp_path / "tokyo.parquet"
    pq.write_table(pa.table({"user_id": city.users, "lon": city.lon, "lat": city.lat}), path)
    return path


def spent(mapveil: Callable) -> Fraction:
    lines = json.loads(mapveil("ledger", "--json").out)["entries"]
    return sum((Fraction(line["epsilon"]) for line in lines), Fraction(0))


def test_two_operators_add_up_where_they_are_named(mapveil: Callable, checkins: Path, tmp_path: Path) -> None:
    common = ("release", checkins, "--region", BOX, "--tiling", "quadtree:4", "--epsilon", "1/2", "-o")
    done = mapveil(*common, tmp_path / "m.tif", "--trust", "distributed", "--sums", "operators")
    assert done.code == 0, done.err
    assert "SIMULATION" in done.out + done.err
    assert mv.read_map(tmp_path / "m.tif").guarantee.model == "operators"
    assert spent(mapveil) == Fraction(1, 2)
    refused = mapveil(*common, tmp_path / "n.tif", "--sums", "operators")
    assert (refused.code, spent(mapveil)) == (2, Fraction(1, 2))
    assert "--trust distributed" in refused.err


def test_every_round_is_charged_and_together_they_are_the_budget(
    mapveil: Callable, checkins: Path, tmp_path: Path
) -> None:
    done = mapveil(
        "release", checkins, "--region", BOX, "--tiling", "quadtree:6", "--trust", "distributed",
        "--method", "adaptive", "--shard-size", "500", "--dropout", "0.05", "--epsilon", "1",
        "-o", tmp_path / "m.tif", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["guarantee"]["model"] == "distributed"
    assert sum(Fraction(share["epsilon"]) for share in record["guarantee"]["shares"]) == 1
    assert [each["shards"] for each in record["rounds"]] == [3] * len(record["rounds"])
    assert all(each["included"] == 1425 for each in record["rounds"])
    assert record["ledger"]["spent"] == "1"
    assert spent(mapveil) == 1


@pytest.mark.parametrize("driver", ["ideal", "protocol"])
def test_too_many_dropouts_reveal_cost_and_write_nothing(
    mapveil: Callable, checkins: Path, tmp_path: Path, driver: str
) -> None:
    done = mapveil(
        "release", checkins, "--region", BOX, "--trust", "distributed", "--method", "laplace",
        "--tiling", "quadtree:2", "--secure-sum", driver, "--shard-size", "150", "--dropout", "0.3",
        "--epsilon", "1", "-o", tmp_path / "m.tif", "-o", tmp_path / "m.html",
    )  # fmt: skip
    assert done.code == 1
    assert "nothing is released" in done.err
    assert "nothing was revealed" in done.err
    assert "tolerated_dropout" in done.err
    assert len(done.errors) == 1
    assert not (tmp_path / "m.tif").exists()
    assert not (tmp_path / "m.html").exists()
    assert spent(mapveil) == 0


def test_every_secure_sum_gives_the_same_map(mapveil: Callable, tmp_path: Path) -> None:
    city = mv.synthetic.city(users=60, seed=2, region=REGION).arrays()
    path = tmp_path / "few.parquet"
    pq.write_table(pa.table({"user_id": city.users, "lon": city.lon, "lat": city.lat}), path)
    made, adversaries = [], []
    for driver in ("ideal", "protocol", "active"):
        done = mapveil(
            "release", path, "--region", BOX, "--trust", "distributed", "--method", "adaptive", "--seed", "4",
            "--tiling", "quadtree:3", "--secure-sum", driver, "--shard-size", "30", "--epsilon", "2",
            "-o", tmp_path / f"{driver}.geojson",
        )  # fmt: skip
        assert done.code == 0, done.err
        record = json.loads((tmp_path / f"{driver}.geojson").read_text())
        made.append([cell["properties"]["users"] for cell in record["features"]])
        adversaries.append(record["mapveil"]["guarantee"]["adversary"])
    assert adversaries == ["honest-but-curious server"] * 2 + ["malicious server"]
    assert made[0] == made[1] == made[2]


def test_without_a_region_the_devices_are_asked_for_one(mapveil: Callable, tmp_path: Path) -> None:
    city = mv.synthetic.city(users=20_000, seed=2, region=REGION).arrays()
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"user_id": city.users, "lon": city.lon, "lat": city.lat}), path)
    done = mapveil(
        "release", path, "--trust", "distributed", "--method", "adaptive", "--epsilon", "1", "--seed", "5",
        "-o", tmp_path / "m.tif", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record["guarantee"]["shares"][0]["purpose"] == "the region, cut 1"
    assert sum(Fraction(share["epsilon"]) for share in record["guarantee"]["shares"]) <= 1
    west, south, east, north = tiling_from_dict(record["tiling"]).region.bbox
    # The crowd's middle is in it, and it is no continent; where it ends is the noise's doing.
    assert 138.5 < west < 139.75
    assert 139.55 < east < 140.8
    assert 34.5 < south < 35.8
    assert 35.55 < north < 36.9


def test_a_budget_that_would_not_last_is_refused_before_anybody_is_asked(
    mapveil: Callable, checkins: Path, tmp_path: Path
) -> None:
    done = mapveil(
        "release", checkins, "--region", BOX, "--trust", "distributed", "--method", "adaptive",
        "--epsilon", "4", "-o", tmp_path / "m.tif",
    )  # fmt: skip
    assert done.code == 1
    assert "mapveil ledger --ledger" in done.err
    assert spent(mapveil) == 0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--secure-sum", "ideal"], "secure_sum is for trust distributed or operators only"),
        (["--dropout", "0.1"], "dropout is for trust distributed or operators only"),
        (["--shard-size", "10"], "no option 'shard_size'"),
        (["--trust", "distributed", "--dropout", "1.5"], "dropout must be in [0, 1), got 1.5"),
        (["--trust", "distributed", "--shard-size", "0"], "shard_size must be"),
        (["--trust", "distributed", "--method", "privtree"], "there is one with trust central"),
        (["--sums", "operators"], "or give --trust operators"),
        (["--trust", "nobody"], "central, distributed"),
        (["--trust", "distributed", "--method", "laplace", "--option", "bits=4"], "bits"),
    ],
)
def test_senseless_flags_are_one_line_and_exit_2(
    mapveil: Callable, checkins: Path, tmp_path: Path, flags: list[str], expected: str
) -> None:
    done = mapveil("release", checkins, "--region", BOX, "--epsilon", "1", *flags, "-o", tmp_path / "m.tif")
    assert done.code == 2, done.err
    assert expected in done.err
    assert len(done.errors) == 1
    assert not (tmp_path / "m.tif").exists()
