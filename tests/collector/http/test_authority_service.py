"""An enrolment authority apart from the collector, as a service of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mapveil.collector.fleet.fleet import Fleet
from mapveil.collector.http.asgi import create_app
from mapveil.collector.http.settings import Settings
from mapveil.collector.rounds.engine import Engine
from mapveil.collector.store.database import Store
from mapveil.collector.store.principals import Accounts
from mapveil.privacy.claim import Adversary, Assumes
from mapveil_client.device_locations import Whereabouts
from mapveil_client.errors import PromiseError
from mapveil_client.policy import DevicePolicy
from mapveil_client.secure_sum.certificate import Certificate, RevocationList
from tests.authority import AUTHORITY, NAMED

from ...client.live import Live
from .conftest import UNLIMITED, Phone

DEVICES = 24
ROUTE = "/v1/devices/me/certificate"


class Apart:
    """An authority that is served, with the hands of whoever runs it."""

    def __init__(self, address: str, accounts: Accounts) -> None:
        self.address, self.accounts = address, accounts
        self.client = httpx.Client(base_url=address, timeout=300)
        self.operator = accounts.create_operator("them", "operator", timedelta(days=1), "command line").token

    def token(self, uses: int) -> str:
        return self.accounts.create_enrolment("them", uses, timedelta(days=1), None, "command line").token

    def ask(self, method: str, path: str) -> httpx.Response:
        return self.client.request(method, path, headers={"Authorization": f"Bearer {self.operator}"})


@pytest.fixture
def apart(live: Any, tmp_path: Path) -> Iterator[Apart]:
    from mapveil.collector.clock import SystemClock

    clock = SystemClock()
    store = Store(f"sqlite:///{tmp_path / 'authority.sqlite'}", clock=clock)
    store.create_tables()
    settings = Settings(**{**UNLIMITED, "enrol_minute": 30})
    app = create_app(Engine(store, clock, authority=AUTHORITY), store, settings, authority_only=True)
    with live(app, settings) as address:
        made = Apart(address, Accounts(store))
        yield made
        made.client.close()
    store.close()


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Live]:
    """A collector that the authority is apart from, and the file of the lists that it is given."""
    made = Live(tmp_path, authority=NAMED, revocation_list=str(tmp_path / "list.hex"))
    made.start()
    try:
        yield made
    finally:
        made.stop()
        made.store.close()


def crowd(count: int) -> list[Whereabouts]:
    rng = np.random.default_rng(3)
    return [Whereabouts(rng.uniform(-74.03, -73.9, 1), rng.uniform(40.69, 40.83, 1)) for _ in range(count)]


def test_it_certifies_at_a_pace_and_serves_the_list_and_nothing_else(apart: Apart) -> None:
    told = apart.client.get("/v1/authority").json()
    assert told == {"authority": str(NAMED), "fingerprint": NAMED.fingerprint}
    token = apart.token(31)
    phones = [Phone(apart.client, number) for number in range(31)]
    answers = [phone.enrol(token).status_code for phone in phones]
    assert answers == [201] * 30 + [429]  # a stolen token is slowed down
    one = apart.token(1)
    assert [Phone(apart.client, 100 + number).enrol(one).status_code for number in range(2)] == [201, 401]
    phone = phones[0]
    made = Certificate.decode(phone.ask("GET", ROUTE).content)
    assert made.fault(NAMED, phone.identity.public, made.not_before) is None
    assert apart.client.get(ROUTE).status_code == 401
    assert apart.ask("DELETE", f"/v1/devices/{phone.number}").status_code == 204
    listed = RevocationList.decode(apart.client.get("/v1/revocation-list").content)
    assert listed.keys == {phone.identity.public}
    assert listed.fault(NAMED, listed.issued) is None
    assert phone.ask("GET", ROUTE).status_code == 401
    assert phone.enrol(token).status_code == 403
    actions = [line["action"] for line in apart.ask("GET", "/v1/audit").json()]
    assert (actions.count("device.certify"), actions.count("device.revoke")) == (1, 1)
    for path in ("/", "/device/", "/v1/collections", "/v1/open", "/v1/ledger"):
        assert apart.ask("GET", path).status_code == 404, path
    described = apart.client.get("/v1/openapi.json").json()["paths"]
    assert {"/v1/devices", ROUTE, "/v1/revocation-list", "/v1/authority"} <= set(described)
    assert not any("collections" in path for path in described)
    assert apart.client.get("/healthz").json()["conductor"] is None
    assert apart.client.get("/healthz").status_code == 200


def test_a_fleet_is_certified_there_and_answers_a_collector_that_holds_no_key(
    apart: Apart, beside: Live
) -> None:
    Path(beside.settings.revocation_list).write_bytes(apart.client.get("/v1/revocation-list").content)
    collection = beside.open(devices=DEVICES, minimum=20, method="uniform")
    fleet = Fleet(
        beside.url,
        crowd(DEVICES),
        DevicePolicy(authority=NAMED),
        authority_server=(apart.address, apart.token(DEVICES)),
        look_s=0.05,
    )
    made = asyncio.run(fleet.run(beside.token, [collection]))
    assert made.good, made.lines()
    guarantee = beside.engine.guarantee(collection)
    assert guarantee.adversary is Adversary.MALICIOUS_SERVER
    assert Assumes.AUTHORITY_APART in {each.kind for each in guarantee.assumptions}
    assert guarantee.simulated  # of a fleet, whoever certified it
    forged = Fleet(
        beside.url, crowd(1), DevicePolicy(authority=NAMED), authority_server=(beside.url, beside.token)
    )
    collection = beside.open(devices=DEVICES, minimum=20)
    with pytest.raises(PromiseError, match="no certificate of tests"):
        asyncio.run(forged.run(beside.token, [collection]))
