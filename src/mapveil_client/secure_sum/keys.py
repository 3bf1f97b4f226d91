"""Every key, seed and hash of a round, each derived for one purpose and its particulars."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from mapveil_client.secure_sum.domain import Purpose, info
from mapveil_client.secure_sum.masks import agree
from mapveil_client.secure_sum.parameters import RoundParameters

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


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
