from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

from mapveil.collector.http.schemas import Charge, CollectionRecord
from mapveil.collector.rounds.progress import Progress

DRAFT = {
    "title": "Where people are",
    "trust": "distributed",
    "epsilon": "1/3",
    "region": [-74.03, 40.69, -73.90, 40.83],
    "tiling": "quadtree:4",
    "devices": 40,
}


def test_a_pending_collection_is_opened_begun_and_aborted(api: Any) -> None:
    made = api.ask("POST", "/v1/collections", "operator", json=DRAFT)
    assert made.status_code == 201
    record = made.json()
    at = f"/v1/collections/{record['id']}"
    assert (record["state"], record["epsilon"], record["minimum"]) == ("pending", "1/3", 20)
    assert api.ask("GET", at).json() == record
    assert api.ask("GET", "/v1/collections").json() == [record]
    assert api.ask("POST", f"{at}/begin").status_code == 409
    assert api.ask("POST", f"{at}/open").json()["state"] == "open"
    assert api.ask("POST", f"{at}/open").status_code == 409
    assert api.ask("POST", f"{at}/begin").status_code == 409  # nobody is there
    ended = api.ask("POST", f"{at}/abort", json={"reason": "a trial"}).json()
    assert (ended["state"], ended["reason"]) == ("aborted", "a trial")
    assert api.ask("POST", f"{at}/open").status_code == 409
    assert api.ask("GET", "/v1/ledger").json() == []


def test_phases_too_short_for_the_devices_are_remarked_on(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A thousand visits a second, four of each device in a phase."""
    crowd = {**DRAFT, "devices": 100_000}
    for spec, remarked in (
        (crowd, True),
        ({**crowd, "phase_seconds": 400}, False),
        ({**crowd, "phase_seconds": 399}, True),
        ({**crowd, "trust": "local"}, False),
    ):
        caplog.clear()
        foreseen = api.ask("POST", "/v1/forecasts", "operator", json=spec).json()
        assert not foreseen["refused"]
        told = f"hases of {spec.get('phase_seconds', 60)} s are short for 100,000 devices"
        needed = "(--device-requests), they need phases of 400 s (phase_seconds)"
        assert (f" P{told}" in foreseen["note"]) is (f"{needed}." in foreseen["note"]) is remarked
        assert api.ask("POST", "/v1/collections", "operator", json=spec).status_code == 201
        assert (f": p{told}" in caplog.text) is (needed in caplog.text) is remarked


def test_a_forecast_beside_another_is_refused_and_holds_no_thread(api: Any, monkeypatch: Any) -> None:
    made, begun, ends = api.engine.forecast, threading.Event(), threading.Event()

    def slow(given: Any) -> Any:
        begun.set()
        assert ends.wait(60)
        return made(given)

    monkeypatch.setattr(api.engine, "forecast", slow)
    ask = partial(api.ask, "POST", "/v1/forecasts", "operator", json=DRAFT)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask)
        assert begun.wait(60)
        beside = ask()
        ends.set()
        assert first.result().status_code == 200
    assert beside.status_code == 429
    assert beside.headers["retry-after"] == "5"
    assert ask().status_code == 200


def test_a_collection_beside_another_is_refused_but_not_beside_a_forecast(api: Any, monkeypatch: Any) -> None:
    """A specification may take hundreds of megabytes to check; the form asks for a forecast while its owner creates."""
    begun, ends = threading.Event(), threading.Event()

    def slow(made: Any, *given: Any) -> Any:
        begun.set()
        assert ends.wait(60)
        return made(*given)

    create, ask = (
        partial(api.ask, "POST", f"/v1/{what}", "operator", json=DRAFT)
        for what in ("collections", "forecasts")
    )
    for first, name, status in ((create, "create", 429), (ask, "forecast", 201)):
        begun.clear()
        ends.clear()
        with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
            patch.setattr(api.engine, name, partial(slow, getattr(api.engine, name)))
            running = pool.submit(first)
            assert begun.wait(60)
            beside = create()
            ends.set()
            assert running.result().status_code in (200, 201)
        assert beside.status_code == status
        assert (beside.headers.get("retry-after") == "5") is (status == 429)
    assert create().status_code == 201


def test_the_models_name_everything_that_the_engine_tells(api: Any) -> None:
    collection = api.opened(trust="local", devices=4)
    record = api.engine.collection(collection)
    assert set(record) == set(CollectionRecord.model_fields)
    assert set(record["progress"]) == {each.name for each in fields(Progress)}
    for told in api.engine.ledger():
        assert set(Charge.model_fields) == set(told)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": "0"}, "epsilon"),
    ({"epsilon": True}, "epsilon"),
    ({"epsilon": float("inf")}, "body"),
    ({"devices": 2}, "devices"),
    ({"devices": "40"}, "devices"),
    ({"devices": 40.5}, "devices"),
    ({"minimum": 41}, "minimum"),
    ({"trust": "central"}, "trust"),
    ({"tiling": "h3:8"}, "tiling"),
    ({"tiling": "places:/etc/passwd"}, "tiling"),
    ({"region": [0, 0, 1]}, "region"),
    ({"region": [0, 0, "1", 1]}, "region"),
    ({"unknown": 1}, "unknown"),
    ({"title": "nul \x00"}, "title"),
    ({"title": ""}, "title"),
    ({"options": {"a": [1]}}, "options"),
    ({"options": {"sample": 1.0}}, "sample"),
    ({"options": {"nul": "\x00"}}, "nul"),
    ({"method": "nothing"}, "nothing"),
]


def test_a_draft_that_cannot_be_says_which_part(api: Any) -> None:
    for changed, told in WRONG:
        answer = api.ask(
            "POST",
            "/v1/collections",
            content=json.dumps({**DRAFT, **changed}),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code == 422
        error = answer.json()["error"]
        assert error["code"] == "invalid"
        assert told in error["message"]
    assert api.ask("GET", "/v1/collections").json() == []


NO_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"title": "\\ud800"}',
    b'{"a": ' + b"[" * 100_000,
    b'{"title": ' + b"9" * 10_000 + b"}",
    b'{"epsilon": NaN}',
    b"a=b",
]


def test_what_is_no_json_of_ours_is_refused(api: Any) -> None:
    headers = {"Content-Type": "application/json"}
    for body in NO_JSON:
        for path in ("/v1/collections", "/v1/operators", "/v1/enrolment-tokens", "/v1/devices"):
            answer = api.ask("POST", path, content=body, headers=headers)
            if path == "/v1/devices" and len(body) > 4096:  # whose token comes with the body
                assert answer.status_code == 413
                continue
            assert answer.status_code in (400, 422), body
            assert answer.json()["error"]["code"] in ("malformed", "invalid")


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(api_with: Any) -> None:
    api = api_with(json_bytes=2000)
    for body in (bytes(2001), iter([bytes(1500), bytes(1500)])):
        answer = api.ask(
            "POST", "/v1/collections", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "too-large"


def test_tokens_are_shown_once_and_let_in_what_they_say(api: Any) -> None:
    made = api.ask("POST", "/v1/operators", json={"name": "new", "role": "viewer", "days": 1}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    me = api.client.get("/v1/me", headers=headers).json()
    assert (me["id"], me["name"], me["role"]) == (made["id"], "new", "viewer")
    listed = api.ask("GET", "/v1/operators")
    assert made["token"] not in listed.text
    assert me in listed.json()
    enrolment = api.ask("POST", "/v1/enrolment-tokens", json={"name": "fleet", "uses": 2}).json()
    assert enrolment["uses_left"] == 2
    kept = api.ask("GET", "/v1/enrolment-tokens")
    assert enrolment["token"] not in kept.text
    assert kept.json() == [{key: value for key, value in enrolment.items() if key != "token"}]
    assert api.ask("DELETE", f"/v1/enrolment-tokens/{enrolment['id']}").status_code == 204
    assert api.ask("GET", "/v1/enrolment-tokens").json()[0]["revoked_at"] is not None


def test_numbers_that_are_none_are_refused(api: Any) -> None:
    for number in ("0", "-1", "1.5", "x", str(2**31), "9" * 30, "1%00"):
        assert api.ask("DELETE", f"/v1/operators/{number}").status_code == 422, number


def test_the_audit_log_is_read_in_parts(api: Any) -> None:
    collections = [api.draft(), api.draft()]
    everything = api.ask("GET", "/v1/audit").json()
    assert [line["number"] for line in everything] == list(range(1, len(everything) + 1))
    part = api.ask("GET", "/v1/audit?after=1&limit=2").json()
    assert part == everything[1:3]
    mine = api.ask("GET", f"/v1/audit?collection={collections[0]}").json()
    assert {line["collection"] for line in mine} == {collections[0]}
    for bad in ("after=-1", "limit=0", "limit=1001", "after=x", "collection=x", f"after={2**31}"):
        assert api.ask("GET", f"/v1/audit?{bad}").status_code == 422, bad
