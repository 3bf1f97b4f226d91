"""An operator's own keys, and the one that two operators share.

- Own: one secret, from which follow the private key of sealed shares and the key of the noise.
- Shared: it authenticates requests between the operators and their answers, and gives each task its verify key. Either
  operator could forge the other's requests to itself, which gains it nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path
from typing import Final, NamedTuple

from mapveil_client.errors import InputError, Secret
from mapveil_client.private_file import new_private_file
from mapveil_client.randomness.random import Randomness
from mapveil_client.two_operators.hpke import Cipher, public_of
from mapveil_client.two_operators.sealed_report import HpkeConfig
from mapveil_client.vault import KEY_BYTES, read_key

SCHEME: Final = "Mapveil-Peer"
"""Scheme of the header ``Authorization`` between operators."""

_AUTHORIZATION: Final = re.compile(f"{SCHEME} ([0-9a-f]{{64}}) [0-9a-f]{{64}}")

ANSWERED: Final = "mapveil-peer"
"""Header of an authenticated answer."""


class OperatorKeys(Secret):
    """The secret of one operator.

    Parameters
    ----------
    secret : bytes
        32 random bytes.
    number : int
        0 for the leader, 1 for the helper: also the number of its HPKE configuration, so that a share that was sealed
        for the other is known at sight.
    """

    def __init__(self, secret: bytes, number: int) -> None:
        self._secret, self.number = secret, number
        self.private_key = self._derived(b"seals")
        self.config = HpkeConfig(number, Cipher.AES_128_GCM, public_of(self.private_key))

    def noise(self, *bound: bytes) -> Randomness:
        """The noise of one answer: the same bytes again for the same task, query and sums, others for any other.

        The operator's share of the sums must be among ``bound``: noise that two different sums had in common would be
        the difference of two answers, exactly.
        """
        digests = b"".join(hashlib.sha256(each).digest() for each in bound)
        return Randomness.keyed(self._derived(b"noise" + digests))

    def _derived(self, purpose: bytes) -> bytes:
        return hmac.digest(self._secret, b"mapveil operator 1 " + purpose, hashlib.sha256)


class Operators(NamedTuple):
    """Both operators, as the terms of a new collection name them."""

    leader: HpkeConfig
    helper: HpkeConfig
    generation: str  # of the helper's store, hexadecimal: ends the identifiers of its collections

    @property
    def encoded(self) -> tuple[str, str]:
        """Both configurations, hexadecimal."""
        return self.leader.encode().hex(), self.helper.encode().hex()

    def identifier(self, drawn: str) -> str:
        """A random identifier, its end replaced by the helper's generation."""
        return drawn[: len(drawn) - len(self.generation)] + self.generation


class PeerKey(Secret):
    """The secret that the two operators share."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits that tell the key from others, and nothing about it."""
        return hmac.digest(self._secret, b"mapveil fingerprint 1", hashlib.sha256).hex()

    def verify_key(self, task: bytes) -> bytes:
        """The VDAF's verify key of a task, 32 bytes: no client knows it."""
        return hmac.digest(self._secret, b"mapveil verify key 1 " + task, hashlib.sha256)

    def authorization(self, method: str, path: str, digest: bytes) -> str:
        """The header of a request whose body has this SHA-256: it can be judged before the body is read."""
        request = f"{method} {path} {digest.hex()}".encode()
        statement = b"mapveil peer request 2 " + request
        return f"{SCHEME} {digest.hex()} {hmac.digest(self._secret, statement, hashlib.sha256).hex()}"

    def body_digest(self, authorization: str, method: str, path: str) -> bytes | None:
        """The SHA-256 of the body that a request's header authenticates; None where it authenticates none."""
        named = _AUTHORIZATION.fullmatch(authorization)
        if named is None:
            return None
        digest = bytes.fromhex(named[1])
        return digest if same(authorization, self.authorization(method, path, digest)) else None

    def answered(self, authorization: str, status: int, body: bytes) -> str:
        """The header of an answer, also of a refusal, to a request with that header."""
        digest = hashlib.sha256(body).digest()
        statement = b"mapveil peer answer 2 " + authorization.encode() + b"\0%d\0" % status + digest
        return hmac.digest(self._secret, statement, hashlib.sha256).hex()


def same(given: str, expected: str) -> bool:
    """Compare two headers in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())


def own_secret(path: Path) -> bytes:
    """Read an operator's secret, 64 hexadecimal digits in a file that its owner alone may read; drawn the first time.

    Raises
    ------
    InputError
        Others may read the file, it holds no key, or it cannot be written.
    """
    try:
        if not path.exists():
            with new_private_file(path) as draft, draft.open("w") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise InputError(
            f"{path}: no key of an operator can be kept here ({error.strerror or error})"
        ) from error
    return shared_secret(path)


def shared_secret(path: Path) -> bytes:
    """Read a key file that its owner alone may read.

    Raises
    ------
    InputError
        There is none, others may read it, or it holds no key.
    """
    key = read_key(path)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise InputError(
            f"{path}: a key of operators must be readable by its owner only; run chmod 600 {path}"
        )
    return key
