"""What a request leaves in the memory of the service: nothing, once it is answered."""

from __future__ import annotations

import gc
from typing import Any

from mapveil.collector.http import device_routes

from ..faults.scene import until


class Body(bytes):
    """A body that tells when it is gone."""

    gone = 0

    def __del__(self) -> None:
        Body.gone += 1


def test_what_is_refused_stays_in_memory_no_longer_than_its_answer(api: Any, monkeypatch: Any) -> None:
    """Without a collection of garbage: a body may have 64 MiB."""
    read = device_routes.read_body

    async def read_body(*given: Any) -> bytes:
        return Body(await read(*given))

    monkeypatch.setattr(device_routes, "read_body", read_body)
    collection = api.opened()
    (phone,) = api.phones(1)
    path = "/v1/collections/{}/report"
    gc.collect()
    gc.disable()
    try:
        before = Body.gone
        answers = [
            phone.ask("PUT", path.format(collection), b"x"),
            phone.ask("PUT", path.format(collection), b"x", {"body": b"y"}),
            phone.ask("PUT", path.format("a" * 32), b"x"),
            phone.ask("PUT", path.format(collection).replace("report", "rounds/1/messages/keys"), b"x"),
        ]
        assert [answer.status_code for answer in answers] == [422, 401, 404, 404]
        until(lambda: Body.gone == before + len(answers), "the bodies are gone", 60)
    finally:
        gc.enable()


def test_nothing_is_kept_of_json_that_cannot_be_read(api: Any) -> None:
    unreadable = (b"{", bytes(range(256)), b"[" * 100_000)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for body in unreadable:
            for headers in ({}, {"Content-Type": "application/json"}):
                answer = api.ask("POST", "/v1/collections", content=body, headers=headers)
                assert answer.status_code == 422
                assert answer.json()["error"]["message"] == "the body is not JSON"
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, (ValueError, RecursionError))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
