"""``mapveil routes``: the route under a released map, and bad input in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import networkx
import pytest

import mapveil as mv
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.navigation.read_roads import read_roads

BOX = (2.30, 48.84, 2.36, 48.88)


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A street grid of 9 x 9 junctions as GraphML."""
    graph = networkx.MultiDiGraph()
    for row in range(9):
        for column in range(9):
            graph.add_node((row, column), x=2.302 + 0.007 * column, y=48.842 + 0.0045 * row)
    for row, column in list(graph.nodes):
        for end in ((row + 1, column), (row, column + 1)):
            if end in graph:
                graph.add_edge((row, column), end, length=510.0)
                graph.add_edge(end, (row, column), length=510.0)
    path = tmp_path_factory.mktemp("roads") / "city.graphml"
    networkx.write_graphml(networkx.relabel_nodes(graph, str), path)
    return path


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map released by the local model, most users in the middle."""
    region = mv.Region.from_bbox(*BOX)
    people = 400
    points = mv.Points.from_arrays(
        range(people), [2.33 + 1e-5 * (at % 9) for at in range(people)], [48.86] * people, region=region
    )
    mechanism = GeneralizedRandomizedResponse(epsilon=4)
    path = tmp_path_factory.mktemp("map") / "now.parquet"
    mechanism.release(points, mv.Grid(region, rows=3, columns=3), account=None).to_geoparquet(path)
    return path


ENDS = ("--from", "2.303,48.858", "--to", "2.357,48.862")


def test_the_route_avoids_the_traffic_and_keeps_the_guarantee_of_the_map(
    mapveil: Callable, roads: Path, traffic: Path, tmp_path: Path
) -> None:
    outputs = [tmp_path / f"route.{suffix}" for suffix in ("html", "png", "geojson")]
    done = mapveil(
        "routes", roads, "--traffic", traffic, *ENDS, "--capacity", 100, *(f"-o{each}" for each in outputs)
    )
    assert done.code == 0, done.err
    for output in outputs:
        assert f"wrote {output}" in done.out
    record = json.loads(outputs[2].read_text())
    told = record["mapveil"]
    assert told["guarantee"]["epsilon"] == "4"
    times = {way["name"]: way["traffic_s"] for way in told["ways"]}
    assert times["with the traffic"] < 0.8 * times["as predicted"]
    ends = record["features"][-1]["geometry"]["coordinates"]
    assert ends[0] == pytest.approx([2.303, 48.858], abs=0.005)
    assert ends[-1] == pytest.approx([2.357, 48.862], abs=0.005)
    assert len(record["features"]) == read_roads(roads).roads + 2


def test_fewer_active_users_delay_less(mapveil: Callable, roads: Path, traffic: Path) -> None:
    def minutes(*more: object) -> float:
        done = mapveil("routes", roads, "--traffic", traffic, *ENDS, *more, "--json")
        assert done.code == 0, done.err
        return float(json.loads(done.out)["map"]["ways"][0]["traffic_s"])

    assert minutes("--active", 10) < minutes("--active", 100) < minutes("--active", 100, "--capacity", 40)


def test_without_ends_an_example_is_shown(mapveil: Callable, roads: Path, traffic: Path) -> None:
    done = mapveil("routes", roads, "--traffic", traffic, "--congestion", "step", "--capacity", 30)
    assert done.code == 0, done.err
    assert "as predicted" in done.out
    assert "with the traffic" in done.out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--capacity", "0"], "capacity must be a number above 0"),
        (["--congestion", "step", "--delay", "0"], "seconds must be a number above 0"),
        (["--congestion", "jam"], "jam"),
        (["--active", "0"], "active must be above 0"),
        (["--active", "nan"], "active must be above 0"),
        (["--from", "1,2"], "--to is missing"),
        (["--from", "here", "--to", "1,2"], "LON,LAT"),
        (["--from", "1,2", "--to", "3,4"], "outside the roads"),
        (["--from", "2.33,48.86", "--to", "2.33,48.86"], "one junction"),
        (["--traffic", "absent.parquet"], "no such file"),
        (["-o", "routes.tif"], "the suffix must be one of"),
        (["-o", "absent/routes.png"], "absent"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    mapveil: Callable, roads: Path, traffic: Path, tmp_path: Path, flags: list[str], says: str
) -> None:
    outputs = [] if "-o" in flags else ["-o", tmp_path / "r.html"]
    done = mapveil("routes", roads, "--traffic", traffic, *flags, *outputs)
    assert done.code == 2, done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("r*"))


def test_roads_that_cannot_be_read_are_one_line(mapveil: Callable, traffic: Path, tmp_path: Path) -> None:
    for name, text, says in (
        ("roads.csv", "", ".graphml"),
        ("absent.graphml", None, "no such file"),
        ("bad.graphml", "no xml at all", "bad.graphml"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        done = mapveil("routes", tmp_path / name, "--traffic", traffic)
        assert done.code == 2, done.err
        assert says in done.err
        assert len(done.err.strip().splitlines()) == 1
