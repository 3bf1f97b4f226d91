"""Road graphs: the fastest ways against networkx, and what a graph keeps and refuses."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapveil as mv
from mapveil.navigation.road_graph import RoadGraph, Routes, Shapes
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.synthetic_roads import synthetic_roads


def graph_of(nodes: int, tail, head, seconds, **more) -> RoadGraph:
    places = np.random.default_rng(nodes).uniform(0, 0.1, (2, nodes))
    tail, head, seconds = np.asarray(tail), np.asarray(head), np.asarray(seconds, dtype=float)
    return RoadGraph(*places, tail, head, seconds * 10, seconds, **more)


def as_networkx(graph: RoadGraph, seconds: np.ndarray) -> networkx.DiGraph:
    made = networkx.DiGraph()
    made.add_nodes_from(range(graph.nodes))
    made.add_weighted_edges_from(zip(graph.tail.tolist(), graph.head.tolist(), seconds.tolist(), strict=True))
    return made


@st.composite
def road_graphs(draw) -> RoadGraph:
    nodes = draw(st.integers(2, 12))
    roads = draw(
        st.lists(
            st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1), st.integers(1, 9)),
            min_size=1,
            max_size=40,
        ).filter(lambda roads: any(a != b for a, b, _ in roads))
    )
    return graph_of(nodes, *zip(*roads, strict=True))


@given(road_graphs(), st.integers(0, 99))
def test_the_fastest_ways_are_those_of_networkx(graph: RoadGraph, seed: int) -> None:
    seconds = np.random.default_rng(seed).integers(1, 20, graph.roads).astype(float)
    oracle = as_networkx(graph, seconds)
    shortest = dict(networkx.all_pairs_dijkstra_path_length(oracle))
    pairs = [(a, b) for a in range(graph.nodes) for b in shortest[a]]
    origins, destinations = np.array(pairs).T
    routes = graph.routes(origins, destinations, seconds)
    assert (routes.node[routes.start[:-1]] == origins).all()
    assert (routes.node[routes.start[1:] - 1] == destinations).all()
    expected = [shortest[a][b] for a, b in pairs]
    # Every step is a road (else the graph would be asked for road -1), and together they take the least time.
    assert graph.durations(routes, seconds).tolist() == pytest.approx(expected)
    for route in range(len(pairs)):
        nodes = routes.nodes(route)
        assert (graph.road_between(nodes[:-1], nodes[1:]) >= 0).all()


@given(road_graphs())
def test_the_largest_component_is_that_of_networkx(graph: RoadGraph) -> None:
    parts = list(networkx.strongly_connected_components(as_networkx(graph, graph.seconds)))
    largest = max(len(part) for part in parts)
    if largest < 2:
        with pytest.raises(InputError, match="no two junctions can be reached"):
            graph.largest_component()
        return
    kept = graph.largest_component()
    assert kept.nodes == largest
    assert networkx.is_strongly_connected(as_networkx(kept, kept.seconds))
    places = set(zip(graph.lon.tolist(), graph.lat.tolist(), strict=True))
    assert set(zip(kept.lon.tolist(), kept.lat.tolist(), strict=True)) <= places


def test_no_way_is_an_error_of_one_line() -> None:
    graph = graph_of(3, [0, 1], [1, 0], [1, 1])
    with pytest.raises(InputError, match="no route between two"):
        graph.route(0, 2)
    with pytest.raises(ParameterError, match="0 to 2"):
        graph.route(0, 3)


def test_of_parallel_roads_the_fastest_is_kept_with_its_course_and_loops_are_left_out() -> None:
    shapes = Shapes(np.array([0, 2, 5, 7, 9]), np.arange(9.0), -np.arange(9.0))
    graph = graph_of(3, [0, 0, 1, 2], [1, 1, 1, 0], [9, 4, 1, 2], shapes=shapes)
    assert graph.roads == 2
    assert graph.seconds.tolist() == [4.0, 2.0]
    assert graph.courses().lon.tolist() == [2.0, 3.0, 4.0, 7.0, 8.0]
    assert graph.courses().start.tolist() == [0, 3, 5]


def test_without_courses_roads_are_straight() -> None:
    graph = graph_of(3, [0, 1], [1, 2], [1, 1])
    assert graph.courses().lon.tolist() == graph.lon[[0, 1, 1, 2]].tolist()


def test_road_between_is_minus_one_where_there_is_none() -> None:
    graph = graph_of(3, [0, 2], [1, 0], [1, 1])
    assert graph.road_between([0, 1, 2, 2], [1, 0, 0, 2]).tolist() == [0, -1, 1, -1]


def test_routes_of_one_junction_and_of_nobody() -> None:
    graph = graph_of(3, [0, 1], [1, 0], [1, 1])
    assert graph.route(1, 1).tolist() == [1]
    none = graph.routes(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    assert none.start.tolist() == [0]
    assert graph.durations(Routes(np.array([0, 1]), np.array([2]))).tolist() == [0.0]


def test_many_goals_are_walked_in_chunks_like_few(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = synthetic_roads(spacing_m=1000)
    rng = np.random.default_rng(1)
    origins, destinations = rng.integers(0, graph.nodes, (2, 300))
    whole = graph.routes(origins, destinations)
    monkeypatch.setattr("mapveil.navigation.road_graph._CHUNK_ENTRIES", 7 * graph.nodes)
    cut = graph.routes(origins, destinations)
    assert cut.node.tolist() == whole.node.tolist()
    assert cut.start.tolist() == whole.start.tolist()


def test_the_nearest_junction_is_the_nearest_by_hand() -> None:
    graph = synthetic_roads(spacing_m=1500)
    rng = np.random.default_rng(2)
    lon, lat = rng.uniform(-40.08, -39.92, 50), rng.uniform(40.0, 40.12, 50)
    from pyproj import Geod

    geod = Geod(ellps="WGS84")
    node, far = graph.nearest_nodes(lon, lat)
    for at in range(50):
        same = np.full(graph.nodes, 1.0)
        metres = geod.inv(lon[at] * same, lat[at] * same, graph.lon, graph.lat)[2]
        # An equal-area cylinder around the middle of a city is a metre or so off a geodesic.
        assert far[at] == pytest.approx(metres.min(), rel=5e-3)
        assert metres[node[at]] == pytest.approx(metres.min(), rel=5e-3)


def test_within_keeps_the_roads_of_a_region() -> None:
    graph = synthetic_roads(spacing_m=1000)
    region = mv.Region.from_bbox(-40.05, 40.02, -39.98, 40.08)
    part = graph.within(region)
    inside = region.contains(graph.lon, graph.lat)
    assert part.roads == int((inside[graph.tail] & inside[graph.head]).sum())
    assert region.contains(part.lon, part.lat).all()
    assert part.seconds.sum() == pytest.approx(graph.seconds[inside[graph.tail] & inside[graph.head]].sum())
    assert graph.within(mv.Region.from_bbox(-41, 39, -39, 41)) is graph
    with pytest.raises(InputError, match="no road lies in the region"):
        graph.within(mv.Region.from_bbox(10, 10, 11, 11))


@pytest.mark.parametrize(
    ("tail", "head", "seconds", "says"),
    [
        ([], [], [], "no roads"),
        ([0], [5], [1], "junctions, 0 to 2"),
        ([-1], [1], [1], "must be junctions"),
        ([0], [1], [np.nan], "length of a road must be"),
        ([0], [1], [-1], "length of a road must be"),
        ([1], [1], [1], "no road between"),
    ],
)
def test_what_is_no_graph_is_refused(tail, head, seconds, says: str) -> None:
    with pytest.raises(InputError, match=says):
        graph_of(3, np.array(tail, dtype=np.int64), np.array(head, dtype=np.int64), seconds)


def test_a_road_of_no_time_still_takes_some() -> None:
    graph = RoadGraph(
        np.arange(2.0), np.zeros(2), np.array([0]), np.array([1]), np.array([1.0]), np.array([0.0])
    )
    assert graph.seconds[0] > 0
    assert graph.matrix(np.zeros(1)).nnz == 1
