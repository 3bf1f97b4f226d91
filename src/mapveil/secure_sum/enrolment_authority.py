"""The enrolment authority: it certifies device keys, so that a server cannot invent the clients of a signed round.

It revokes them too, by a list that it signs.
Its key belongs apart from the collector. Where one operator keeps both, the guarantee of a map says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from mapveil.privacy.signing_key import signing_key
from mapveil_client.errors import InputError, check
from mapveil_client.secure_sum.certificate import MOST_REVOKED, Authority, Certificate, RevocationList
from mapveil_client.secure_sum.keys import Identity, small_order

DAYS: Final = 30
"""Default lifetime of a certificate, days: the longest that a revoked device can still be counted among the others.
Chosen so that a revoked device counts for a month at most."""

MOST_DAYS: Final = 366
"""Longest lifetime of a certificate, days. Chosen so that a leap year is the longest."""

LIST_DAYS: Final = 7
"""Default lifetime of a revocation list, days: the longest that a server can withhold a newer one. Chosen so that an
authority that signs one a week by hand never stops its devices."""

_DAY_S: Final = 86_400


class EnrolmentAuthority:
    """An authority with its private key.

    Parameters
    ----------
    population : str
        Name of the devices that it certifies.
    key : Identity
        Its Ed25519 key pair.
    """

    def __init__(self, population: str, key: Identity) -> None:
        self._key = key
        self.named = Authority(population, key.public)

    @classmethod
    def open(cls, path: Path, population: str, *, make: bool = False) -> EnrolmentAuthority:
        """Read its key: 64 hexadecimal digits in a file that its owner alone may read; ``make`` draws a missing one.

        Raises
        ------
        InputError
            There is no such file, others may read it, or it holds no key.
        """
        key = signing_key(path, make=make)
        if key is None:
            raise InputError(
                f"{path}: there is no key of an enrolment authority; create one with make=True (--create)"
            )
        return cls(population, key)

    def certify(self, key: bytes, now: float, *, days: int = DAYS, serial: int | None = None) -> Certificate:
        """Certify that a key is that of one device: the caller vouches for that.

        Parameters
        ----------
        key : bytes
            The device's Ed25519 public key, 32 bytes.
        now : float
            Seconds since 1970.
        days : int
            Lifetime of the certificate.
        serial : int, optional
            Drawn at random by default.
        """
        check(1 <= days <= MOST_DAYS, "days", f"1 to {MOST_DAYS}", days)
        check(len(key) == 32 and not small_order(key), "a device's key", "an Ed25519 key of 32 bytes", key)
        number = secrets.randbits(63) if serial is None else serial
        start = int(now)
        plain = (self.named.population, key, number, start, start + days * _DAY_S)
        return Certificate(*plain, self._key.sign(Certificate(*plain).statement))

    def revoke(
        self, keys: Iterable[bytes], now: float, *, days: int = LIST_DAYS, number: int | None = None
    ) -> RevocationList:
        """Sign the list of all keys that were ever revoked.

        Parameters
        ----------
        keys : iterable of bytes
            Ed25519 public keys, 32 bytes each: those of the list before, and more.
        now : float
            Seconds since 1970.
        days : int
            Lifetime of the list.
        number : int, optional
            Its sequence number; the number of keys by default.
        """
        revoked = frozenset(keys)
        check(1 <= days <= MOST_DAYS, "days", f"1 to {MOST_DAYS}", days)
        check(len(revoked) <= MOST_REVOKED, "number of revoked keys", f"at most {MOST_REVOKED}", len(revoked))
        for key in revoked:
            check(len(key) == 32, "a device's key", "an Ed25519 key of 32 bytes", key)
        start = int(now)
        count = len(revoked) if number is None else number
        plain = RevocationList(self.named.population, count, start, start + days * _DAY_S, revoked)
        return replace(plain, signature=self._key.sign(plain.statement))

    def __repr__(self) -> str:
        return f"EnrolmentAuthority({self.named})"
