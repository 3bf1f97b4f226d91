"""The ground in a picture's plane: where it lies, which lines are a coast, and names that do not meet."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
import shapely
from matplotlib.colors import to_rgba

import mapveil as mv
from mapveil.geo.context import Context, read_context
from mapveil.geo.parse_tiling import parse_tiling
from mapveil.geo.region import Region
from mapveil.geo.zone_cells import ZoneCells
from mapveil.geo.zones import Zones
from mapveil.pictures.picture import drawn_context, plot
from mapveil.pictures.picture_frame import PAPER
from mapveil.pictures.picture_plane import arcs, map_plane
from mapveil.pictures.plane_ground import WATER, plane_ground
from mapveil.pictures.scene_record import scene_record


@pytest.mark.parametrize("kind", ["grid", "utm", "degrees", "tiles", "hexagons", "places"])
def test_the_ground_lies_under_the_map(make_map, kind):
    tiling = make_map(kind).tiling
    plane = map_plane(tiling)
    ground = plane_ground(plane, tiling.region, margin=0.5)
    x0, y0, x1, y1 = plane.bounds
    across = max(x1 - x0, (y1 - y0) * plane.aspect) / 2  # as far beyond the shorter sides
    up = across / plane.aspect
    assert ground.bounds == pytest.approx((x0 - across, y0 - up, x1 + across, y1 + up))
    named = dict(zip(ground.names, ground.places.tolist(), strict=True))
    place, lon, lat = ("Singapore", 103.85, 1.29) if kind == "degrees" else ("Manhattan", -73.966, 40.783)
    x, y = plane.projection.project(np.array([lon]), np.array([lat]))
    assert named[place] == pytest.approx([x[0], y[0]], abs=0.01 * (x1 - x0) + 0.01)
    assert ground.land.corners.size > 0


def test_the_ground_holds_arcs_that_bend_out_of_a_narrow_region():
    tiling = parse_tiling("grid:2x20", Region.from_bbox(13.3, 50.0, 13.4, 52.0))
    plane, lines = map_plane(tiling), np.array([[[13.3, 50.0], [13.3, 52.0]], [[13.4, 52.0], [13.4, 50.0]]])
    ends = np.stack(plane.projection.project(lines[..., 0], lines[..., 1]), axis=-1)
    x, y = arcs(ends, plane.aspect).reshape(-1, 2).T
    west, south, east, north = plane_ground(plane, tiling.region, margin=0.3).bounds
    assert x.min() < plane.bounds[0]
    assert x.max() > plane.bounds[2]
    assert (x.min() > west, x.max() < east, y.min() > south, y.max() < north) == (True,) * 4


def test_where_the_earth_ends_no_sea_is_drawn():
    rng = np.random.default_rng(5)
    table = {"user": np.arange(3000), "lon": rng.uniform(-180, 180, 3000), "lat": rng.uniform(-89, 89, 3000)}
    world = Region.from_bbox(-180, -90, 180, 90)
    heat = mv.release(mv.read_points(pyarrow.table(table)), "grid:8x8", region=world, epsilon=9, rng=1)
    axes = plot(heat)
    low, _ = axes.get_ylim()
    sea = next(each for each in axes.patches if each.get_facecolor() == to_rgba(WATER))
    box = sea.get_bbox()
    _, (south, north) = heat.tiling.region.projection.project(np.zeros(2), np.array([-90.0, 90.0]))
    assert low < south  # the strip below the map, for its legend
    assert (box.y0, box.y1) == pytest.approx((south, north))
    assert axes.get_facecolor() == to_rgba(PAPER)


def test_a_map_without_georeference_has_no_ground(make_map):
    heat = make_map("no georeference")
    assert plane_ground(map_plane(heat.tiling), heat.tiling.region) is None
    assert scene_record(heat)["scene"]["ground"] is None


def test_where_the_ground_was_cut_is_no_shore(make_map):
    tiling = make_map("grid").tiling
    ground = plane_ground(map_plane(tiling), tiling.region, margin=0.5)
    x0, y0, x1, y1 = ground.bounds
    frame = shapely.box(x0, y0, x1, y1).exterior
    shores = [
        shapely.LineString(part)
        for part in np.split(ground.shores.corners, ground.shores.start[1:-1])
        if len(part) > 1
    ]
    assert shores
    along = shapely.length(shapely.intersection(shores, shapely.buffer(frame, 1.0)))
    assert along.sum() < 0.02 * frame.length
    outlines = shapely.length(shapely.linestrings(ground.land.corners[: ground.land.start[1]]))
    assert outlines > 0


def test_a_picture_names_places_that_do_not_meet_and_says_whose_the_names_are(make_map):
    axes = plot(make_map("grid"))
    figure = axes.get_figure(root=True)
    figure.draw_without_rendering()
    names = {text.get_text(): text.get_window_extent() for text in axes.texts if text.get_size() == 7.5}
    assert {"Manhattan", "Hoboken"} & names.keys()
    boxes = list(names.values())
    assert all(not one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    frame = axes.get_window_extent()
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
    assert any("GeoNames, CC BY 4.0" in text.get_text() for text in axes.texts)


def test_ones_own_layers_are_drawn_and_named_first(make_map, tmp_path):
    path = tmp_path / "streets.geojson"
    line = {"type": "LineString", "coordinates": [[-74.5, 40.75], [-73.95, 40.76]]}
    feature = {"type": "Feature", "properties": {"name": "Long Street"}, "geometry": line}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}), encoding="utf-8")
    heat = replace(make_map("grid"), context=read_context(path))
    plane = map_plane(heat.tiling)
    ground = plane_ground(plane, heat.tiling.region, heat.context)
    assert ground.names[0] == "Long Street"
    assert ground.own.start.tolist() == [0, 2]
    assert ground.own.corners[:, 0].min() == pytest.approx(plane.bounds[0])
    assert scene_record(heat)["scene"]["ground"]["places"]["name"][0] == "Long Street"
    assert "Long Street" not in heat.metadata_json()


def test_cells_that_are_zones_are_outlined_and_named_before_other_places(make_map):
    boxes = np.array([shapely.box(-74.0, 40.7, -73.97, 40.8), shapely.box(-73.97, 40.7, -73.9, 40.8)])
    cells = ZoneCells(Zones(boxes, ("West", "Manhattan")))
    heat = replace(make_map("grid"), tiling=cells, values=np.ones(2), measurements=(), context=None)
    ground = plane_ground(map_plane(cells), cells.region, drawn_context(heat))
    assert ground.names[:2] == ("Manhattan", "West"), "the larger first"
    assert ground.names.count("Manhattan") == 1
    assert ground.own.corners.size > 0
    assert {"West", "Manhattan"} <= {text.get_text() for text in plot(heat).texts}


def test_a_name_without_room_above_its_place_stands_beside_it(make_map):
    heat = make_map("grid")
    west, south, east, north = heat.tiling.region.bbox
    x, y = (west + east) / 2, (south + north) / 2
    wide, high = (east - west) / 100, (north - south) / 100
    shapes = [shapely.box(x + at, y, x + at + 2 * wide, y + high) for at in (-30 * wide, -18 * wide)]
    zones = Context.of_zones(Zones(np.array(shapes), ("West of the middle", "The middle of it")))
    axes = plot(replace(heat, context=zones))
    placed = {text.get_text(): text.get_horizontalalignment() for text in axes.texts}
    assert (placed["West of the middle"], placed["The middle of it"]) == ("center", "left")


def test_names_of_many_zones_leave_room_for_places_and_are_counted(make_map):
    heat = make_map("grid")
    west, south, east, north = heat.tiling.region.bbox
    x, y = (np.linspace(*ends, 9) for ends in ((west, east), (south, north)))
    boxes = [shapely.box(x[i], y[j], x[i + 1], y[j + 1]) for i in range(8) for j in range(8)]
    boxes.append(shapely.box(west, south, east, north))
    zones = Zones(np.array(boxes), (*(f"Z{at}" for at in range(64)), "The whole city"))
    axes = plot(replace(heat, context=Context.of_zones(zones)))
    named = [text.get_text() for text in axes.texts]
    own = [name for name in zones.names if name in named]
    assert "The whole city" in own, "the largest zone, the last in the file"
    words = " ".join(" ".join(named).split())
    assert f"{len(own)} of 65 names of zones and own layers are drawn." in words
    assert {"Astoria", "Chinatown", "Harlem", "Manhattan", "Hoboken"} & set(named)
    assert "names of zones" not in " ".join(text.get_text() for text in plot(heat).texts)
