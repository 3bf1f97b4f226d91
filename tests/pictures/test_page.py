"""The page: one file, no loads, and every number in it comes back."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.maps.density_map import DensityMap
from mapveil.pictures.page import page_html
from mapveil.pictures.scene_record import scene_record
from mapveil_client.errors import InputError

KINDS = ["grid", "quadtree", "polygon", "utm", "degrees", "tiles", "no georeference", "hexagons", "places"]
LOADING = {"src", "href", "srcset", "action", "data", "poster", "background", "ping", "formaction"}


class Reader(HTMLParser):
    """What a browser would see: the tags, the scripts' texts and the words."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.words, self._inside = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if self._inside == ["script"]:
            self.scripts[-1] += data
        elif not self._inside:
            self.words.append(data)


def record(heat, **options):
    return json.loads(Reader(page_html(heat, **options)).scripts[0])


def scene(heat):
    return record(heat)["scene"]


def unpack(packed):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    return np.ascontiguousarray(planes.reshape(4, -1).T).view("<" + packed["type"])[:, 0]


def area_of(page):
    return page["area"] if isinstance(page["area"], float) else unpack(page["area"])


@pytest.mark.parametrize("kind", KINDS)
def test_values_come_back_to_four_digits(make_map, kind):
    heat = make_map(kind)
    page = scene(heat)
    users = unpack(page["layers"][page["main"]]["values"])
    assert np.allclose(users, heat.values, rtol=2**-13, atol=0)
    assert np.allclose(unpack(page["bounds"][0]), heat.interval().lower, rtol=2**-13, atol=0)
    density = next(layer for layer in page["layers"] if layer["title"].startswith("Density"))
    assert density["values"] == {"of": "users", "over_area": True}
    inside = heat.tiling.lattice().inside
    density = users / area_of(page)
    known = np.ones(heat.tiling.size, bool) if inside is None else inside
    assert np.allclose(density[known], heat.per_km2()[known], rtol=2**-12)
    assert np.isnan(density[~known]).all()


def test_a_bound_that_is_not_there_stays_infinite(make_map):
    upper = unpack(scene(make_map("grid", partial=True))["bounds"][1])
    assert math.isinf(upper[-1])
    assert np.isfinite(upper[:-1]).all()
    assert scene(make_map("grid", measured=False))["bounds"] is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("hexagons", "places")])
def test_pixels_lie_where_the_tiling_says(make_map, kind):
    heat = make_map(kind)
    page = scene(heat)
    raster = page["raster"]
    row, col = unpack(raster["row"]), unpack(raster["col"])
    assert len(set(zip(row.tolist(), col.tolist(), strict=True))) == heat.tiling.size
    if kind in ("utm", "no georeference"):
        return
    bounds = heat.tiling.bounds()
    lon, lat = (np.array(page["degrees"][name]) for name in ("lon", "lat"))
    for ours, theirs in ((lon[col], bounds.west), (lon[col + 1], bounds.east), (lat[row], bounds.north)):
        assert np.allclose(ours, theirs, atol=2e-7)


def test_mesh_of_a_plane_with_curved_meridians(make_map):
    """Between its nodes the mesh is straight; in a city that is good to a centimetre."""
    heat = make_map("utm")
    degrees = scene(heat)["degrees"]
    side = degrees["mesh"] + 1
    lon, lat = (np.array(degrees[name]).reshape(side, side) for name in ("lon", "lat"))
    x0, y0, x1, y1 = heat.tiling.region.bounds_m
    middle = heat.tiling.region.unproject(
        np.array([x0 + (x1 - x0) * 10.5 / 64]), np.array([y1 - (y1 - y0) * 20.5 / 64])
    )
    for mesh, known in ((lon, middle[0]), (lat, middle[1])):
        assert mesh[20:22, 10:12].mean() == pytest.approx(known[0], abs=2e-7)


@pytest.mark.parametrize("kind", ["hexagons", "places"])
def test_outlines_come_back(make_map, kind):
    shapely = pytest.importorskip("shapely")
    heat = make_map(kind)
    rings = scene(heat)["rings"]
    start, cell = unpack(rings["start"]), unpack(rings["cell"])
    lon = rings["origin"][0] + unpack(rings["lon"]).astype(float)
    lat = rings["origin"][1] + unpack(rings["lat"]).astype(float)
    corners = np.column_stack([lon, lat])
    made = [shapely.Polygon(corners[a:b]) for a, b in itertools.pairwise(start)]
    known = heat.tiling.polygons()
    assert cell.tolist() == list(range(heat.tiling.size))
    assert (
        max(one.symmetric_difference(two).area / two.area for one, two in zip(made, known, strict=True))
        < 1e-3
    )


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_interval_is_a_layer_where_bounds_are(make_map, kind):
    heat = make_map(kind, partial=True)
    page, bounds = scene(heat), heat.interval()
    layer = page["layers"][-1]
    assert (layer["name"], layer["values"]["of"]) == ("half_width", "bounds")
    half = (bounds.upper - bounds.lower) / 2 / area_of(page)
    assert layer["scale"]["top"] == pytest.approx(half[np.isfinite(half)].max())
    assert not any(each["name"] == "half_width" for each in scene(make_map(kind, measured=False))["layers"])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_loaded(make_map, kind):
    text = page_html(make_map(kind))
    seen = Reader(text)
    assert not [(tag, attrs) for tag, attrs in seen.tags if LOADING & set(attrs)]
    assert not {tag for tag, _ in seen.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(
        r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(|https?://", seen.scripts[1]
    )
    policy = next(attrs["content"] for tag, attrs in seen.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_carries_the_metadata_and_says_the_promise(make_map):
    heat = replace(make_map("grid"), title="A city")
    text = page_html(heat)
    words = " ".join(" ".join(Reader(text).words).split())
    assert record(heat)["metadata"] == json.loads(heat.metadata_json())
    for part in (
        "A city",
        "at most 1.4 times as likely",
        "at most 58.26 % sure",
        "the curator keeps the table secret",
        "laplace",
        f"Mapveil {heat.version}",
        "one note",
        "1/3",
    ):
        assert part in words, part
    assert "{{" not in text.replace(Reader(text).scripts[1], "")


@pytest.mark.parametrize("seeded", [False, True])
def test_seeded_maps_are_marked(make_map, seeded):
    assert (
        "SEEDED: NOT FOR RELEASE" in "".join(Reader(page_html(make_map("grid", seeded=seeded))).words)
    ) == seeded


EVIL = "</script><script>alert(1)</script><!--{{data}}<img src=x onerror=alert(1)>&\u2028'\""


def test_nothing_written_into_it_becomes_markup(make_map):
    heat = make_map("grid", method=EVIL, notes=(EVIL,))
    heat.parameters[EVIL] = EVIL
    seen, plain = Reader(page_html(replace(heat, title=EVIL))), Reader(page_html(make_map("grid")))
    assert len(seen.scripts) == 2
    assert {tag for tag, _ in seen.tags} == {tag for tag, _ in plain.tags}
    assert json.loads(seen.scripts[0])["title"] == EVIL
    assert json.loads(seen.scripts[0])["metadata"]["notes"] == [EVIL]
    assert seen.scripts[1] == plain.scripts[1]


def test_every_control_has_a_name(make_map):
    text = page_html(make_map("grid"))
    for tag, attrs in Reader(text).tags:
        if tag == "canvas":
            assert attrs["aria-label"]
            assert attrs["role"]
    assert {attrs.get("lang") for tag, attrs in Reader(text).tags if tag == "html"} == {"en"}
    ids = re.findall(r'\sid="(\w+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'\bat\("(\w+)"\)', Reader(text).scripts[1])) <= set(ids)


def test_a_million_cells_fit_in_fourteen_megabytes(make_map):
    """Noise in every cell, bounds around it and the noisy sums behind it: the hardest map to pack."""
    from mapveil.maps.measurement import Measurement

    tree = Quadtree(Region.from_bbox(-74.03, 40.69, -73.90, 40.83), depth=10)
    values = np.random.default_rng(1).laplace(3.0, 20.0, tree.size)
    model = make_map("grid")
    seen = model.measurements[0]
    heat = DensityMap(
        values=values,
        tiling=tree,
        guarantee=model.guarantee,
        method="laplace",
        measurements=(Measurement(np.arange(tree.size), values, seen.epsilon, seen.unit),),
    )
    assert len(page_html(heat)) < 14e6
    assert len(gzip.compress(json.dumps(scene_record(heat)).encode(), 5)) < 10.5e6


def test_file(make_map, tmp_path):
    heat = make_map("grid")
    heat.save(tmp_path / "map.html")
    assert (tmp_path / "map.html").read_text(encoding="utf-8") == page_html(heat)
    with pytest.raises(InputError, match="there is no folder"):
        heat.save(tmp_path / "nowhere" / "map.html")
