r"""Random sets of sites as packed bits: each bit by itself with an exact probability, or a fixed number of them.

A bit is 1 with probability :math:`Q / 2^{32}` exactly. Eight sites are drawn at a time: of the 256 bytes, one with h
ones has the probability

.. math:: P = \frac{Q^h\, (2^{32} - Q)^{8 - h}}{2^{256}}

A word of 16 bits decides: :math:`\lfloor 2^{16} P \rfloor` of the words mean each byte. The few words left, as many as
the remainders add up to, are refined by more bits until no comparison with a remainder is open.

A uniform set of k sites is a set of independent bits, uniform given its size, to which uniformly chosen sites are
added (or from which members are removed) until there are k.
"""

import bisect
import functools
import itertools
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import IntArray
from mapveil_client.randomness.random import Randomness, uniform_below

BitArray = npt.NDArray[np.uint8]

ONE: Final = 1 << 32
"""Probabilities are whole numbers over this."""

_PIECE: Final = 1 << 17  # bytes drawn at a time, which stay in the cache
_WORDS: Final = 1 << 16
_FINE: Final = 240  # bits of a remainder: of the 256 of a probability, the first 16 are in the table
_FIRST: Final = 56  # bits of a remainder that one word refines
_REST: Final = _FINE - _FIRST
_SPREAD: Final = 1.5  # standard deviations between the mean of the first bits and the wanted size


class ByteLaw(NamedTuple):
    """The byte of eight independent bits that a uniform word of 16 bits means."""

    table: BitArray  # the byte of each word, shape (65536,), read-only
    certain: int  # words from here on are refined instead
    ends: tuple[int, ...]  # end of the remainder of each byte, in 2**-240 of a word beyond `certain`
    tops: npt.NDArray[np.uint64]  # their highest 64 bits


@functools.lru_cache(maxsize=16)
def byte_law(chance: int) -> ByteLaw:
    """The law of eight bits of one chance Q, 0 to 2**32.

    Examples
    --------
    >>> law = byte_law(1 << 31)
    >>> law.certain, np.bincount(law.table).tolist() == [256] * 256
    (65536, True)
    """
    of_number = [chance**ones * (ONE - chance) ** (8 - ones) for ones in range(9)]
    whole, rest = zip(
        *(divmod(of_number[value.bit_count()], 1 << _FINE) for value in range(256)), strict=True
    )
    table = np.zeros(_WORDS, dtype=np.uint8)
    certain = sum(whole)
    table[:certain] = np.repeat(np.arange(256, dtype=np.uint8), whole)
    table.flags.writeable = False
    ends = tuple(itertools.accumulate(rest))
    return ByteLaw(table, certain, ends, np.array([end >> _REST for end in ends], dtype=np.uint64))


def independent_bits(rows: int, sites: int, chance: int, rng: Randomness) -> BitArray:
    """Sets that hold each site with probability ``chance / 2**32``, independently. Run by: the client.

    Parameters
    ----------
    rows, sites : int
        Number of sets, and of sites.
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
    law = byte_law(chance)
    made = np.empty(rows * width, dtype=np.uint8)
    for start in range(0, made.size, _PIECE):
        _fill(made[start : start + _PIECE], law, rng)
    sets = made.reshape(rows, width)
    sets[:, -1] &= 0xFF << (8 * width - sites) & 0xFF
    return sets


def _fill(made: BitArray, law: ByteLaw, rng: Randomness) -> None:
    """Bytes of independent bits, in place."""
    words = rng.words(made.size, np.uint16)
    made[:] = law.table.take(words)
    if law.certain < _WORDS:
        unsure = np.flatnonzero(words >= law.certain)
        made[unsure] = _refined(words[unsure] - law.certain, law, rng)


def _refined(unit: npt.NDArray[np.integer], law: ByteLaw, rng: Randomness) -> BitArray:
    """The bytes of words beyond the table, by the place of each, with 240 more bits, among the remainders."""
    at = unit.astype(np.uint64) << np.uint64(_FIRST)
    at |= rng.words(unit.size, np.uint64) >> np.uint64(64 - _FIRST)
    found = np.searchsorted(law.tops, at, side="right")
    for which in np.flatnonzero(found != np.searchsorted(law.tops, at, side="left")):  # level with an end
        more = int.from_bytes(rng.words(_REST // 8, np.uint8).tobytes(), "little")
        found[which] = bisect.bisect_right(law.ends, int(at[which]) << _REST | more)
    return found.astype(np.uint8)


def put_bits(sets: BitArray, sites: IntArray, values: npt.NDArray[np.bool_]) -> None:
    """Put one bit into each row, in place."""
    row, byte = np.arange(sets.shape[0]), sites >> 3
    mask = (0x80 >> (sites & 7)).astype(np.uint8)
    sets[row, byte] = np.where(values, sets[row, byte] | mask, sets[row, byte] & ~mask)


def set_sizes(sets: BitArray) -> IntArray:
    """The number of sites in each set, shape (rows,)."""
    if not hasattr(np, "bitwise_count"):  # NumPy 1
        ones = np.array([byte.bit_count() for byte in range(256)])
        return np.asarray(ones[sets].sum(axis=1, dtype=np.int64))
    rows, width = sets.shape
    words = np.zeros((rows, -(-width // 8)), dtype=np.uint64)
    words.view(np.uint8)[:, :width] = sets
    return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int64))


def uniform_sets(sites: int, without: IntArray, size: IntArray, rng: Randomness) -> BitArray:
    """Uniform sets of given sizes, each without one given site. Run by: the client.

    Parameters
    ----------
    sites : int
        Number of sites.
    without : ndarray of int64, shape (rows,)
        The site that is not in each set.
    size : ndarray of int64, shape (rows,)
        Size of each set, at most ``sites - 1``.
    rng : Randomness
        The source of bits.
    """
    rows = without.size
    mean = float(size.mean()) if rows else 0.0
    # Adding is quicker than removing where fewer than half are held, so start with rather too few.
    spread = _SPREAD * np.sqrt(mean * max(1 - mean / sites, 0.0))
    part = (mean - spread if 2 * mean < sites else mean + spread) / sites
    sets = independent_bits(rows, sites, int(np.clip(part, 0.0, 1.0) * ONE), rng)
    flat, width = sets.reshape(-1), sets.shape[1]
    put_bits(sets, without, np.zeros(rows, dtype=np.bool_))
    left, missing = np.arange(rows), size - set_sizes(sets)
    while True:
        some = np.flatnonzero(missing)
        if not some.size:
            return sets
        left, missing = left[some], missing[some]
        for more in (True, False):
            draws = _draws(missing if more else -missing, size[left], sites, more)
            row, at = np.repeat(left, draws), uniform_below(int(draws.sum()), sites, rng)
            mask = (0x80 >> (at & 7)).astype(np.uint8)
            mask[at == without[row]] = 0
            # A site drawn twice, or held already, changes nothing.
            byte = row * width + (at >> 3)
            if more:
                np.bitwise_or.at(flat, byte, mask)
            else:
                np.bitwise_and.at(flat, byte, ~mask)
        missing = size[left] - set_sizes(sets[left])


def _draws(wanted: IntArray, size: IntArray, sites: int, more: bool) -> IntArray:
    """The number of sites to draw for so many changes, shape (rows,): at least half of them, and rarely too many.

    It depends on numbers only, never on the sites held, so that all sets of a size stay equally likely.
    """
    changing = sites - size if more else np.maximum(size, 1)
    return np.asarray(np.maximum(wanted, 0) * np.maximum(sites // (2 * changing), 1)).clip(0, sites)
