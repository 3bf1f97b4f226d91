"""A whole collection of a real process, with all that goes wrong: nothing secret in its log, errors, metrics or audit.

Looked for, in every form a careless line could have: tokens, keys and their seeds, signatures, bodies, coordinates.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import numpy as np
import pytest

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client import connection as wire
from mapveil_client.connection import Connection
from mapveil_client.device_client import DeviceClient
from mapveil_client.device_locations import Whereabouts
from mapveil_client.memory import DeviceMemory
from mapveil_client.policy import DevicePolicy
from mapveil_client.random_features.feature_policy import Policy
from mapveil_client.randomness.random import Randomness

MAPVEIL: Final = Path(sys.executable).with_name("mapveil")
# Degrees that no clock shows as its seconds: a coordinate found is one that leaked.
REGION: Final = [-150.2, 61.0, -149.6, 61.4]
DEVICES: Final = 20
KINDS: Final[dict[str, dict[str, Any]]] = {
    "distributed": {"epsilon": "1", "method": "laplace", "tiling": "quadtree:3"},
    "local": {"epsilon": "1", "tiling": "quadtree:3"},
    "random-features": {"tiling": "grid:64x64", "options": {"bandwidth_m": 400.0, "least_signal": 0}},
}


class Process(NamedTuple):
    """``mapveil serve``, and everything it writes."""

    address: str
    admin: str
    enrolment: str
    store: Path
    log: Path
    kinds: tuple[str, ...]


@pytest.fixture(params=[("json", tuple(KINDS)), ("text", ("local",))], ids=["json", "text"])
def process(request: Any, tmp_path: Path) -> Iterator[Process]:
    store, log = tmp_path / "store.sqlite", tmp_path / "log"

    def once(*arguments: str) -> str:
        done = subprocess.run(
            [MAPVEIL, "serve", "--store", store, *arguments], capture_output=True, text=True, check=True
        )
        written.append(done.stderr)
        return done.stdout.strip()

    written: list[str] = []
    admin, token = once("--new-operator", "admin:me"), once("--new-enrolment", "200:phones")
    command = [
        MAPVEIL,
        "serve",
        "--store",
        store,
        "--port",
        "0",
        "--enrol-minute",
        "0",
        "--log-level",
        "debug",
        "--log-format",
        request.param[0],
    ]
    with log.open("w+") as stream:
        stream.writelines(written)
        stream.flush()
        running = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        try:
            yield Process(address_in(log, running), admin, token, store, log, request.param[1])
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
        finally:
            running.kill()
            running.wait()


def address_in(log: Path, running: subprocess.Popen[bytes]) -> str:
    import time

    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and running.poll() is None:
        found = re.search(r"Serving on (http://\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


class Secrets:
    """What must be found nowhere, in all the forms that a line could give it."""

    def __init__(self) -> None:
        self.texts: set[str] = set()

    def text(self, secret: str) -> None:
        """A token."""
        self.texts |= {secret, secret[4:24], base64.b64encode(secret.encode()).decode()[:24]}

    def data(self, secret: bytes) -> None:
        """Bytes: as digits, as base64, as Python shows them; the beginning and the end."""
        for part in (secret[:16], secret[-16:]):
            if len(set(part)) > 6:  # a run of zeros is anybody's
                self.texts |= {part.hex(), base64.b64encode(part).decode()[:20], repr(part)[2:-1]}
                self.texts.add(base64.urlsafe_b64encode(part).decode()[:20])

    def place(self, lon: float, lat: float) -> None:
        """Coordinates, to a few hundred metres and finer."""
        self.texts |= {f"{value:.{digits}f}" for value in (lon, lat) for digits in (3, 5)}

    def found_in(self, where: str) -> list[str]:
        """Those that leaked."""
        return [secret for secret in self.texts if secret in where]


def test_the_search_finds_what_it_looks_for() -> None:
    secrets = Secrets()
    secrets.text("mve_" + "abcdefghij" * 4 + "abc")
    secrets.data(bytes(range(60, 124)))
    secrets.place(-149.87654, 61.21234)
    for leak in (
        "token=mve_abcdefghijabcdefghijabcdefghijabcdefghijabc",
        "Bearer abcdefghijabcdefghijabc",
        f"body={bytes(range(60, 124))!r}",
        bytes(range(60, 124)).hex(),
        base64.b64encode(bytes(range(60, 124))).decode(),
        "lon -149.87654",
        "POINT (-149.877 61.212)",
    ):
        assert secrets.found_in(leak), leak
    assert not secrets.found_in("a line of no interest 2026-03-01T12:00:00.000000+00:00 61.4 -150.2")


def test_nothing_secret_is_told_by_a_whole_collection(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secrets, errors = Secrets(), []
    for token in (process.admin, process.enrolment):
        secrets.text(token)
    _record_headers(monkeypatch, secrets)
    caplog.set_level("DEBUG", "mapveil")
    admin = {"Authorization": f"Bearer {process.admin}"}
    with httpx.Client(base_url=process.address, timeout=300) as client:
        made = client.post("/v1/operators", json={"name": "v", "role": "viewer"}, headers=admin).json()
        secrets.text(made["token"])
        for trust in process.kinds:
            spec = {
                "title": trust,
                "trust": trust,
                "region": REGION,
                "devices": DEVICES,
                "minimum": DEVICES,
                **KINDS[trust],
            }
            drafted = client.post("/v1/collections", json=spec, headers=admin)
            assert drafted.status_code == 201, drafted.text
            id = drafted.json()["id"]
            assert client.post(f"/v1/collections/{id}/open", headers=admin).status_code == 200
            errors += asyncio.run(taken_part(process, id, secrets))
            record = client.get(f"/v1/collections/{id}", headers=admin).json()
            assert record["state"] == "done", record
            for path in (
                "map",
                "guarantee",
                "map/exports/png",
                "retrieval/offer",
            ):
                assert client.get(f"/v1/collections/{id}/{path}", headers=admin).status_code == 200
            errors += provoked(client, id, secrets, process)
        told = {
            "audit": client.get("/v1/audit?limit=1000", headers=admin).text,
            "metrics": client.get("/metrics").text,
            "records": client.get("/v1/collections", headers=admin).text
            + client.get("/v1/ledger", headers=admin).text
            + client.get("/v1/enrolment-tokens", headers=admin).text
            + client.get("/v1/operators", headers=admin).text,
        }
    told |= {"log": process.log.read_text(), "errors": "\n".join(errors), "devices' own logs": caplog.text}
    assert len(secrets.texts) > 300 * len(process.kinds)
    assert len(errors) > 20 * len(process.kinds)
    assert told["log"].count("request") > 2 * DEVICES * len(process.kinds)
    assert len(json.loads(told["audit"])) > 10 * len(process.kinds)
    leaks = {where: secrets.found_in(text) for where, text in told.items()}
    assert not any(leaks.values()), leaks
    assert not re.search(r"127\.0\.0\.1(?!:\d+ from)", told["log"].replace(process.address, ""))


def _record_headers(monkeypatch: pytest.MonkeyPatch, secrets: Secrets) -> None:
    """Every signature and every body that a device sends becomes something to look for."""
    authorization = wire.authorization

    def recorded(identity: Any, device: int, method: str, path: str, body: bytes = b"") -> str:
        header = authorization(identity, device, method, path, body)
        secrets.data(bytes.fromhex(header.split(" ")[2]))
        if body:
            secrets.data(body)
        return header

    monkeypatch.setattr(wire, "authorization", recorded)


async def taken_part(process: Process, id: str, secrets: Secrets) -> list[str]:
    """Devices in one collection, to its end; the reasons in their logs."""
    chance = np.random.default_rng(int(id[:8], 16))
    authority = EnrolmentAuthority.open(Path(f"{process.store}.authority"), "devices").named
    policy = DevicePolicy(authority=authority, random_features=Policy((400.0, 400.0)))
    clients = []
    async with Connection(process.address) as connection:
        for _ in range(DEVICES):
            lon, lat = float(chance.uniform(-150.1, -149.7)), float(chance.uniform(61.1, 61.3))
            memory = DeviceMemory.open()
            secrets.place(lon, lat)
            secrets.data(memory._seed)
            secrets.data(memory.identity.public)
            client = DeviceClient(connection, memory, policy, Whereabouts(np.array([lon]), np.array([lat])))
            await client.enrol(process.enrolment)
            clients.append(client)
        for client in clients:
            await client.consider(id)
        for _ in range(200):
            progress = await connection.progress(id)
            for client in clients:
                await client.act(id, progress)
            if progress.state in ("done", "aborted"):
                break
            await asyncio.sleep(0.1)
    return [str(line) for client in clients for line in client.memory.log.lines]


def provoked(client: httpx.Client, id: str, secrets: Secrets, process: Process) -> list[str]:
    """Everything that goes wrong, with something secret in each part of it."""
    token = "mve_" + "QzX7" * 10 + "QzX"
    wrong = "mvo_" + "Wk9r" * 10 + "Wk9"
    for each in (token, wrong):
        secrets.text(each)
    place = {"lon": -149.91357, "lat": 61.24680}
    secrets.place(**place)
    body = bytes(range(128, 228))
    secrets.data(body)
    admin, cbor = {"Authorization": f"Bearer {process.admin}"}, {"Content-Type": "application/cbor"}
    text = json.dumps(place)
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/v1/me", {"headers": {"Authorization": f"Bearer {wrong}"}}),
        ("GET", f"/v1/me?token={process.admin}&{token}", {}),
        ("GET", f"/v1/collections/{token}", {"headers": admin}),
        ("GET", f"/v1/{wrong}/{place['lon']}/{place['lat']}", {}),
        ("GET", f"/{process.admin}", {}),
        ("GET", "/v1/audit", {"headers": admin, "params": {"collection": text, "after": process.admin}}),
        ("POST", "/v1/devices", {"json": {"token": token, **place}}),
        ("POST", "/v1/devices", {"json": {"token": token, "public_key": body.hex(), "signature": "x"}}),
        ("POST", "/v1/devices", {"json": {"token": token, "public_key": "ab" * 32, "signature": "cd" * 64}}),
        ("POST", "/v1/enrolment-tokens", {"json": {"name": process.admin, "uses": text}, "headers": admin}),
        ("POST", "/v1/enrolment-tokens", {"json": {"uses": [text], token: 1}, "headers": admin}),
        ("POST", "/v1/collections", {"json": {"title": 5, **place}, "headers": admin}),
        ("POST", "/v1/collections", {"content": text[:-1], "headers": admin}),
        ("POST", f"/v1/collections/{id}/begin", {"content": body, "headers": admin}),
        ("PUT", f"/v1/collections/{id}/report", {"content": body, "headers": cbor}),
        (
            "PUT",
            f"/v1/collections/{id}/report",
            {"content": text, "headers": {"Content-Type": "application/json"}},
        ),
        ("PUT", f"/v1/collections/{id}/rounds/1/messages/keys", {"content": body, "headers": cbor}),
        (
            "PUT",
            f"/v1/collections/{id}/report",
            {"content": body, "headers": {**cbor, "Authorization": signed(body)}},
        ),
        ("POST", f"/v1/collections/{id}/retrieval/query", {"content": body, "headers": {**admin, **cbor}}),
        ("DELETE", f"/v1/operators/{process.admin}", {"headers": admin}),
        ("PATCH", f"/v1/collections/{process.admin}", {"json": place}),
    ]
    answers = []
    for method, path, options in asked:
        answer = client.request(method, path, **options)
        assert 400 <= answer.status_code < 500, (method, path, answer.text)
        answers.append(f"{answer.status_code} {dict(answer.headers)} {answer.text}")
    return answers


def signed(body: bytes) -> str:
    """A signature of somebody who never enrolled."""
    from mapveil_client.secure_sum.keys import Identity

    return wire.authorization(Identity.draw(Randomness(1)), 1, "PUT", "/v1/x", body)
