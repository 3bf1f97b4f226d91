"""Every page of the console in light and dark, wide and narrow; nothing without a name, nothing out of the frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("browser")

CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")


# Each page is loaded once, and then shown in both colours at every width.
SHOWN = [(scheme, width) for scheme in ("light", "dark") for width in (1400, 390, 360)]


def test_every_page_is_whole(collector: Any, pages: Any, finished: Any) -> None:
    draft = collector.draft(title="A draft", trust="random-features", devices=10_000)
    places = {
        "collections": ("/", "Collections"),
        "new": ("/new", "New collection"),
        "draft": (f"/collections/{draft}", "A draft"),
        "map": (f"/collections/{finished.first}", "First map"),
        "compare": (f"/compare?left={finished.first}&right={finished.second}", "Compare two maps"),
        "ledger": ("/ledger", "Ledger"),
        "audit": ("/audit", "Audit log"),
        "access": ("/access", "Access"),
    }
    page = pages.open(f"/#token={collector.token}")
    for name, (place, head) in places.items():
        page.evaluate("place => { location.hash = place; }", place)
        page.get_by_role("heading", name=head, level=1, exact=True).wait_for()
        page.wait_for_load_state("networkidle")
        ready = {"map": "#map[data-ready=yes]", "compare": "#swipe[data-ready=yes]"}
        if name in ready:
            page.locator(ready[name]).wait_for()
        for scheme, width in SHOWN:
            pages.show(page, scheme, width)
            pages.shoot(page, f"{name}-{scheme}-{width}")
            faults = {kind: found for kind, found in page.evaluate(CHECKS).items() if found}
            assert faults == {}, f"{name}, {scheme}, {width}"


def test_the_switch_of_colours_is_kept(collector: Any, pages: Any) -> None:
    page = pages.open(f"/#token={collector.token}", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Switch to dark colours").click()
    page.wait_for_function(f"before => {ground} !== before", arg=before)
    dark = page.evaluate(ground)
    page.reload()
    assert page.evaluate(ground) == dark


def test_the_first_stop_of_the_keyboard_skips_to_the_content(collector: Any, pages: Any) -> None:
    page = pages.open(f"/#token={collector.token}")
    page.get_by_role("heading", name="Collections", level=1).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    stops = []
    for _ in range(4):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.innerText"))
    assert "New collection" in stops
