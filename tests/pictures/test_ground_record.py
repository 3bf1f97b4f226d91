"""The ground of the console's region picker: web mercator from the north-west corner of the box."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import mapveil as mv
from mapveil.pictures.ground_record import mercator_ground
from tests.node import run_in_node

ASSETS = Path(__file__).parents[2] / "src/mapveil"
RADIUS = 6378137.0


def test_names_and_shores_lie_in_web_mercator() -> None:
    west, south, east, north = -74.3, 40.5, -73.7, 41.0
    record = mercator_ground(mv.Region.from_bbox(west, south, east, north))
    script = f"""
        import {{ unpackAll }} from "{(ASSETS / "pictures/shared/assets/packed.js").as_uri()}";
        const {{ box, places, shores }} = await unpackAll(given);
        const at = {{ x: [...places.x], y: [...places.y], name: places.name }};
        console.log(JSON.stringify({{ box, ...at, corners: shores.x.length }}));"""
    found = run_in_node(script, record)
    at = found["name"].index("Hoboken")
    lon = west + math.degrees(found["x"][at] / RADIUS)
    top = math.asinh(math.tan(math.radians(north)))
    lat = math.degrees(math.atan(math.sinh(top - found["y"][at] / RADIUS)))
    assert np.allclose([lon, lat], [-74.03, 40.74], atol=0.02)
    assert found["corners"] > 50
    wide, high = found["box"][2] - found["box"][0], found["box"][3] - found["box"][1]
    assert np.isclose(wide, RADIUS * math.radians(east - west))
    assert high > wide


def test_the_picker_fetches_when_it_must() -> None:
    source = (ASSETS / "collector/console/assets/region_ground.js").read_text(encoding="utf-8")
    # The function alone: its module asks a server.
    text = source[source.index("const AROUND") : source.index("/**\n * Makes")].replace("export ", "")
    given = {
        "held": [-74.2, 40.6, -73.8, 41.0],
        "views": [[-74.1, 40.7, -73.9, 40.9], [-74.05, 40.75, -74.0, 40.8], [-75.0, 40.7, -74.0, 40.9]],
    }
    script = text + "\nconsole.log(JSON.stringify(given.views.map((view) => boxToFetch(view, given.held))));"
    inside, close, beyond = run_in_node(script, given)
    assert inside is None  # it is held, and fine enough
    assert np.allclose(close, [-74.075, 40.725, -73.975, 40.825])
    assert beyond[0] < -75.0
    world = run_in_node(text + "\nconsole.log(JSON.stringify(boxToFetch([-180, -85, 180, 85], null)));", {})
    assert world == [-180, -85, 180, 85]
