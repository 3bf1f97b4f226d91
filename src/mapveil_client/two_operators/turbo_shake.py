r"""TurboSHAKE128 over many messages of equal length at a time.

.. math:: Z = \mathrm{TurboSHAKE128}(M, D, L): \qquad \text{Keccak-p}[1600, 12], \quad \text{rate } 168 \text{ bytes}

where: :math:`M` is one row of ``messages``, :math:`D` is ``domain`` and :math:`L` is ``length``. Two kernels give the
same bytes: one of NumPy, whose lanes are arrays over messages, and a compiled one (extra ``fast``).

Source: RFC 9861, section 2.
"""

import functools
import math
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import MissingExtra, check, require
from mapveil_client.two_operators.finite_fields import Octets

Lanes = npt.NDArray[np.uint64]

RATE: Final = 168
"""Bytes of a block."""

COMPILE_AFTER_S: Final = 1.0
"""Seconds of the NumPy kernel after which it is compiled, where that is installed: about what compiling costs."""

_spent = [0.0]  # seconds in the NumPy kernel

_LANES: Final = RATE // 8
_TOGETHER: Final = 256  # messages whose states fit the first cache
_ROUNDS: Final = (
    0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002,
    0x8000000000000080, 0x000000000000800A, 0x800000008000000A, 0x8000000080008081, 0x8000000000008080,
    0x0000000080000001, 0x8000000080008008,
)  # fmt: skip
_CONSTANTS: Final = np.array(_ROUNDS, dtype=np.uint64)
_TURNS: Final = np.array(
    [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14],
    dtype=np.uint64,
)  # rotation of lane x + 5 y
_BACK: Final = (np.uint64(64) - _TURNS) % np.uint64(64)  # a lane that is not turned meets itself


def _sources() -> npt.NDArray[np.int64]:
    """The lane that each lane comes from; each row of five is followed by its first two again."""
    source = np.empty(25, dtype=np.int64)
    for x in range(5):
        for y in range(5):
            source[y + 5 * ((2 * x + 3 * y) % 5)] = x + 5 * y
    return np.concatenate([np.append(row, row[:2]) for row in source.reshape(5, 5)])


_SOURCES: Final = _sources()
_ONE, _LAST = np.uint64(1), np.uint64(63)


def turbo_shake_128(messages: Octets, domain: int, length: int) -> Octets:
    """Hash each row to ``length`` bytes. Run by: client and operators.

    Parameters
    ----------
    messages : ndarray of uint8, shape (messages, bytes)
        The messages, of one length.
    domain : int
        Separation byte, 1 to 127.
    length : int
        Bytes of output for each message.

    Returns
    -------
    ndarray of uint8, shape (messages, length)

    Raises
    ------
    ParameterError
        The separation byte is outside its range.
    """
    check(1 <= domain <= 127, "domain", "from 1 to 127", domain)
    count, size = messages.shape
    blocks, squeezed = size // RATE + 1, max(1, -(-length // RATE))
    sponge: Callable[[Lanes, Lanes], None] = _timed
    if _spent[0] >= COMPILE_AFTER_S:
        try:
            sponge = compiled_sponge()
        except MissingExtra:
            _spent[0] = -math.inf
    found = np.empty((count, squeezed * _LANES), dtype="<u8")
    for first in range(0, count, _TOGETHER):
        part = messages[first : first + _TOGETHER]
        padded = np.zeros((part.shape[0], blocks * RATE), dtype=np.uint8)
        padded[:, :size] = part
        padded[:, size] = domain
        padded[:, -1] ^= 0x80
        words = padded.view("<u8").astype(np.uint64, copy=False)
        sponge(words, found[first : first + _TOGETHER])
    return found.view(np.uint8)[:, :length]


def _timed(words: Lanes, found: Lanes) -> None:
    begun = time.thread_time()
    _plain(words, found)
    _spent[0] += time.thread_time() - begun


def _plain(words: Lanes, found: Lanes) -> None:
    """Absorb and squeeze with NumPy alone."""
    state = np.zeros((25, words.shape[0]), dtype=np.uint64)
    permute = _permutation(words.shape[0])
    for start in range(0, words.shape[1], _LANES):
        state[:_LANES] ^= words[:, start : start + _LANES].T
        permute(state)
    for start in range(0, found.shape[1], _LANES):
        found[:, start : start + _LANES] = state[:_LANES].T
        if start + _LANES < found.shape[1]:
            permute(state)


def _permutation(count: int) -> Callable[[Lanes], None]:
    """The permutation of so many states, shape (25, states), in place."""
    turned, other = (np.empty((25, count), dtype=np.uint64) for _ in range(2))
    wide = np.empty((35, count), dtype=np.uint64)
    rows = wide.reshape(5, 7, count)
    ring, spun = np.empty((7, count), dtype=np.uint64), np.empty((5, count), dtype=np.uint64)
    turns, back = _TURNS[:, None], _BACK[:, None]
    grid = other.reshape(5, 5, count)

    def permute(state: Lanes) -> None:
        square = state.reshape(5, 5, count)
        for constant in _CONSTANTS:
            np.bitwise_xor.reduce(square, axis=0, out=ring[1:6])
            ring[0], ring[6] = ring[5], ring[1]
            np.left_shift(ring[2:], _ONE, out=spun)
            np.bitwise_or(spun, ring[2:] >> _LAST, out=spun)
            np.bitwise_xor(spun, ring[:5], out=spun)
            np.bitwise_xor(square, spun, out=square)
            np.left_shift(state, turns, out=turned)
            np.right_shift(state, back, out=other)
            np.bitwise_or(turned, other, out=turned)
            np.take(turned, _SOURCES, axis=0, out=wide, mode="clip")
            np.invert(rows[:, 1:6], out=grid)
            np.bitwise_and(grid, rows[:, 2:7], out=grid)
            np.bitwise_xor(grid, rows[:, :5], out=square)
            state[0] ^= constant

    return permute


@functools.cache
def compiled_sponge() -> Callable[[Lanes, Lanes], None]:
    """Compile the kernel for this machine, which takes a second or two.

    Raises
    ------
    MissingExtra
        The extra ``fast`` is not installed.
    """
    numba: Any = require("numba", "fast")
    constants, lanes = _CONSTANTS, _LANES
    sources = _SOURCES.reshape(5, 7)[:, :5].ravel().copy()
    turns, back = _TURNS[sources], _BACK[sources]

    def permute(state: Lanes, moved: Lanes) -> None:
        for step in range(12):
            c0 = state[0] ^ state[5] ^ state[10] ^ state[15] ^ state[20]
            c1 = state[1] ^ state[6] ^ state[11] ^ state[16] ^ state[21]
            c2 = state[2] ^ state[7] ^ state[12] ^ state[17] ^ state[22]
            c3 = state[3] ^ state[8] ^ state[13] ^ state[18] ^ state[23]
            c4 = state[4] ^ state[9] ^ state[14] ^ state[19] ^ state[24]
            d0 = c4 ^ ((c1 << _ONE) | (c1 >> _LAST))
            d1 = c0 ^ ((c2 << _ONE) | (c2 >> _LAST))
            d2 = c1 ^ ((c3 << _ONE) | (c3 >> _LAST))
            d3 = c2 ^ ((c4 << _ONE) | (c4 >> _LAST))
            d4 = c3 ^ ((c0 << _ONE) | (c0 >> _LAST))
            for row in range(0, 25, 5):
                state[row] ^= d0
                state[row + 1] ^= d1
                state[row + 2] ^= d2
                state[row + 3] ^= d3
                state[row + 4] ^= d4
            for lane in range(25):
                value = state[sources[lane]]
                moved[lane] = (value << turns[lane]) | (value >> back[lane])
            for row in range(0, 25, 5):
                for x in range(5):
                    state[row + x] = moved[row + x] ^ (~moved[row + (x + 1) % 5] & moved[row + (x + 2) % 5])
            state[0] ^= constants[step]

    permute = numba.njit(permute)

    def sponge(words: Lanes, found: Lanes) -> None:
        state, moved = np.zeros(25, dtype=np.uint64), np.zeros(25, dtype=np.uint64)
        for row in range(words.shape[0]):
            state[:] = 0
            for start in range(0, words.shape[1], lanes):
                for lane in range(lanes):
                    state[lane] ^= words[row, start + lane]
                permute(state, moved)
            for start in range(0, found.shape[1], lanes):
                for lane in range(lanes):
                    found[row, start + lane] = state[lane]
                if start + lanes < found.shape[1]:
                    permute(state, moved)

    made: Callable[[Lanes, Lanes], None] = numba.njit(
        numba.void(numba.uint64[:, ::1], numba.uint64[:, ::1]), nogil=True
    )(sponge)
    return made
