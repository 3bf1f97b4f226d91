"""Clients' integer vectors as their few entries, and a shard of clients to be summed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError


class Leaves(IntEnum):
    """The last message a client sends before it is gone.

    A client whose masked input arrived is in the sum, whatever it does after.
    """

    NOTHING = 0  # never answers
    KEYS = 1  # advertised keys, sent no shares
    SHARES = 2  # sent shares, no masked input
    INPUT = 3  # sent its masked input, takes no part in unmasking
    NEVER = 4  # stays to the end


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """One integer vector per client, as entries in any order; repeated positions add up.

    Parameters
    ----------
    clients : int
        Number of clients; they are numbered 0 .. clients - 1.
    length : int
        Coordinates of each vector.
    client : ndarray of int64, shape (entries,)
        Whose entry it is.
    position : ndarray of int64, shape (entries,)
        Its coordinate.
    value : ndarray of int64, shape (entries,)
        What is added there; signed.
    """

    clients: int
    length: int
    client: IntArray
    position: IntArray
    value: IntArray

    def __post_init__(self) -> None:
        if not self.client.shape == self.position.shape == self.value.shape:
            raise ParameterError(
                f"entries of shapes {self.client.shape}, {self.position.shape}, {self.value.shape}; "
                "equal shapes are accepted"
            )

    def __add__(self, other: SparseVectors) -> SparseVectors:
        """Each client's two vectors added."""
        if (self.clients, self.length) != (other.clients, other.length):
            raise ParameterError(
                f"vectors of {self.clients} clients and {self.length} coordinates, and of {other.clients} and "
                f"{other.length}; equal numbers are accepted"
            )
        return SparseVectors(
            self.clients,
            self.length,
            np.concatenate([self.client, other.client]),
            np.concatenate([self.position, other.position]),
            np.concatenate([self.value, other.value]),
        )

    def only(self, kept: npt.NDArray[np.bool_]) -> SparseVectors:
        """The same with zeros for the clients that are not ``kept``."""
        held = kept[self.client]
        return SparseVectors(
            self.clients, self.length, self.client[held], self.position[held], self.value[held]
        )

    @cached_property
    def by_client(self) -> SparseVectors:
        """The same with the entries of each client together, clients ascending."""
        if bool((self.client[1:] >= self.client[:-1]).all()):
            return self
        order = np.argsort(self.client, kind="stable")
        return SparseVectors(
            self.clients, self.length, self.client[order], self.position[order], self.value[order]
        )

    def between(self, first: int, last: int) -> SparseVectors:
        """The clients from ``first`` up to, not including, ``last``, numbered anew from 0; ascending."""
        entries = self.by_client
        start, stop = np.searchsorted(entries.client, [first, last])
        return SparseVectors(
            last - first,
            self.length,
            entries.client[start:stop] - first,
            entries.position[start:stop],
            entries.value[start:stop],
        )

    def dense(self, client: int) -> IntArray:
        """One client's vector, int64, shape (length,)."""
        entries = self.between(client, client + 1)
        vector = np.zeros(self.length, dtype=np.int64)
        np.add.at(vector, entries.position, entries.value)
        return vector

    def sum(self, included: npt.NDArray[np.bool_] | None = None) -> IntArray:
        """Sum of the vectors of the clients that are ``included`` (all by default), shape (length,)."""
        total = np.zeros(self.length, dtype=np.int64)
        kept = slice(None) if included is None else included[self.client]
        np.add.at(total, self.position[kept], self.value[kept])
        return total
