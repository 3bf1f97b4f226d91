"""Certificates and lists as a device fetches them: again before they expire, and never an older or a foreign one."""

from __future__ import annotations

import asyncio

import pytest

from mapveil.secure_sum.enrolment_authority import LIST_DAYS, EnrolmentAuthority
from mapveil_client.certification import certify, renew_list
from mapveil_client.connection import Connection, FinalRefusal
from mapveil_client.errors import PromiseError
from mapveil_client.memory import DeviceMemory
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.certificate import Certificate, RevocationList
from mapveil_client.secure_sum.keys import Identity
from mapveil_client.vault import Vault
from tests.authority import AUTHORITY, NAMED

NOW = 1_790_000_000.0
DAY = 86_400.0


class Told(Connection):
    """A connection to no server, which gives what the test says."""

    def __init__(self, listed: RevocationList | None, authority: EnrolmentAuthority | None = None) -> None:
        super().__init__("http://127.0.0.1:1")
        self.listed, self.authority, self.asked = listed, authority, 0

    async def revocation_list(self) -> RevocationList:
        self.asked += 1
        if self.listed is None:
            raise FinalRefusal(404, "not-found", "no list")
        return self.listed

    async def enrol(self, token: str, identity: Identity, *, simulated: bool = False) -> int:
        return 3

    async def certificate(self, *, signer: tuple[Identity, int]) -> Certificate:
        assert signer[1] == 3
        if self.authority is None:
            raise FinalRefusal(404, "not-found", "no authority")
        return self.authority.certify(signer[0].public, NOW)


def memory_of(seed: int = 1) -> DeviceMemory:
    return DeviceMemory.open(rng=Randomness(seed))


def renew(connection: Connection, memory: DeviceMemory, now: float) -> bool:
    return asyncio.run(renew_list(connection, memory, NAMED, now))


def test_a_list_is_fetched_again_when_a_third_of_its_time_is_left() -> None:
    memory, connection = memory_of(), Told(AUTHORITY.revoke((), NOW))
    assert renew(connection, memory, NOW)
    assert not renew(connection, memory, NOW + LIST_DAYS * DAY / 2)
    assert connection.asked == 1
    later = NOW + LIST_DAYS * DAY * 0.7
    connection.listed = AUTHORITY.revoke((b"a" * 32,), later)
    assert renew(connection, memory, later)
    assert memory.revoked == connection.listed


@pytest.mark.parametrize(
    "listed",
    [
        None,
        AUTHORITY.revoke((), NOW + 1, days=30),
        EnrolmentAuthority("tests", Identity(bytes([1] * 32))).revoke((b"a" * 32, b"b" * 32), NOW, days=30),
    ],
    ids=["withheld", "older", "forged"],
)
def test_an_older_list_or_none_leaves_the_one_before_and_is_in_the_log(listed: RevocationList | None) -> None:
    memory = memory_of()
    held = memory.revoked = AUTHORITY.revoke((b"a" * 32,), NOW)
    assert not renew(Told(listed), memory, NOW + 6 * DAY)
    assert memory.revoked == held
    assert memory.log.lines[-1].event == "waiting"


def test_an_authority_apart_gives_both_and_a_restart_keeps_them(tmp_path) -> None:
    vault = Vault(tmp_path / "device.vault", bytes(32))
    memory = DeviceMemory.open(vault)
    connection = Told(AUTHORITY.revoke((b"a" * 32,), NOW), AUTHORITY)
    asyncio.run(certify(connection, "mve_x", memory, NAMED, lambda: NOW))
    asyncio.run(certify(connection, "mve_x", memory, NAMED, lambda: NOW + DAY))
    assert connection.asked == 1
    vault.close()
    again = DeviceMemory.open(vault)
    assert again.certificate is not None
    assert again.certificate.fault(NAMED, again.identity.public, NOW) is None
    assert (again.revoked, again.certificate) == (memory.revoked, memory.certificate)


def test_an_authority_that_is_not_the_policys_gives_nothing() -> None:
    memory = memory_of()
    forger = EnrolmentAuthority("tests", Identity(bytes([1] * 32)))
    with pytest.raises(PromiseError, match="no certificate of tests for this device"):
        asyncio.run(certify(Told(forger.revoke((), NOW), forger), "mve_x", memory, NAMED, lambda: NOW))
    assert (memory.certificate, memory.revoked) == (None, None)
