"""Roads from GraphML and from OpenStreetMap extracts: what is read, what is kept, what is refused."""

from __future__ import annotations

import bz2
from pathlib import Path

import networkx
import numpy as np
import pytest

import mapveil as mv
from mapveil.navigation.read_roads import CLASS_SPEEDS, read_roads, road_speed_kmh
from mapveil_client.errors import InputError, MissingExtra
from simulations.traffic.synthetic_roads import synthetic_roads

OSM = """<?xml version='1.0' encoding='UTF-8'?>
<osm version="0.6">
 <node id="1" lon="0.000" lat="0.000"/> <node id="2" lon="0.010" lat="0.000"/>
 <node id="3" lon="0.020" lat="0.000"/> <node id="4" lon="0.010" lat="0.010"/>
 <node id="5" lon="0.015" lat="0.004"/> <node id="6" lon="0.500" lat="0.500"/>
 <node id="7" lon="0.510" lat="0.500"/>
 <way id="10"><nd ref="1"/><nd ref="2"/><nd ref="3"/><tag k="highway" v="primary"/>
   <tag k="maxspeed" v="50"/></way>
 <way id="11"><nd ref="2"/><nd ref="4"/><tag k="highway" v="residential"/><tag k="oneway" v="yes"/></way>
 <way id="12"><nd ref="4"/><nd ref="5"/><nd ref="3"/><tag k="highway" v="tertiary"/>
   <tag k="oneway" v="{bend}"/></way>
 <way id="13"><nd ref="1"/><nd ref="4"/><tag k="highway" v="footway"/></way>
 <way id="14"><nd ref="1"/><nd ref="4"/><tag k="highway" v="service"/><tag k="access" v="private"/></way>
 <way id="15"><nd ref="6"/><nd ref="7"/><tag k="highway" v="primary"/></way>
 <way id="16"><nd ref="1"/><nd ref="99"/><tag k="highway" v="primary"/></way>
</osm>
"""


def junction(graph, lon: float, lat: float) -> int:
    node, far = graph.nearest_nodes([lon], [lat])
    assert far[0] < 1
    return int(node[0])


@pytest.fixture
def osm(tmp_path: Path) -> Path:
    path = tmp_path / "town.osm"
    path.write_text(OSM.format(bend="no"))
    return path


def test_an_extract_is_cut_at_junctions_and_its_largest_part_kept(osm: Path) -> None:
    graph = read_roads(osm)
    # 1-2, 2-3 and 4-3 both ways, 2-4 one way; node 5 is a bend, 6-7 an island, 13 and 14 not for cars.
    assert graph.nodes == 4
    assert graph.roads == 7
    one, two, three, four = (junction(graph, *at) for at in ((0, 0), (0.01, 0), (0.02, 0), (0.01, 0.01)))
    assert graph.road_between([two, four], [four, two]).tolist()[1] == -1
    assert graph.route(four, one).tolist() == [four, three, two, one]
    road = int(graph.road_between(one, two))
    assert graph.length_m[road] == pytest.approx(1113.2, abs=0.1)
    assert graph.seconds[road] == pytest.approx(1113.2 / 50 * 3.6, abs=0.1)
    shapes, bend = graph.courses(), int(graph.road_between(three, four))
    course = slice(shapes.start[bend], shapes.start[bend + 1])
    assert shapes.lon[course].tolist() == pytest.approx([0.02, 0.015, 0.01])
    assert graph.length_m[bend] == pytest.approx(graph.length_m[int(graph.road_between(four, three))])
    assert graph.source == "town.osm"


def test_a_way_may_be_open_backwards_only(tmp_path: Path) -> None:
    path = tmp_path / "town.osm"
    path.write_text(OSM.format(bend="-1"))
    graph = read_roads(path)
    # Without a way back from 4 it is no part of what can be reached from everywhere.
    assert graph.nodes == 3
    assert graph.lat.max() == 0


def test_a_packed_extract_is_the_same(osm: Path, tmp_path: Path) -> None:
    packed = tmp_path / "town.osm.bz2"
    packed.write_bytes(bz2.compress(osm.read_bytes()))
    plain, again = read_roads(osm), read_roads(packed)
    assert plain.seconds.tolist() == again.seconds.tolist()
    assert plain.head.tolist() == again.head.tolist()


def test_a_binary_extract_is_the_same(osm: Path, tmp_path: Path) -> None:
    osmium = pytest.importorskip("osmium")
    path = tmp_path / "town.osm.pbf"
    with osmium.SimpleWriter(str(path)) as writer:
        for each in osmium.FileProcessor(str(osm)):
            writer.add(each)
    assert read_roads(path).seconds.tolist() == pytest.approx(read_roads(osm).seconds.tolist())


def test_graphml_as_osmnx_writes_it(tmp_path: Path) -> None:
    graph = networkx.MultiDiGraph(crs="epsg:4326")
    for node, (x, y) in enumerate([(2.0, 48.0), (2.01, 48.0), (2.01, 48.01)]):
        graph.add_node(f"n{node}", x=str(x), y=str(y))
    graph.add_edge("n0", "n1", length="750.0", maxspeed="['50', '30']", highway="primary")
    graph.add_edge("n0", "n1", length="700.0", travel_time="99.5", highway="primary")
    graph.add_edge("n1", "n0", length="700.0", highway="residential", geometry="LINESTRING (2.01 48, 2.005 48.001, 2 48)")  # fmt: skip  # noqa: E501
    graph.add_edge("n1", "n2", speed_kph="36")
    graph.add_edge("n2", "n1", length="1112", geometry="no line")
    path = tmp_path / "city.graphml"
    networkx.write_graphml(graph, path)
    read = read_roads(path)
    assert (read.nodes, read.roads) == (3, 4)
    seconds = read.seconds[read.road_between([0, 1, 1, 2], [1, 0, 2, 1])]
    assert seconds[0] == pytest.approx(750 / 50 * 3.6), "the faster of two"
    assert seconds[1] == pytest.approx(700 / 30 * 3.6)
    assert seconds[2] == pytest.approx(1112 / 36 * 3.6, rel=1e-3), "a length from its ends"
    assert seconds[3] == pytest.approx(1112 / 40 * 3.6)
    shapes, road = read.courses(), int(read.road_between(1, 0))
    assert np.diff(shapes.start)[road] == 3


def test_an_undirected_graph_goes_both_ways(tmp_path: Path) -> None:
    graph = networkx.Graph()
    graph.add_node(1, lon=2.0, lat=48.0)
    graph.add_node(2, lon=2.01, lat=48.0)
    graph.add_edge(1, 2, length=700.0)
    networkx.write_graphml(graph, tmp_path / "two.graphml")
    assert read_roads(tmp_path / "two.graphml").roads == 2


def test_a_synthetic_city_comes_back(tmp_path: Path) -> None:
    city = synthetic_roads(spacing_m=1000)
    graph = networkx.DiGraph()
    for node in range(city.nodes):
        graph.add_node(node, x=float(city.lon[node]), y=float(city.lat[node]))
    for road in range(city.roads):
        graph.add_edge(
            int(city.tail[road]),
            int(city.head[road]),
            length=float(city.length_m[road]),
            travel_time=float(city.seconds[road]),
        )
    networkx.write_graphml(graph, tmp_path / "city.graphml")
    read = read_roads(tmp_path / "city.graphml")
    assert (read.nodes, read.roads) == (city.nodes, city.roads)
    assert np.sort(read.seconds) == pytest.approx(np.sort(city.seconds))
    region = mv.Region.from_bbox(-40.05, 40.02, -39.98, 40.08)
    part = read_roads(tmp_path / "city.graphml", region)
    assert 0 < part.nodes < city.nodes
    assert region.contains(part.lon, part.lat).all()
    with pytest.raises(InputError, match="no road lies in the region"):
        read_roads(tmp_path / "city.graphml", mv.Region.from_bbox(10, 10, 11, 11))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.graphml", b"this is no xml", "not readable as GraphML"),
        ("a.graphml", b"<html></html>", "not readable as GraphML"),
        ("a.graphml", b"<graphml xmlns='http://graphml.graphdrawing.org/xmlns'><graph edgedefault='directed'/></graphml>", "no roads"),  # noqa: E501
        ("a.graphml", b"<graphml xmlns='http://graphml.graphdrawing.org/xmlns'><graph edgedefault='directed'><node id='1'/></graph></graphml>", "no x and y in degrees"),  # noqa: E501
        ("a.osm", b"<osm version='0.6'></osm>", "no road that cars may use"),
        ("a.osm", b"nonsense", "not readable as OpenStreetMap"),
        ("a.osm.pbf", b"\x00\x01garbage" * 9, "not readable as OpenStreetMap"),
        ("a.shp", b"", ".graphml, .osm"),
        ("a.csv", b"", ".graphml, .osm"),
    ],
)  # fmt: skip
def test_what_is_no_map_of_roads_is_one_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=says) as raised:
        read_roads(tmp_path / name)
    assert "\n" not in str(raised.value)
    assert name in str(raised.value)


def test_a_projected_graph_is_refused(tmp_path: Path) -> None:
    graph = networkx.DiGraph()
    graph.add_node(1, x=530_000.0, y=4_500_000.0)
    networkx.write_graphml(graph, tmp_path / "utm.graphml")
    with pytest.raises(InputError, match="unprojected"):
        read_roads(tmp_path / "utm.graphml")


def test_a_disconnected_graph_keeps_nothing(tmp_path: Path) -> None:
    graph = networkx.DiGraph()
    for node in range(3):
        graph.add_node(node, x=2.0 + node / 100, y=48.0)
    graph.add_edge(0, 1)
    graph.add_edge(1, 2)
    networkx.write_graphml(graph, tmp_path / "one-way.graphml")
    with pytest.raises(InputError, match="no two junctions can be reached"):
        read_roads(tmp_path / "one-way.graphml")


def test_no_file_and_no_extra_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_roads(tmp_path / "absent.graphml")
    (tmp_path / "a.graphml").write_text("<graphml/>")
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)
    with pytest.raises(MissingExtra, match="the extra routes"):
        read_roads(tmp_path / "a.graphml")


@pytest.mark.parametrize(
    ("limit", "kind", "kmh"),
    [
        ("50", "motorway", 50),
        ("30 mph", None, 48.28032),
        ("10 knots", None, 18.52),
        ("['50', '30']", "residential", 50),
        ("none", "motorway", 110),
        ("signals", "primary", 60),
        ("0", "residential", 30),
        (None, "['residential', 'tertiary']", 30),
        (None, "bridleway", 40),
        (None, None, 40),
    ],
)
def test_limits_come_before_classes(limit: str | None, kind: str | None, kmh: float) -> None:
    assert road_speed_kmh(limit, kind) == pytest.approx(kmh)


def test_links_are_slower_than_their_roads() -> None:
    for kind in ("motorway", "trunk", "primary", "secondary", "tertiary"):
        assert CLASS_SPEEDS[f"{kind}_link"] < CLASS_SPEEDS[kind]
