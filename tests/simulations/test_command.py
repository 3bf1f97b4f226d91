"""``python -m simulations.traffic``: what is written and said, and what is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulations.traffic.synthetic_roads import synthetic_roads

BOX = "-40.08,40.0,-39.92,40.12"
QUICK = [
    *("--tiling", "quadtree:3", "--vehicles", "150", "--period", "900", "--theta", "5"),
    *("--option", "estimator=norm-clip", "--seed", "3"),
]


@pytest.fixture(scope="module")
def positions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty trips on the roads of a city, a position about every 125 m."""
    city, rng, rows = synthetic_roads(spacing_m=1000), np.random.default_rng(3), []
    for trip in range(40):
        a, b = rng.choice(city.nodes, 2, replace=False)
        nodes = city.route(int(a), int(b))
        took = np.cumsum(np.append(0, city.seconds[city.road_between(nodes[:-1], nodes[1:])]))
        at, whole = np.linspace(0, nodes.size - 1, 8 * (nodes.size - 1) + 1), np.arange(nodes.size)
        lon, lat, took = (np.interp(at, whole, of) for of in (city.lon[nodes], city.lat[nodes], took))
        rows.append(
            pd.DataFrame(
                {"user": trip % 7, "trip_id": trip, "lon": lon, "lat": lat, "time": 1e4 * trip + took}
            )
        )
    path = tmp_path_factory.mktemp("trips") / "taxis.csv"
    pd.concat(rows).to_csv(path, index=False)
    return path


def test_a_synthetic_study_writes_pictures_and_says_the_promise(traffic: Callable, tmp_path: Path) -> None:
    outputs = [tmp_path / f"routes.{suffix}" for suffix in ("html", "png", "geojson")]
    done = traffic(*QUICK, "--updates", "2", "--epsilon", "1.5", *(f"-o{each}" for each in outputs))
    assert done.code == 0, done.err
    for output in outputs:
        assert f"wrote {output}" in done.out
        assert output.stat().st_size > 1000
    assert "user-level, replace-one, (3, " in done.out
    assert "not for release" in done.out
    record = json.loads(outputs[2].read_text())["mapveil"]
    assert record["guarantee"]["epsilon"] == "3"
    assert len(record["guarantee"]["shares"]) == 2
    ways = {way["name"]: way["traffic_s"] for way in record["ways"]}
    assert ways["with the traffic"] <= ways["as predicted"]


def test_json_has_a_row_a_setting_and_repeats_by_seed(traffic: Callable) -> None:
    call = (*QUICK, *["--theta", "5,50", "--epsilon", "1,2", "--updates", "2", "--json"])
    first, second = traffic(*call), traffic(*call)
    assert first.code == 0, first.err
    record = json.loads(first.out)
    assert record == json.loads(second.out)
    assert [(row["epsilon"], row["theta_s"]) for row in record["results"]] == [
        (1, 5),
        (2, 5),
        (1, 50),
        (2, 50),
    ]
    assert all(row["most_updates"] <= 2 for row in record["results"])
    assert all(row["total_epsilon"] <= 2 * row["epsilon"] for row in record["results"])
    assert record["map"]["guarantee"]["epsilon"] == "2"
    assert record["vehicles"] == 150


def test_without_a_seed_the_map_is_no_seeded_one(traffic: Callable) -> None:
    done = traffic(*QUICK[:-2], "--reporting", "probe", "--json")
    assert done.code == 0, done.err
    promise = json.loads(done.out)["map"]["guarantee"]
    assert promise["seeded"] is False
    assert promise["epsilon"] == "2", "a probe is all that a trip sends"


def test_trips_make_roads_and_the_study_says_that_it_is_not_private(
    traffic: Callable, positions: Path, tmp_path: Path
) -> None:
    done = traffic(positions, "--region", BOX, *QUICK, "-o", tmp_path / "r.geojson", "--json", "-v")
    assert done.code == 0, done.err
    assert "reads true locations" in done.err
    assert "roads: " in done.err
    record = json.loads(done.out)
    assert record["roads"]["source"] == "roads of taxis.csv"
    promise = record["map"]["guarantee"]
    assert {"kind": "simulated vehicles"} in promise["assumptions"]
    assert any("true trips of taxis.csv" in note for note in record["map"]["notes"])
    assert str(positions.parent) not in (tmp_path / "r.geojson").read_text()


def test_private_retrieval_and_the_papers_congestion(traffic: Callable) -> None:
    done = traffic(*QUICK, "--retrieve", "2", "--congestion", "step", "--capacity", "1", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["results"][0]["updates"] > 0


def test_the_way_can_be_chosen(traffic: Callable, tmp_path: Path) -> None:
    done = traffic(*QUICK, "--from=-40.07,40.01", "--to=-39.93,40.11", "-o", tmp_path / "r.geojson")
    assert done.code == 0, done.err
    features = json.loads((tmp_path / "r.geojson").read_text())["features"]
    way = features[-1]["geometry"]["coordinates"]
    assert way[0] == pytest.approx([-40.07, 40.01], abs=0.005)
    assert way[-1] == pytest.approx([-39.93, 40.11], abs=0.005)


def test_nobody_late_is_said_and_writes_nothing(traffic: Callable, tmp_path: Path) -> None:
    done = traffic(*QUICK, "--capacity", "1e6")
    assert done.code == 0
    assert "nobody sent a location" in done.err
    done = traffic(*QUICK, "--capacity", "1e6", "-o", tmp_path / "r.html", "-o", tmp_path / "r.png")
    assert done.code == 2
    assert "nobody was late" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("r.*"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "-1"], "epsilon"),
        (["--epsilon", "some"], "epsilon"),
        (["--theta", "-5"], "--theta must be"),
        (["--theta", "0"], "--theta must be"),
        (["--updates", "0"], "--updates must be at least 1"),
        (["--vehicles", "0"], "--vehicles must be at least 1"),
        (["--retrieve", "0"], "--retrieve must be at least 1"),
        (["--period", "0"], "period_s"),
        (["--window", "-1"], "window_s"),
        (["--capacity", "0"], "capacity must be a number above 0"),
        (["--congestion", "step", "--delay", "0"], "seconds must be a number above 0"),
        (["--congestion", "jam"], "jam"),
        (["--reporting", "never"], "never"),
        (["--method", "laplace"], "laplace"),
        (["--method", "srr", "--option", "nothing=1"], "nothing"),
        (["--tiling", "squares:3"], "squares"),
        (["--roads", "absent.graphml"], "region is needed"),
        (["--roads", "absent.graphml", "--region", BOX], "no such file"),
        (["--roads", "roads.csv", "--region", BOX], ".graphml"),
        (["--roads", "trajectories", "--region", BOX], "need a table of positions"),
        (["--from", "1,2"], "--to is missing"),
        (["--from", "here", "--to", "1,2"], "LON,LAT"),
        (["--from", "1,2", "--to", "3,4"], "outside the roads"),
        (["--from=-40.0,40.05", "--to=-40.0,40.05"], "one junction"),
        (["--region", "1,2,3"], "1,2,3"),
        (["absent.parquet", "--region", BOX], "absent.parquet"),
        (["-o", "routes.tif"], "the suffix must be one of"),
        (["-o", "absent/routes.png"], "absent"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    traffic: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = [] if "-o" in flags else ["-o", "r.html"]
    done = traffic(*QUICK, *flags, *outputs)
    assert done.code == 2, done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("r*"))


@pytest.mark.parametrize(
    "content", ["no xml at all", "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'/>"]
)
def test_a_file_that_is_no_graph_is_one_line(traffic: Callable, tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.graphml"
    path.write_text(content)
    done = traffic("--roads", path, "--region", BOX, *QUICK)
    assert done.code == 2, done.err
    assert "bad.graphml" in done.err
    assert len(done.err.strip().splitlines()) == 1
