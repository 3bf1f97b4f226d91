r"""Packing: numbers below :math:`2^b` on the wire in b bits each.

Number i occupies bits :math:`ib` to :math:`(i + 1)b - 1` of the string, where bit m is bit
:math:`m \bmod 8` (least significant is 0) of byte :math:`\lfloor m / 8 \rfloor`: the numbers are the
digits of one long little-endian integer. Bits left over in the last byte are zero.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.secure_sum.faults import PeerFault

_WORD = 64
_FEW = 1024
"""Up to so many numbers their bits are taken one by one: an array of them costs less than a loop over a group."""


def _check(bits: int) -> None:
    if not 1 <= bits <= _WORD:
        raise ParameterError(f"numbers of {bits} bits; 1 to {_WORD} are accepted")


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
        raise PeerFault(f"packed numbers of {len(data)} bytes; exactly {size} are accepted")
    if (left := length * bits % 8) and data[-1] >> left:
        raise PeerFault("packed numbers end in bits that are not zero; zeros are accepted")
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
