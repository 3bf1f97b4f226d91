"""Pages with online tiles: one host in the policy and named in words, and tiles where web mercator has them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

import mapveil as mv
from mapveil.geo.context import Context
from mapveil.geo.online_tiles import parse_online_tiles
from mapveil.geo.web_mercator import WebMercatorTiles
from mapveil.pictures.page import page_html
from mapveil_client import morton
from tests.node import run_in_node

ASSETS = Path(__file__).parents[2] / "src/mapveil/pictures/shared/assets"
REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


def test_only_a_page_that_was_asked_to_names_a_host_and_says_so() -> None:
    city = mv.synthetic.city(users=50, seed=1, region=REGION)
    heat = mv.release(city, mv.Quadtree(REGION, depth=2), epsilon=1, account=None, rng=1)
    tiles = parse_online_tiles("https://tile.example/{z}/{x}/{y}.png")
    asked = page_html(replace(heat, context=Context.nothing()._replace(tiles=tiles)))
    bare = page_html(heat)
    policies = [re.search(r"img-src ([^;]*);", page)[1] for page in (asked, bare)]
    assert policies == ["data: https://tile.example", "data:"]
    assert "This browser fetches it from tile.example" in asked
    assert "tile.example" not in bare
    assert "sends nothing anywhere" in bare
    assert "sends nothing anywhere" not in asked


def test_tiles_lie_where_python_says() -> None:
    script = f"""
        import {{ tileOf, degreesOfTile, tilesOf }} from "{(ASSETS / "online_tiles.js").as_uri()}";
        console.log(JSON.stringify({{
            at: given.places.map(([lon, lat]) => tileOf(lon, lat, 14).map(Math.floor)),
            corner: degreesOfTile(...given.first, 14),
            few: given.boxes.map((box) => tilesOf(box, 1e5)),
        }}));"""
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(-74.03, -73.90, 50), rng.uniform(40.69, 40.83, 50)
    tiles = WebMercatorTiles(REGION, 14)
    cells = tiles.locate(lon, lat)
    first_x, _, first_y, _ = tiles._range
    boxes = [list(REGION.bbox), [-180.0, -85.0, 180.0, 85.0]]
    given = {"places": np.stack([lon, lat], axis=1).tolist(), "first": [first_x, first_y], "boxes": boxes}
    found = run_in_node(script, given)
    row, col = morton.deinterleave(tiles._codes[cells])
    assert found["at"] == np.stack([col, row], axis=1).tolist()
    west, _, _, north = tiles.bounds(np.array([0]))
    assert found["corner"] == [float(west[0]), float(north[0])] or np.allclose(
        found["corner"], [west[0], north[0]], atol=1e-9
    )
    for each in found["few"]:
        assert (each["right"] - each["left"] + 1) * (each["bottom"] - each["top"] + 1) <= 96
