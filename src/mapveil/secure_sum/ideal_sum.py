"""The ideal driver: what a trusted party would answer, for simulations of any size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mapveil.secure_sum.shard_sum import (
    BeforeReveal,
    ShardSum,
    check_promised,
    check_shards,
    largest_messages,
)
from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.parameters import SumSettings
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

_BATCH = 1 << 17  # entries: their keys stay in the second cache


class IdealSum:
    """Adds the vectors as they are: no cryptography, no protection, the protocol's answers.

    A client that leaves before its input is in no sum. What each phase would send is computed from
    the messages' sizes, for a client all of whose neighbours are there.

    Examples
    --------
    >>> IdealSum()
    IdealSum()
    """

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
        """See :meth:`~mapveil.secure_sum.shard_sum.SecureSum.sums`; ``before_reveal`` is called once."""
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
        messages = {size: largest_messages(settings, size) for size in np.unique(sizes).tolist()}
        return [
            ShardSum(rows[i], included[shards[i] : shards[i + 1]], *messages[size])
            for i, size in enumerate(sizes.tolist())
        ]

    def __repr__(self) -> str:
        return "IdealSum()"
