"""The collector's own enrolment authority, and one apart: certificates, renewals, and what the guarantee says."""

from __future__ import annotations

import asyncio
import hashlib
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert

from mapveil.collector.refusals import Invalid, NotFound, StoreUnavailable
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.audit_log import lines
from mapveil.collector.store.device_certificates import Certification, read_list
from mapveil.collector.store.principals import Accounts, token_hash
from mapveil.collector.store.schema import operators
from mapveil.collector.store.watched_devices import barred_devices
from mapveil.privacy.claim import Adversary, Assumes
from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.announcement import RoundAnnouncement
from mapveil_client.connection import Connection
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import InputError
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Authority, Certificate, Credentials, RevocationList
from mapveil_client.secure_sum.client import Client
from mapveil_client.secure_sum.keys import Identity, enrolment_statement
from tests.authority import AUTHORITY, NAMED, certificate_of, certified

from ..engine.conftest import ACTOR, Crowd, spec_of
from .conftest import Phone

SPEC = {"trust": "distributed", "devices": 60, "minimum": 30, "epsilon": "1"}
ROUTE = "/v1/devices/me/certificate"
ABOUT_ROSTER = {Assumes.ROSTER_TRUSTED, Assumes.AUTHORITY_APART, Assumes.AUTHORITY_OF_OPERATOR}


def client_of(api: Any, connection: Connection, policy: DevicePolicy) -> DeviceClient:
    memory = DeviceMemory.open(rng=Randomness(1))
    place = Whereabouts(np.array([-73.97]), np.array([40.77]))
    return DeviceClient(connection, memory, policy, place, now=lambda: api.clock.now().timestamp())


def run(api: Any, act: Any, policy: DevicePolicy | None = None) -> DeviceClient:
    async def play() -> DeviceClient:
        async with Connection(api.address) as connection:
            client = client_of(api, connection, policy or DevicePolicy(authority=NAMED))
            await client.enrol(api.enrolment())
            await act(client)
            return client

    return asyncio.run(play())


def test_a_device_is_certified_once_and_again_when_a_third_of_the_time_is_left(api: Any) -> None:
    found: list[Certificate] = []

    async def act(client: DeviceClient) -> None:
        for days in (0, 5, 10, 6):
            api.clock.advance(days * 86_400)
            await client.renew()
            assert client.memory.certificate is not None
            found.append(client.memory.certificate)

    client = run(api, act)
    serials = [each.serial for each in found]
    assert serials[0] == serials[1] == serials[2] != serials[3]
    assert all(each.key == client.memory.identity.public for each in found)


def test_a_certificate_that_the_policys_authority_did_not_sign_is_not_kept(api: Any) -> None:
    other = Authority("tests", Identity(bytes([3] * 32)).public)

    async def act(client: DeviceClient) -> None:
        await client.renew()
        collection = api.opened(**SPEC)
        assert not await client.consider(collection)
        assert "must be tests:" in client.memory.refused[collection]

    client = run(api, act, DevicePolicy(authority=other))
    assert client.memory.certificate is None
    assert any("gave no certificate for this device" in line.text for line in client.memory.log.lines)


def test_only_an_enrolled_device_is_certified_and_only_for_its_own_key(api: Any) -> None:
    phone, other = api.phones(2)
    made = Certificate.decode(phone.ask("GET", ROUTE).content)
    assert made.key == phone.identity.public
    assert made.fault(NAMED, phone.identity.public, api.clock.now().timestamp()) is None
    assert api.client.get(ROUTE).status_code == 401
    assert phone.ask("GET", ROUTE, signed={"device": other.number}).status_code == 401
    assert api.ask("DELETE", f"/v1/devices/{phone.number}").status_code == 204
    assert phone.ask("GET", ROUTE).status_code == 401


def test_a_collector_beside_an_authority_apart_certifies_nobody(api_with: Any) -> None:
    api = api_with(authority=NAMED)
    assert api.phones(1)[0].ask("GET", ROUTE).status_code == 404

    async def act(client: DeviceClient) -> None:
        collection = api.opened(**SPEC)
        assert not await client.consider(collection)
        assert "has no certificate" in client.memory.refused[collection]
        certified(client.memory)  # as that authority gives certificate and list
        again = api.opened(**SPEC)
        assert await client.consider(again)

    run(api, act)


@pytest.mark.parametrize(
    ("authority", "active", "assumed"),
    [
        (AUTHORITY, True, Assumes.AUTHORITY_OF_OPERATOR),
        (NAMED, True, Assumes.AUTHORITY_APART),
        (NAMED, False, Assumes.ROSTER_TRUSTED),
        (None, False, Assumes.ROSTER_TRUSTED),
    ],
)
def test_the_guarantee_says_who_vouches_for_the_devices(
    sqlite_store: Any, clock: Any, authority: Any, active: bool, assumed: Assumes
) -> None:
    engine = Engine(sqlite_store, clock, authority=authority)
    spec = {
        **SPEC,
        "title": "t",
        "region": [-74.03, 40.69, -73.90, 40.83],
        "tiling": "quadtree:3",
        "active": active,
        "accept_custom_policy": not active,
    }
    with sqlite_store.write() as connection:
        made = {"name": "o", "role": "admin", "token_hash": bytes(32), "created_at": "t", "expires_at": "t"}
        connection.execute(insert(operators).values(id=1, **made))
    record = engine.create(spec, "operator 1")["guarantee"]
    kinds = {each["kind"] for each in record["assumptions"]}
    assert kinds & ABOUT_ROSTER == {assumed}
    malicious = assumed is Assumes.AUTHORITY_APART  # else the server's operator can invent clients
    assert record["adversary"] == (Adversary.MALICIOUS_SERVER if malicious else Adversary.HONEST_SERVER)
    stated = record["promise"]["line"]
    assert ("may deviate from the protocol" in stated) is malicious
    assert ("against invented clients nothing is promised" in stated) is (active and not malicious)


def test_without_an_authority_no_active_sum_is_drafted(sqlite_store: Any, clock: Any) -> None:
    spec = {**SPEC, "title": "t", "region": [-74.03, 40.69, -73.90, 40.83], "tiling": "quadtree:3"}
    with pytest.raises(InputError, match="needs an enrolment authority"):
        Engine(sqlite_store, clock).create(spec, "operator 1")


def test_keys_with_an_expired_certificate_are_refused_before_they_count(
    sqlite_store: Any, clock: Any
) -> None:
    """Else one device would make all its neighbours refuse the roster."""
    engine, crowd = Engine(sqlite_store, clock, Randomness(7), authority=AUTHORITY), Crowd(sqlite_store, 24)
    collection = engine.create(spec_of("distributed", options={"shard_size": 12, "corrupt": 0}), ACTOR)["id"]
    engine.open(collection, ACTOR)
    asyncio.run(crowd.join(engine, collection))
    engine.tick()
    announced = RoundAnnouncement.decode(engine.devices.announcement(collection, 1))
    assigned = engine.devices.assignment(collection, 1, 1)
    identity, parameters = crowd.identities[0], announced.parameters(assigned.shard)
    vector, now = np.zeros(announced.length, dtype=np.int64), int(clock.now().timestamp())
    for expires, taken in ((now, False), (now + 60, True)):
        own = Credentials(identity, certificate_of(identity, expires=expires), NAMED)
        body = Client(parameters, assigned.client, vector, Randomness(1), credentials=own).advertise()
        sent = engine.devices.message(collection, 1, "keys", 1, body)
        if taken:
            asyncio.run(sent)
        else:
            with pytest.raises(Invalid, match="must be valid at"):
                asyncio.run(sent)


def listed(api: Any) -> RevocationList:
    answer = api.client.get("/v1/revocation-list")
    assert answer.status_code == 200, answer.text
    return RevocationList.decode(answer.content)


def logged(api: Any, action: str) -> list[dict[str, Any]]:
    lines = api.ask("GET", "/v1/audit", params={"limit": 1000}).json()
    return [line["detail"] for line in lines if line["action"] == action]


def test_every_certificate_is_in_the_audit_log_once(api: Any) -> None:
    phone = api.phones(1)[0]
    made = [Certificate.decode(phone.ask("GET", ROUTE).content) for _ in range(3)]
    assert made[0] == made[1] == made[2]
    (line,) = logged(api, "device.certify")
    digest = hashlib.sha256(phone.identity.public).hexdigest()
    expected = {"serial": f"{made[0].serial:016x}", "key_sha256": digest, "population": "tests"}
    expected["authority"] = str(NAMED)
    assert line == {"device": phone.number, **expected, "expires": made[0].expires}
    api.clock.advance(11 * 86_400)  # a third of its time
    assert Certificate.decode(phone.ask("GET", ROUTE).content).serial != made[0].serial
    assert len(logged(api, "device.certify")) == 2


def test_a_revoked_device_is_on_the_list_at_once_and_does_not_come_back_by_its_token(api: Any) -> None:
    token = api.enrolment(uses=9)
    revoked, other = Phone(api.client, 1), Phone(api.client, 2)
    assert [each.enrol(token).status_code for each in (revoked, other)] == [201, 201]
    before = listed(api)
    assert (before.number, before.keys) == (0, frozenset())
    assert before.fault(NAMED, api.clock.now().timestamp()) is None
    assert api.ask("DELETE", f"/v1/devices/{revoked.number}").status_code == 204
    now = listed(api)
    assert (now.number, now.keys) == (1, frozenset({revoked.identity.public}))
    assert now.fault(NAMED, api.clock.now().timestamp(), before) is None
    # Neither the same key comes back nor another of whoever holds the token; those that it let in stay.
    assert revoked.enrol(token).status_code == 403
    assert Phone(api.client, 3).enrol(token).status_code == 401
    assert other.ask("GET", ROUTE).status_code == 200
    (line,) = logged(api, "enrolment.revoke")
    assert line["because"] == revoked.number
    assert api.ask("GET", "/v1/devices").json()["devices"] == 1


def test_a_list_is_signed_anew_before_it_expires(sqlite_store: Any, clock: Any) -> None:
    service = Certification(sqlite_store, AUTHORITY)
    first = RevocationList.decode(service.revocation_list())
    clock.advance(2 * 86_400)
    service.forget()
    assert RevocationList.decode(service.revocation_list()) == first
    clock.advance(3 * 86_400)
    service.forget()
    second = RevocationList.decode(service.revocation_list())
    assert second.issued > first.issued
    assert second.fault(NAMED, clock.now().timestamp(), first) is None


def test_a_collector_serves_the_newest_list_of_an_authority_apart_and_asks_nobody_on_it(
    sqlite_store: Any, clock: Any, tmp_path: Any
) -> None:
    file, now = tmp_path / "list.hex", clock.now().timestamp()
    accounts = Accounts(sqlite_store)
    token = accounts.create_enrolment("tests", 9, timedelta(days=1), None, "command line").token
    phones = [Identity(bytes([number] * 32)) for number in range(1, 4)]
    for phone in phones:
        signature = phone.sign(enrolment_statement(token, phone.public))
        asyncio.run(accounts.enrol(token, phone.public, signature))
    service = Certification(sqlite_store, NAMED, list_file=file)

    def served() -> int | None:
        service.forget()
        try:
            return RevocationList.decode(service.revocation_list()).number
        except NotFound:
            return None

    def give(made: RevocationList, at: int) -> None:
        """As ``mapveil enrol-authority --revoke`` writes it, at another time each."""
        file.write_text(made.encode().hex() + "\n")
        os.utime(file, (at, at))

    assert served() is None
    give(AUTHORITY.revoke((), now), 1)
    assert (served(), accounts.device_count()) == (0, 3)
    give(AUTHORITY.revoke([phones[0].public], now), 2)
    assert (served(), accounts.device_count()) == (1, 2)
    barred = [(each.id, each.revoked_at is not None) for each in barred_devices(sqlite_store)]
    assert barred == [(1, True)]
    give(AUTHORITY.revoke((), now), 3)  # an older one, such as of a backup
    assert served() == 1
    give(EnrolmentAuthority("tests", phones[2]).revoke([each.public for each in phones], now), 4)
    assert (served(), accounts.device_count()) == (1, 2)
    file.write_text("no list")
    assert served() == 1
    with sqlite_store.read() as connection:
        found = [(line.actor, line.action) for line in lines(connection, limit=100)]
    assert found.count(("authority", "authority.list")) == 2
    assert found.count(("authority", "device.revoke")) == 1
    clock.advance(8 * 86_400)
    assert served() is None


def test_a_list_that_the_store_could_not_take_is_applied_at_the_next_look(
    sqlite_store: Any, clock: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, accounts = tmp_path / "list.hex", Accounts(sqlite_store)
    phones = [Identity(bytes([number] * 32)) for number in range(1, 9)]
    hashes = []
    for phone in phones:
        token = accounts.create_enrolment("tests", 1, timedelta(days=1), None, "command line").token
        signature = phone.sign(enrolment_statement(token, phone.public))
        asyncio.run(accounts.enrol(token, phone.public, signature))
        hashes.append(token_hash(token))
    made = AUTHORITY.revoke([each.public for each in phones], clock.now().timestamp())
    file.write_text(made.encode().hex())
    service = Certification(sqlite_store, NAMED, list_file=file)

    def full() -> Any:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "write", full)
        with pytest.raises(StoreUnavailable):
            service.revocation_list()
    assert RevocationList.decode(service.revocation_list()) == made
    assert accounts.device_count() == 0
    with sqlite_store.read() as connection:
        closed = [line.detail for line in lines(connection, limit=100) if line.action == "enrolment.revoke"]
    # In the order in which enrolment locks tokens; of PostgreSQL two transactions wait for each other otherwise.
    assert [hashes[each["number"] - 1] for each in closed] == sorted(hashes)


def test_a_certificate_alone_opens_nothing(api: Any) -> None:
    """An authority that certifies keys of nobody brings no device into a collection: the collector enrols them."""
    collection, stranger = api.opened(**SPEC), Phone(api.client, 5)
    made = AUTHORITY.certify(stranger.identity.public, api.clock.now().timestamp())
    assert made.fault(NAMED, stranger.identity.public, api.clock.now().timestamp()) is None
    for number in (1, 2):
        stranger.number = number
        answer = stranger.ask("PUT", f"/v1/collections/{collection}/members/me")
        assert answer.status_code == 401
    assert api.ask("GET", f"/v1/collections/{collection}").json()["members"] == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the revocation list cannot be read (No such file or directory)"),
        (b"", "expected a revocation list"),
        (b"no digits", "expected a revocation list"),
        (b"8701020304050607", "expected a revocation list"),
    ],
    ids=["missing", "empty", "no digits", "another document"],
)
def test_a_file_that_is_no_revocation_list_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "list.hex"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_list(path)
    assert str(refused.value).startswith(f"{path}: {said}")
    assert "Errno" not in str(refused.value)
