"""Predictions from past trips: against the formula by hand, and against a world whose speeds are known."""

from __future__ import annotations

import numpy as np
import pytest

from mapveil.analysis.trips import Trajectories
from mapveil.navigation.road_graph import RoadGraph
from mapveil_client.errors import ParameterError
from simulations.traffic.synthetic_roads import synthetic_roads
from simulations.traffic.travel_times import Traversals, predict_times, traversals

GRAPH = synthetic_roads(spacing_m=1000)


def street() -> RoadGraph:
    """Five junctions in a row, 0.01 degrees apart, 60 s each way."""
    tail = np.array([0, 1, 2, 3, 1, 2, 3, 4])
    head = np.array([1, 2, 3, 4, 0, 1, 2, 3])
    return RoadGraph(np.arange(5) * 0.01, np.zeros(5), tail, head, np.full(8, 1113.2), np.full(8, 60.0))


def trips_of(trips: list[list[tuple[float, float]]]) -> Trajectories:
    flat = np.array([each for trip in trips for each in trip])
    start = np.concatenate([[0], np.cumsum([len(trip) for trip in trips])])
    return Trajectories(np.arange(len(trips)), start, flat[:, 0], np.zeros(len(flat)), flat[:, 1])


def test_time_is_shared_out_along_the_way() -> None:
    graph = street()
    found = traversals(
        graph, trips_of([[(0.0, 0.0), (0.0301, 360.0 / 2)], [(0.0, 0), (0.01, 90), (0.02, 150)]])
    )
    pairs = [(int(graph.tail[road]), int(graph.head[road])) for road in found.road.tolist()]
    assert pairs == [(0, 1), (1, 2), (2, 3), (0, 1), (1, 2)]
    assert found.seconds.tolist() == pytest.approx([60, 60, 60, 90, 60])


def test_what_is_implausible_or_far_is_left_aside() -> None:
    graph = street()
    assert traversals(graph, trips_of([[(0.0, 0), (0.01, 5)]])).road.size == 0, "twelve times too fast"
    assert traversals(graph, trips_of([[(0.0, 0), (0.01, 181)]])).road.size == 0, "too long a step"
    assert traversals(graph, trips_of([[(0.005, 0), (0.015, 60)]])).road.size == 0, "far from junctions"
    assert traversals(graph, trips_of([[(0.0, 0)], [(0.01, 60)]])).road.size == 0, "two trips"
    with pytest.raises(ParameterError, match="above 0"):
        traversals(graph, trips_of([[(0.0, 0)]]), nearest_m=0)


def test_the_formula_by_hand() -> None:
    graph = street()
    road = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    ratio = np.array([1.0, 1.2, 0.8, 2.0, 2.2, 0.6, 0.5, 0.7, 0.6])
    made = predict_times(graph, Traversals(road, 60 * ratio))
    groups = [ratio[road == each] for each in range(3)]
    sizes, means = np.array([3, 2, 4]), np.array([each.mean() for each in groups])
    overall = ratio.mean()
    sigma = sum(((each - each.mean()) ** 2).sum() for each in groups) / (9 - 3)
    tau = ((sizes * (means - overall) ** 2).sum() / 2 - sigma) / ((9 - (sizes**2).sum() / 9) / 2)
    kappa = sigma / tau
    for each in range(3):
        expected = 60 * (kappa * overall + groups[each].sum()) / (kappa + sizes[each])
        assert made[each] == pytest.approx(expected)
    assert made[3:].tolist() == pytest.approx([60 * overall] * 5), "roads nobody took"


def test_no_past_means_empty_roads_and_one_value_everywhere_means_that() -> None:
    none = Traversals(np.zeros(0, dtype=np.int64), np.zeros(0))
    assert predict_times(GRAPH, none).tolist() == GRAPH.seconds.tolist()
    roads = np.repeat(np.arange(5), 4)
    same = predict_times(GRAPH, Traversals(roads, 1.5 * GRAPH.seconds[roads]))
    assert same == pytest.approx(1.5 * GRAPH.seconds)


def test_a_world_of_known_speeds_is_predicted_better_than_by_empty_roads_or_by_means() -> None:
    rng = np.random.default_rng(8)
    truth = rng.lognormal(0.3, 0.3, GRAPH.roads)
    road = rng.choice(GRAPH.roads, 1500, p=rng.dirichlet(np.full(GRAPH.roads, 0.5)))
    observed = truth[road] * rng.lognormal(0, 0.4, road.size)
    made = predict_times(GRAPH, Traversals(road, observed * GRAPH.seconds[road])) / GRAPH.seconds
    seen = np.bincount(road, minlength=GRAPH.roads)
    means = np.divide(
        np.bincount(road, observed, GRAPH.roads), seen, out=np.ones(GRAPH.roads), where=seen > 0
    )

    def error(of: np.ndarray) -> float:
        return float(((of - truth) ** 2).mean())

    assert error(made) < 0.9 * error(np.full(GRAPH.roads, observed.mean()))
    assert error(made) < 0.7 * error(means)
    assert error(made) < 0.7 * error(np.ones(GRAPH.roads))
