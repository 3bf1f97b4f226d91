"""The drivers of secure sums: their contract, and the ideal one for simulations."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.states import Abort, Message
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

RUN_BYTES = 8
"""Random bytes that distinguish the runs of one round."""

_BATCH = 1 << 17  # entries: their keys stay in the second cache
_UP = (Message.ADVERTISE, Message.SHARES, Message.MASKED_INPUT, Message.CONSENT, Message.ANSWER)
_DOWN = (Message.ROSTER, Message.INBOX, Message.SURVIVORS, Message.CONFIRMATIONS)
_ONLY_ACTIVE = (Message.CONSENT, Message.CONFIRMATIONS)

BeforeReveal = Callable[[IntArray], None]
"""Receives the number of vectors in the sum of each shard so far, in their order; it may refuse by raising."""


class ShardSum(NamedTuple):
    """The sum of one shard, its clients and its traffic."""

    total: npt.NDArray[np.uint64]  # shape (length,), modulo 2**bits
    included: BoolArray  # shape (clients,)
    bytes_up: dict[str, int]  # by phase, the largest that one client sends
    bytes_down: dict[str, int]  # by phase, the largest that one client receives


class SecureSum(Protocol):
    """Adds up the vectors of shards."""

    @property
    def active(self) -> bool:
        """Whether it always runs the checks against a malicious server."""

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
            First client of each shard, then the number of clients.
        leaves : ndarray of int8, shape (clients,)
            When each client drops out, a :class:`~mapveil_client.secure_sum.vectors.Leaves`.
        settings : SumSettings
            Parameters of the sums.
        rng : Randomness
            Source of bits.
        before_reveal : callable
            :data:`BeforeReveal`, called before the newest sum can be known to anybody. If it raises, that sum is
            never revealed.

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
    """Refuse arguments that disagree, with a ``ParameterError``."""
    n = vectors.clients
    if vectors.length != settings.length:
        raise ParameterError(f"vectors must have length {settings.length}, got {vectors.length}")
    if shards.size < 1 or shards[0] != 0 or shards[-1] != n or np.any(np.diff(shards) < 1):
        raise ParameterError(f"shards must be ascending bounds from 0 to {n}, got {shards}")
    if leaves.shape != (n,) or (n and not Leaves.NOTHING <= leaves.min() <= leaves.max() <= Leaves.NEVER):
        raise ParameterError(f"leaves must be a Leaves for each of {n} clients, got shape {leaves.shape}")
    if vectors.client.size and not (
        vectors.client.min() >= 0
        and vectors.client.max() < n
        and vectors.position.min() >= 0
        and vectors.position.max() < vectors.length
    ):
        raise ParameterError(f"entries must be inside {n} vectors of length {vectors.length}")


def check_promised(counts: IntArray, sizes: IntArray, settings: SumSettings) -> None:
    """Abort where fewer vectors of a shard arrived (``counts``) than the settings promise for its ``sizes``."""
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
    from mapveil_client.secure_sum.messages import usual_size

    try:
        parameters = settings.parameters(clients, bytes(RUN_BYTES))
    except ParameterError:
        return {}, {}
    up: dict[str, int] = {}
    down: dict[str, int] = {}
    for sizes, kinds in ((up, _UP), (down, _DOWN)):
        for kind in kinds:
            if settings.active or kind not in _ONLY_ACTIVE:
                sizes[kind.name.lower()] = usual_size(parameters, kind)
    return up, down


class IdealSum:
    """The ideal driver: the answers of a trusted party, without cryptography, for simulations of any size.

    A client that leaves before its input is in no sum. The bytes of each phase are computed from the messages' sizes,
    for a client all of whose neighbours are there; of ``active`` sums they are those against a malicious server.
    """

    def __init__(self, *, active: bool = False) -> None:
        self.active = active

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
        """See :meth:`SecureSum.sums`; ``before_reveal`` is called once."""
        del rng  # nothing is hidden, so nothing is drawn
        check_shards(vectors, shards, leaves, settings)
        included = leaves >= Leaves.INPUT
        sizes = np.diff(shards)
        counts = np.diff(np.concatenate([[0], np.cumsum(included)])[shards])
        before_reveal(counts)
        check_promised(counts, sizes, settings)
        totals = np.zeros(sizes.size * settings.length, dtype=np.int64)
        first = np.repeat(np.arange(sizes.size, dtype=np.int64) * settings.length, sizes)
        everybody = bool(included.all())
        for start in range(0, vectors.client.size, _BATCH):
            part = slice(start, start + _BATCH)
            client, position, value = vectors.client[part], vectors.position[part], vectors.value[part]
            if not everybody:
                kept = included[client]
                client, position, value = client[kept], position[kept], value[kept]
            np.add.at(totals, first[client] + position, value)  # wraps around at 2^64
        reduced = totals.view(np.uint64)
        reduced &= np.uint64((1 << settings.bits) - 1)
        rows = reduced.reshape(sizes.size, settings.length)
        sent = dataclasses.replace(settings, active=settings.active or self.active)
        messages = {size: largest_messages(sent, size) for size in np.unique(sizes).tolist()}
        return [
            ShardSum(rows[i], included[shards[i] : shards[i + 1]], *messages[size])
            for i, size in enumerate(sizes.tolist())
        ]

    def __repr__(self) -> str:
        return "IdealSum()"
