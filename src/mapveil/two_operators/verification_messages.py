"""Messages of a verification: one operator's part of a report, and the three messages that the operators exchange.

The leader sends an :class:`Opening`, the helper answers with a :class:`Response`, the leader ends with a
:class:`Closing`. Each of them checks its own shape, as the other operator may send anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray
from mapveil_client.secure_sum.states import PeerFault
from mapveil_client.two_operators.finite_fields import Octets
from mapveil_client.two_operators.xofs import NONCE_BYTES


class InputShares(NamedTuple):
    """One operator's part of a client's report, as it arrives: anything at all."""

    nonce: bytes
    public: bytes
    input: bytes


class Opening(NamedTuple):
    """The leader's first message."""

    nonces: Octets
    shares: Octets

    @property
    def reports(self) -> int:
        """Number of reports; checked to be one at least."""
        count = self.nonces.shape[0] if self.nonces.ndim == 2 else 0
        if count < 1 or self.nonces.shape[1] != NONCE_BYTES:
            raise PeerFault("an opening names no report; expected nonces of 16 bytes")
        return count


class Response(NamedTuple):
    """The helper's answer; ``shares`` is empty where the scheme has no second round."""

    message: Octets
    shares: Octets
    accepted: BoolArray


class Closing(NamedTuple):
    """The leader's last message."""

    shares: Octets
    accepted: BoolArray


def check_shape(octets: Octets, count: int, size: int) -> None:
    """Raise :class:`PeerFault` unless there are ``count`` rows of ``size`` bytes."""
    if octets.dtype != np.uint8 or octets.shape != (count, size):
        raise PeerFault(f"shares of shape {octets.shape}; expected {count} rows of {size} bytes")


def check_decisions(accepted: BoolArray, count: int, message: str) -> None:
    """Raise :class:`PeerFault` unless a message decides on every report."""
    if accepted.shape != (count,) or accepted.dtype != np.bool_:
        raise PeerFault(f"a {message} decides on {accepted.shape}; expected {count} reports")
