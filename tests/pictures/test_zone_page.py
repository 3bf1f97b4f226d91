"""The page of answers: the numbers of ``ask``, doubt where an interval reaches zero, and nothing fetched."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest
import shapely

import mapveil as mv
from mapveil.analysis.zone_totals import totals_of
from mapveil.geo.zones import Zones
from mapveil.inference.zone_overlay import ZoneOverlay
from mapveil.inference.zone_results import ZoneTotals
from mapveil.pictures.zone_page import answers_html

REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)


@pytest.fixture(scope="module")
def asked() -> tuple[ZoneOverlay, ZoneTotals]:
    """Halves, one that reaches beyond the map, and a corner smaller than a cell on top of the first."""
    city = mv.synthetic.city(users=2000, seed=1, region=REGION)
    heat = mv.release(city, mv.Quadtree(REGION, depth=6), epsilon=1, account=None, rng=2)
    west, south, east, north = REGION.bbox
    middle = (west + east) / 2
    shapes = [
        shapely.box(west, south, middle, north),
        shapely.box(middle, south, east + 0.2, north),
        shapely.box(west, south, west + 0.001, south + 0.001),
    ]
    names = ("<west>", "east & beyond", "corner")
    overlay = ZoneOverlay.of(heat, Zones(np.array(shapes, dtype=object), names))
    return overlay, totals_of(overlay)


def unpack(packed: dict[str, Any]) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    return np.ascontiguousarray(planes.reshape(4, -1).T).view("<" + packed["type"])[:, 0]


def test_it_draws_and_lists_the_answers(asked: tuple[ZoneOverlay, ZoneTotals]) -> None:
    overlay, found = asked
    page = answers_html(overlay, found, found.columns(), "3 zones")
    record = json.loads(page.split('id="scene">')[1].split("</script>")[0])
    scene = record["scene"]
    assert scene["names"] == list(found.zones.names)
    users = unpack(scene["layers"][scene["main"]]["values"])
    assert np.allclose(users, np.maximum(found.estimate, 0), rtol=1e-3)
    assert np.allclose(unpack(scene["bounds"][1]), found.bounds[1], rtol=1e-6)
    assert found.bounds[1][2] == found.certain_high[2] > 10 * found.high[2]
    # The corner lies within one measured cell: whoever is in that cell was placed there by the model alone.
    assert (found.low > 0).all()
    told = np.array([True, True, False])
    for layer in scene["layers"][: scene["main"]]:
        assert np.isnan(unpack(layer["values"])).tolist() == (~told).tolist()
    # What lies beyond the map is not drawn: its users are not known.
    half = overlay.heat.tiling.area_m2().sum() / 2e6
    assert unpack(scene["area"])[:2] == pytest.approx([half, half], rel=1e-3)
    # The small zone is painted last, and so found first by a pointer.
    assert unpack(scene["rings"]["cell"])[-1] == 2
    body = page.split('class="answers"')[1].split("</table>")[0]
    assert body.count("<tr>") == 4
    assert "&lt;west&gt;" in body
    assert "<west>" not in page
    assert f"{found.estimate[0]:,.1f}" in body
    assert re.search(r"img-src ([^;]*);", page)[1] == "data:"
    assert "SEEDED" in page


def test_the_legend_tells_zones_without_a_measured_cell_from_empty_ones() -> None:
    everywhere, nowhere = np.full(400, -74.0), np.full(400, 40.72)
    points = mv.Points.from_arrays(np.arange(400), everywhere, nowhere)
    heat = mv.release(points, mv.Quadtree(REGION, depth=6), epsilon=1, account=None, rng=2)
    _, south, east, north = REGION.bbox
    shapes = {
        "nobody": shapely.box(-73.965, 40.76, east, north),
        "within a cell": shapely.box(east - 1e-4, south, east, south + 1e-4),
    }
    said = {
        "nobody": "Hatched: nobody, or too few to tell, in measured cells inside (1 of 1 zones)",
        "within a cell": "Hatched: no measured cell inside (1 of 1 zones)",
    }
    for name, shape in shapes.items():
        overlay = ZoneOverlay.of(heat, Zones(np.array([shape], dtype=object), (name,)))
        found = totals_of(overlay)
        page = answers_html(overlay, found, found.columns(), "1 zone")
        scene = json.loads(page.split('id="scene">')[1].split("</script>")[0])["scene"]
        assert scene["doubt"] == said[name]


def test_rates_are_coloured_by_the_rate(asked: tuple[ZoneOverlay, ZoneTotals]) -> None:
    overlay, found = asked
    residents = np.array([4000.0, 0.0, 10.0])
    rate = np.divide(found.estimate * 1000, residents, out=np.full(3, np.nan), where=residents > 0)
    columns = {**found.columns(), "denominator": residents, "estimate_per_1000": rate}
    page = answers_html(overlay, found, columns, "3 zones")
    scene = json.loads(page.split('id="scene">')[1].split("</script>")[0])["scene"]
    assert scene["doubt"] == "Hatched: no measured cell inside (1 of 3 zones); no denominator (1 of 3 zones)"
    coloured, *_, read = scene["layers"]
    assert coloured["unit"] == "users per 1,000 of the denominator"
    # The second has no residents, the third is not told from zero.
    assert unpack(coloured["values"]) == pytest.approx([rate[0], np.nan, np.nan], rel=1e-3, nan_ok=True)
    assert unpack(read["values"]) == pytest.approx(rate, rel=1e-3, nan_ok=True)


def test_rates_without_a_denominator_are_empty(asked: tuple[ZoneOverlay, ZoneTotals]) -> None:
    overlay, found = asked
    rate = np.array([1.5, np.nan, 2.0])
    columns = {**found.columns(), "estimate_per_1000": rate, "called_above": np.array([True, False, False])}
    body = answers_html(overlay, found, columns, "3 zones").split('class="answers"')[1]
    assert "Per 1,000" in body
    assert "nan" not in body.split("</table>")[0]
    assert body.split("</table>")[0].count("<td>yes</td>") == 1
