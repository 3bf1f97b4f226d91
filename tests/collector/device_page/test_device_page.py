"""The page of the browser device in a real browser, against a collector that checks what it is sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mapveil_client.local.domain import Domain
from mapveil_client.local.message import read_reports
from mapveil_client.random_features.report import read_reports as read_features

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.xdist_group("browser")

HERE = {"latitude": 40.7616, "longitude": -73.9704}
Phones = Callable[..., "BrowserContext"]


def open_page(context: BrowserContext, collector: Any, *, fragment: str = "") -> Page:
    page = context.new_page()
    page.goto(f"{collector.address}/device/{fragment}")
    return page


def enrolled(context: BrowserContext, collector: Any) -> Page:
    """A page of a phone that agreed and is enrolled."""
    page = open_page(context, collector, fragment=f"#enrol={collector.token}")
    page.get_by_role("button", name="I agree, go on").click()
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_selector("#open:not([hidden])")
    return page


def with_position(phone: Phones, **options: Any) -> BrowserContext:
    return phone(geolocation=HERE, permissions=["geolocation"], **options)


def make_report(page: Page) -> None:
    page.get_by_role("button", name="Make it from my position").first.click()
    page.wait_for_selector("#unsent article.answer")


def kept_bytes(page: Page) -> bytes:
    return bytes.fromhex(page.locator("pre.bytes").first.text_content() or "")


def budget(page: Page) -> str:
    return page.locator("#budget-words").text_content() or ""


def test_a_phone_makes_shows_and_sends_one_report_that_the_server_reads(
    phone: Phones, collector: Any
) -> None:
    offers = [collector.offer(method) for method in ("subset", "olh-h", "srr")]
    page = enrolled(with_position(phone), collector)
    assert "0 of 4 spent" in budget(page)
    for number, terms in enumerate(offers, start=1):
        make_report(page)
        assert len(collector.reports) == number - 1  # nothing leaves before the owner sends it
        assert f"{number} of 4 spent, {4 - number} left" in budget(page)
        shown = kept_bytes(page)
        page.get_by_role("button", name="Send it").click()
        page.wait_for_function(f"() => document.querySelectorAll('.state.good').length === {number}")
        assert collector.reports[-1] == (terms.identifier, 1, shown)
        randomizer = terms.parameters.on(Domain(terms.cells))
        assert read_reports([shown], randomizer).count == 1
    page.wait_for_function("() => document.querySelectorAll('article.collection').length === 0")
    # Nothing that was asked of the collector, and nothing that is kept, says where.
    assert not [path for path in collector.asked if re.search(r"40\.76|73\.97", path)]
    assert "40.76" not in kept_state(page)


def kept_state(page: Page) -> str:
    """Everything in the page's database, as text."""
    return str(
        page.evaluate(
            """async () => {
              const { BrowserStorage } = await import("/device/browser_storage.mjs");
              const memory = await BrowserStorage.open();
              const all = (name) => new Promise((resolve) => {
                const asked = memory.database.transaction(name).objectStore(name).getAll();
                asked.onsuccess = () => resolve(asked.result);
              });
              return JSON.stringify([await all("kept"), await all("answers")]);
            }"""
        )
    )


def test_a_feature_of_a_place_is_the_kept_one_for_every_collection(phone: Phones, collector: Any) -> None:
    queries = [collector.offer_features(), collector.offer_features()]
    page = enrolled(with_position(phone), collector)
    for _ in queries:
        page.get_by_role("button", name="Make it from my position").first.click()
        page.get_by_role("button", name="Send it").click()
        page.wait_for_selector("button.send", state="detached")
    read = [
        read_features([body], terms.features_query)
        for terms, (_, _, body) in zip(queries, collector.reports, strict=True)
    ]
    np.testing.assert_array_equal(read[0].frequencies, read[1].frequencies)
    np.testing.assert_array_equal(read[0].projections, read[1].projections)
    assert "0 of 4 spent" in budget(page)
    collector.offer_features(100.0)  # another bandwidth than the 120 m of the first answer
    page.get_by_role("button", name="Look again").click()
    page.wait_for_selector(".refusal")
    assert "would narrow you down" in (page.locator(".refusal").text_content() or "")


def test_a_report_is_made_once_and_resent_as_it_is(phone: Phones, collector: Any) -> None:
    collector.offer()
    context = with_position(phone)
    page = enrolled(context, collector)
    make_report(page)
    shown = kept_bytes(page)
    collector.answer = 500
    page.get_by_role("button", name="Send it").click()
    page.wait_for_selector("article.answer [role=alert]:not([hidden])")
    assert "<b>not</b> this time" in (page.locator("article.answer [role=alert]").text_content() or "")
    page.close()
    again = open_page(context, collector)  # a restart
    again.wait_for_selector("article.answer")
    assert kept_bytes(again) == shown
    assert "1 of 4 spent" in budget(again)
    assert again.locator("article.collection").count() == 0
    collector.answer = 204
    again.get_by_role("button", name="Send it").click()
    again.wait_for_selector(".state.good")
    assert [body for _, _, body in collector.reports] == [shown, shown]


def test_a_busy_collector_is_asked_again_when_it_says_and_a_proxy_after_a_moment(
    phone: Phones, collector: Any
) -> None:
    collector.offer()
    page = enrolled(with_position(phone), collector)
    make_report(page)
    shown = kept_bytes(page)
    collector.busy, collector.restarting = 2, 1
    page.get_by_role("button", name="Send it").click()
    page.wait_for_selector(".state.good")
    assert collector.busy == collector.restarting == 0
    assert [body for _, _, body in collector.reports] == [shown] * 4


def test_what_the_server_refuses_for_good_stays_charged(phone: Phones, collector: Any) -> None:
    page = enrolled(with_position(phone), collector)
    for spent, (status, words) in enumerate(
        [(410, "the collection was over"), (409, "Not accepted")], start=1
    ):
        collector.offer()
        page.get_by_role("button", name="Look again").click()
        make_report(page)
        collector.answer = status
        page.get_by_role("button", name="Send it").click()
        page.wait_for_function(
            f"() => document.querySelectorAll('#answers .state.bad:not([role])').length === {spent}"
        )
        assert words in (page.locator("#answers .state").first.text_content() or "")
        assert f"{spent} of 4 spent" in budget(page)


def test_the_lifetime_ends_whoever_asks(phone: Phones, collector: Any) -> None:
    for epsilon in ("2", "3/2", "1", "1/2"):
        collector.offer("grr", epsilon)
    page = enrolled(with_position(phone), collector)
    for number in range(2):
        page.get_by_role("button", name="Make it from my position").first.click()
        page.wait_for_function(f"() => document.querySelectorAll('article.answer').length === {number + 1}")
    page.wait_for_selector(".refusal")
    assert "only 0.5 of this phone's lifetime budget is left" in (
        page.locator(".refusal").text_content() or ""
    )
    make_report_of_last = page.get_by_role("button", name="Make it from my position")
    assert make_report_of_last.count() == 1
    make_report_of_last.click()
    page.wait_for_function("() => document.querySelectorAll('article.answer').length === 3")
    assert "4 of 4 spent, 0 left" in budget(page)
    page.wait_for_function("() => document.querySelectorAll('.use-position').length === 0")
    assert page.locator("article.collection").count() == 1


def test_two_windows_cannot_spend_the_same_budget_or_answer_twice(phone: Phones, collector: Any) -> None:
    for _ in range(3):
        collector.offer("grr", "2")
    context = with_position(phone)
    page = enrolled(context, collector)
    other = open_page(context, collector)
    other.wait_for_function("() => document.querySelectorAll('article.collection').length === 3")
    for number in range(2):
        page.get_by_role("button", name="Make it from my position").first.click()
        page.wait_for_function(f"() => document.querySelectorAll('article.answer').length === {number + 1}")
    first = kept_bytes(page)
    buttons = other.get_by_role("button", name="Make it from my position")
    buttons.nth(2).click()  # decided before the first window spent all there is
    other.wait_for_selector("article.collection [role=alert]:not([hidden])")
    assert "only 0 of" in (other.locator("article.collection [role=alert]:visible").text_content() or "")
    buttons.nth(1).click()  # answered already: the same report again
    other.wait_for_selector("article.answer")
    assert kept_bytes(other) == first
    assert "4 of 4 spent" in budget(other)


def test_what_a_page_cannot_answer_is_refused_in_a_sentence(phone: Phones, collector: Any) -> None:
    collector.offer("multiscale", trust="distributed")
    collector.offer_operators()
    collector.offer("disk")
    collector.offer("grr", "5/2")
    collector.offer("grr", minimum=10)
    terms = collector.offer()
    other = collector.offer("grr", title="Other terms than announced")
    collector.swapped[other.identifier] = terms.encode()
    collector.swapped[collector.offer("grr").identifier] = b'{"not": "terms"}'
    page = enrolled(with_position(phone), collector)
    page.wait_for_function("() => document.querySelectorAll('article.collection').length === 8")
    said = " | ".join(page.locator(".refusal").all_text_contents())
    for words in (
        "needs the Mapveil app",
        "not told whom to trust as the second",
        "disk method",
        "at most 2 at once",
        "as few as 10 phones",
        "other terms than it announced",
        "no terms of this version",
    ):
        assert words in said
    assert page.get_by_role("button", name="Make it from my position").count() == 1


def test_impossible_options_are_refused_without_a_look_at_the_place(phone: Phones, collector: Any) -> None:
    collector.offer("hr", options={"blocks": 3})
    page = enrolled(phone(permissions=[]), collector)  # asking for the position would fail in other words
    page.get_by_role("button", name="Make it from my position").click()
    alert = page.locator("article.collection [role=alert]:not([hidden])")
    alert.wait_for()
    assert "Hadamard blocks" in (alert.text_content() or "")


def test_outside_or_without_a_position_nothing_is_made(phone: Phones, collector: Any) -> None:
    collector.offer()
    page = enrolled(phone(geolocation=HERE, permissions=[]), collector)
    page.get_by_role("button", name="Make it from my position").click()
    alert = page.locator("article.collection [role=alert]:not([hidden])")
    alert.wait_for()
    assert "may not see your position" in (alert.text_content() or "")
    page.get_by_text("Type a place instead").click()
    for latitude, longitude, words in (
        ("91", "0", "That is not a location"),
        ("here", "", "That is not a location"),
        ("48.86", "2.35", "outside this map"),
    ):
        page.get_by_label("Latitude").fill(latitude)
        page.get_by_label("Longitude").fill(longitude)
        page.get_by_role("button", name="Make it from this place").click()
        page.wait_for_function(
            "words => document.querySelector('article.collection [role=alert]').textContent.includes(words)",
            arg=words,
        )
    assert "0 of 4 spent" in budget(page)
    page.get_by_label("Latitude").fill("40.7616")
    page.get_by_label("Longitude").fill("-73,9704")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.answer")
    assert collector.reports == []


def test_a_wrong_token_enrols_nobody_and_the_address_forgets_its_token(phone: Phones, collector: Any) -> None:
    page = open_page(phone(), collector, fragment="#enrol=mve_" + "x" * 43)
    page.wait_for_selector("#consent:not([hidden])")
    assert "#" not in page.url
    assert page.locator("#open").is_hidden()
    page.get_by_role("button", name="I agree, go on").click()
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_function(
        "() => document.getElementById('status').textContent.includes('no such enrolment token')"
    )
    page.get_by_label("Enrolment token").fill(collector.token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#open:not([hidden])")
    assert len(collector.keys) == 1
    assert not [path for path in collector.asked if "mve_" in path]


FOCUSED = "document.activeElement === document.body ? '' : document.activeElement.textContent"
"""Where nothing has the focus, the whole page seems to, and holds every name."""


def test_the_page_is_used_by_the_keyboard_alone(phone: Phones, collector: Any) -> None:
    collector.offer()
    page = open_page(with_position(phone), collector, fragment=f"#enrol={collector.token}")
    page.wait_for_selector("#consent:not([hidden])")

    def press_to(name: str, key: str = "Enter") -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            if name in page.evaluate(FOCUSED):
                page.keyboard.press(key)
                return
        pytest.fail(f"{name!r} is not reached by Tab")

    press_to("I agree")
    page.wait_for_selector("#enrolment:not([hidden])")
    press_to("Enrol")
    page.wait_for_selector("article.collection")
    press_to("Make it from my position")
    page.wait_for_selector("article.answer")
    page.wait_for_function("() => document.activeElement.closest('article.answer') !== null")
    press_to("Send it", "Space")
    page.wait_for_selector(".state.good")
    assert len(collector.reports) == 1


NAMELESS = """() => [...document.querySelectorAll("button, input, summary, meter")]
  .filter((each) => each.checkVisibility())
  .filter((each) => !(each.textContent.trim() || each.labels?.length || each.getAttribute("aria-label")))
  .map((each) => each.outerHTML)"""
SMALL = """() => [...document.querySelectorAll("button, input, summary")].filter((each) => each.checkVisibility())
  .filter((each) => each.getBoundingClientRect().height < 40).map((each) => each.outerHTML)"""


def fits(page: Page) -> None:
    """Nothing is outside the frame, too small to be touched, or without a name, at either width."""
    for width in (360, 1200):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate(SMALL) == []
        assert page.evaluate(NAMELESS) == []


def test_it_fits_and_can_be_read(phone: Phones, collector: Any) -> None:
    collector.offer("subset", "3/2")
    collector.offer_features()
    collector.offer("multiscale", trust="distributed", title="Steps in the park " * 9)
    page = open_page(with_position(phone), collector, fragment=f"#enrol={collector.token}")
    fits(page)
    page.get_by_role("button", name="I agree, go on").click()
    fits(page)
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_function("() => document.querySelectorAll('article.collection').length === 3")
    fits(page)
    make_report(page)
    page.get_by_text("Everything that is in the report").click()
    fits(page)
