"""The page of a phone where sums are those of two operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mapveil as mv
from tests.two_operators.opened_reports import CONFIGS, sums_of

from .conftest import CITY
from .test_device_page import HERE, Phones, budget, enrolled, fits, make_report, open_page, with_position

pytestmark = pytest.mark.xdist_group("browser")


def test_a_report_to_two_operators_counts_where_the_phone_is(phone: Phones, collector: Any) -> None:
    helper = CONFIGS[1].public_key.hex()
    terms = [collector.offer_operators(options=each) for each in ({}, {"scale": 16}, {})]
    context = with_position(phone)
    page = open_page(context, collector, fragment=f"#enrol={collector.token}&helper={helper}")
    page.get_by_role("button", name="I agree, go on").click()
    assert page.get_by_label("Key of the second operator").input_value() == helper
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_function("() => document.querySelectorAll('article.collection').length === 3")
    told = page.locator("article.collection").first.inner_text()
    for words in ("The first operator, which serves this page", "Both together, if they break their promise"):
        assert words in told
    for _ in terms[:2]:
        make_report(page)
        page.get_by_role("button", name="Send it").click()
        page.wait_for_selector("button.send", state="detached")
    page.wait_for_function("() => document.querySelectorAll('article.collection').length === 1")
    page.get_by_text("Type a place instead").click()
    page.get_by_label("Latitude").fill("48.86")
    page.evaluate("document.querySelector('article.collection').id = 'before'")
    page.get_by_role("button", name="Look again").click()  # the cards are drawn anew; what is typed stays
    page.wait_for_selector("#before", state="detached")
    assert page.get_by_label("Latitude").input_value() == "48.86"
    page.get_by_label("Longitude").fill("2.35")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Send it").click()  # a report of nowhere: its silence would tell
    page.wait_for_selector("button.send", state="detached")
    assert "3 of 4 spent" in budget(page)
    fits(page)
    (lon,), (lat,) = ([HERE["longitude"]], [HERE["latitude"]])
    cell = int(terms[0].cells.locate(np.array([lon]), np.array([lat]))[0])
    for (identifier, _, body), asked, units in zip(collector.reports, terms, (1, 16, 0), strict=True):
        assert identifier == asked.identifier
        sums = sums_of(asked.depth, asked.parameters.units, asked.digest, [body])
        assert (sums[int(asked.sites[cell])], sum(sums)) == (units, units)


def test_a_series_of_sums_is_left_to_an_app_with_a_record_of_places(phone: Phones, collector: Any) -> None:
    windows = {"by": "weekday", "every": None, "start": None, "until": None, "zone": None, "values": []}
    collector.offer_operators(windows=windows, tiling=mv.Quadtree(CITY, depth=3).to_dict())
    context, key = with_position(phone), CONFIGS[1].public_key.hex()
    page = open_page(context, collector, fragment=f"#enrol={collector.token}&helper={key}")
    page.get_by_role("button", name="I agree, go on").click()
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_selector(".refusal")
    assert "It needs an app with a record of places" in (page.locator(".refusal").text_content() or "")


def test_another_second_operator_than_the_one_named_first_is_refused(phone: Phones, collector: Any) -> None:
    collector.offer_operators()
    context = with_position(phone)
    page = open_page(context, collector, fragment=f"#enrol={collector.token}&helper={'0a' * 32}")
    page.get_by_role("button", name="I agree, go on").click()
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_selector(".refusal")
    assert "not the one that this phone was told to trust" in (page.locator(".refusal").text_content() or "")


def test_an_enrolled_phone_takes_the_key_of_a_later_invitation(phone: Phones, collector: Any) -> None:
    collector.offer_operators()
    page = enrolled(with_position(phone), collector)
    page.get_by_text("was not told whom to trust as the second").wait_for()
    key = CONFIGS[1].public_key.hex()
    invitation = f"{collector.address}/device/#enrol={collector.token}&helper="
    page.goto(invitation + "abc")  # the page is open already: its fragment alone changes
    page.get_by_text("must be 64 hexadecimal digits").wait_for()
    page.goto(invitation + key.upper())
    page.get_by_text(key).wait_for()
    page.get_by_text("was not told whom to trust").wait_for()  # until its owner says so
    fits(page)
    page.get_by_role("button", name="Trust it").click()
    page.get_by_role("button", name="Make it from my position").wait_for()
    page.goto(invitation + "0a" * 32)
    page.get_by_text("trusts another second operator already").wait_for()
    assert not page.get_by_role("button", name="Trust it").is_visible()


def test_a_malformed_key_is_said_and_the_token_is_taken(phone: Phones, collector: Any) -> None:
    page = open_page(phone(), collector, fragment=f"#enrol={collector.token}&helper=abc")
    page.get_by_text("must be 64 hexadecimal digits").wait_for()
    page.get_by_role("button", name="I agree, go on").click()
    assert page.get_by_label("Enrolment token").input_value() == collector.token
    assert page.get_by_label("Key of the second operator").input_value() == ""
    page.get_by_role("button", name="Enrol").click()
    page.wait_for_selector("#open:not([hidden])")
