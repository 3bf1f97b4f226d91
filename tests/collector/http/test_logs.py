from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mapveil.collector.http.logs import configure_logs
from mapveil.collector.refusals import where_raised
from mapveil_client.local.message import write_reports
from mapveil_client.randomness.random import Randomness
from mapveil_client.terms import CollectionTerms

REGION = [-149.98731, 61.21234, -149.86512, 61.34543]
"""Degrees that no clock shows as its seconds, with more digits than a duration in milliseconds has."""


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Whatever is logged, as JSON, down to debug; the loggers are as they were afterwards."""
    root = logging.getLogger()
    before = root.handlers, root.level, logging.getLogger("mapveil").level
    written = io.StringIO()
    configure_logs("json", "debug", written)
    yield written
    root.handlers, level, own = before
    root.setLevel(level)
    logging.getLogger("mapveil").setLevel(own)


def lines(log: io.StringIO, until: str) -> list[dict[str, Any]]:
    """The lines so far, once one holds ``until``: a request is logged when its answer has left."""
    deadline = time.monotonic() + 600
    while until not in log.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_a_request_is_one_line_that_names_its_route(log: io.StringIO, api: Any) -> None:
    collection = api.opened()
    answer = api.ask("GET", f"/v1/collections/{collection}", "viewer")
    api.ask("GET", f"/v1/audit?collection={collection}&after=0")
    api.client.get("/v1/../nothing?secret=value")
    api.client.get(f"/v1/collections/{collection}/progress")
    api.client.get("/v1/open")
    told = lines(log, "/v1/open")
    by_route = {line["route"]: line for line in told}
    assert {line["message"] for line in told} == {"request"}
    shown = by_route["/v1/collections/{id}"]
    assert (shown["method"], shown["status"], shown["level"], shown["out"]) == (
        *("GET", 200, "info"),
        len(answer.content),
    )
    assert shown["id"] == answer.headers["x-request-id"]
    assert re.fullmatch(r"operator \d+", shown["who"])
    assert shown["ms"] > 0
    assert by_route["/v1/open"]["level"] == "debug"  # devices ask it all day
    assert "who" not in by_route["/v1/open"]
    assert collection not in log.getvalue()
    assert "secret" not in log.getvalue()
    assert "127.0.0.1" not in log.getvalue()


def test_nothing_secret_is_logged_told_or_counted_in_a_whole_collection(log: io.StringIO, api: Any) -> None:
    collection = api.opened(devices=5, minimum=3, region=REGION)
    path = f"/v1/collections/{collection}/report"
    terms = CollectionTerms.decode(api.client.get(f"/v1/collections/{collection}/terms").content)
    randomizer = terms.randomizer
    reports = write_reports(randomizer.randomize(np.arange(5), Randomness(1)), randomizer)
    token = api.enrolment(5)
    phones = api.phones(5)
    secrets = [*api.tokens.values(), token, *(f"{degrees:.3f}" for degrees in REGION)]
    for phone, report in zip(phones, reports, strict=True):
        body = bytes(report)
        phone.enrol(token)
        answer = phone.ask("PUT", path, body)
        assert answer.status_code == 204
        secrets += [
            phone.identity.public.hex(),
            body.hex(),
            answer.request.headers["Authorization"].split(" ")[2],
        ]
        phone.ask("PUT", path, body + b"x")
        phone.ask("PUT", path, body, {"body": b"y"})
    api.tick(3)
    api.ask("GET", f"/v1/collections/{collection}/map?theme=dark")
    audited = api.ask("GET", "/v1/audit?limit=1000").text
    counted = api.client.get("/metrics").text
    for where in (log.getvalue(), audited, counted):
        assert not [secret for secret in secrets if secret in where]
    assert collection not in counted
    assert "theme" not in log.getvalue()


def test_a_fault_of_ours_is_logged_where_it_was_raised_and_told_to_nobody(
    log: io.StringIO, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("lon -74.0123 is the secret")

    monkeypatch.setattr(api.engine, "collections", fail)
    monkeypatch.setattr(api.engine.devices, "open_collections", fail)
    for path in ("/v1/collections", "/v1/open"):
        log.truncate(0)
        log.seek(0)
        answer = api.ask("GET", path)
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert error["code"] == "internal"
        assert answer.headers["x-request-id"] in error["message"]
        told = [line for line in lines(log, "raised") if line["level"] == "error"]
        assert len(told) == 1
        assert told[0]["raised"].startswith("ZeroDivisionError < test_logs.py:")
        assert told[0]["id"] == answer.headers["x-request-id"]
        assert "secret" not in log.getvalue() + answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert api.client.get("/healthz").status_code == 200


def test_text_is_one_line_whatever_is_logged() -> None:
    written = io.StringIO()
    root = logging.getLogger()
    before = root.handlers, root.level
    configure_logs("text", "info", written)
    logging.getLogger("mapveil.collector").warning("two\nlines", extra={"details": {"a": 'b "c"\nd', "e": 1}})
    logging.getLogger("uvicorn.error").info("not shown")
    logging.getLogger("mapveil.collector").debug("not shown")
    root.handlers, level = before
    root.setLevel(level)
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning two lines a="b \\"c\\"\\nd" e=1\n',
        written.getvalue(),
    )


def test_where_an_error_was_raised_says_nothing_of_what_it_said() -> None:
    try:
        int("a secret")
    except ValueError as error:
        told = where_raised(error)
    assert re.fullmatch(r"ValueError < test_logs\.py:\d+ test_where_an_error\w+", told)
