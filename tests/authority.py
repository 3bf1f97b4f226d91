"""The enrolment authority of the tests, and devices that it has certified for ever."""

from __future__ import annotations

from typing import Final

from mapveil.secure_sum.enrolment_authority import EnrolmentAuthority
from mapveil_client.secure_sum.certificate import Certificate, Credentials
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


def credentials_of(identity: Identity | None) -> Credentials | None:
    """An identity with its certificate; None of none."""
    return None if identity is None else Credentials(identity, certificate_of(identity), NAMED)
