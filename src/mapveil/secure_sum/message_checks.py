"""The server's checks of keys and signatures that a client sends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mapveil_client.secure_sum import messages
from mapveil_client.secure_sum.keys import Enrolled, key_statement, signed_by
from mapveil_client.secure_sum.masks import check_public
from mapveil_client.secure_sum.round_parameters import RoundParameters
from mapveil_client.secure_sum.states import PeerFault

ByteArray = npt.NDArray[np.uint8]


def check_keys(parameters: RoundParameters, client: int, keys: bytes, enrolled: Enrolled | None) -> ByteArray:
    """Refuse a key of small order, a wrong signature, or an identity that is not enrolled."""
    for part in (messages.MASK_KEY, messages.SEAL_KEY):
        check_public(keys[part])
    if parameters.signed:
        statement = key_statement(parameters, client, keys[: messages.SEAL_KEY.stop])
        if not signed_by(keys[messages.IDENTITY], keys[messages.SIGNATURE], statement):
            raise PeerFault("keys that are not signed by the identity beside them")
        if enrolled is not None and not enrolled(client, keys[messages.IDENTITY]):
            raise PeerFault("keys signed by an identity that is not enrolled")
    return np.frombuffer(keys, dtype=np.uint8)


def check_signature(keys: ByteArray, signature: bytes, statement: bytes, refusal: str) -> ByteArray:
    """Refuse a signature over anything but ``statement``, by the identity in a client's ``keys``."""
    if not signed_by(keys[messages.IDENTITY].tobytes(), signature, statement):
        raise PeerFault(refusal)
    return np.frombuffer(signature, dtype=np.uint8)
