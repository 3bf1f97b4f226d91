r"""Certificates of device keys, and the list of revoked keys: who may be a client of a signed round.

.. math:: s = \operatorname{Ed25519}_k(\text{"mapveil certificate 1"} \,\|\, 0 \,\|\,
    \operatorname{CBOR}[1, \text{population}, \text{device key}, \text{serial}, \text{not before}, \text{expires}])

where: k is the authority's key, and the array is in its one encoding. Times are seconds since 1970, UTC. A device
judges by the authority that its own policy names, never by one that the server names, and by its own clock: from two
days before ``not before``, as two clocks differ that are each up to a day off, and until it expires. A device judges
*others* until two days after that: one that expires on the way from the collector, which admits none that is over,
would make all its neighbours leave.

A :class:`RevocationList` is signed the same way and lasts for days. A device takes part in no signed round without one
that is valid, and takes none that is older than the one it has: a server that withholds the newest gains the time until
the one before expires.
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from mapveil_client import canonical_cbor
from mapveil_client.errors import InputError, check, is_whole
from mapveil_client.secure_sum.keys import Identity, signed_by, small_order

VERSION: Final = 1
CLOCKS_S: Final = 2 * 86_400
"""Seconds that two clocks may be apart: a certificate is believed so long before its time, and another's after."""

MOST_REVOKED: Final = 1 << 16
"""Maximum number of keys of a revocation list. Chosen so that a list has at most 2 MiB."""

_PURPOSE: Final = b"mapveil certificate 1\0"
_LIST_PURPOSE: Final = b"mapveil revocation list 1\0"
_POPULATION: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NUMBERS: Final = struct.Struct(">QQQ")
_MOST: Final = (1 << 63) - 1
_PARTS: Final = 7
_LIST_PARTS: Final = 7
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64


def check_population(name: object) -> None:
    """Refuse a name that no population can have.

    Raises
    ------
    ParameterError
        Of other letters, or too long.
    """
    good = isinstance(name, str) and _POPULATION.fullmatch(name) is not None
    check(good, "population", "1 to 63 of a-z, 0-9, '.', '-' and '_'", name)


@dataclass(frozen=True)
class Authority:
    """An enrolment authority, as a device's policy and a collection's terms name it.

    Parameters
    ----------
    population : str
        Name of the devices that it certifies: up to 63 of a-z, 0-9, dot, hyphen and underscore.
    key : bytes
        Its Ed25519 public key, 32 bytes.

    Raises
    ------
    ParameterError
        No such name, or no such key.

    Examples
    --------
    >>> named = Authority("bikes.example", bytes(31) + b"\\x07")
    >>> Authority.parse(str(named)) == named
    True
    """

    population: str
    key: bytes

    def __post_init__(self) -> None:
        check_population(self.population)
        check(
            len(self.key) == 32 and not small_order(self.key), "authority's key", "an Ed25519 key", self.key
        )

    @classmethod
    def parse(cls, text: str) -> Authority:
        """Read ``POPULATION:KEY``, the key as 64 hexadecimal digits.

        Raises
        ------
        InputError
            It is no such text.
        """
        population, _, key = text.partition(":") if isinstance(text, str) else ("", "", "")
        if re.fullmatch("[0-9a-f]{64}", key) is None:
            raise InputError(
                f"an authority must be POPULATION:KEY, the key 64 hexadecimal digits, got {text!r:.100}"
            )
        return cls(population, bytes.fromhex(key))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its text, the first 128 bits, in groups of four digits: for people to compare."""
        digits = hashlib.sha256(str(self).encode()).hexdigest()[:32]
        return " ".join(digits[at : at + 4] for at in range(0, 32, 4))

    def fault(self, key: bytes, entry: bytes, now: float | None, *, after: int = 0) -> str | None:
        """Why the certificate of a roster does not vouch for a device's key; None where it does.

        Parameters
        ----------
        key : bytes
            The device's public identity key, 32 bytes.
        entry : bytes
            :attr:`Certificate.entry`.
        now : float, optional
            Seconds since 1970; whether it is valid at a time is not asked without one.
        after : int
            Seconds for which it is believed after it expired: ``CLOCKS_S`` where a device judges another's.
        """
        serial, not_before, expires = _NUMBERS.unpack_from(entry)
        made = Certificate(self.population, key, serial, not_before, expires, entry[_NUMBERS.size :])
        return made.fault(self, key, now, after=after)

    def __str__(self) -> str:
        return f"{self.population}:{self.key.hex()}"


@dataclass(frozen=True)
class Certificate:
    """The word of an authority that a key is that of one device of a population.

    Parameters
    ----------
    population : str
        Name of the population.
    key : bytes
        The device's public identity key, 32 bytes.
    serial : int
        Number of the certificate, 0 to 2^63 - 1; drawn at random.
    not_before, expires : int
        Seconds since 1970 between which it is valid; it is believed ``CLOCKS_S`` before, too.
    signature : bytes
        Of :meth:`statement`, 64 bytes.
    """

    population: str
    key: bytes
    serial: int
    not_before: int
    expires: int
    signature: bytes = b""

    def _values(self) -> list[int | bytes]:
        return [VERSION, self.population.encode(), self.key, self.serial, self.not_before, self.expires]

    @property
    def statement(self) -> bytes:
        """The bytes that the authority signs."""
        return _PURPOSE + canonical_cbor.encode(self._values())

    @property
    def entry(self) -> bytes:
        """The part that a roster lacks, 88 bytes: the population and the key are known there."""
        return _NUMBERS.pack(self.serial, self.not_before, self.expires) + self.signature

    @property
    def summary(self) -> dict[str, str | int]:
        """The certificate as logs name it: serial (hexadecimal), SHA-256 of the key, population, expiry."""
        digest = hashlib.sha256(self.key).hexdigest()
        serial = f"{self.serial:016x}"  # pages would round a number
        return {
            "serial": serial,
            "key_sha256": digest,
            "population": self.population,
            "expires": self.expires,
        }

    def encode(self) -> bytes:
        """The one encoding: a CBOR array of version, population, key, serial, not before, expires, signature."""
        return canonical_cbor.encode([*self._values(), self.signature])

    @classmethod
    def decode(cls, data: bytes) -> Certificate:
        """Read what :meth:`encode` wrote; the signature is for :meth:`fault` to verify.

        Raises
        ------
        InputError
            It is no certificate of this version.
        """
        try:
            values = canonical_cbor.decode(data)
        except canonical_cbor.NotCanonical as error:
            raise InputError(f"a certificate that is no canonical CBOR: {error}") from None
        kinds = (int, bytes, bytes, int, int, int, bytes)
        if [type(each) for each in values] != [*kinds] or values[0] != VERSION:
            raise InputError(f"a certificate of version {VERSION} must have {_PARTS} parts of its kinds")
        _, population, key, *numbers, signature = values
        assert isinstance(population, bytes)
        assert isinstance(key, bytes)
        assert isinstance(signature, bytes)
        name = population.decode("ascii", "replace")
        if not (_POPULATION.fullmatch(name) and len(key) == 32 and len(signature) == 64):
            raise InputError(
                "a certificate must have a population's name, a key of 32 and a signature of 64 bytes"
            )
        if not all(is_whole(each, 0, _MOST) for each in numbers):
            raise InputError("serial and times of a certificate must be below 2^63")
        serial, not_before, expires = map(int, numbers)
        return cls(name, key, serial, not_before, expires, signature)

    def fault(self, authority: Authority, key: bytes, now: float | None, *, after: int = 0) -> str | None:
        """Why it does not vouch for a key, as :meth:`Authority.fault`."""
        if self.population != authority.population:
            return f"its certificate must be of population {authority.population}, got {self.population}"
        if self.key != key:
            return "its certificate is of another key"
        if small_order(key):
            return "its key is of small order: anybody could sign in its name"
        if not is_whole(self.serial, 0, _MOST) or not signed_by(
            authority.key, self.signature, self.statement
        ):
            return f"its certificate is not by the enrolment authority of {authority.population}"
        if now is not None and not self.not_before - CLOCKS_S <= now < self.expires + after:
            valid = f"{_time(self.not_before)} to {_time(self.expires)}"
            return f"its certificate must be valid at {_time(now)}, got {valid}"
        return None


@dataclass(frozen=True)
class RevocationList:
    """The keys of a population that an authority has revoked, for good, with every certificate of them.

    Parameters
    ----------
    population : str
        Name of the population.
    number : int
        Sequence number: never below that of an earlier list. Here it is the number of keys ever revoked.
    issued, expires : int
        Seconds since 1970 between which it is valid; it is believed ``CLOCKS_S`` before, too.
    keys : frozenset of bytes
        Public identity keys of the revoked devices, 32 bytes each.
    signature : bytes
        Of :meth:`statement`, 64 bytes.
    """

    population: str
    number: int
    issued: int
    expires: int
    keys: frozenset[bytes] = frozenset()
    signature: bytes = b""

    def _values(self) -> list[int | bytes]:
        keys = b"".join(sorted(self.keys))
        return [VERSION, self.population.encode(), self.number, self.issued, self.expires, keys]

    @property
    def statement(self) -> bytes:
        """The bytes that the authority signs."""
        return _LIST_PURPOSE + canonical_cbor.encode(self._values())

    def encode(self) -> bytes:
        """The one encoding: a CBOR array of version, population, number, issued, expires, keys in order, signature."""
        return canonical_cbor.encode([*self._values(), self.signature])

    @classmethod
    def decode(cls, data: bytes) -> RevocationList:
        """Read what :meth:`encode` wrote; the signature is for :meth:`fault` to verify.

        Raises
        ------
        InputError
            It is no revocation list of this version.
        """
        try:
            values = canonical_cbor.decode(data)
        except canonical_cbor.NotCanonical as error:
            raise InputError(f"a revocation list that is no canonical CBOR: {error}") from None
        kinds = (int, bytes, int, int, int, bytes, bytes)
        if [type(each) for each in values] != [*kinds] or values[0] != VERSION:
            raise InputError(
                f"a revocation list of version {VERSION} must have {_LIST_PARTS} parts of its kinds"
            )
        _, population, *numbers, joined, signature = values
        assert isinstance(population, bytes)
        assert isinstance(joined, bytes)
        assert isinstance(signature, bytes)
        name = population.decode("ascii", "replace")
        keys = [joined[at : at + _KEY_BYTES] for at in range(0, len(joined), _KEY_BYTES)]
        whole = len(joined) == _KEY_BYTES * len(keys) and len(keys) <= MOST_REVOKED
        if not (whole and all(a < b for a, b in pairwise(keys)) and len(signature) == _SIGNATURE_BYTES):
            raise InputError(
                f"a revocation list must have at most {MOST_REVOKED} keys of 32 bytes in order, and a signature of 64"
            )
        if not (_POPULATION.fullmatch(name) and all(is_whole(each, 0, _MOST) for each in numbers)):
            raise InputError("a revocation list must have a population's name, and numbers below 2^63")
        number, issued, expires = map(int, numbers)
        return cls(name, number, issued, expires, frozenset(keys), signature)

    def fault(self, authority: Authority, now: float, held: RevocationList | None = None) -> str | None:
        """Why a device does not go by it; None where it does.

        Parameters
        ----------
        authority : Authority
            Of the device's policy.
        now : float
            Seconds since 1970.
        held : RevocationList, optional
            The list that the device has: an older one is refused, and so is the same with fewer keys.
        """
        if self.population != authority.population:
            return f"the revocation list must be of population {authority.population}, got {self.population}"
        if not signed_by(authority.key, self.signature, self.statement):
            return f"the revocation list is not by the enrolment authority of {authority.population}"
        if not self.issued - CLOCKS_S <= now < self.expires:
            valid = f"{_time(self.issued)} to {_time(self.expires)}"
            return f"the revocation list must be valid at {_time(now)}, got {valid}"
        if held is None or not signed_by(authority.key, held.signature, held.statement):
            return None  # none, or of an authority that the policy no longer names
        if (self.number, self.issued) < (held.number, held.issued):
            earlier = f"number {held.number} of {_time(held.issued)}"
            return f"the revocation list must not be older than {earlier}, got {self.number} of {_time(self.issued)}"
        if not held.keys <= self.keys:
            return f"the revocation list must hold every key of number {held.number}, got one that lacks some"
        return None


def _time(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s"


class Credentials(NamedTuple):
    """The key and certificate with which a device signs, and the authority that its owner trusts for the others'."""

    identity: Identity
    certificate: Certificate
    authority: Authority
    now: Callable[[], float] = time.time  # seconds since 1970
    revoked: RevocationList | None = None  # by that authority; none in a simulation

    def fault(self, key: bytes, entry: bytes) -> str | None:
        """Why another device's key and :attr:`Certificate.entry` are not accepted; None where they are."""
        now = self.now()
        fault = self.authority.fault(key, entry, now, after=CLOCKS_S)
        if fault is None and self.revoked is not None and key in self.revoked.keys:
            return f"its key was revoked by the enrolment authority of {self.authority.population}"
        return fault

    def list_fault(self) -> str | None:
        """Why the revocation list is not gone by; None where it is, or there is none. Once for a whole roster."""
        return None if self.revoked is None else self.revoked.fault(self.authority, self.now())
