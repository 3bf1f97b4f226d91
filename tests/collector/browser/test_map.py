"""A finished map in the page: what it says of a cell is what the API says, and its files hold the same map."""

from __future__ import annotations

import csv
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapveil as mv
from mapveil.formats.read_map import read_map
from mapveil.geo.grid import Grid
from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.region import Region
from mapveil.maps.flow_map import FlowMap
from mapveil.pictures.page import page_html
from mapveil.privacy.claim import Adversary, Neighbouring, TrustModel
from mapveil.privacy.guarantee import Guarantee

pytestmark = pytest.mark.xdist_group("browser")


def number(text: str) -> float:
    """A number as the page writes it, three digits and thin spaces."""
    found = re.match(r"-?[\d\u202f]*\.?\d+", text)
    assert found is not None, text
    return float(found[0].replace("\u202f", ""))


def reading(page: Any, place: str = "#reading") -> list[tuple[str, str]]:
    """The rows of what the page says of a cell."""
    terms = page.locator(f"{place} dt").all_inner_texts()
    return list(zip(terms, page.locator(f"{place} dd").all_inner_texts(), strict=True))


def opened(collector: Any, pages: Any, identifier: str, **context: Any) -> Any:
    page = pages.open(f"/#token={collector.token}&/collections/{identifier}", **context)
    page.locator("#map[data-ready=yes]").wait_for()
    return page


def cells_of(collector: Any, identifier: str) -> list[dict[str, float]]:
    """The properties of each cell in a collection's GeoJSON."""
    features = collector.ask("GET", f"/collections/{identifier}/map/exports/geojson")["features"]
    return [each["properties"] for each in features]


def test_what_is_read_off_the_map_is_what_the_files_say(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    cells = cells_of(collector, finished.first)
    tiling = tiling_from_dict(
        collector.ask("GET", f"/collections/{finished.first}/map")["metadata"]["tiling"]
    )
    box = page.locator("#map canvas").bounding_box()
    read = set()
    for across, down in ((0.47, 0.53), (0.45, 0.4), (0.55, 0.62), (0.4, 0.55), (0.6, 0.33)):
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        page.wait_for_timeout(50)
        shown = dict(reading(page))
        cell = int(shown["Cell"])
        lon, lat = -number(shown["Longitude"]), number(shown["Latitude"])
        assert tiling.locate(np.array([lon]), np.array([lat])).tolist() == [cell]
        read.add(cell)
        assert number(shown["Estimated users"]) == pytest.approx(cells[cell]["users"], rel=0.006, abs=1e-9)
        assert number(shown["Density, model's estimate of every cell"]) == pytest.approx(
            cells[cell]["users_per_km2"], rel=0.006, abs=1e-9
        )
        low, high = (number(part) for part in shown["95 % bounds"].split(" to "))
        assert low == pytest.approx(cells[cell]["lower"], rel=0.006, abs=1e-9)
        assert high == pytest.approx(cells[cell]["upper"], rel=0.006, abs=1e-9)
    assert len(read) == 5
    pages.shoot(page, "cell")


def test_a_click_holds_a_cell_until_escape(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    box = page.locator("#map canvas").bounding_box()

    def point(across: float) -> tuple[float, float]:
        return box["x"] + across * box["width"], box["y"] + 0.5 * box["height"]

    page.mouse.click(*point(0.45))
    held = dict(reading(page))["Cell"]
    page.mouse.move(*point(0.6))
    assert dict(reading(page))["Cell"] == held
    page.keyboard.press("Escape")
    page.mouse.move(*point(0.61))
    page.wait_for_function("held => !document.querySelector('#reading').innerText.endsWith(held)", arg=held)


def test_the_map_is_read_with_keys_and_told(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    page.locator("#map canvas").focus()
    page.keyboard.press("Enter")
    page.locator("#news", has_text="Estimated users: ").wait_for(state="attached")
    before = dict(reading(page))["Cell"]
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => !document.querySelector('#reading').innerText.endsWith(before)", arg=before
    )
    page.keyboard.press("+")
    page.wait_for_timeout(300)
    pages.shoot(page, "zoomed")


def test_two_fingers_zoom_and_a_tap_reads(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first, width=390, height=780, has_touch=True, is_mobile=True)
    canvas = page.locator("#map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.touchscreen.tap(x, y)
    page.locator("#map .chip", has_text="Estimated users").wait_for()
    before = canvas.screenshot()
    session = page.context.new_cdp_session(page)
    for kind, apart in (("touchStart", 30), ("touchMove", 60), ("touchMove", 120), ("touchEnd", None)):
        points = (
            [] if apart is None else [{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}]
        )
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.wait_for_timeout(200)
    assert canvas.screenshot() != before
    pages.shoot(page, "pinched")


def test_layers_scales_and_the_promise(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    pictures = [page.locator("#map").screenshot()]
    page.get_by_role("button", name="Linear").click()
    page.wait_for_timeout(200)
    pictures.append(page.locator("#map").screenshot())
    choice = page.get_by_label("Colours show")
    choice.select_option(label="Uncertainty: half the 95 % interval")
    page.get_by_role("heading", name="Uncertainty: half the 95 % interval, users per km²").wait_for()
    page.wait_for_timeout(200)
    pictures.append(page.locator("#map").screenshot())
    assert len(set(pictures)) == 3
    pages.shoot(page, "uncertainty")
    card = page.get_by_role("region", name="What is promised")
    words = card.inner_text()
    assert "at most 2.72 times as likely" in words
    card.get_by_text("The exact promise").click()
    record = collector.ask("GET", f"/collections/{finished.first}/map")
    promise = record["metadata"]["guarantee"]["promise"]
    for text in (*promise["sentences"], *(text for _, text in promise["rows"])):
        assert text in card.inner_text()


def test_downloads_hold_the_map(collector: Any, pages: Any, finished: Any, tmp_path: Path) -> None:
    page = opened(collector, pages, finished.first)
    cells = cells_of(collector, finished.first)
    values = np.array([each["users"] for each in cells])

    def download(name: str) -> Path:
        with page.expect_download() as coming:
            page.locator(f"button[data-format={name}]").click()
        path = tmp_path / coming.value.suggested_filename
        coming.value.save_as(path)
        assert path.stem == "first-map"
        return path

    for name in ("geotiff", "geoparquet"):
        heat = read_map(download(name))
        np.testing.assert_allclose(heat.values, values, rtol=1e-3, atol=1e-9)
        assert heat.guarantee.epsilon == 1
        assert heat.guarantee.model == "local"
    features = json.loads(download("geojson").read_text(encoding="utf-8"))["features"]
    assert len(features) == values.size
    picture = download("png")
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pages.keep(picture, "download")
    text = download("html").read_text(encoding="utf-8")
    assert "olh-h" in text
    _check_page(pages, text, cells, tmp_path)


def exported(pages: Any, text: str) -> Any:
    """An exported page, once it has drawn its map."""
    page = pages.open()
    page.route("**/map.html", lambda route: route.fulfill(body=text, content_type="text/html"))
    page.goto(pages.address + "/map.html")
    page.locator("#map[data-ready=yes]").wait_for()
    return page


def _check_page(pages: Any, text: str, cells: list[dict[str, float]], folder: Path) -> None:
    """The exported page draws and reads the same map without any server."""
    page = exported(pages, text)
    requests = len(pages.requests)
    page.locator("#map canvas").hover()
    shown = dict(reading(page))
    assert number(shown["Estimated users"]) == pytest.approx(cells[int(shown["Cell"])]["users"], rel=0.006)
    for button, suffix in (("CSV", ".csv"), ("GeoJSON", ".geojson")):
        with page.expect_download() as coming:
            page.get_by_role("button", name=button, exact=True).click()
        coming.value.save_as(folder / f"page{suffix}")
    rows = list(csv.DictReader((folder / "page.csv").read_text(encoding="utf-8").splitlines()))
    kept = [float(row["users"]) for row in rows]
    assert kept == pytest.approx([each["users"] for each in cells], rel=1e-3, abs=1e-6)
    assert not any("half_width" in row for row in rows)
    for feature in json.loads((folder / "page.geojson").read_text(encoding="utf-8"))["features"]:
        assert feature["properties"]["upper"] == pytest.approx(cells[feature["id"]]["upper"], rel=1e-3)
    page.get_by_role("button", name="Switch to dark colours").click()
    pages.shoot(page, "exported-dark")
    assert all(address.startswith("blob:") for address in pages.requests[requests:])


_TRIPS_AT = """(places) => places.map(([clientX, clientY]) => {
  const canvas = document.querySelector("#map canvas");
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true, pointerType: "mouse" }));
  const named = [...document.querySelectorAll("#reading dt")].find((each) => each.innerText === "Estimated trips");
  return named ? named.nextElementSibling.innerText : null;
})"""


def test_a_page_of_flows_reads_lines_and_hides_small_ones(pages: Any, tmp_path: Path) -> None:
    grid = Grid(Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=1, columns=3)
    trips = np.array([5.0, 90.0])
    promise = Guarantee(
        model=TrustModel.LOCAL,
        neighbours=Neighbouring.REPLACE_ONE,
        epsilon=Fraction(2),
        adversary=Adversary.REPORTS,
    )
    flows = FlowMap(np.array([0, 1]), np.array([1, 2]), trips, grid, promise, "by hand")
    page = exported(pages, page_html(flows))
    box = page.locator("#map canvas").bounding_box()
    places = [
        [box["x"] + across * box["width"], box["y"] + down * box["height"]]
        for across in np.linspace(0.2, 0.8, 40)
        for down in np.linspace(0.3, 0.5, 12)
    ]
    assert set(page.evaluate(_TRIPS_AT, places)) == {None, "5", "90"}
    before = page.locator("#map").screenshot()
    page.get_by_label("At least").fill("80")
    page.wait_for_timeout(200)
    assert page.locator("#map").screenshot() != before
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").click()
    coming.value.save_as(tmp_path / "flows.csv")
    rows = list(csv.DictReader((tmp_path / "flows.csv").read_text(encoding="utf-8").splitlines()))
    assert sorted(float(row["Estimated trips"]) for row in rows) == pytest.approx(trips.tolist())


def test_two_maps_under_a_slider(collector: Any, pages: Any, finished: Any) -> None:
    path = f"/#token={collector.token}&/compare?left={finished.first}&right={finished.second}"
    page = pages.open(path)
    page.locator("#swipe[data-ready=yes]").wait_for()
    page.wait_for_timeout(800)
    pictures = []
    for part in ("100", "50", "0"):
        page.get_by_label("How much of the left map").fill(part)
        page.wait_for_timeout(300)
        pictures.append(page.locator("#swipe").screenshot())
        pages.shoot(page, part)
    assert len(set(pictures)) == 3
    box = page.locator("#swipe").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.47, box["y"] + box["height"] * 0.53)
    page.wait_for_timeout(100)
    sides = [page.get_by_role("region", name=name) for name in ("Left:", "Right:")]
    left, right = (
        dict(zip(side.locator("dt").all_inner_texts(), side.locator("dd").all_inner_texts(), strict=True))
        for side in sides
    )
    assert left["Cell"] == right["Cell"]
    for identifier, shown in ((finished.first, left), (finished.second, right)):
        density = cells_of(collector, identifier)[int(shown["Cell"])]["users_per_km2"]
        assert number(shown["Density, model's estimate of every cell"]) == pytest.approx(
            density, rel=0.006, abs=1e-9
        )
    # The edge is pulled, and nothing moves but the edge.
    page.get_by_label("How much of the left map").fill("50")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 60)
    page.mouse.up()
    assert page.get_by_label("How much of the left map").input_value() == "20"


_DRAWN = """
window.drawn = [];
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  if (this.canvas.classList.contains("plane")) window.drawn.push(text);
  fillText.call(this, text, ...rest);
};
"""


def test_the_marks_of_a_map_are_drawn_on_it_and_stand_beside_its_legend(pages: Any) -> None:
    city = mv.synthetic.city(users=200, seed=1)
    heat = mv.release(city, mv.Grid(city.region, rows=4, columns=4), epsilon=12, trust="local", account=None)
    page = pages.open()
    page.add_init_script(_DRAWN)
    page.route("**/map.html", lambda route: route.fulfill(body=page_html(heat), content_type="text/html"))
    page.goto(pages.address + "/map.html")
    page.locator("#map[data-ready=yes]").wait_for()
    stamps = ["SIMULATION", "LARGE EPSILON: LITTLE PROTECTION", "NOT ACCOUNTED"]
    assert set(stamps) <= set(page.evaluate("window.drawn"))
    colours = page.locator(".card", has=page.locator("canvas.legend"))
    assert colours.locator(".stamps").inner_text() == "; ".join(stamps)
