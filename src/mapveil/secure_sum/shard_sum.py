"""The contract of secure-sum drivers: settings, and the sum of a shard."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.parameters import SumSettings
from mapveil_client.secure_sum.states import Abort, Message
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

RUN_BYTES = 8
"""Random bytes that tell the runs of one round apart."""

_UP = (Message.ADVERTISE, Message.SHARES, Message.MASKED_INPUT, Message.CONSENT, Message.ANSWER)
_DOWN = (Message.ROSTER, Message.INBOX, Message.SURVIVORS, Message.CONFIRMATIONS)
_ONLY_ACTIVE = (Message.CONSENT, Message.CONFIRMATIONS)

BeforeReveal = Callable[[IntArray], None]
"""Told how many vectors each shard's sum will hold, for the shards so far, in their order; it may refuse."""


class ShardSum(NamedTuple):
    """The sum of one shard, who is in it, and what it cost."""

    total: npt.NDArray[np.uint64]  # shape (length,), modulo 2**bits
    included: npt.NDArray[np.bool_]  # shape (clients,)
    bytes_up: dict[str, int]  # by phase, the most that one client sends
    bytes_down: dict[str, int]  # by phase, the most that one client receives


class SecureSum(Protocol):
    """Adds up the vectors of shards; all that a mechanism sees of a driver."""

    def sums(
        self,
        vectors: SparseVectors,
        shards: IntArray,
        leaves: npt.NDArray[np.int8],
        settings: SumSettings,
        rng: Randomness,
        *,
        before_reveal: BeforeReveal,
    ) -> list[ShardSum]:
        """Add up the vectors of each shard.

        Parameters
        ----------
        vectors : SparseVectors
            The clients' vectors, numbered over all shards.
        shards : ndarray of int64, shape (shards + 1,)
            First client of each shard, and the number of clients.
        leaves : ndarray of int8, shape (clients,)
            When each client drops out, a :class:`~mapveil_client.secure_sum.vectors.Leaves`.
        settings : SumSettings
            How.
        rng : Randomness
            The source of bits.
        before_reveal : callable
            Told how many vectors are in each sum, for the shards so far, before the newest of them can be
            known to anybody. If it raises, they never are.

        Raises
        ------
        Abort
            Too few clients of a shard are left.
        ParameterError
            The arguments disagree, or no graph keeps the promises.
        """
        ...


def check_shards(
    vectors: SparseVectors, shards: IntArray, leaves: npt.NDArray[np.int8], settings: SumSettings
) -> None:
    """Refuse arguments that disagree.

    Raises
    ------
    ParameterError
        Says which.
    """
    n = vectors.clients
    if vectors.length != settings.length:
        raise ParameterError(f"vectors of length {vectors.length}; expected {settings.length}")
    if shards.size < 1 or shards[0] != 0 or shards[-1] != n or np.any(np.diff(shards) < 1):
        raise ParameterError(f"shards that do not part the clients 0 .. {n - 1}; expected ascending bounds")
    if leaves.shape != (n,) or (n and not Leaves.NOTHING <= leaves.min() <= leaves.max() <= Leaves.NEVER):
        raise ParameterError(f"leaves of shape {leaves.shape}; expected a Leaves for each of {n} clients")
    if vectors.client.size and not (
        vectors.client.min() >= 0
        and vectors.client.max() < n
        and vectors.position.min() >= 0
        and vectors.position.max() < vectors.length
    ):
        raise ParameterError(f"an entry outside {n} vectors of length {vectors.length}")


def check_promised(counts: IntArray, sizes: IntArray, settings: SumSettings) -> None:
    """Refuse sums of fewer vectors than were promised.

    Parameters
    ----------
    counts, sizes : ndarray of int64, shape (shards,)
        Vectors that arrived, and clients, of each shard.
    settings : SumSettings
        The promise.

    Raises
    ------
    Abort
        Says which sum, and how many.
    """
    promises = {size: settings.promised(size) for size in np.unique(sizes).tolist()}  # few sizes, many shards
    for shard, (count, size) in enumerate(zip(counts.tolist(), sizes.tolist(), strict=True)):
        if count < (promised := promises[size]):
            raise Abort(
                f"{count} of the {size} vectors of shard {shard} arrived; {promised} were promised, "
                "so nothing is revealed"
            )


@functools.lru_cache(maxsize=64)
def largest_messages(settings: SumSettings, clients: int) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of the largest message of each phase, up and down; empty where the protocol cannot run."""
    from mapveil_client.secure_sum.messages import largest

    try:
        parameters = settings.parameters(clients, bytes(RUN_BYTES))
    except ParameterError:
        return {}, {}
    up: dict[str, int] = {}
    down: dict[str, int] = {}
    for sizes, kinds in ((up, _UP), (down, _DOWN)):
        for kind in kinds:
            if settings.active or kind not in _ONLY_ACTIVE:
                sizes[kind.name.lower()] = largest(parameters, kind)
    return up, down
