"""A collection made by hand in the page: drafted, opened, joined by a fleet, watched, and its map read."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from mapveil_client.terms import CollectionTerms

pytestmark = pytest.mark.xdist_group("browser")

DEVICES = 60


def test_a_collection_from_the_form_to_the_map(collector: Any, pages: Any, people: Any) -> None:
    page = pages.open()
    page.get_by_label("Operator token").fill(collector.token)
    pages.shoot(page, "1-sign-in")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="New collection").click()
    page.get_by_label("Title").fill("Evenings in Manhattan")
    page.get_by_label("Devices wanted").fill(str(DEVICES))
    page.get_by_label("Halvings").fill("5")
    page.get_by_label("Seconds for each step").fill("20")
    page.locator(".map[data-ready=yes] canvas").wait_for()
    pages.shoot(page, "2-new")
    page.get_by_role("button", name="Create the collection").click()

    page.get_by_role("heading", name="Evenings in Manhattan", level=1).wait_for()
    identifier = re.search(r"[0-9a-f]{32}", page.url)
    assert identifier is not None
    record = collector.ask("GET", f"/collections/{identifier[0]}")
    assert record["state"] == "pending"
    assert (record["devices"], record["minimum"], record["epsilon"]) == (DEVICES, DEVICES // 2, "1")
    assert (record["trust"], record["tiling"], record["region"]) == (
        "distributed",
        "quadtree:5",
        [-74.03, 40.69, -73.9, 40.83],
    )
    pages.shoot(page, "3-pending")
    page.get_by_role("button", name="Open to devices").click()
    page.get_by_role("button", name="Begin now").wait_for()

    page.get_by_role("button", name="Make an enrolment token").click()
    command = page.locator("code", has_text="mapveil device").inner_text()
    fleet = run_command(collector, command, people(DEVICES))
    seen = watch_until_done(page)
    pages.shoot(page, "4-done")
    _, said = fleet.communicate(timeout=60)
    assert fleet.returncode == 0, said
    # Without a reload: devices joined, then at least one round went by, phase after phase.
    assert "Devices join" in seen
    assert any(words.startswith("Round 1: ") for words in seen)

    record = collector.wait(identifier[0], "done")
    assert record["spent"] == "1"
    row = page.get_by_role("region", name="Rounds").locator("tbody tr").first
    assert f"{DEVICES} (100 %)" in row.inner_text().replace("\u202f", " ")
    page.locator("#map[data-ready=yes]").wait_for()


def test_two_operators_are_the_default_where_a_helper_is(leader: Any, watch: Any) -> None:
    """Nothing is asked before the forecast stands: its error and bytes are of the collection that is then created."""
    with watch(leader.address, "two-operators") as pages:
        page = pages.open(f"/#token={leader.token}&/new")
        card = page.get_by_role("region", name="Forecast")
        card.get_by_text("Each phone sends").wait_for()
        operators, secure = (
            page.get_by_role("radio", name=re.compile(name)) for name in ("Two operators", "Secure sums")
        )
        assert operators.is_checked()
        assert page.get_by_text("Recommended here: a helper is configured").is_visible()
        assert page.get_by_label("Halvings").input_value() == "7"
        ours = card.inner_text()
        assert re.search(r"about [\d.]+ users in each cell", ours)
        assert re.search(r"Each phone sends\s+1.\d+ kB", ours)
        page.locator(".map[data-ready=yes] canvas").wait_for()
        pages.shoot(page, "form")
        secure.check()
        card.get_by_text("over 2 rounds").wait_for()
        operators.check()
        page.get_by_label("Title").fill("Two operators")
        page.get_by_role("button", name="Create the collection").click()
        page.get_by_role("heading", name="Two operators", level=1).wait_for()
        (record,) = leader.ask("GET", "/collections")
        assert (record["trust"], record["method"]) == ("operators", "multiscale")
    assert pages.faults == []


def test_a_prediction_goes_with_the_form_that_it_was_of(collector: Any, pages: Any) -> None:
    page = pages.open(f"/#token={collector.token}&/new")
    card = page.get_by_role("region", name="Forecast")
    card.get_by_text("Each phone sends").wait_for()
    for label, wrong, right in (("Devices wanted", "2", "1000"), ("Parameters as JSON", "[", "")):
        if label.startswith("Parameters"):
            page.get_by_text("Method and its parameters").click()
        page.get_by_label(label).fill(wrong)
        assert card.get_by_text("Each phone sends").count() == 0
        assert f"{label}: " in card.inner_text()
        page.get_by_label(label).fill(right)
        card.get_by_text("Each phone sends").wait_for()
    page.get_by_label("Parameters as JSON").fill("[")
    page.get_by_text("Method and its parameters").click()
    page.get_by_label("Title").fill("Not yet")
    page.get_by_role("button", name="Create the collection").click()
    assert page.get_by_label("Parameters as JSON").is_visible()
    assert page.url.endswith("/new")


def test_both_operators_show_their_account_and_the_leader_the_map(
    operators: Any, watch: Any, people: Any
) -> None:
    leader, helper = operators
    identifier = leader.open(
        title="Counted by two", trust="operators", devices=20, minimum=20, tiling="quadtree:3"
    )
    with watch(helper.address, "helper") as pages:
        page = pages.open(f"/#token={helper.token}&/collections/{identifier}")
        page.get_by_role("region", name="This operator's own account").wait_for()
        assert not page.get_by_role("button", name="Abort").is_visible()
    with watch(leader.address, "leader") as pages:
        page = pages.open(f"/#token={leader.token}&/collections/{identifier}")
        page.get_by_role("button", name="Abort").wait_for()
        page.get_by_role("button", name="Make an enrolment token").click()
        address = page.locator("code", has_text="/device/#enrol=mve_").inner_text()
        token = re.search(r"#enrol=(mve_[\w-]+)&helper=KEY$", address)
        assert token is not None
        terms = CollectionTerms.decode(leader.client.get(f"/v1/collections/{identifier}/terms").content)
        key = terms.configs[1].public_key.hex()
        fleet = leader.fleet(people(20), identifier, token[1], "--helper", key)
        _, said = fleet.communicate(timeout=240)
        assert fleet.returncode == 0, said
        page.locator("#map[data-ready=yes]").wait_for()
        account = page.get_by_role("region", name="This operator's own account")
        assert re.search(r"leader\s.*accepted\s+20\s", account.inner_text(), re.DOTALL)
    assert pages.faults == []
    with watch(helper.address, "helper") as pages:
        page = pages.open(f"/#token={helper.token}&/collections/{identifier}")
        page.get_by_text("the leader has the map").wait_for()
        account = page.get_by_role("region", name="This operator's own account")
        assert re.search(r"helper\s.*accepted\s+20\s+Reports refused\s+none", account.inner_text(), re.DOTALL)
        assert page.get_by_role("region", name="What is promised").is_visible()
        assert page.get_by_role("region", name="What was asked").is_visible()
        pages.shoot(page, "done")
    assert pages.faults == []


def run_command(collector: Any, command: str, table: Path) -> Any:
    """The command that the page shows, with a table of our own."""
    words = shlex.split(command)
    assert words[:2] == ["mapveil", "device"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given.pop("--server") == collector.address
    assert given.pop("--fleet") == "points.parquet"
    token, identifier = given.pop("--enrol"), given.pop("--collection")
    authority = given.pop("--authority")
    assert not given
    # Some are slow, so that each phase is there to be seen.
    named = ("--authority", authority)
    return collector.fleet(table, identifier, token, *named, "--slow", "0.3:1500ms")


def watch_until_done(page: Any, seconds: float = 150) -> set[str]:
    """Texts of the page while it waited, until the map was there."""
    seen: set[str] = set()
    until = time.monotonic() + seconds
    while page.locator(".badge.done").count() == 0:
        assert time.monotonic() < until, seen
        seen.update(page.locator(".progress .top span:first-child").all_inner_texts())
        page.wait_for_timeout(100)
    return seen


def test_a_region_is_drawn_pulled_and_taken_from_the_view(collector: Any, pages: Any) -> None:
    page = pages.open(f"/#token={collector.token}&/new")
    sides = [page.get_by_label(f"{side}, degrees") for side in ("West", "South", "East", "North")]

    def region() -> list[float]:
        return [float(side.input_value()) for side in sides]

    page.locator(".map[data-ready=yes] canvas").scroll_into_view_if_needed()
    box = page.locator(".map canvas").bounding_box()

    def drag(*places: tuple[float, float]) -> None:
        _drag(page, box, places)

    before = region()
    drag((0.5, 0.9), (0.6, 0.95))  # the map moves, the region stays
    assert region() == before
    page.get_by_role("button", name="Show the region").click()
    page.get_by_role("button", name="Draw a box").click()
    drag((0.45, 0.4), (0.5, 0.3), (0.55, 0.6))
    west, south, east, north = drawn = region()
    assert before[0] < west < east < before[2]
    assert before[1] < south < north < before[3]
    page.get_by_role("button", name="Show the region").click()
    page.wait_for_timeout(100)
    # The box is as wide as the frame is high, but for a margin: its corner is where the numbers say.
    middle, half = (west + east) / 2, (east - west) / 2
    page.get_by_role("button", name="Take the view").click()
    seen = region()
    assert seen[0] < west
    assert seen[3] > north
    for side, value in zip(sides, drawn, strict=True):
        side.fill(str(value))
    across = (middle + half - seen[0]) / (seen[2] - seen[0])
    down = (seen[3] - north) / (seen[3] - seen[1])
    drag((across, down), (across + 0.05, down))
    pulled = region()
    assert pulled[:2] == drawn[:2]
    assert pulled[2] > east
    assert pulled[3] == pytest.approx(north, abs=0.002)
    pages.shoot(page, "pulled")


def _drag(page: Any, box: dict[str, float], places: tuple[tuple[float, float], ...]) -> None:
    """Press at the first of some fractions of a box, go through the others, and let go at the last."""
    (x, y), *others = [(box["x"] + u * box["width"], box["y"] + v * box["height"]) for u, v in places]
    page.mouse.move(x, y)
    page.mouse.down()
    for place in others:
        page.mouse.move(*place)
    page.mouse.up()


def test_a_token_that_nobody_knows_opens_nothing(pages: Any) -> None:
    page = pages.open(tolerated={401})
    wrong = {
        "mvo_" + "x" * 43: "The server refuses it: the token is unknown here",
        "mvo_" + "x" * 42: "has 46 characters in place of 47",
        "mve_" + "x" * 43: "a token with which devices enrol. An operator's token is mvo_ and 43",
        "my name and nothing else": "no token. An operator's token is mvo_ and 43",
    }
    for token, said in wrong.items():
        page.get_by_label("Operator token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text(said).wait_for()
    assert page.get_by_label("Operator token").is_visible()
    assert page.get_by_role("navigation").count() == 0


def test_a_token_leaves_the_address_and_the_tab(collector: Any, pages: Any) -> None:
    page = pages.open(f"/#token={collector.token}")
    page.get_by_role("heading", name="Collections", level=1).wait_for()
    assert collector.token not in page.url
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Operator token").wait_for()
    assert collector.token not in page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")


def test_aborting_asks_why_and_is_audited(collector: Any, pages: Any) -> None:
    identifier = collector.open(title="Called off", trust="local", devices=50)
    page = pages.open(f"/#token={collector.token}&/collections/{identifier}")
    page.get_by_role("button", name="Abort").click()
    page.get_by_label("Reason").fill("the wrong region")
    charged = page.get_by_role("region", name="Charges of an abort").inner_text()
    assert re.search(r"reporting \(now\)\s+ε\s+ε, if it came in", charged)
    pages.shoot(page, "dialog")
    page.get_by_role("button", name="Abort it").click()
    page.locator(".badge.aborted").wait_for()
    assert collector.ask("GET", f"/collections/{identifier}")["state"] == "aborted"
    page.get_by_role("link", name="Audit log of this collection").click()
    page.get_by_role("region", name="Audit log").wait_for()
    text = page.get_by_role("region", name="Audit log").inner_text()
    assert "the wrong region" in text
    pages.shoot(page, "audit")


def test_the_dialog_of_an_abort_says_for_each_phase_what_stays_charged(collector: Any, pages: Any) -> None:
    identifier = collector.open(title="Sums", trust="distributed", devices=50, minimum=30)
    page = pages.open(f"/#token={collector.token}&/collections/{identifier}")
    page.get_by_role("button", name="Abort").click()
    rows = page.get_by_role("region", name="Charges of an abort").locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == [
        "joining (now)",
        "keys, shares",
        "inputs",
        "consents, answers",
    ]
    assert rows[2].split("\t")[1:] == ["ε, if it made its masked vector", "nothing"]
    assert rows[3].split("\t")[1:] == ["ε", "ε"]
    pages.shoot(page, "dialog-of-sums")
    page.get_by_role("button", name="Keep it").click()
    collector.ask("POST", f"/collections/{identifier}/abort", {"reason": "only a test"})


def test_what_somebody_typed_is_never_markup(collector: Any, pages: Any) -> None:
    title = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"
    identifier = collector.open(title=title, trust="local", devices=50, minimum=20)
    page = pages.open(f"/#token={collector.token}")
    page.get_by_role("link", name=title).click()
    page.get_by_role("heading", name=title, level=1).wait_for()
    assert page.locator("main img, main b").count() == 0
    phone = pages.open("/device/", width=390, height=844)
    phone.get_by_role("button", name="I agree").click()
    phone.get_by_label("Enrolment token").fill(collector.enrolment(1))
    phone.get_by_role("button", name="Enrol", exact=True).click()
    phone.locator(f"article[data-collection='{identifier}'] h3", has_text=title).wait_for()
    assert phone.locator("main img, main b").count() == 0
    assert "taken" not in (page.title(), phone.title())
    collector.ask("POST", f"/collections/{identifier}/abort", {"reason": "only a test"})


def test_a_viewer_sees_and_changes_nothing(collector: Any, pages: Any) -> None:
    identifier = collector.draft(title="To be looked at", trust="local", devices=50)
    viewer = collector.ask("POST", "/operators", {"name": "visitor", "role": "viewer"})["token"]
    page = pages.open(f"/#token={viewer}")
    page.get_by_role("link", name="To be looked at").wait_for()
    assert page.get_by_role("link", name="New collection").count() == 0
    page.get_by_role("link", name="To be looked at").click()
    page.get_by_role("heading", name="To be looked at", level=1).wait_for()
    page.get_by_text("What it asks").wait_for()
    for name in ("Open to devices", "Drop", "Make an enrolment token"):
        assert page.get_by_role("button", name=name).count() == 0
    assert collector.ask("GET", f"/collections/{identifier}")["state"] == "pending"


def test_a_service_that_is_gone_is_said_and_found_again(collector: Any, pages: Any) -> None:
    page = pages.open(f"/#token={collector.token}")
    page.get_by_role("heading", name="Collections", level=1).wait_for()
    pages.tolerated.add(0)
    page.context.set_offline(True)
    page.get_by_role("alert").wait_for()
    pages.shoot(page, "gone")
    page.context.set_offline(False)
    page.get_by_role("alert").wait_for(state="detached")
