"""``mapveil enrol-authority``: its key is drawn once, shown by its public half, and certifies devices."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest

from mapveil.collector.fleet.fleet import Fleet
from mapveil_client.device_locations import Whereabouts
from mapveil_client.policy import DevicePolicy
from mapveil_client.secure_sum.certificate import Authority, Certificate
from mapveil_client.secure_sum.keys import Identity
from tests.authority import NAMED

from ..client.live import Live

DEVICES = 24


def test_an_authority_is_made_shown_and_certifies(mapveil, tmp_path: Path) -> None:
    key, requests = tmp_path / "authority.key", tmp_path / "keys.txt"
    assert "create one with --create" in mapveil("enrol-authority", key).err
    done = mapveil("enrol-authority", key, "--population", "bikes.example", "--create")
    assert done.code == 0, done.err
    named = Authority.parse(done.out.strip())
    assert named.population == "bikes.example"
    assert named.fingerprint in done.err
    again = mapveil("enrol-authority", key, "--population", "bikes.example", "--json")
    assert json.loads(again.out) == {"authority": str(named), "fingerprint": named.fingerprint}
    assert key.read_text().strip() not in done.out + done.err + again.out
    devices = [Identity(bytes([number] * 32)).public for number in range(3)]
    requests.write_text("\n".join(each.hex() for each in devices))
    asked = ("--population", "bikes.example", "--certify", requests, "--days", "7")
    done = mapveil("enrol-authority", key, *asked)
    assert done.code == 0, done.err
    made = [Certificate.decode(bytes.fromhex(line)) for line in done.out.split()]
    assert [each.fault(named, public, time.time()) for each, public in zip(made, devices, strict=True)] == [
        None
    ] * 3
    assert len({each.serial for each in made}) == 3
    for text, says in (
        (f"{'z' * 64}", "64 hexadecimal"),
        ("ab", "32 bytes"),
        (f"{devices[0].hex()}\n" * 2, "once"),
    ):
        requests.write_text(text)
        done = mapveil("enrol-authority", key, *asked)
        assert (done.code, done.out) == (2, "")
        assert says in done.err


def test_files_are_enough_requests_certificates_and_list(
    mapveil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The exchange without a service: keys out, certificates back, the list to the collector."""
    listed = tmp_path / "list.hex"
    beside = Live(tmp_path, authority=NAMED, revocation_list=str(listed))
    beside.start()
    request.addfinalizer(lambda: (beside.stop(), beside.store.close()))
    key, keys, revoked = tmp_path / "authority.key", tmp_path / "keys.txt", tmp_path / "revoked.txt"
    key.write_text(bytes(range(32)).hex())
    key.chmod(0o600)
    rng = np.random.default_rng(3)
    people = [
        Whereabouts(rng.uniform(-74.03, -73.9, 1), rng.uniform(40.69, 40.83, 1)) for _ in range(DEVICES)
    ]
    fleet = Fleet(beside.url, people, DevicePolicy(authority=NAMED), look_s=0.05)
    memories = fleet._open()
    thief = memories[3].identity.public
    keys.write_text("\n".join(each.identity.public.hex() for each in memories))
    done = mapveil("enrol-authority", key, "--population", "tests", "--certify", keys)
    assert done.code == 0, done.err
    for memory, line in zip(memories, done.out.split(), strict=True):
        memory.certificate = Certificate.decode(bytes.fromhex(line))
    log = [json.loads(line) for line in (tmp_path / "authority.key.log").read_text().splitlines()]
    assert [each["serial"] for each in log] == [f"{each.certificate.serial:016x}" for each in memories]
    revoked.write_text(thief.hex() + "\n")
    done = mapveil("enrol-authority", key, "--population", "tests", "--revoke", revoked)
    assert done.code == 0, done.err
    listed.write_text(done.out)
    monkeypatch.setattr(fleet, "_open", lambda: memories)
    collection = beside.open(devices=DEVICES - 1, minimum=20, method="uniform")
    made = asyncio.run(fleet.run(beside.token, [collection]))
    assert made.good, made.lines()
    assert made.refused == {"this device was revoked by the enrolment authority of tests": 1}
    assert made.joined == DEVICES - 1
    done = mapveil("enrol-authority", key, "--revoke", revoked, "--certify", keys)
    assert (done.code, done.out) == (2, "")


def test_it_serves_from_a_store_of_its_own(mapveil, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    key = tmp_path / "authority.key"
    mapveil("enrol-authority", key, "--create")
    collector = Live(tmp_path)
    request.addfinalizer(collector.store.close)
    collector.open()
    for words in (("--serve",), ("--new-enrolment", "3"), ("--device", "revoke:1")):
        done = mapveil("enrol-authority", key, *words)
        assert (done.code, "of the authority's own, got none" in done.err) == (2, True)
        done = mapveil("enrol-authority", key, *words, "--store", tmp_path / "collector.sqlite")
        assert (done.code, "got one with 1 collections" in done.err) == (2, True)
    done = mapveil("enrol-authority", key, "--new-enrolment", "3:pilot", "--store", tmp_path / "own.sqlite")
    assert (done.code, done.out[:4]) == (0, "mve_")
