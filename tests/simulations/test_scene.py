"""Scenes of studies: what roads, past and vehicles come from, and how crowded they are."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest

import mapveil as mv
from mapveil.navigation.congestion import StepDelay, VolumeDelay
from mapveil.synthetic import SEA_BOX
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.scene import congested_world, make_scene
from simulations.traffic.synthetic_roads import synthetic_roads

REGION = mv.Region.from_bbox(*SEA_BOX)
CITY = synthetic_roads(REGION, spacing_m=1000)


@pytest.fixture(scope="module")
def positions() -> pd.DataFrame:
    """Sixty trips on the roads of a city; the earlier half at half the speed of the later."""
    rng = np.random.default_rng(3)
    rows = []
    for trip in range(60):
        a, b = rng.choice(CITY.nodes, 2, replace=False)
        nodes = CITY.route(int(a), int(b))
        took = np.cumsum(np.append(0, CITY.seconds[CITY.road_between(nodes[:-1], nodes[1:])]))
        at = np.linspace(0, nodes.size - 1, 8 * (nodes.size - 1) + 1)  # about every 125 m
        whole = np.arange(nodes.size)
        lon, lat, took = (np.interp(at, whole, of) for of in (CITY.lon[nodes], CITY.lat[nodes], took))
        seconds = 10_000.0 * trip + took * (2.0 if trip < 30 else 1.0)
        rows.append(
            pd.DataFrame(
                {
                    "user": trip % 7,
                    "trip_id": trip,
                    "lon": lon,
                    "lat": lat,
                    "time": seconds,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    graph = networkx.DiGraph()
    for node in range(CITY.nodes):
        graph.add_node(node, x=float(CITY.lon[node]), y=float(CITY.lat[node]))
    for road in range(CITY.roads):
        graph.add_edge(
            int(CITY.tail[road]), int(CITY.head[road]),
            length=float(CITY.length_m[road]), travel_time=float(CITY.seconds[road]),
        )  # fmt: skip
    path = tmp_path / "city.graphml"
    networkx.write_graphml(graph, path)
    return path


def test_without_anything_all_is_synthetic_and_repeats() -> None:
    scene, again, other = (make_scene(vehicles=50, seed=seed) for seed in (1, 1, 2))
    assert scene.graph.source == "synthetic roads"
    assert scene.predicted.tolist() == scene.graph.seconds.tolist()
    assert scene.fleet.size == 50
    assert scene.region.bbox == pytest.approx(SEA_BOX)
    assert np.array_equal(scene.fleet.destination, again.fleet.destination)
    assert not np.array_equal(scene.fleet.destination, other.fleet.destination)
    assert scene.notes == ("vehicles are simulated: the promise is to each of them",)


def test_the_earlier_half_of_the_trips_predicts_and_the_later_half_is_driven(positions, roads: Path) -> None:
    scene = make_scene(positions, str(roads), REGION, vehicles=300)
    assert scene.graph.nodes == CITY.nodes
    # Positions are up to 150 m from a junction: a few per cent a road. All trips together would say 1.5.
    assert np.median(scene.predicted / scene.graph.seconds) == pytest.approx(2.0, rel=0.03)
    last = positions[positions["trip_id"] >= 30].groupby("trip_id").last()
    goals = set(scene.graph.nearest_nodes(last["lon"], last["lat"])[0].tolist())
    assert set(scene.fleet.destination.tolist()) <= goals
    assert "nothing is promised to the people in it" in scene.notes[0]


def test_roads_of_trajectories_come_from_the_earlier_half_only(positions) -> None:
    scene = make_scene(positions, "auto", REGION, vehicles=20)
    known = positions[positions["trip_id"] < 30]
    for lon, lat in zip(scene.graph.lon, scene.graph.lat, strict=True):
        assert np.hypot((known["lon"] - lon) * 85_000, (known["lat"] - lat) * 111_000).min() < 200
    assert any("the roads are those that trips" in note for note in scene.notes)


def test_a_table_of_ends_has_no_past() -> None:
    ends = pd.DataFrame(
        {
            "user": [1, 2],
            "lon": [-40.05, -39.95],
            "lat": [40.02, 40.1],
            "dest_lon": [-39.95, -40.0],
            "dest_lat": 40.05,
        }
    )
    scene = make_scene(ends, region=REGION, vehicles=20)
    assert scene.graph.source == "synthetic roads"
    assert scene.predicted.tolist() == scene.graph.seconds.tolist()
    with pytest.raises(ParameterError, match="roads of trajectories need"):
        make_scene(ends, "trajectories", REGION)


@pytest.mark.parametrize("more", [{"source": "t"}, {"roads": "city.graphml"}, {"roads": "trajectories"}])
def test_a_region_is_needed_unless_all_is_synthetic(positions, more: dict) -> None:
    given = {**more, **({"source": positions} if "source" in more else {})}
    with pytest.raises(ParameterError, match="a region is needed"):
        make_scene(**given)


def test_one_trip_is_too_few_and_trips_elsewhere_are_none(positions) -> None:
    with pytest.raises(InputError, match="holds one trip"):
        make_scene(positions[positions["trip_id"] == 3], region=REGION)
    with pytest.raises(InputError, match="no road"):
        make_scene(positions, region=mv.Region.from_bbox(10, 10, 11, 11))


@pytest.mark.parametrize("vehicles", [200, 2000])
def test_the_default_capacity_makes_trips_half_as_long_again(vehicles: int) -> None:
    scene = make_scene(vehicles=vehicles, region=REGION)
    world = congested_world(scene, mv.Quadtree(REGION, depth=3))
    assert isinstance(world.congestion, VolumeDelay)
    assert 1.35 < world.slowdown < 1.6


def test_the_papers_delay_reaches_half_of_its_worst_at_most() -> None:
    scene = make_scene(vehicles=300, region=REGION)
    grid = mv.Quadtree(REGION, depth=3)
    world = congested_world(scene, grid, "step", delay_s=3)
    worst = congested_world(scene, grid, "step", capacity=1e-6, delay_s=3)
    assert isinstance(world.congestion, StepDelay)
    assert world.congestion.seconds == 3
    assert 1 < world.slowdown < 1 + 0.6 * (worst.slowdown - 1)


def test_a_given_capacity_is_taken_and_a_third_kind_refused() -> None:
    scene = make_scene(vehicles=50, region=REGION)
    grid = mv.Quadtree(REGION, depth=3)
    assert congested_world(scene, grid, capacity=7).congestion == VolumeDelay(7)
    with pytest.raises(ParameterError, match="volume or step"):
        congested_world(scene, grid, "none")
    with pytest.raises(ParameterError, match="capacity"):
        congested_world(scene, grid, capacity=0)
