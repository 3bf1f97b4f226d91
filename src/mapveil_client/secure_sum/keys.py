r"""Every key, seed and hash of a round, each derived for one purpose and its particulars.

Device identities: who signed the keys of a round, and who agreed to its survivors.

Without them the clients take the server's word for whose keys they are given, and a server that
lies about keys reads everything: the promise is then against a server that follows the protocol.

How a device signs a request, and how the collector checks it.

What is signed is

.. math:: \text{"mapveil request 1"} \,\|\, 0 \,\|\, \text{method} \,\|\, 0 \,\|\, \text{path} \,\|\, 0
          \,\|\, \operatorname{SHA256}(\text{body})

where: path is the request's path with its query. There is no clock in it: a path names one collection, one round and
one phase, and each is accepted once, so a replay repeats what was said and changes nothing. The header is
``Authorization: Mapveil-Device <id> <signature>``, the id a decimal number and the signature 128 hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from mapveil_client.secure_sum.masks import Purpose, agree, info
from mapveil_client.secure_sum.parameters import RoundParameters

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typing import Final, NamedTuple

from mapveil_client.errors import InputError


def client_bytes(client: int) -> bytes:
    """A client's number in a statement or a derivation: 4 bytes, most significant first."""
    return client.to_bytes(4, "big")


def _pair_info(parameters: RoundParameters, purpose: Purpose, one: int, other: int) -> bytes:
    low, high = min(one, other), max(one, other)
    return info(purpose, parameters.round_id, parameters.digest, client_bytes(low), client_bytes(high))


def pair_mask_seed(
    parameters: RoundParameters, private: X25519PrivateKey, public: bytes, one: int, other: int
) -> bytes:
    """The seed of the mask between two clients, from one's mask key and the other's; 32 bytes.

    Run by: both clients; the server, for a client whose mask key it rebuilt.

    Raises
    ------
    PeerFault
        The public key is no key of large order.
    """
    return agree(private, public, _pair_info(parameters, Purpose.PAIR_MASK, one, other))


def pair_mask_sign(client: int, other: int) -> int:
    """Whether ``client`` adds (1) or subtracts (-1) its mask with ``other``: who has the lower number adds."""
    return 1 if client < other else -1


def pair_sealing_key(
    parameters: RoundParameters, private: X25519PrivateKey, public: bytes, one: int, other: int
) -> bytes:
    """What two clients derive their two sealing keys from, 32 bytes. Run by: both clients.

    Raises
    ------
    PeerFault
        The public key is no key of large order.
    """
    return agree(private, public, _pair_info(parameters, Purpose.SEALING, one, other))


def sealing_key(pair_key: bytes, sender: int, receiver: int) -> bytes:
    """The key of the one box that ``sender`` seals to ``receiver``: HMAC-SHA256 of the direction."""
    return hmac.digest(pair_key, client_bytes(sender) + client_bytes(receiver), "sha256")


def self_mask_seed(parameters: RoundParameters, client: int, seed: bytes) -> bytes:
    """The seed of the mask that ``client`` adds alone, 32 bytes: HMAC-SHA256 under its secret seed."""
    named = info(Purpose.SELF_MASK, parameters.round_id, parameters.digest, client_bytes(client))
    return hmac.digest(seed, named, "sha256")


def seed_commitment(parameters: RoundParameters, client: int, seed: bytes) -> bytes:
    """The hash by which the server knows a rebuilt seed for the right one, 32 bytes.

    A seed is 256 uniform bits, so its hash gives nothing away.
    """
    named = info(Purpose.SEED_COMMITMENT, parameters.round_id, parameters.digest, client_bytes(client), seed)
    return hashlib.sha256(named).digest()


Enrolled = Callable[[int, bytes], bool]
"""Whether a public identity key (32 bytes) belongs to the device enrolled as that client."""


class Identity:
    """A device's Ed25519 key pair.

    Parameters
    ----------
    private : bytes
        32 uniform bytes, kept on the device.
    """

    def __init__(self, private: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(private)

    @classmethod
    def draw(cls, rng: Randomness) -> Identity:
        """Draw a new identity."""
        return cls(rng.words(32, np.uint8).tobytes())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Sign, 64 bytes."""
        return self._key.sign(statement)

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("an Identity holds a secret key and cannot be pickled or copied")


def signed_by(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether ``signature`` is that of the holder of ``public`` under ``statement``."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_statement(parameters: RoundParameters, client: int, keys: bytes) -> bytes:
    """What a client signs when it advertises: round, client, mask key and seal key."""
    return info(Purpose.KEY_SIGNATURE, parameters.round_id, parameters.digest, client_bytes(client), keys)


def survivor_statement(
    parameters: RoundParameters, graph_seed: bytes, included: npt.NDArray[np.bool_]
) -> bytes:
    """What clients sign before they unmask: round, graph, and the hash of who is in the sum."""
    members = np.packbits(included, bitorder="little").tobytes()
    named = info(Purpose.SURVIVOR_SET, parameters.round_id, parameters.digest, graph_seed, members)
    return info(
        Purpose.SURVIVOR_SIGNATURE, parameters.round_id, parameters.digest, hashlib.sha256(named).digest()
    )


SCHEME: Final = "Mapveil-Device"
_PURPOSE: Final = b"mapveil request 1\0"
_ENROLMENT: Final = b"mapveil enrolment 1\0"
_SIGNATURE_DIGITS: Final = 128


class SignedBy(NamedTuple):
    """Who signed a request, as its header says."""

    device: int
    signature: bytes  # 64


def request_statement(method: str, path: str, body: bytes) -> bytes:
    """What is signed of a request.

    Parameters
    ----------
    method : str
        Such as ``PUT``.
    path : str
        With its query, as it is sent.
    body : bytes
        As it is sent; empty where there is none.
    """
    return _PURPOSE + method.encode() + b"\0" + path.encode() + b"\0" + hashlib.sha256(body).digest()


def enrolment_statement(token: str, public_key: bytes) -> bytes:
    """What a new device signs: that it holds the key it enrols with this token."""
    return _ENROLMENT + hashlib.sha256(token.encode()).digest() + public_key


def authorization(identity: Identity, device: int, method: str, path: str, body: bytes = b"") -> str:
    """The header of a signed request. Run by: the device."""
    return f"{SCHEME} {device} {identity.sign(request_statement(method, path, body)).hex()}"


def read_authorization(header: str) -> SignedBy:
    """Read the header of a request. Run by: the collector.

    Raises
    ------
    InputError
        It is no such header.
    """
    parts = header.split(" ")
    if len(parts) == 3 and parts[0] == SCHEME and len(parts[2]) == _SIGNATURE_DIGITS:
        try:
            if parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) <= 18:
                return SignedBy(int(parts[1]), bytes.fromhex(parts[2]))
        except ValueError:
            pass
    raise InputError(f"the Authorization header is not '{SCHEME} <id> <128 hexadecimal digits>'")
