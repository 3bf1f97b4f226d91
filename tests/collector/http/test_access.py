from __future__ import annotations

import asyncio
import contextlib
import http.client
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from mapveil.collector.http import asgi, device_keys, device_routes
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.keys import SCHEME, Identity, authorization, enrolment_statement

from ..faults.scene import until

ABSENT = "a" * 32
OPERATOR = "/v1/me"

# Method, address and the least role of every endpoint of operators; test_openapi holds the list complete.
ROLES = [
    ("GET", "/v1/collections", "viewer"),
    ("GET", "/v1/trust-models", "viewer"),
    ("POST", "/v1/forecasts", "operator"),
    ("POST", "/v1/collections", "operator"),
    ("GET", f"/v1/collections/{ABSENT}", "viewer"),
    ("POST", f"/v1/collections/{ABSENT}/open", "operator"),
    ("POST", f"/v1/collections/{ABSENT}/begin", "operator"),
    ("POST", f"/v1/collections/{ABSENT}/abort", "operator"),
    ("GET", f"/v1/collections/{ABSENT}/guarantee", "viewer"),
    ("GET", f"/v1/collections/{ABSENT}/map", "viewer"),
    ("GET", f"/v1/collections/{ABSENT}/map/exports/png", "viewer"),
    ("GET", f"/v1/collections/{ABSENT}/retrieval/offer", "viewer"),
    ("GET", f"/v1/collections/{ABSENT}/retrieval/hint/0", "viewer"),
    ("POST", f"/v1/collections/{ABSENT}/retrieval/query", "viewer"),
    ("GET", "/v1/ledger", "viewer"),
    ("GET", "/v1/audit", "viewer"),
    ("GET", "/v1/ground", "viewer"),
    ("GET", "/v1/devices", "viewer"),
    ("DELETE", "/v1/devices/999", "operator"),
    ("PUT", "/v1/devices/999/quarantine", "operator"),
    ("DELETE", "/v1/devices/999/quarantine", "operator"),
    ("GET", "/v1/me", "viewer"),
    ("GET", "/v1/enrolment-tokens", "operator"),
    ("POST", "/v1/enrolment-tokens", "operator"),
    ("DELETE", "/v1/enrolment-tokens/999", "operator"),
    ("GET", "/v1/operators", "admin"),
    ("POST", "/v1/operators", "admin"),
    ("DELETE", "/v1/operators/999", "admin"),
]
DRAFT: dict[str, Any] = {
    "json": {
        "title": "t",
        "trust": "local",
        "epsilon": "1",
        "region": [-74.03, 40.69, -73.9, 40.83],
        "tiling": "quadtree:3",
        "devices": 3,
        "accept_custom_policy": True,
    }
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/collections": DRAFT,
    "/v1/forecasts": DRAFT,
    f"/v1/collections/{ABSENT}/abort": {"json": {"reason": "r"}},
    "/v1/enrolment-tokens": {"json": {"name": "n"}},
    "/v1/operators": {"json": {"name": "n", "role": "viewer"}},
    f"/v1/collections/{ABSENT}/retrieval/query": {
        "content": b"q",
        "headers": {"Content-Type": "application/cbor"},
    },
}
QUERIES: dict[str, dict[str, Any]] = {"/v1/ground": {"params": {"box": "-74.1,40.6,-73.9,40.8"}}}


def test_every_endpoint_wants_its_role_and_no_less(api: Any) -> None:
    order = ["viewer", "operator", "admin"]
    for method, path, least in ROLES:
        options = (BODIES if method == "POST" else QUERIES).get(path, {})
        assert api.ask(method, path, None, **options).status_code == 401, (method, path)
        for role in order:
            status = api.ask(method, path, role, **options).status_code
            allowed = order.index(role) >= order.index(least)
            assert (status == 403) is not allowed, (method, path, role, status)
            assert status in ((200, 201, 204, 404) if allowed else (403,)), (method, path, role, status)


NO_TOKENS = [
    "",
    "Bearer",
    "Bearer x",
    "Bearer mvo_" + "x" * 43,
    "Bearer mve_" + "x" * 43,
    "Bearer mvo_" + "\u00e9" * 43,
    "Basic bWU6bWU=",
    "mvo_" + "x" * 43,
    "Bearer mvo_" + "x" * 10_000,
    f"{SCHEME} 1 " + "a" * 128,
]


def test_what_is_no_token_is_refused(api: Any) -> None:
    for given in NO_TOKENS:
        headers = {b"Authorization": given.encode("latin-1")} if given else {}
        answer = api.client.get(OPERATOR, headers=headers)
        assert answer.status_code == 401, given
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["error"]["code"] == "unauthorized"


def test_no_body_of_a_stranger_is_parsed(api: Any) -> None:
    for given in NO_TOKENS:
        headers = {b"Authorization": given.encode("latin-1")} if given else {}
        for path in ("/v1/collections", "/v1/forecasts", "/v1/operators", f"/v1/collections/{ABSENT}/abort"):
            answer = api.client.post(path, content=b"no JSON", headers=headers)
            assert answer.status_code == 401, (given, path)
    for path, status in (("/v1/nothing", 404), ("/v1/me", 405)):
        assert api.client.post(path, content=b"no JSON").status_code == status, "no route takes it"


def test_no_body_of_a_viewer_is_parsed(api: Any) -> None:
    for method, path, role in ROLES:
        if method in ("POST", "PUT") and role != "viewer":
            answer = api.ask(method, path, "viewer", content=b"no JSON")
            assert answer.status_code == 403, path


def test_one_body_is_parsed_in_each_turn_of_the_event_loop(api: Any, monkeypatch: Any) -> None:
    done: list[str] = []

    def parse(body: bytes) -> None:
        done.append("parsed")
        asyncio.get_running_loop().call_soon(done.append, "turned")
        time.sleep(0.02)  # so that the others are all ready in the next turn

    monkeypatch.setattr(asgi, "require_json", parse)
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(api.ask, "POST", "/v1/operators", "operator", json={}) for _ in range(24)]
        assert {each.result().status_code for each in asked} <= {400, 403, 422}
    assert done == ["parsed", "turned"] * 24


def test_a_token_expires(api: Any) -> None:
    token = api.accounts.create_operator("brief", "viewer", timedelta(minutes=5), "command line").token
    headers = {"Authorization": f"Bearer {token}"}
    assert api.client.get(OPERATOR, headers=headers).status_code == 200
    api.clock.advance(301)
    assert api.client.get(OPERATOR, headers=headers).status_code == 401


def test_a_token_is_revoked_at_once(api: Any) -> None:
    number = api.ask("GET", OPERATOR, "viewer").json()["id"]
    assert api.ask("DELETE", f"/v1/operators/{number}").status_code == 204
    assert api.ask("GET", OPERATOR, "viewer").status_code == 401


def test_a_signature_is_of_one_method_one_address_and_one_body(api: Any) -> None:
    collection = api.opened()
    path = f"/v1/collections/{collection}/report"
    one, other = api.phones(2)
    bad = [
        one.ask("PUT", path, b"x", {"body": b"y"}),
        one.ask("PUT", path, b"x", {"path": path + "?"}),
        one.ask("PUT", path + "?a=b", b"x", {"path": path}),
        one.ask("PUT", path, b"x", {"path": path.replace(collection, ABSENT)}),
        one.ask("PUT", path, b"x", {"method": "POST"}),
        one.ask("PUT", path, b"x", {"device": other.number}),
        *(one.ask("PUT", path, b"x", {"device": number}) for number in (0, 10**9, 10**17)),
    ]
    assert [answer.status_code for answer in bad] == [401] * len(bad)
    # Signed rightly, it is the report itself that is refused.
    assert one.ask("PUT", path, b"x").status_code == 422
    assert one.ask("PUT", path + "?a=b", b"x").status_code == 422


@pytest.mark.parametrize("mark", ["?", "#", "#a"])
def test_a_signature_of_an_address_is_none_of_one_that_a_mark_follows(api: Any, mark: str) -> None:
    path = f"/v1/collections/{api.opened()}/rounds/1/assignment"
    (phone,) = api.phones(1)
    place = httpx.URL(api.address)

    def status(signed: str) -> int:
        link = http.client.HTTPConnection(place.host, place.port, timeout=300)
        told = authorization(phone.identity, phone.number, "GET", signed)
        link.request("GET", path + mark, headers={"Authorization": told})
        with contextlib.closing(link):
            return link.getresponse().status

    assert status(path) == 401
    assert status(path + mark) == 404


def test_a_revoked_device_is_refused(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/v1/collections/{api.opened()}/report"
    repeated = path.replace(
        "report", "rounds/1/assignment"
    )  # whose signature is known from the second time on
    here, elsewhere = api.phones(2)
    assert here.ask("PUT", path, b"x").status_code == elsewhere.ask("PUT", path, b"x").status_code == 422
    assert [here.ask("GET", repeated).status_code for _ in range(2)] == [404, 404]
    assert api.ask("DELETE", f"/v1/devices/{here.number}", "operator").status_code == 204
    assert here.ask("PUT", path, b"x").status_code == here.ask("GET", repeated).status_code == 401
    api.accounts.revoke_device(elsewhere.number, "command line")  # as another worker would
    monkeypatch.setattr(device_keys, "_BARRED_SECONDS", 0.0)
    assert elsewhere.ask("PUT", path, b"x").status_code == 401
    assert here.enrol(api.enrolment()).status_code == 403


def test_a_device_that_is_revoked_while_it_sends_is_refused(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body may take hours."""
    path = f"/v1/collections/{api.opened()}/report"
    (phone,) = api.phones(1)
    read = device_routes.read_body

    async def read_body(*given: Any) -> bytes:
        body = await read(*given)
        api.accounts.revoke_device(phone.number, "command line")
        return body

    assert phone.ask("PUT", path, b"x").status_code == 422
    monkeypatch.setattr(device_keys, "_BARRED_SECONDS", 0.0)
    monkeypatch.setattr(device_routes, "read_body", read_body)
    assert phone.ask("PUT", path, b"x").status_code == 401


def test_only_what_has_no_body_is_known_again(api: Any, checked: list[bytes]) -> None:
    path = f"/v1/collections/{api.opened()}/report"
    (phone,) = api.phones(1)
    assert [phone.ask("PUT", path, b"x").status_code for _ in range(2)] == [422, 422]
    assert len(checked) == 2
    repeated = path.replace("report", "rounds/1/assignment")
    assert [phone.ask("GET", repeated).status_code for _ in range(2)] == [404, 404]
    assert len(checked) == 3


def test_a_device_in_quarantine_is_refused_until_it_is_released(api: Any) -> None:
    path = f"/v1/collections/{api.opened()}/report"
    (phone,) = api.phones(1)
    assert phone.ask("PUT", path, b"x").status_code == 422
    place = f"/v1/devices/{phone.number}/quarantine"
    assert api.ask("PUT", place, "operator").status_code == 204
    assert phone.ask("PUT", path, b"x").status_code == 401
    told = api.ask("GET", "/v1/devices", "viewer").json()
    assert [each["id"] for each in told["barred"]] == [phone.number]
    assert api.ask("DELETE", place, "operator").status_code == 204
    assert phone.ask("PUT", path, b"x").status_code == 422
    lines = [line.action for line in api.engine.audit(0, 1000)]
    assert lines[-2:] == ["device.quarantine", "device.release"]


def test_keys_are_read_together_and_kept(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    path = f"/v1/collections/{api.opened()}/report"
    phones = api.phones(8)
    readings: list[list[int]] = []  # pages, of a device each
    original = device_keys.DeviceKeys._read

    def read(self: Any, wanted: list[int]) -> Any:
        readings.append(wanted)
        if len(readings) == 1:  # whoever comes meanwhile is read in one go
            until(lambda: len(self._queries) == len(phones) - len(wanted), "all have asked")
        return original(self, wanted)

    monkeypatch.setattr(device_keys.DeviceKeys, "_read", read)
    monkeypatch.setattr(device_keys, "_PAGE", 1)
    for _ in range(2):
        threads = [threading.Thread(target=phone.ask, args=("PUT", path, b"x")) for phone in phones]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(number for reading in readings for number in reading) == [p.number for p in phones]
    assert len(readings) <= 2  # all in the first one, if all waited to hear who is barred


def test_neighbours_are_read_with_a_device_and_its_slot_is_its_own(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/v1/collections/{api.opened()}/report"
    monkeypatch.setattr(device_keys, "_SLOTS", 4)
    monkeypatch.setattr(device_keys, "_PAGE", 2)
    readings: list[int] = []
    original = device_keys.DeviceKeys._read

    def read(self: Any, wanted: list[int]) -> Any:
        readings.extend(wanted)
        return original(self, wanted)

    monkeypatch.setattr(device_keys.DeviceKeys, "_read", read)
    phones = api.phones(6)  # 1 to 6: 2 and 6 share a slot
    for number in (2, 3, 6, 2, 3):
        assert phones[number - 1].ask("PUT", path, b"x").status_code == 422
    assert phones[1].ask("PUT", path, b"x", {"device": 6}).status_code == 401
    assert readings == [1, 3, 1, 3]


def test_two_devices_of_one_slot_that_ask_together_both_get_their_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_keys, "_SLOTS", 4)
    monkeypatch.setattr(device_keys, "_PAGE", 2)
    accounts = Accounts(store)
    token = accounts.create_enrolment("n", 40, timedelta(days=1), None, "command line").token
    phones = [Identity.draw(Randomness(number)) for number in range(40)]

    async def play() -> list[bytes | None]:
        for phone in phones:
            await accounts.enrol(token, phone.public, phone.sign(enrolment_statement(token, phone.public)))
        with ThreadPoolExecutor(2) as pool:
            keys = device_keys.DeviceKeys(store, pool)
            return await asyncio.gather(*(keys.of(number) for number in range(1, 42)))

    assert asyncio.run(play()) == [*(phone.public for phone in phones), None]


def test_a_device_may_not_ask_without_end(api_with: Callable[..., Any]) -> None:
    api = api_with(device_rate=1, device_burst=5)
    path = f"/v1/collections/{api.opened()}/report"
    busy, other = api.phones(2)
    answers = [busy.ask("PUT", path, b"x") for _ in range(8)]
    assert [answer.status_code for answer in answers][:5] == [422] * 5
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "1"
    assert other.ask("PUT", path, b"x").status_code == 422
    # Whoever only says that it is the device takes nothing from it.
    assert other.ask("PUT", path, b"x", {"device": busy.number}).status_code == 401


def test_an_address_may_not_ask_without_end(api_with: Callable[..., Any]) -> None:
    api = api_with(address_rate=1, address_burst=10)
    statuses = [api.client.get("/v1/open").status_code for _ in range(15)]
    assert statuses[:10] == [200] * 10
    assert 429 in statuses[10:]


def test_guessing_is_slowed_down_and_locks_nobody_out(api_with: Callable[..., Any]) -> None:
    api = api_with(failure_rate=1, failure_burst=5)
    guess = {"Authorization": "Bearer mvo_" + "x" * 43}
    statuses = [api.client.get(OPERATOR, headers=guess).status_code for _ in range(8)]
    assert statuses[:5] == [401] * 5
    assert 429 in statuses[5:]
    assert api.ask("GET", OPERATOR, "viewer").status_code == 200


def test_behind_a_proxy_the_address_is_the_one_it_forwards(api_with: Callable[..., Any]) -> None:
    api = api_with(address_rate=1, address_burst=3, trusted_proxies="127.0.0.1")

    def statuses(client: httpx.Client, address: str) -> list[int]:
        return [client.get("/v1/open", headers={"X-Forwarded-For": address}).status_code for _ in range(5)]

    assert 429 in statuses(api.client, "192.0.2.1")
    assert statuses(api.client, "192.0.2.2")[:3] == [200] * 3


def test_without_a_proxy_nobody_is_believed_to_be_elsewhere(api_with: Callable[..., Any]) -> None:
    api = api_with(address_rate=1, address_burst=3)
    asked = [
        api.client.get("/v1/open", headers={"X-Forwarded-For": f"192.0.2.{number}"}).status_code
        for number in range(6)
    ]
    assert 429 in asked
