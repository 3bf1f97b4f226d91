r"""Keys, seeds and hashes of a round, each derived for one purpose, and the identities of devices that sign.

Without identities the clients take the server's word for whose keys they are given: the promise then holds against a
server that follows the protocol.

The statement that a device signs of a request is

.. math:: \text{"mapveil request 1"} \,\|\, 0 \,\|\, \text{method} \,\|\, 0 \,\|\, \text{path} \,\|\, 0
          \,\|\, \operatorname{SHA256}(\text{body})

where: path is the request's path with its query. There is no clock in it: a path names one collection, one round and
one phase, and each is accepted once, so a replay changes nothing. The header is
``Authorization: Mapveil-Device <id> <signature>``, the id a decimal number and the signature 128 hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mapveil_client.arrays import BoolArray
from mapveil_client.errors import InputError, Secret
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.masks import Purpose, agree, info
from mapveil_client.secure_sum.messages import LISTED_BYTES, PRINT
from mapveil_client.secure_sum.round_parameters import RoundParameters


def _client_bytes(client: int) -> bytes:
    return client.to_bytes(4, "big")


def _named(parameters: RoundParameters, purpose: Purpose, *parts: bytes) -> bytes:
    return info(purpose, parameters.round_id, parameters.digest, *parts)


def pair_key(
    parameters: RoundParameters,
    purpose: Purpose,
    graph_seed: bytes,
    private: X25519PrivateKey,
    public: bytes,
    one: int,
    other: int,
) -> bytes:
    """The key that two clients derive for a purpose, from one's private key and the other's public key; 32 bytes.

    Both public keys and the seed of the graph are bound: clients that were shown different rosters share no mask and
    open no box of each other. ``PAIR_MASK``: the seed of the mask between them, from their mask keys. ``SEALING``: the
    source of their two sealing keys, from their seal keys. Run by: both clients; the server, for a client whose mask
    key it rebuilt.

    Raises
    ------
    PeerFault
        The public key is no key of large order.
    """
    ends = sorted(((one, private.public_key().public_bytes_raw()), (other, public)))
    pair = (part for client, key in ends for part in (_client_bytes(client), key))
    return agree(private, public, _named(parameters, purpose, graph_seed, *pair))


def list_clients(parameters: RoundParameters, keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """List the clients that advertised ``keys``, shape (m, entry), for an active round's roster. Run by: both sides.

    The start of each identity shows that no device stands in the list twice. The hash holds the fresh mask key, so that
    nobody can hash the list before the round, and all that speaks for the identity, so that nobody can add it later.

    Returns
    -------
    ndarray of uint8, shape (m, 24)
        Zero for clients that advertised nothing.
    """
    listed = np.zeros((len(keys), LISTED_BYTES), dtype=np.uint8)
    for client in np.flatnonzero(keys.any(axis=1)):
        row = keys[client].tobytes()
        digest = hashlib.sha256(_named(parameters, Purpose.LISTED, row)).digest()
        listed[client] = np.frombuffer((row[PRINT] + digest)[:LISTED_BYTES], dtype=np.uint8)
    return listed


def draw_graph_seed(parameters: RoundParameters, graph: bytes) -> bytes:
    """The seed of the neighbour graph, 32 bytes, from the field ``graph`` of the roster. Run by: both sides.

    Where the server follows the protocol, ``graph`` is the seed. In an active round it also lists everybody who
    advertised (:func:`list_clients`), and the seed is its hash.
    """
    return hashlib.sha256(_named(parameters, Purpose.ROSTER, graph)).digest() if parameters.active else graph


def pair_mask_sign(client: int, other: int) -> int:
    """Whether ``client`` adds (1) or subtracts (-1) its mask with ``other``: the lower number adds."""
    return 1 if client < other else -1


def self_mask_seed(parameters: RoundParameters, graph_seed: bytes, client: int, seed: bytes) -> bytes:
    """The seed of the mask that ``client`` adds alone, 32 bytes: HMAC-SHA256 under its secret seed.

    The seed of the graph is bound: a client that is shown another roster adds another mask.
    """
    named = _named(parameters, Purpose.SELF_MASK, graph_seed, _client_bytes(client))
    return hmac.digest(seed, named, "sha256")


def seed_commitment(parameters: RoundParameters, graph_seed: bytes, client: int, seed: bytes) -> bytes:
    """The hash by which the server checks a rebuilt seed, 32 bytes: it hides 256 uniform bits."""
    named = _named(parameters, Purpose.SEED_COMMITMENT, graph_seed, _client_bytes(client), seed)
    return hashlib.sha256(named).digest()


Enrolled = Callable[[int, bytes], bool]
"""Whether a public identity key (32 bytes) belongs to the device enrolled as that client."""


class Identity(Secret):
    """A device's Ed25519 key pair.

    Parameters
    ----------
    private : bytes
        32 uniform bytes, kept on the device.
    """

    def __init__(self, private: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)

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


_FIELD: Final = (1 << 255) - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL: Final = frozenset((0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8))
"""The y of the points of Ed25519 whose order divides 8."""


def small_order(public: bytes) -> bool:
    """Whether an Ed25519 key has an order of at most 8, in any encoding: anybody can sign in its name."""
    return (int.from_bytes(public, "little") & ((1 << 255) - 1)) % _FIELD in _SMALL


def signed_by(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether ``signature`` is that of the holder of ``public`` under ``statement``; a key of small order has none."""
    if small_order(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_statement(parameters: RoundParameters, client: int, keys: bytes) -> bytes:
    """The statement that a client signs when it advertises: round, client, mask key and seal key."""
    return _named(parameters, Purpose.KEY_SIGNATURE, _client_bytes(client), keys)


def receipt_statement(parameters: RoundParameters, graph_seed: bytes, client: int, opened: bytes) -> bytes:
    """The statement that a client signs with its masked vector: round, graph, and the slots whose boxes it opened."""
    return _named(parameters, Purpose.RECEIPT, graph_seed, _client_bytes(client), opened)


def survivor_statement(parameters: RoundParameters, graph_seed: bytes, included: BoolArray) -> bytes:
    """The statement that clients sign before they unmask: round, graph, and the hash of who is in the sum."""
    members = np.packbits(included, bitorder="little").tobytes()
    named = _named(parameters, Purpose.SURVIVOR_SET, graph_seed, members)
    return _named(parameters, Purpose.SURVIVOR_SIGNATURE, hashlib.sha256(named).digest())


SCHEME: Final = "Mapveil-Device"
_PURPOSE: Final = b"mapveil request 1\0"
_ENROLMENT: Final = b"mapveil enrolment 1\0"
_HEADER: Final = re.compile(rf"{SCHEME} ([0-9]{{1,18}}) ([0-9a-fA-F]{{128}})")


class SignedBy(NamedTuple):
    """The device that signed a request, as its header says."""

    device: int
    signature: bytes  # 64


def request_statement(method: str, path: str, body: bytes) -> bytes:
    """The statement that is signed of a request: its method, its path with the query, and its body."""
    return _PURPOSE + method.encode() + b"\0" + path.encode() + b"\0" + hashlib.sha256(body).digest()


def enrolment_statement(token: str, public_key: bytes) -> bytes:
    """The statement that a new device signs: it holds the key that it enrols with this token."""
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
    found = _HEADER.fullmatch(header)
    if found is None:
        raise InputError(f"the Authorization header is not '{SCHEME} <id> <128 hexadecimal digits>'")
    return SignedBy(int(found[1]), bytes.fromhex(found[2]))
