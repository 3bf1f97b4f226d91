"""The synthetic city: connected, repeatable, with a river and few bridges."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

import mapveil as mv
from mapveil_client.errors import ParameterError
from simulations.traffic.synthetic_roads import synthetic_roads


def test_every_place_can_be_reached_from_every_other() -> None:
    graph = synthetic_roads(spacing_m=600)
    made = networkx.DiGraph(zip(graph.tail.tolist(), graph.head.tolist(), strict=True))
    assert networkx.is_strongly_connected(made)
    assert made.number_of_nodes() == graph.nodes


def test_it_stands_in_its_region_and_repeats_by_seed() -> None:
    region = mv.Region.from_bbox(2.0, 48.0, 2.1, 48.05)
    graph, again, other = (synthetic_roads(region, seed=seed) for seed in (3, 3, 4))
    assert region.contains(graph.lon, graph.lat).all()
    assert np.array_equal(graph.lon, again.lon)
    assert graph.roads != other.roads or not np.array_equal(graph.lon, other.lon)


def test_three_kinds_of_roads_by_speed() -> None:
    graph = synthetic_roads(spacing_m=500)
    speeds = np.round(graph.length_m / graph.seconds * 3.6).astype(int)
    assert set(speeds.tolist()) == {30, 50, 80}
    assert (speeds == 30).sum() > (speeds == 50).sum() > (speeds == 80).sum()


def test_few_roads_cross_the_river() -> None:
    graph = synthetic_roads(spacing_m=500)
    y = graph.plane[:, 1]
    rows = np.unique(np.round((y - y.min()) / 500))
    crossings = [
        int(((y[graph.tail] > at) & (y[graph.head] < at)).sum()) for at in y.min() + (rows[:-1] + 0.5) * 500
    ]
    assert min(crossings) < np.median(crossings) / 3


@pytest.mark.parametrize("spacing", [0, -5, np.nan, 9e4, 5.0])
def test_a_spacing_for_no_city_is_refused(spacing: float) -> None:
    with pytest.raises(ParameterError, match="3 x 3 to a million"):
        synthetic_roads(spacing_m=spacing)
