"""The enrolment authority of the tests, and devices that it has certified for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.memory import DeviceMemory
from mapveil_client.secure_sum.certificate import Certificate, Credentials, RevocationList
from mapveil_client.secure_sum.keys import Identity

KEY: Final = Identity(bytes(range(32)))
AUTHORITY: Final = EnrolmentAuthority("tests", KEY)
NAMED: Final = AUTHORITY.named


def certificate_of(identity: Identity, **changes: object) -> Certificate:
    """A certificate without end; ``changes`` are signed too."""
    values = {
        "population": NAMED.population,
        "key": identity.public,
        "serial": int.from_bytes(identity.public[:7], "big"),
        "not_before": 0,
        "expires": 1 << 40,
        **changes,
    }
    return Certificate(**values, signature=KEY.sign(Certificate(**values).statement))


def revocations_of(*keys: bytes, **changes: int) -> RevocationList:
    """A revocation list without end; ``changes`` are signed too."""
    values = {"number": len(keys), "issued": 0, "expires": 1 << 40, **changes}
    plain = RevocationList(NAMED.population, keys=frozenset(keys), **values)
    return replace(plain, signature=KEY.sign(plain.statement))


def certified(memory: DeviceMemory) -> DeviceMemory:
    """Give a device its certificate, and a list on which nobody is revoked."""
    memory.certificate, memory.revoked = certificate_of(memory.identity), revocations_of()
    return memory


def credentials_of(identity: Identity | None) -> Credentials | None:
    """An identity with its certificate; None of none."""
    return None if identity is None else Credentials(identity, certificate_of(identity), NAMED)
