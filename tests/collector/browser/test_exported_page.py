"""An exported page from a folder: whole at every width, no serious fault for axe, and its answers are Python's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from pyarrow import csv

import mapveil as mv
from mapveil.engines import UNIT, UserSums
from mapveil.geo.context import Context
from mapveil.geo.zones import Zones
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil.mechanisms.multiscale_series import MultiscaleSeries
from tests.mechanisms.test_flow_blocks import ZONES as FLOW_ZONES
from tests.mechanisms.test_flow_series import WEEKS, timed_trips

pytestmark = pytest.mark.xdist_group("browser")

ROOT = Path(__file__).resolve().parents[3]
CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")
AXE = Path(os.environ.get("AXE_CORE", ROOT / "node_modules" / "axe-core" / "axe.min.js"))
REGION = mv.Region.from_bbox(-74.03, 40.69, -73.90, 40.83)
WEST, SOUTH, EAST, NORTH = REGION.bbox
NAMES = ("Lower Manhattan", "Midtown")
ZONES = Zones(
    np.array(
        [shapely.box(-74.02, 40.70, -73.97, 40.73), shapely.box(-74.01, 40.74, -73.96, 40.77)], dtype=object
    ),
    NAMES,
)


@pytest.fixture(scope="module")
def heat() -> DensityMap:
    tiling = mv.Quadtree(REGION, depth=6)
    lon, lat = tiling.centres()
    mean = 40 * np.exp(-((lon + 73.98) ** 2 + (lat - 40.75) ** 2) / 0.0008)
    people = UserSums(np.random.default_rng(1).poisson(mean).astype(np.int64) * UNIT, tiling)
    made = mv.mechanisms.Multiscale(epsilon=1).release(people, tiling, account=None, rng=1)
    return replace(made, title="A city", subtitle="In spring", context=Context.of_zones(ZONES))


@pytest.fixture
def pages(watch: Any, heat: DensityMap, tmp_path: Path) -> Iterator[Any]:
    heat.save(tmp_path / "map.html")
    with watch(tmp_path.as_uri(), "exported-page") as watched:
        yield watched
    assert len(watched.requests) == len(watched.contexts), "a request beside the page itself"
    assert watched.faults == []


def opened(pages: Any, **shown: Any) -> Any:
    page = pages.open("/map.html", **shown)
    page.locator("#map[data-ready=yes]").wait_for()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_whole_and_accessible_at_every_width(pages: Any, scheme: str) -> None:
    page = opened(pages, color_scheme=scheme)
    page.get_by_role("button", name="Zones").click()
    page.get_by_label("Zones by name").select_option(label=NAMES[1])
    axe = AXE.read_text(encoding="utf-8") if AXE.is_file() else None
    for width in (1400, 390, 360):
        page.set_viewport_size({"width": width, "height": 900 if width > 700 else 780})
        page.wait_for_timeout(300)
        pages.shoot(page, f"{scheme}-{width}")
        assert {kind: found for kind, found in page.evaluate(CHECKS).items() if found} == {}, width
        if axe is not None:
            page.evaluate(axe)
            found = page.evaluate("axe.run().then(({ violations }) => violations)")
            assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == [], width
    if axe is None:
        pytest.skip("no axe-core here (npm install --no-save axe-core, or AXE_CORE=path of axe.min.js)")


def total(page: Any) -> list[float]:
    """Estimate and interval in the card."""
    rows = page.locator("#total dd").all_inner_texts()
    low, high = rows[1].split(" to ")
    return [float(text.replace("\u202f", "")) for text in (rows[0], low, high)]


def test_it_answers_for_zones_and_rectangles_as_python_does(pages: Any, heat: DensityMap) -> None:
    page = opened(pages)
    page.get_by_role("button", name="Zones").click()
    for name in NAMES:
        page.get_by_label("Zones by name").select_option(label=name)
    both = heat.total(shapely.union_all(ZONES.polygons))
    assert total(page) == pytest.approx([both.estimate, *both.interval()], abs=0.06)
    page.get_by_label("Zones by name").select_option(label=NAMES[0])
    one = heat.total(ZONES.polygons[1])
    assert total(page) == pytest.approx([one.estimate, *one.interval()], abs=0.06)
    page.get_by_role("button", name="Rectangle").click()
    page.get_by_role("button", name="What is on the screen").click()
    every = heat.total(shapely.box(*REGION.bbox))
    assert total(page) == pytest.approx([every.estimate, *every.interval()], abs=0.06)
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#total dd").count() == 0


def test_mouse_and_keys_choose_on_the_map(pages: Any, heat: DensityMap) -> None:
    page = opened(pages)
    canvas = page.locator("#map canvas.plane")
    box = canvas.bounding_box()
    assert box is not None

    def at(across: float, down: float) -> dict[str, float]:
        return {"x": across * box["width"], "y": down * box["height"]}

    page.get_by_role("button", name="Rectangle").click()
    canvas.drag_to(canvas, source_position=at(0.45, 0.4), target_position=at(0.55, 0.7))
    page.wait_for_timeout(200)
    dragged = total(page)
    page.get_by_role("button", name="Outline").click()
    for across, down in ((0.45, 0.4), (0.55, 0.4), (0.55, 0.7), (0.45, 0.7), (0.45, 0.4)):
        canvas.click(position=at(across, down))
        page.wait_for_timeout(350)  # two clicks in haste zoom
    assert total(page) == pytest.approx(dragged, abs=0.2)
    page.get_by_role("button", name="Blocks").click()
    canvas.focus()
    page.keyboard.press("Enter")
    blocks, (low, high) = heat.scene().blocks, total(page)[1:]
    assert blocks is not None
    lattice = heat.tiling.lattice()
    middle = int(np.flatnonzero((lattice.row == 32) & (lattice.col == 32))[0])  # of 64: beside the crosshair
    block = blocks.of_cell[middle]
    chosen = blocks.of_cell == block if block >= 0 else np.arange(heat.tiling.size) == middle
    ours = heat.total(shapely.union_all(heat.tiling.polygons(np.flatnonzero(chosen))))
    assert [low, high] == pytest.approx(list(ours.interval()), abs=0.06)
    page.keyboard.press("Escape")  # lets go of the blocks
    assert page.locator("#total dd").count() == 0
    page.keyboard.press("Escape")
    assert page.get_by_role("button", name="Blocks").get_attribute("aria-pressed") == "false"


def test_a_slider_shows_one_window_after_another_on_one_scale(watch: Any, tmp_path: Path) -> None:
    tiling = mv.Quadtree(REGION, depth=4)
    windows = mv.Windows(every="1w", start="2026-01-05", until="2026-01-26")
    people = np.random.default_rng(1).integers(0, 9, (3, tiling.size)) * UNIT
    mechanism = MultiscaleSeries(epsilon=4, windows=windows)
    series = mechanism.release(UserSums(people, tiling), account=None, rng=1)
    series.save(tmp_path / "map.html")
    with watch(tmp_path.as_uri(), "series-page") as pages:
        page = opened(pages)
        slider, shown = page.get_by_role("slider"), page.get_by_label("Colours show")
        assert slider.get_attribute("aria-valuetext") == "all together"
        slider.focus()
        legends = []
        for name, days in (("2026-W03", "12 to 18 January 2026"), ("2026-W04", "19 to 25 January 2026")):
            slider.press("ArrowRight")
            assert slider.get_attribute("aria-valuetext") == f"{name}: {days}, UTC"
            assert page.get_by_text(f"Window: {name}: {days}, UTC").is_visible()
            assert page.locator("h2", has_text=f"{name}: estimate, users per km²").is_visible()
            assert page.get_by_text(series.window(name).scene().reading).is_visible()
            assert page.get_by_text("Hatched: in each part, nobody or too few to tell").is_visible()
            legends.append(page.locator("canvas.legend").get_attribute("aria-label"))
            steps = legends[-1].partition(", scale ")[2]
            assert steps.startswith("nearly linear")
            assert page.get_by_text(f"Scale: {steps}; darker is more.").is_visible()
        assert legends[0] == legends[1]
        assert "Estimate, by window" in shown.locator("option").all_inner_texts()
        play = page.get_by_role("button", name="Play")
        play.click()
        page.locator("h2", has_text="2026-W02: estimate").wait_for()
        page.get_by_role("button", name="Stop").click()
        assert play.is_visible()
    assert pages.faults == []


def test_a_slider_shows_the_flows_of_one_window(watch: Any, tmp_path: Path) -> None:
    series = FlowSeries(epsilon=2, windows=WEEKS).release(timed_trips(), FLOW_ZONES, rng=3)
    series.save(tmp_path / "map.html")
    of_week = series.by_window[:, series.origin != series.destination]
    with watch(tmp_path.as_uri(), "flow-series-page") as pages:
        page = opened(pages)
        slider, together = (
            page.get_by_label("Window:"),
            page.get_by_role("button", name="All windows together"),
        )
        pages.shoot(page, "together")
        page.locator("#map canvas.plane").focus()
        slider.fill("2")
        assert slider.get_attribute("aria-valuetext") == WEEKS.title(2)
        assert together.get_attribute("aria-pressed") == "false"
        pages.shoot(page, "week")
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        table = csv.read_csv(download.value.path())
        for week, name in zip(of_week, WEEKS.names, strict=True):
            np.testing.assert_allclose(table[f"users {name}"].to_numpy(), week, rtol=1e-3, atol=1e-3)
        together.click()
        assert slider.get_attribute("aria-valuetext") == "all together"
        for width in (390, 360):
            page.set_viewport_size({"width": width, "height": 780})
            page.wait_for_timeout(300)
            pages.shoot(page, str(width))
            assert {kind: found for kind, found in page.evaluate(CHECKS).items() if found} == {}, width
        assert pages.faults == []
