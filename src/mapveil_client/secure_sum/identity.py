"""Device identities: who signed the keys of a round, and who agreed to its survivors.

Without them the clients take the server's word for whose keys they are given, and a server that
lies about keys reads everything: the promise is then against a server that follows the protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.domain import Purpose, info
from mapveil_client.secure_sum.keys import client_bytes
from mapveil_client.secure_sum.parameters import RoundParameters

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
