from __future__ import annotations

import hashlib
import json
import threading
from typing import Any

import httpx
import numpy as np
import pytest

from mapveil.collector.rounds import device_service
from mapveil.collector.rounds.engine import Engine
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.contribution import Devices, client_report
from mapveil_client.local.message import write_reports
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity, authorization, enrolment_statement
from mapveil_client.terms import CollectionTerms
from tests.authority import AUTHORITY, credentials_of

from ..faults.scene import until

ABSENT = "f" * 32
ROUNDS = {"options": {"shard_size": 12, "tolerated_dropout": 0.25, "corrupt": 0}, "trust": "distributed"}


def reports_of(api: Any, collection: str, count: int) -> list[bytes]:
    """Reports of as many devices, each from a cell of its own."""
    terms = CollectionTerms.decode(api.client.get(f"/v1/collections/{collection}/terms").content)
    randomizer = terms.randomizer
    cells = np.arange(count, dtype=np.int64) % terms.cells.size
    return [bytes(each) for each in write_reports(randomizer.randomize(cells, Randomness(5)), randomizer)]


def test_a_key_enrols_once_however_often_it_asks(api: Any) -> None:
    (phone,) = api.phones(1)
    first = phone.number
    used = api.enrolment(1)
    assert phone.enrol(used).status_code == 201
    assert phone.number == first
    assert api.ask("GET", "/v1/devices").json() == {"devices": 1, "barred": [], "faults": []}
    assert api.ask("GET", "/v1/enrolment-tokens").json()[-1]["uses_left"] == 1


def test_enrolling_needs_a_token_and_the_key_itself(api: Any) -> None:
    token = api.enrolment(1)
    mine, other = Identity.draw(Randomness(1)), Identity.draw(Randomness(2))
    body = {
        "token": token,
        "public_key": mine.public.hex(),
        "signature": mine.sign(enrolment_statement(token, mine.public)).hex(),
    }
    stolen = {**body, "public_key": other.public.hex()}
    unknown = "mve_" + "x" * 43
    wrong = {
        **body,
        "token": unknown,
        "signature": mine.sign(enrolment_statement(unknown, mine.public)).hex(),
    }
    for bad in (stolen, wrong, {**body, "signature": "0" * 128}, {**body, "public_key": "0" * 64}):
        answer = api.client.post("/v1/devices", json=bad)
        assert answer.status_code == 401, bad
        assert token not in answer.text
    for text, told in (
        ("mvo_" + "x" * 43, "this is an operator's token"),
        ("mve_" + "x" * 42, "this is a token that begins with mve_ and is not whole"),
        ("x", "this is no token"),
    ):
        answer = api.client.post("/v1/devices", json={**body, "token": text})
        needed = (
            "expected an enrolment token: mve_ and 43 characters, as mapveil serve --new-enrolment prints"
        )
        assert (answer.status_code, answer.json()["error"]["message"]) == (401, f"{told}; {needed}")
    for unread in ({}, {**body, "place": [1, 2]}, {**body, "public_key": "AB" * 32}, {**body, "token": 5}):
        assert api.client.post("/v1/devices", json=unread).status_code == 422
    for text in (b"", b"{", b"[" * 4000, b'{"token": "\\ud800"}', b"\xff"):
        answer = api.client.post("/v1/devices", content=text, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid"), text
    assert api.client.post("/v1/devices", content=json.dumps(body).encode()).status_code == 415
    assert api.client.post("/v1/devices", json=body).status_code == 201
    later = Identity.draw(Randomness(3))
    used = {
        "token": token,
        "public_key": later.public.hex(),
        "signature": later.sign(enrolment_statement(token, later.public)).hex(),
    }
    assert api.client.post("/v1/devices", json=used).status_code == 401


def test_what_is_public_is_told_to_anybody(api: Any) -> None:
    draft, collection = api.draft(title="Not yet"), api.opened(title="Now")
    terms = api.client.get(f"/v1/collections/{collection}/terms")
    assert terms.headers["content-type"] == "application/json"
    assert terms.content == api.engine.devices.terms(collection)
    told = api.client.get("/v1/open").json()
    digest = hashlib.sha256(terms.content).hexdigest()
    assert told == [{"id": collection, "trust": "local", "title": "Now", "terms": digest}]
    refused = api.client.get(f"/v1/collections/{draft}/terms")
    assert refused.status_code == 404
    assert "the collection is not open yet; an operator opens it" in refused.text
    assert "Not yet" not in refused.text
    progress = api.client.get(f"/v1/collections/{collection}/progress").json()
    assert (progress["state"], progress["wanted"], progress["present"]) == ("open", 20, 0)
    for path in ("terms", "progress", "rounds/1"):
        assert api.client.get(f"/v1/collections/{ABSENT}/{path}").status_code == 404
    assert api.client.head(f"/v1/collections/{collection}/progress").status_code == 200


def test_what_another_process_opens_is_seen_within_a_second_and_its_own_at_once(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Engine(api.store, api.clock, authority=AUTHORITY)
    drafts = [api.draft() for _ in range(3)]

    def seen() -> set[str]:
        return {each["id"] for each in api.client.get("/v1/open").json()}

    assert seen() == set()
    other.open(drafts[0], "operator 1")
    until(lambda: seen() == {drafts[0]}, "the list of open collections is read again")
    monkeypatch.setattr(device_service, "_OPEN_SECONDS", 3600.0)
    own = api.opened()
    assert seen() == {drafts[0], own}
    other.open(drafts[1], "operator 1")
    assert seen() == {drafts[0], own}  # as it was
    api.ask("POST", f"/v1/collections/{drafts[2]}/open")
    assert seen() == {*drafts, own}


def test_a_report_is_kept_once_and_never_changed(api: Any) -> None:
    collection = api.opened(devices=4, minimum=3)
    path = f"/v1/collections/{collection}/report"
    first, *others = api.phones(4)
    reports = reports_of(api, collection, 64)
    other = next(report for report in reports if report != reports[0])
    assert first.ask("PUT", path, reports[0]).status_code == 204
    again = first.ask("PUT", path, reports[0])
    assert (again.status_code, again.content) == (204, b"")
    assert first.ask("PUT", path, other).status_code == 409
    assert others[0].ask("PUT", path, reports[0][:-1]).status_code == 422
    assert others[0].ask("PUT", path, reports[0] + b"\0").status_code == 422
    for phone in others:
        assert phone.ask("PUT", path, reports[1]).status_code == 204
    api.tick(3)
    assert first.ask("PUT", path, reports[0]).status_code in (204, 410)
    (late,) = api.phones(1, seed=2)
    assert late.ask("PUT", path, reports[0]).status_code == 410
    record = api.ask("GET", f"/v1/collections/{collection}").json()
    assert (record["state"], record["spent"], record["result"]) == ("done", "2", True)
    assert api.ask("GET", "/v1/ledger").json()[0]["devices"] == 4


def test_reports_are_bytes_of_one_kind_and_of_bounded_length(api_with: Any) -> None:
    api = api_with(report_bytes=100)
    path = f"/v1/collections/{api.opened()}/report"
    (phone,) = api.phones(1)
    assert phone.ask("PUT", path, bytes(101)).status_code == 413
    assert phone.ask("PUT", path, bytes(100)).status_code == 422
    signed = authorization(phone.identity, phone.number, "PUT", path, b"x")
    for media in (
        {},
        {"Content-Type": "application/json"},
        {"Content-Type": "text/plain; a=application/cbor"},
    ):
        answer = api.client.put(path, content=b"x", headers={"Authorization": signed, **media})
        assert answer.status_code == 415
    assigned = path.replace("report", "rounds/1/assignment")
    assert phone.ask("GET", assigned, b"a body where none belongs").status_code == 413


def test_addresses_that_are_none_and_methods_that_do_not_fit(api: Any) -> None:
    collection = api.opened()
    for path in (
        "x",
        "terms/",
        "rounds/0",
        "rounds/x",
        "rounds/1/assignment/1",
        "rounds/1234567/assignment",
        "REPORT",
    ):
        answer = api.client.get(f"/v1/collections/{collection}/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not-found"), path
    assert api.client.get(f"/v1/collections/{collection.upper()}/terms").status_code in (404, 422)
    for method, path, allowed in (
        ("POST", f"/v1/collections/{collection}/report", "PUT"),
        ("DELETE", f"/v1/collections/{collection}/terms", "GET"),
        ("PATCH", "/v1/open", "GET"),
        ("TRACE", "/v1/open", "GET"),
        ("PUT", "/v1/collections", "GET, POST"),
        ("PATCH", f"/v1/collections/{collection}", "GET"),
        ("PUT", "/v1/devices", "GET, POST"),
        ("POST", "/healthz", "GET"),
    ):
        answer = api.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "not-allowed"), path
        assert answer.headers["allow"] == allowed


def test_many_who_ask_at_once_are_told_the_same(api: Any, monkeypatch: Any) -> None:
    collection = api.opened()
    asked: list[str] = []
    read = api.engine._board.read
    monkeypatch.setattr(api.engine._board, "read", lambda id: asked.append(id) or read(id))
    monkeypatch.setattr("mapveil.collector.rounds.progress._FRESH_SECONDS", 3600.0)
    answers: list[bytes] = []

    def ask() -> None:
        with httpx.Client(base_url=api.address) as client:
            answers.extend(client.get(f"/v1/collections/{collection}/progress").content for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    assert len(asked) == 1


class Party:
    """Phones that take part in secure sums over HTTP."""

    def __init__(self, api: Any, collection: str, count: int) -> None:
        self.api, self.at = api, f"/v1/collections/{collection}"
        self.phones = api.phones(count)
        self.terms = CollectionTerms.decode(api.client.get(f"{self.at}/terms").content)
        self.clients: dict[int, Client] = {}
        self.sums: dict[int, np.ndarray] = {}
        self.mute: set[int] = set()

    def phase(self) -> tuple[int, str] | None:
        progress = self.api.engine._board.read(self.at.rsplit("/", 1)[1])
        return None if progress.phase is None else (progress.round, progress.phase)

    def speak(self, number: int, phase: str) -> dict[int, bytes]:
        """Everybody says what they have to say; returns it, by phone."""
        announced = RoundAnnouncement.decode(self.api.client.get(f"{self.at}/rounds/{number}").content)
        said: dict[int, bytes] = {}
        for index, phone in enumerate(self.phones):
            if index in self.mute:
                continue
            if phase == "keys":
                assigned = phone.ask("GET", f"{self.at}/rounds/{number}/assignment")
                if assigned.status_code == 404:
                    continue
                self.clients[index] = self.client(announced, index, phone, assigned.json())
                said[index] = self.clients[index].advertise()
            else:
                message = phone.ask("GET", f"{self.at}/rounds/{number}/server-message")
                assert (message.status_code, message.headers["mapveil-phase"]) == (200, phase)
                if message.content:
                    said[index] = self.clients[index].receive(message.content)
        for index, body in said.items():
            answer = self.phones[index].ask("PUT", f"{self.at}/rounds/{number}/messages/{phase}", body)
            assert answer.status_code == 204, answer.text
        return said

    def client(
        self, announced: RoundAnnouncement, index: int, phone: Any, assigned: dict[str, int]
    ) -> Client:
        lattice = self.terms.cells.lattice()
        site = interleave(lattice.row[index : index + 1], lattice.col[index : index + 1])
        rng = Randomness(100 + index).child(f"round {announced.number}")
        noise = announced.alpha, announced.scale, announced.rounding, rng
        made = client_report(Devices(site), announced.query, *noise)
        vector = np.zeros(announced.length, dtype=np.int64)
        np.add.at(vector, made.position, made.value)
        self.sums[announced.number] = self.sums.get(announced.number, 0) + vector
        parameters = announced.parameters(assigned["shard"])
        return Client(
            parameters,
            assigned["client"],
            vector,
            rng.child("keys"),
            credentials=credentials_of(phone.identity),
        )


def test_a_distributed_collection_from_joining_to_its_map(api: Any) -> None:
    collection = api.opened(**ROUNDS, devices=12, minimum=8)
    party = Party(api, collection, 12)
    for phone in party.phones:
        for _ in range(2):
            assert phone.ask("PUT", f"{party.at}/members/me").status_code == 204
    (uninvited,) = api.phones(1, seed=2)
    assert uninvited.ask("PUT", f"{party.at}/members/me").status_code == 410
    rounds = set()
    for _ in range(60):
        api.tick()
        if api.engine.collection(collection)["state"] == "done":
            break
        now = party.phase()
        if now is not None:
            rounds.add(now[0])
            party.speak(*now)
    record = api.ask("GET", party.at).json()
    assert (record["state"], record["result"]) == ("done", True)
    assert {each["number"] for each in record["rounds"]} == rounds
    assert {each["included"] for each in record["rounds"]} == {12}
    told = api.client.get("/metrics").text
    for phase in ("keys", "shares", "inputs", "consents", "answers"):
        assert f'mapveil_phase_seconds_count{{phase="{phase}"}} {len(rounds)}.0' in told
        assert f'mapveil_messages_total{{phase="{phase}"}} {12 * len(rounds)}.0' in told
    for number in rounds:
        total = np.frombuffer(_total(api, collection, number), dtype="<i8")
        assert np.array_equal(total, party.sums[number])
    assert uninvited.ask("GET", f"{party.at}/rounds/1/assignment").status_code in (404, 410)


def _total(api: Any, collection: str, number: int) -> bytes:
    from sqlalchemy import select

    from mapveil.collector.store.schema import rounds

    query = select(rounds.c.total).where(rounds.c.collection == collection, rounds.c.number == number)
    with api.store.read() as connection:
        return bytes(connection.execute(query).scalar_one())


def test_messages_that_are_late_early_changed_or_another_s(api: Any) -> None:
    collection = api.opened(**ROUNDS, devices=12, minimum=8)
    party = Party(api, collection, 12)
    for phone in party.phones:
        phone.ask("PUT", f"{party.at}/members/me")
    api.tick(2)
    assert party.phase() == (1, "keys")
    rounds = f"{party.at}/rounds/1"
    one, other = party.phones[:2]
    assert one.ask("PUT", f"{rounds}/messages/nothing", b"x").status_code == 404
    assert one.ask("PUT", f"{rounds}/messages/keys", b"x").status_code == 422
    assert one.ask("PUT", f"{rounds}/messages/inputs", b"x").status_code == 409
    assert one.ask("PUT", f"{party.at}/rounds/2/messages/keys", b"x").status_code == 404
    said = party.speak(1, "keys")
    assert one.ask("PUT", f"{rounds}/messages/keys", said[0]).status_code == 204
    assert one.ask("PUT", f"{rounds}/messages/keys", said[1]).status_code in (409, 422)
    assert other.ask("PUT", f"{rounds}/messages/keys", said[0]).status_code in (409, 422)
    api.tick(3)
    assert party.phase() == (1, "shares")
    assert one.ask("PUT", f"{rounds}/messages/keys", said[0]).status_code == 204
    assert one.ask("PUT", f"{rounds}/messages/keys", said[0] + b"x").status_code in (409, 410, 422)
    stranger = api.phones(1, seed=3)[0]
    assert stranger.ask("GET", f"{rounds}/message").status_code == 404
    assert stranger.ask("PUT", f"{rounds}/messages/shares", b"x").status_code == 404


def test_no_address_of_devices_takes_json_or_coordinates(api: Any) -> None:
    collection = api.opened()
    (phone,) = api.phones(1)
    for place in ({"lon": -74.0, "lat": 40.7}, [-74.0, 40.7], {"place": "POINT (-74 40.7)"}):
        body = json.dumps(place).encode()
        answer = phone.ask("PUT", f"/v1/collections/{collection}/report", body)
        assert answer.status_code == 422
        assert "40.7" not in answer.text


def test_devices_are_told_when_to_come_again(api_with: Any) -> None:
    api = api_with(device_requests=1)
    collection = api.opened(devices=400, join_seconds=40)
    api.phones(6)

    def told(path: str) -> float:
        return float(api.client.get(path).headers["mapveil-pause"])

    assert 3 <= told("/v1/open") <= 9  # six devices, one a second
    # 400 s for as many devices, were it not for the 40 s that are left.
    assert 0.5 <= told(f"/v1/collections/{collection}/progress") <= 15


def test_an_enrolment_is_refused_by_its_size_before_it_is_read(api: Any) -> None:
    answer = api.client.post("/v1/devices", json={f"field{each}": 0 for each in range(1000)})
    assert answer.status_code == 413
    assert "up to 4096 bytes" in answer.text
