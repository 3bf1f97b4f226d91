r"""Clients' integer vectors as their few entries, and a shard of clients to be summed.

Packing: numbers below :math:`2^b` on the wire in b bits each.

Number i occupies bits :math:`ib` to :math:`(i + 1)b - 1` of the string, where bit m is bit
:math:`m \bmod 8` (least significant is 0) of byte :math:`\lfloor m / 8 \rfloor`: the numbers are the
digits of one long little-endian integer. Bits left over in the last byte are zero.

The round's graph as both sides see it: who neighbours whom, and whether the survivors hang together.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.graph import harary_graph, permutation
from mapveil_client.secure_sum.states import PeerFault

_WORD = 64
_FEW = 1024
"""Up to so many numbers their bits are taken one by one: an array of them costs less than a loop over a group."""


def _check(bits: int) -> None:
    if not 1 <= bits <= _WORD:
        raise ParameterError(f"numbers of {bits} bits; expected 1 to {_WORD}")


def packed_size(length: int, bits: int) -> int:
    """Bytes that ``length`` numbers of ``bits`` bits take.

    Examples
    --------
    >>> packed_size(3, 20)
    8
    """
    return -(-length * bits // 8)


def _period(bits: int) -> int:
    """After how many numbers a number starts on a word again."""
    return _WORD // math.gcd(_WORD, bits)


def pack(values: npt.NDArray[np.unsignedinteger], bits: int) -> bytes:
    """Write numbers in ``bits`` bits each. Run by: the client.

    Parameters
    ----------
    values : ndarray of unsigned int, shape (length,)
        Each below ``2**bits``.
    bits : int
        1 to 64.

    Returns
    -------
    bytes
        ``packed_size(length, bits)`` of them.

    Raises
    ------
    ParameterError
        A number is too large, or ``bits`` is outside 1 .. 64.
    """
    _check(bits)
    if values.size and bits < _WORD and int(values.max()) >> bits:
        raise ParameterError(f"a number above 2^{bits} - 1 is to be packed in {bits} bits")
    size = packed_size(values.size, bits)
    if bits in (8, 16, 32, 64):
        return values.astype(f"<u{bits // 8}").tobytes()
    if values.size <= _FEW:
        single = values[:, None].astype(np.uint64) >> np.arange(bits, dtype=np.uint64)
        return np.packbits((single & np.uint64(1)).astype(np.uint8), bitorder="little").tobytes()
    period = _period(bits)
    groups = -(-values.size // period)
    padded = np.zeros(groups * period, dtype=np.uint64)
    padded[: values.size] = values
    digits = np.ascontiguousarray(padded.reshape(groups, period).T)
    words = np.zeros((period * bits // _WORD, groups), dtype="<u8")
    for i in range(period):  # over the numbers of one group, never over all
        word, shift = divmod(i * bits, _WORD)
        words[word] |= digits[i] << np.uint64(shift)
        if shift + bits > _WORD:
            words[word + 1] |= digits[i] >> np.uint64(_WORD - shift)
    return words.T.tobytes()[:size]


def unpack(data: bytes, length: int, bits: int) -> npt.NDArray[np.uint64]:
    """Read ``length`` numbers of ``bits`` bits. Run by: the server.

    Returns
    -------
    ndarray of uint64, shape (length,)

    Raises
    ------
    PeerFault
        The string has another size, or a bit after the last number is set.
    ParameterError
        ``bits`` is outside 1 .. 64.
    """
    _check(bits)
    size = packed_size(length, bits)
    if len(data) != size:
        raise PeerFault(f"packed numbers of {len(data)} bytes; expected exactly {size}")
    if (left := length * bits % 8) and data[-1] >> left:
        raise PeerFault("packed numbers end in bits that are not zero; expected zeros")
    if bits in (8, 16, 32, 64):
        return np.frombuffer(data, dtype=f"<u{bits // 8}").astype(np.uint64)
    if length <= _FEW:
        single = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=length * bits, bitorder="little")
        return single.reshape(length, bits) @ (np.uint64(1) << np.arange(bits, dtype=np.uint64))
    period = _period(bits)
    groups = -(-length // period)
    padded = np.zeros(groups * period * bits // 8, dtype=np.uint8)
    padded[:size] = np.frombuffer(data, dtype=np.uint8)
    words = np.ascontiguousarray(padded.view("<u8").reshape(groups, period * bits // _WORD).T)
    mask = np.uint64((1 << bits) - 1)
    digits = np.empty((period, groups), dtype=np.uint64)
    for i in range(period):
        word, shift = divmod(i * bits, _WORD)
        np.right_shift(words[word], np.uint64(shift), out=digits[i])
        if shift + bits > _WORD:
            digits[i] |= words[word + 1] << np.uint64(_WORD - shift)
        digits[i] &= mask
    return np.ascontiguousarray(digits.T).reshape(-1)[:length]


class Ring(NamedTuple):
    """The graph drawn from one seed. Arrays are shared and read-only."""

    order: npt.NDArray[np.int64]  # the client at each place of the ring
    neighbours: npt.NDArray[np.int32]  # of each client, by slot, shape (n, k)

    def connected(self, included: npt.NDArray[np.bool_]) -> bool:
        """Whether the clients ``included`` form one piece: otherwise the sum would come apart.

        Two clients are neighbours up to k / 2 places apart, so only wider gaps on the ring part
        them; the ring falls in two where there are two such gaps. The complete graph never does.
        """
        clients, slots = self.neighbours.shape
        if slots == clients - 1:
            return True
        places = np.flatnonzero(included[self.order])
        if not places.size:
            return True
        gaps = np.diff(places, append=places[0] + clients)
        return int(np.count_nonzero(gaps > slots // 2)) <= 1


@functools.lru_cache(maxsize=2)
def make_ring(clients: int, neighbours: int, seed: bytes) -> Ring:
    """Draw the graph of a round from the server's seed.

    Parameters
    ----------
    clients, neighbours : int
        n and k.
    seed : bytes
        32 uniform bytes.
    """
    order = permutation(clients, seed)
    made = harary_graph(clients, neighbours, order)
    order.flags.writeable = made.flags.writeable = False
    return Ring(order, made)


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
                "expected equal shapes"
            )

    def __add__(self, other: SparseVectors) -> SparseVectors:
        """Each client's two vectors added."""
        if (self.clients, self.length) != (other.clients, other.length):
            raise ParameterError(
                f"vectors of {self.clients} clients and {self.length} coordinates, and of {other.clients} "
                f"and {other.length}; expected equal numbers"
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
