r"""Clients' integer vectors as their few entries, and a shard of clients to be summed.

Packing: numbers below :math:`2^b` on the wire in b bits each.

Number i occupies bits :math:`ib` to :math:`(i + 1)b - 1` of the string, where bit m is bit
:math:`m \bmod 8` (least significant is 0) of byte :math:`\lfloor m / 8 \rfloor`: the numbers are the
digits of one long little-endian integer. Bits left over in the last byte are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import ParameterError, check
from mapveil_client.secure_sum.states import PeerFault

_WORD = 64
_FEW = 1024
"""Up to so many numbers their bits are taken one by one: an array of them costs less than a loop over a group."""


def packed_size(length: int, bits: int) -> int:
    """Bytes that ``length`` numbers of ``bits`` bits take.

    Examples
    --------
    >>> packed_size(3, 20)
    8
    """
    return -(-length * bits // 8)


def pack(values: npt.NDArray[np.unsignedinteger], bits: int) -> bytes:
    """Write numbers below ``2**bits``, shape (length,), in ``bits`` (1 .. 64) bits each. Run by: the client.

    Raises
    ------
    ParameterError
        A number is too large, or ``bits`` is out of range.
    """
    check(1 <= bits <= _WORD, "bits", f"1 to {_WORD}", bits)
    if values.size and bits < _WORD and int(values.max()) >> bits:
        raise ParameterError(f"a number above 2^{bits} - 1 is to be packed in {bits} bits")
    size = packed_size(values.size, bits)
    if bits in (8, 16, 32, 64):
        return values.astype(f"<u{bits // 8}").tobytes()
    if values.size <= _FEW:
        single = values[:, None].astype(np.uint64) >> np.arange(bits, dtype=np.uint64)
        return np.packbits((single & np.uint64(1)).astype(np.uint8), bitorder="little").tobytes()
    period = _WORD // math.gcd(_WORD, bits)  # after so many numbers one starts on a word again
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
    """Read ``length`` numbers of ``bits`` bits: uint64, shape (length,). Run by: the server.

    Raises
    ------
    PeerFault
        The string has another size, or a bit after the last number is set.
    ParameterError
        ``bits`` is out of range.
    """
    check(1 <= bits <= _WORD, "bits", f"1 to {_WORD}", bits)
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
    period = _WORD // math.gcd(_WORD, bits)
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
    client, position, value : ndarray of int64, shape (entries,)
        Client of each entry, its coordinate, and the signed number added there.
    """

    clients: int
    length: int
    client: IntArray
    position: IntArray
    value: IntArray

    def __post_init__(self) -> None:
        shapes = self.client.shape, self.position.shape, self.value.shape
        check(len(set(shapes)) == 1, "client, position and value", "of equal shapes", shapes)

    def __add__(self, other: SparseVectors) -> SparseVectors:
        """Each client's two vectors added."""
        shape = self.clients, self.length
        check((other.clients, other.length) == shape, "clients and length", f"equal to {shape}", other)
        columns = zip(self._columns, other._columns, strict=True)
        return SparseVectors(*shape, *(np.concatenate(pair) for pair in columns))

    @property
    def _columns(self) -> tuple[IntArray, IntArray, IntArray]:
        return self.client, self.position, self.value

    def _take(self, rows: IntArray | BoolArray | slice) -> SparseVectors:
        return SparseVectors(self.clients, self.length, *(column[rows] for column in self._columns))

    def only(self, kept: BoolArray) -> SparseVectors:
        """The same with zeros for the clients that are not ``kept``."""
        return self._take(kept[self.client])

    @cached_property
    def by_client(self) -> SparseVectors:
        """The same with the entries of each client together, clients ascending."""
        if bool((self.client[1:] >= self.client[:-1]).all()):
            return self
        return self._take(np.argsort(self.client, kind="stable"))

    def between(self, first: int, last: int) -> SparseVectors:
        """The clients from ``first`` up to, not including, ``last``, numbered anew from 0; ascending."""
        entries = self.by_client
        start, stop = np.searchsorted(entries.client, [first, last])
        part = entries._take(slice(int(start), int(stop)))
        return replace(part, clients=last - first, client=part.client - first)

    def dense(self, client: int) -> IntArray:
        """One client's vector, int64, shape (length,)."""
        entries = self.between(client, client + 1)
        vector = np.zeros(self.length, dtype=np.int64)
        np.add.at(vector, entries.position, entries.value)
        return vector

    def sum(self, included: BoolArray | None = None) -> IntArray:
        """Sum of the vectors of the clients that are ``included`` (all by default), shape (length,)."""
        total = np.zeros(self.length, dtype=np.int64)
        kept = slice(None) if included is None else included[self.client]
        np.add.at(total, self.position[kept], self.value[kept])
        return total
