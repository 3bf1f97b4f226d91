"""``mapveil attack random-features``: from a table, from a released map, its files, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mapveil as mv

from .conftest import NOT_PRIVATE

BOX = "-74.03,40.69,-73.90,40.83"
FEW = ("--devices", "8", "--answers", "1", "--features", "1", "--bandwidths", "150")
ASKED = ("--region", BOX, "--tiling", "quadtree:5", "--option", "features=1", "--option", "bandwidth_m=150")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import mapveil as mv
    from mapveil.random_features.fourier_kde import FourierKde

    region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    city = mv.synthetic.city(users=300, seed=1, region=region)
    path = tmp_path_factory.mktemp("released") / "features.parquet"
    FourierKde(bandwidth_m=150, features=2).release(city, mv.Quadtree(region, depth=5), rng=1).save(path)
    return path


def test_a_table_is_reported_on_and_written(
    mapveil: Callable, table: Path, tmp_path: Path, headings: list[str]
) -> None:
    outputs = [tmp_path / f"report.{suffix}" for suffix in ("html", "png", "json")]
    flags = [part for output in outputs for part in ("-o", output)]
    done = mapveil("attack", "random-features", table, *ASKED, *FEW, *flags)
    assert done.code == 0, done.err
    assert "score" in done.out
    assert "a list of" in done.out
    assert "do not publish" in done.err
    assert "exact phases tell exact places apart" in done.err
    assert headings == [NOT_PRIVATE] * 2
    assert outputs[0].read_text().startswith("<!doctype html>")
    assert outputs[1].read_bytes().startswith(b"\x89PNG")
    record = json.loads(outputs[2].read_text())
    assert record["settings"]["devices scored"] > 200
    assert done.out.count("wrote ") == 3


def test_json_and_a_seed_that_repeats(mapveil: Callable, table: Path) -> None:
    first = mapveil("attack", "random-features", table, *ASKED, *FEW, "--json")
    assert json.loads(first.out) == json.loads(
        mapveil("attack", "random-features", table, *ASKED, *FEW, "--json").out
    )
    other = mapveil("attack", "random-features", table, *ASKED, *FEW, "--json", "--seed", "3")
    assert json.loads(other.out)["servers"] != json.loads(first.out)["servers"]


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import mapveil as mv

    region = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
    city = mv.synthetic.city(users=300, seed=1, region=region)
    path = tmp_path_factory.mktemp("private") / "private.parquet"
    mv.release(city, mv.Quadtree(region, depth=5), epsilon=1, account=None, rng=1).save(path)
    return path


def test_a_released_map_brings_its_own(mapveil: Callable, released: Path, private: Path) -> None:
    done = mapveil("attack", "random-features", released, "--prior", private, *FEW, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["settings"]["features"], record["settings"]["bandwidth_m"]) == (2, 150)
    assert record["settings"]["tiling"] == "quadtree:5"
    assert {row["features"] for row in record["costs"]} == {1, 2}
    refused = mapveil("attack", "random-features", released, "--region", BOX)
    assert refused.code == 2
    assert "brings its own" in refused.err
    alone = mapveil("attack", "random-features", released)
    assert alone.code == 2
    assert "--prior is required with a released map" in alone.err


def test_a_prior_is_a_private_map_or_a_raster(
    mapveil: Callable, table: Path, released: Path, private: Path
) -> None:
    done = mapveil("attack", "random-features", table, *ASKED, *FEW, "--prior", private, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["settings"]["known prior"] == "private.parquet"
    refused = mapveil("attack", "random-features", table, *ASKED, *FEW, "--prior", released, "--json")
    assert refused.code == 2
    assert "a prior must be an external population or a private map" in refused.err


def test_a_raster_of_counts(mapveil: Callable, tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    np.savez(path, values=np.random.default_rng(1).poisson(2.0, (32, 32)))
    done = mapveil("attack", "random-features", path, "--option", "bandwidth_m=0.5", *FEW[:-2], "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["unit"] == "cells"


def test_without_a_bandwidth_the_rule_chooses(mapveil: Callable, table: Path) -> None:
    done = mapveil(
        "attack", "random-features", table, *ASKED[:4], "--option", "neighbours=2", *FEW[:-2], "--json"
    )
    assert done.code == 0, done.err
    assert 50 < json.loads(done.out)["settings"]["bandwidth_m"] < 2000


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "needs a region"),
        (("--region", BOX, "--option", "bandwidth_m=0"), "bandwidth_m must be"),
        (("--region", BOX, "--option", "bandwidth_m=-5"), "bandwidth_m must be"),
        (("--region", BOX, "--option", "bandwidth_m=0.0015"), "degrees"),
        (("--region", BOX, "--option", "features=0"), "features must be"),
        (("--region", BOX, "--option", "wings=2"), "wings"),
        ((*ASKED, "--features", "1,two"), "--features must be"),
        ((*ASKED, "--features", "0"), "--features must be"),
        ((*ASKED, "--bandwidths", "150,-1"), "--bandwidths must be"),
        ((*ASKED, "--bandwidths", "nan"), "--bandwidths must be"),
        ((*ASKED, "--devices", "0"), "at least 1 of each"),
        ((*ASKED, "--step-m", "1"), "half a cell"),
        ((*ASKED, "--ratio", "0.5"), "at least 1"),
        ((*ASKED, "--prior", "nowhere.tif"), "nowhere.tif"),
        ((*ASKED, "-o", "report.pdf"), ".html, .png, .json"),
        ((*ASKED, "-o", "no/such/folder/report.html"), "must exist"),
        (("--region", "10,10,11,11", "--option", "bandwidth_m=150"), "no row lies inside the region"),
    ],
)
def test_bad_input_is_one_line(mapveil: Callable, table: Path, flags: tuple[str, ...], expected: str) -> None:
    done = mapveil("attack", "random-features", table, *flags)
    assert done.code == 2, done.err
    assert expected in done.err
    assert len(done.errors) == 1
    assert not done.out


def test_no_such_file_and_a_map_by_another_method(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    assert mapveil("attack", "random-features", tmp_path / "none.parquet", *ASKED).code == 2
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet")
    done = mapveil("attack", "random-features", broken, *ASKED)
    assert done.code == 2
    assert len(done.errors) == 1
    other = tmp_path / "other.parquet"
    made = mapveil("release", table, "--region", BOX, "--tiling", "quadtree:4", "--epsilon", "1", "-o", other)
    assert made.code == 0, made.err
    done = mapveil("attack", "random-features", other)
    assert done.code == 2
    assert "must be released by fourier-kde, got multiscale" in done.err


MEMBERSHIP = ("--region", BOX, "--tiling", "quadtree:5", "--methods", "laplace", "--groups", "8")


def test_membership_is_reported_and_written(
    mapveil: Callable, table: Path, tmp_path: Path, headings: list[str]
) -> None:
    outputs = [tmp_path / f"report.{suffix}" for suffix in ("html", "png", "json")]
    done = mapveil(
        "attack", "membership", table, *MEMBERSHIP, *(part for path in outputs for part in ("-o", path))
    )
    assert done.code == 0, done.err
    assert "no adversary can in more than 73%" in done.out
    assert "It does not prove" in done.out
    assert "do not publish" in done.err
    assert headings == [NOT_PRIVATE] * 2
    page = outputs[0].read_text()
    assert "it is NOT private" in page
    assert "no adversary can in more than 73%" in page
    assert outputs[1].read_bytes().startswith(b"\x89PNG")
    record = json.loads(mapveil("attack", "membership", table, *MEMBERSHIP, "--json").out)
    assert json.loads(outputs[2].read_text()) == record
    ours = mv.attack_membership(
        mv.read_points(table), "quadtree:5", region=mv.Region.parse(BOX), methods=["laplace"], groups=8
    )
    assert json.loads(json.dumps(ours.to_dict())) == record
    assert [row["published"] for row in record["memberships"]] == [
        "people per cell",
        "cells of 5 people or more",
        "laplace, epsilon 1",
    ]


def test_membership_of_a_released_map(mapveil: Callable, table: Path, tmp_path: Path) -> None:
    heat, others = tmp_path / "map.parquet", tmp_path / "others.csv"
    asked = ("--region", BOX, "--tiling", "quadtree:5", "--epsilon", "2", "--seed", "1")
    assert mapveil("release", table, *asked, "-o", heat).code == 0
    others.write_text(
        "user_id,lon,lat\n" + "".join(f"x{at},{-73.95},{40.75 + at / 1000}\n" for at in range(30))
    )
    known, page = ("--members", table, "--others", others), tmp_path / "report.html"
    done = mapveil("attack", "membership", heat, *known, "--json", "-o", page)
    assert "not who of them are in the map" in page.read_text()
    assert done.code == 0, done.err
    (row,) = json.loads(done.out)["memberships"]
    assert row["published"] == "multiscale, epsilon 2"
    for flags, expected in (
        ((heat, "--members", table), "a released map needs members and others"),
        ((heat, *known, "--region", BOX), "brings its own cells"),
        ((table, "--region", BOX, *known), "members and others are for a released map"),
        ((table,), "needs a region"),
        ((table, *MEMBERSHIP, "--windows", "4"), "need a column of times"),
        ((table, *MEMBERSHIP, "--users", "1"), "users must be at least 2, got 1"),
        ((tmp_path / "none.tif", *known), "none.tif"),
    ):
        done = mapveil("attack", "membership", *flags)
        assert done.code == 2, done.err
        assert expected in done.err
        assert len(done.err.strip().splitlines()) == 1
        assert not done.out
