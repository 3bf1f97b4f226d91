"""The device in a phone's browser, against a real server: consent, enrolment, a report made on the phone, and sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mapveil_client.local.message import read_reports
from mapveil_client.terms import CollectionTerms

pytestmark = pytest.mark.xdist_group("browser")

CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")
PHONE = {"width": 390, "height": 844}
PLACE = {"latitude": 40.752731, "longitude": -73.977229}
ELSEWHERE = {"latitude": 48.8566, "longitude": 2.3522}


@pytest.fixture(scope="module")
def offered(collector: Any) -> dict[str, str]:
    """One open collection of each trust."""
    common = {"devices": 400, "minimum": 20, "join_seconds": 3600}
    return {
        trust: collector.open(title=f"By {trust}", trust=trust, tiling="quadtree:4", **common, **more)
        for trust, more in (
            ("local", {}),
            ("random-features", {"options": {"bandwidth_m": 150, "least_signal": 0}}),
            ("distributed", {}),
        )
    }


def phone(pages: Any, collector: Any, **context: Any) -> Any:
    """A phone that has agreed and is enrolled."""
    given = {"geolocation": PLACE, "permissions": ["geolocation"], **PHONE, **context}
    page = pages.open("/device/", **given)
    page.get_by_role("button", name="I agree").click()
    page.get_by_label("Enrolment token").fill(collector.enrolment(1))
    page.get_by_role("button", name="Enrol", exact=True).click()
    page.get_by_role("heading", name="Open collections").wait_for()
    return page


def card(page: Any, identifier: str) -> Any:
    return page.locator(f"article[data-collection='{identifier}']")


def budget(page: Any) -> str:
    return str(page.locator("#budget-words").inner_text())


def test_a_report_is_made_on_the_phone_and_only_it_is_sent(
    collector: Any, pages: Any, offered: dict[str, str]
) -> None:
    sent: list[Any] = []
    page = phone(pages, collector)
    page.context.on(
        "request", lambda request: sent.append((request.method, request.url, request.post_data_buffer))
    )
    offer = card(page, offered["local"])
    offer.get_by_role("button", name="Make it from my position").wait_for()
    pages.shoot(page, "1-enrolled")
    assert budget(page).startswith("0 of 4 spent")

    before = collector.ask("GET", f"/collections/{offered['local']}")["reports"]
    offer.get_by_role("button", name="Make it from my position").click()
    page.get_by_role("button", name="Send it").wait_for()
    # Charged when it is made; nothing has been sent yet, and everything in it can be seen.
    assert budget(page).startswith("1 of 4 spent")
    assert [method for method, _, _ in sent if method != "GET"] == []
    page.locator("summary", has_text="Everything that is in the report").click()
    shown = bytes.fromhex("".join(page.locator("pre.bytes").inner_text().split()))
    pages.shoot(page, "2-made")

    page.get_by_role("button", name="Send it").click()
    page.get_by_text("Your report was sent").wait_for()
    (put,) = [request for request in sent if request[0] != "GET"]
    assert put == ("PUT", f"{collector.address}/v1/collections/{offered['local']}/report", shown)
    terms = CollectionTerms.decode(collector.client.get(f"/v1/collections/{offered['local']}/terms").content)
    read_reports([shown], terms.randomizer)
    assert collector.ask("GET", f"/collections/{offered['local']}")["reports"] == before + 1
    # Neither the position nor a part of it went into any address or body.
    for _, address, body in sent:
        said = address.encode() + (body or b"")
        assert b"40.75" not in said
        assert b"73.97" not in said
    pages.shoot(page, "3-sent")

    page.reload()
    page.get_by_text("Sent", exact=True).wait_for()
    assert budget(page).startswith("1 of 4 spent")
    assert page.locator("#collections").locator(f"[data-collection='{offered['local']}']").count() == 0


def test_a_projection_is_answered_without_a_budget(
    collector: Any, pages: Any, offered: dict[str, str]
) -> None:
    page = phone(pages, collector)
    card(page, offered["random-features"]).get_by_role("button", name="Make it from my position").click()
    page.get_by_role("button", name="Send it").click()
    page.get_by_text("Your report was sent").wait_for()
    assert budget(page).startswith("0 of 4 spent")
    assert collector.ask("GET", f"/collections/{offered['random-features']}")["reports"] >= 1


def test_a_secure_sum_is_refused_in_words(collector: Any, pages: Any, offered: dict[str, str]) -> None:
    page = phone(pages, collector)
    offer = card(page, offered["distributed"])
    offer.get_by_text("This phone does not take part").wait_for()
    assert "needs the Mapveil app" in offer.inner_text()
    assert offer.get_by_role("button").count() == 0


def test_outside_the_map_nothing_is_made(collector: Any, pages: Any, offered: dict[str, str]) -> None:
    page = phone(pages, collector, geolocation=ELSEWHERE)
    before = collector.ask("GET", f"/collections/{offered['random-features']}")["reports"]
    offer = card(page, offered["random-features"])
    offer.get_by_role("button", name="Make it from my position").click()
    offer.get_by_text("You are outside this map").wait_for()
    assert page.get_by_role("button", name="Send it").count() == 0
    assert collector.ask("GET", f"/collections/{offered['random-features']}")["reports"] == before


def test_a_refused_position_is_explained_and_a_typed_place_does(
    collector: Any, pages: Any, offered: dict[str, str]
) -> None:
    page = phone(pages, collector, permissions=[])
    offer = card(page, offered["local"])
    offer.get_by_role("button", name="Make it from my position").click()
    offer.get_by_text("may not see your position").wait_for()
    offer.get_by_text("Type a place instead").click()
    offer.get_by_label("Latitude").fill("40.76")
    offer.get_by_label("Longitude").fill("-73.97")
    offer.get_by_role("button", name="Make it from this place").click()
    page.get_by_role("button", name="Send it").wait_for()
    assert page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])") == "[{},{}]"


def test_an_unknown_token_enrols_nothing(collector: Any, pages: Any) -> None:
    page = pages.open("/device/", tolerated={401, 403}, **PHONE)
    page.get_by_role("button", name="I agree").click()
    page.get_by_label("Enrolment token").fill("mve_" + "x" * 43)
    page.get_by_role("button", name="Enrol", exact=True).click()
    page.locator("#status", has_text="token").wait_for()
    pages.shoot(page, "unknown")
    assert page.get_by_role("heading", name="Open collections").count() == 0


def test_the_page_is_whole(collector: Any, pages: Any, offered: dict[str, str]) -> None:
    page = pages.open("/device/")
    faults = []
    for step in ("consent", "enrolment", "open"):
        page.locator(f"#{step}").wait_for()
        for scheme in ("light", "dark"):
            for width in (1400, 360):
                pages.show(page, scheme, width)
                pages.shoot(page, f"{step}-{scheme}-{width}")
                found = page.evaluate(CHECKS)
                faults += [(step, scheme, width, kind, each) for kind, each in found.items() if each]
        if step == "consent":
            page.get_by_role("button", name="I agree").click()
        elif step == "enrolment":
            page.get_by_label("Enrolment token").fill(collector.enrolment(1))
            page.get_by_role("button", name="Enrol", exact=True).click()
            card(page, offered["local"]).get_by_role("button", name="Make it from my position").wait_for()
    assert json.dumps(faults) == "[]"
