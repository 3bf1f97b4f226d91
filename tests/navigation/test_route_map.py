"""Maps of routes: ways, exports and pictures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from scipy.sparse.csgraph import dijkstra

import mapveil as mv
from mapveil.maps.density_map import DensityMap
from mapveil.navigation.route_map import RouteMap, most_helped
from mapveil.pictures.page import page_html
from mapveil.pictures.picture import plot
from mapveil.privacy.claim import Adversary, Assumes, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil.synthetic import SEA_BOX
from mapveil_client.errors import InputError, ParameterError
from simulations.traffic.synthetic_roads import synthetic_roads

GRAPH = synthetic_roads(spacing_m=1000)
GRID = mv.Quadtree(mv.Region.from_bbox(*SEA_BOX), depth=3)


def traffic_of(*, seeded: bool = False) -> DensityMap:
    guarantee = Guarantee(
        model=TrustModel.LOCAL, epsilon=Fraction(3), neighbours=Neighbouring.REPLACE_ONE,
        adversary=Adversary.REPORTS, assumptions=(Assumes.ONE_TRIP(),), seeded=seeded,
    )  # fmt: skip
    values = np.random.default_rng(4).gamma(0.5, 20, GRID.size)
    return DensityMap(
        values=values,
        tiling=GRID,
        guarantee=guarantee,
        method="subset",
        parameters={"epsilon": "1"},
        notes=("a note",),
    )


def least(origin: int, destination: int, seconds: np.ndarray) -> float:
    """The seconds of the fastest way, by SciPy."""
    return float(dijkstra(GRAPH.matrix(seconds), indices=origin)[destination])


@pytest.fixture(scope="module")
def routes() -> RouteMap:
    traffic = traffic_of()
    delay = np.where(
        np.arange(GRAPH.roads) % 3, 0.2, traffic.values[GRID.locate(GRAPH.lon, GRAPH.lat)][GRAPH.head]
    )
    ends = most_helped(GRAPH, GRAPH.seconds, delay)
    return RouteMap.between(GRAPH, traffic, GRAPH.seconds, delay, ends, notes=("another",))


def test_the_ways_are_the_fastest_and_their_times_those_of_their_roads(routes: RouteMap) -> None:
    predicted, aware = routes.ways
    ends = int(predicted.nodes[0]), int(predicted.nodes[-1])
    assert (int(aware.nodes[0]), int(aware.nodes[-1])) == ends
    seconds = GRAPH.seconds + routes.delay_s
    assert predicted.free_s == pytest.approx(least(*ends, GRAPH.seconds))
    assert aware.traffic_s == pytest.approx(least(*ends, seconds))
    assert aware.traffic_s <= predicted.traffic_s
    assert predicted.free_s <= aware.free_s


def test_the_pair_that_is_shown_gains_most_of_those_drawn() -> None:
    delay = np.random.default_rng(1).gamma(0.3, 100, GRAPH.roads)
    origin, destination = most_helped(GRAPH, GRAPH.seconds, delay, pairs=30, seed=5)

    def saving(a: int, b: int) -> float:
        seconds = GRAPH.seconds + delay
        blind = GRAPH.route(a, b)
        took = seconds[GRAPH.road_between(blind[:-1], blind[1:])].sum()
        return float(took - least(a, b, seconds))

    rng = np.random.default_rng(5)
    first = rng.integers(0, GRAPH.nodes, 30)
    last = (first + rng.integers(1, GRAPH.nodes, 30)) % GRAPH.nodes
    best = max(saving(int(a), int(b)) for a, b in zip(first, last, strict=True))
    assert saving(origin, destination) == pytest.approx(best, abs=2e-3)
    assert best > 1
    free = most_helped(GRAPH, GRAPH.seconds, np.zeros(GRAPH.roads))
    assert free[0] != free[1]


def test_a_course_follows_the_roads(routes: RouteMap) -> None:
    way = routes.ways[0]
    course = routes.course(way)
    assert course[0].tolist() == [GRAPH.lon[way.nodes[0]], GRAPH.lat[way.nodes[0]]]
    assert course[-1].tolist() == [GRAPH.lon[way.nodes[-1]], GRAPH.lat[way.nodes[-1]]]
    alone = way._replace(nodes=way.nodes[:1])
    assert routes.course(alone).shape == (1, 2)


def test_delays_must_be_of_the_roads() -> None:
    with pytest.raises(ParameterError, match="delays must have shape"):
        RouteMap(GRAPH, traffic_of(), np.zeros(3))


def test_geojson_holds_every_road_both_ways_and_the_promise(routes: RouteMap, tmp_path: Path) -> None:
    path = tmp_path / "routes.geojson"
    routes.save(path)
    record = json.loads(path.read_text())
    roads = [each for each in record["features"] if each["properties"]["road"] is not None]
    ways = [each for each in record["features"] if each["properties"]["way"] is not None]
    assert len(roads) == GRAPH.roads
    assert [each["properties"]["way"] for each in ways] == ["as predicted", "with the traffic"]
    road = roads[17]
    assert road["geometry"]["coordinates"][0] == pytest.approx([GRAPH.lon[GRAPH.tail[17]], GRAPH.lat[GRAPH.tail[17]]], abs=1e-7)  # fmt: skip  # noqa: E501
    assert road["properties"]["delay_s"] == pytest.approx(routes.delay_s[17], abs=0.051)
    told = record["mapveil"]
    assert told == json.loads(routes.metadata_json())
    assert told["guarantee"]["epsilon"] == "3"
    assert told["notes"] == ["a note", "another"]


def test_a_picture_draws_roads_and_ways_and_says_the_promise(routes: RouteMap, tmp_path: Path) -> None:
    axes = plot(routes)
    lines = next(
        each for each in axes.collections if isinstance(each, LineCollection) and each.get_zorder() == 2
    )  # over the ground's
    assert len(lines.get_segments()) == GRAPH.roads
    free = int((routes.delay_s < 1).sum())
    grey = (np.ptp(lines.get_colors()[:, :3], axis=1) < 0.05).sum()
    assert free == grey
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend[1] == f"with the traffic: {routes.ways[1].traffic_s / 60:.1f} min"
    words = " ".join(text.get_text() for text in axes.texts)
    assert "(3, 0)-DP" in words
    assert "another" in words
    routes.save(tmp_path / "routes.png")
    content = (tmp_path / "routes.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert b"mapveil" in content


def test_a_page_is_one_file_that_loads_nothing(routes: RouteMap, tmp_path: Path) -> None:
    page = page_html(routes)
    assert "<h1>Routes under private traffic</h1>" in page
    assert "each user makes one trip" in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(?!data:)", page)
    replace(routes, title="A & B").save(tmp_path / "routes.html")
    assert "A &amp; B" in (tmp_path / "routes.html").read_text(encoding="utf-8")


def test_seeded_maps_are_marked(tmp_path: Path) -> None:
    routes = RouteMap(GRAPH, traffic_of(seeded=True), np.zeros(GRAPH.roads))
    assert "NOT FOR RELEASE" in page_html(routes)
    assert any("NOT FOR RELEASE" in text.get_text() for text in plot(routes).texts)


def test_another_suffix_is_refused_and_nothing_partial_left(routes: RouteMap, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the suffix must be one of"):
        routes.save(tmp_path / "routes.tif")
    with pytest.raises(InputError):
        routes.save(tmp_path / "absent" / "routes.geojson")
    assert not list(tmp_path.iterdir())


def test_a_repr_ends_with_the_promise(routes: RouteMap) -> None:
    assert "2 ways" in repr(routes)
    assert "(3, 0)-DP" in repr(routes)
