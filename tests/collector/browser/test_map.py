"""A finished map in the page: what it says of a cell is what the API says, and its files hold the same map."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapveil.formats.read_map import read_map
from mapveil.geo.parse_tiling import tiling_from_dict

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
    page.wait_for_function("document.querySelectorAll('.ramp').length > 0")
    return page


def test_what_is_read_off_the_map_is_what_the_api_says(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    cells = collector.ask("GET", f"/collections/{finished.first}/map/cells")
    tiling = tiling_from_dict(collector.ask("GET", f"/collections/{finished.first}/map")["tiling"])
    box = page.locator("#map canvas").bounding_box()
    read = set()
    for across, down in ((0.47, 0.53), (0.45, 0.4), (0.55, 0.62), (0.4, 0.55), (0.6, 0.33)):
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        page.wait_for_timeout(50)
        rows = reading(page)
        shown = dict(reversed(rows))  # of the two intervals, the first: per km²
        lat, lon = re.findall(r"([\d.]+)° [NW]", shown["Place"])
        (cell,) = tiling.locate(np.array([-float(lon)]), np.array([float(lat)]))
        read.add(int(cell))
        assert number(shown["Density"]) == pytest.approx(cells["per_km2"][cell], rel=0.006, abs=1e-9)
        assert number(shown["Persons in the cell"]) == pytest.approx(
            cells["values"][cell], rel=0.006, abs=1e-9
        )
        intervals = [text for term, text in rows if term.endswith("interval")]
        low, high = (number(part) for part in intervals[1].split(" to "))
        assert low == pytest.approx(cells["low"][cell], rel=0.006, abs=1e-9)
        assert high == pytest.approx(cells["high"][cell], rel=0.006, abs=1e-9)
    assert len(read) == 5
    pages.shoot(page, "cell")


def test_the_map_is_read_with_keys_and_told(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    page.locator("#map canvas").focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    before = dict(reading(page))["Place"]
    assert "persons per square kilometre" in page.locator("#news").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => !document.querySelector('#reading').innerText.includes(before)", arg=before
    )
    page.keyboard.press("+")
    page.wait_for_timeout(500)
    pages.shoot(page, "zoomed")


def test_layers_opacity_and_the_promise(collector: Any, pages: Any, finished: Any) -> None:
    page = opened(collector, pages, finished.first)
    ground = page.locator("#map").screenshot()
    page.get_by_role("radio", name="Uncertainty").check()
    page.wait_for_timeout(800)
    uncertain = page.locator("#map").screenshot()
    assert uncertain != ground
    pages.shoot(page, "uncertainty")
    page.get_by_label("Opacity").fill("0")
    page.wait_for_timeout(500)
    assert page.locator("#map").screenshot() != uncertain
    tiles = [address for address in pages.requests if "/map/tiles/" in address]
    assert any("layer=density" in address for address in tiles)
    assert any("layer=uncertainty" in address for address in tiles)
    card = page.get_by_role("region", name="What is promised")
    words = card.inner_text()
    assert "At most 2.72 times" in words
    card.get_by_text("The exact promise").click()
    promise = collector.ask("GET", f"/collections/{finished.first}/map")["guarantee"]["promise"]
    for text in (*promise["sentences"], *(text for _, text in promise["rows"])):
        assert text in card.inner_text()


@pytest.mark.parametrize("name", ["geotiff", "geoparquet", "geojson", "png", "html"])
def test_downloads_hold_the_map(collector: Any, pages: Any, finished: Any, tmp_path: Path, name: str) -> None:
    page = opened(collector, pages, finished.first)
    with page.expect_download() as coming:
        page.locator(f"button[data-format={name}]").click()
    path = tmp_path / coming.value.suggested_filename
    coming.value.save_as(path)
    assert path.stem == "first-map"
    cells = collector.ask("GET", f"/collections/{finished.first}/map/cells")
    values = np.array(cells["values"], dtype=float)
    if name in ("geotiff", "geoparquet"):
        heat = read_map(path)
        np.testing.assert_allclose(heat.values, values, rtol=1e-3, atol=1e-9)
        assert heat.guarantee.epsilon == 1
        assert heat.guarantee.model == "local"
    elif name == "geojson":
        features = json.loads(path.read_text(encoding="utf-8"))["features"]
        assert len(features) == values.size
    elif name == "png":
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        pages.keep(path, "download")
    else:
        text = path.read_text(encoding="utf-8")
        assert "<html" in text
        assert "olh-h" in text


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
    left, right = (
        dict(reversed(list(zip(terms, texts, strict=True))))
        for terms, texts in (
            (card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts())
            for card in (page.get_by_role("region", name="Left:"), page.get_by_role("region", name="Right:"))
        )
    )
    assert left["Place"] == right["Place"]
    lat, lon = re.findall(r"([\d.]+)° [NW]", left["Place"])
    for identifier, shown in ((finished.first, left), (finished.second, right)):
        cells = collector.ask("GET", f"/collections/{identifier}/map/cells")
        tiling = tiling_from_dict(collector.ask("GET", f"/collections/{identifier}/map")["tiling"])
        (cell,) = tiling.locate(np.array([-float(lon)]), np.array([float(lat)]))
        assert number(shown["Density"]) == pytest.approx(cells["per_km2"][cell], rel=0.006, abs=1e-9)
