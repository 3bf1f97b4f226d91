r"""Random sets of sites as packed bits: each bit by itself with an exact probability, or a fixed number of them.

A bit is 1 with probability :math:`Q / 2^{32}` exactly: a byte decides, or, where it is the first of Q's four, three
more do. A uniform set of k sites is a set of independent bits, which given its number is uniform, to which uniformly
chosen others are added (or from which members are taken) until there are k.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.privacy.random import Randomness
from mapveil.privacy.uniform import uniform_below

__all__ = ["ONE", "independent_bits", "put_bits", "set_sizes", "uniform_sets"]

BitArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

ONE: Final = 1 << 32
"""Probabilities are whole numbers over this."""

_PIECE: Final = 1 << 16  # bytes


def independent_bits(rows: int, sites: int, chance: int, rng: Randomness) -> BitArray:
    """Sets that hold each site with probability ``chance / 2**32``, independently. Run by: the client.

    Parameters
    ----------
    rows, sites : int
        How many sets, of how many sites.
    chance : int
        0 to 2**32.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of uint8, shape (rows, ceil(sites / 8))
        The first site in the highest bit; bits beyond the last site are 0.
    """
    width = -(-sites // 8)
    full = np.packbits(np.ones(sites, dtype=np.bool_))
    if chance >= ONE:
        return np.tile(full, (rows, 1))
    made = np.empty(rows * width, dtype=np.uint8)
    for start in range(0, made.size, _PIECE):  # what the steps pass through stays in the cache
        _fill(made[start : start + _PIECE], chance, rng)
    sets = made.reshape(rows, width)
    sets &= full
    return sets


def _fill(below: BitArray, chance: int, rng: Randomness) -> None:
    """Independent bits, in place."""
    # Eight random bits beside the first eight of the chance, for eight sites at a time: below it, or still level.
    below[:] = 0
    level, spare = np.full(below.size, 255, dtype=np.uint8), np.empty(below.size, dtype=np.uint8)
    for place in range(31, 23, -1):
        word = rng.words(below.size, np.uint8)
        np.bitwise_and(level, word, out=spare)
        if chance >> place & 1:
            level ^= spare  # level and not word
            below |= level
            level, spare = spare, level
        else:
            level ^= spare
    tied = np.flatnonzero(level != 0)
    if tied.size:
        bits = np.unpackbits(level[tied][:, None], axis=1).view(np.bool_)
        words = rng.words(int(np.count_nonzero(bits)), np.uint32) >> np.uint32(8)
        bits[bits] = words < chance & 0xFFFFFF
        below[tied] |= np.packbits(bits, axis=1)[:, 0]


def put_bits(sets: BitArray, sites: IntArray, values: npt.NDArray[np.bool_]) -> None:
    """Put one bit into each row, in place."""
    row, byte = np.arange(sets.shape[0]), sites >> 3
    mask = (0x80 >> (sites & 7)).astype(np.uint8)
    sets[row, byte] = np.where(values, sets[row, byte] | mask, sets[row, byte] & ~mask)


@functools.cache
def _ones() -> npt.NDArray[np.uint8]:
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return np.asarray(bits.sum(axis=1, dtype=np.uint8))


def set_sizes(sets: BitArray) -> IntArray:
    """How many sites each set holds, shape (rows,)."""
    return np.asarray(_ones()[sets].sum(axis=1, dtype=np.int64))


def uniform_sets(sites: int, without: IntArray, size: IntArray, rng: Randomness) -> BitArray:
    """Sets of given sizes, every one of them equally likely, none of which holds one given site. Run by: the client.

    Parameters
    ----------
    sites : int
        How many there are.
    without : ndarray of int64, shape (rows,)
        The site that is not in each.
    size : ndarray of int64, shape (rows,)
        At most ``sites - 1``.
    rng : Randomness
        The source of bits.
    """
    rows = without.size
    mean = float(size.mean()) if rows else 0.0
    # Adding is quicker than taking away where fewer than half are held, so start with rather too few.
    spread = 0.7 * np.sqrt(mean * max(1 - mean / sites, 0.0))
    part = (mean - spread if 2 * mean < sites else mean + spread) / sites
    sets = independent_bits(rows, sites, int(np.clip(part, 0.0, 1.0) * ONE), rng)
    put_bits(sets, without, np.zeros(rows, dtype=np.bool_))
    missing = size - set_sizes(sets)
    left = np.flatnonzero(missing)
    while left.size:
        at = uniform_below(left.size, sites, rng)
        byte, mask = at >> 3, (0x80 >> (at & 7)).astype(np.uint8)
        held = (sets[left, byte] & mask) != 0
        more = missing[left] > 0
        turned = (held != more) & (at != without[left])
        change = left[turned]
        sets[change, byte[turned]] ^= mask[turned]
        missing[change] -= np.where(more[turned], 1, -1)
        left = left[missing[left] != 0]
    return sets
