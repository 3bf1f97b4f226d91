"""Exactly uniform integers, by rejection of uniform words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness

_SHORT = 1 << 24
_CHUNK = 1 << 16
_LARGEST = 1 << 62
_WORD_MAX = (1 << 64) - 1
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


def uniform_below(count: int, bound: int, rng: Randomness) -> npt.NDArray[np.int64]:
    """Draw independent integers, every value from 0 to ``bound - 1`` equally likely.

    Parameters
    ----------
    count : int
        How many samples.
    bound : int
        From 1 to 2^62.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int64, shape (count,)

    Raises
    ------
    ParameterError
        The bound is outside its range.
    """
    if not 1 <= bound <= _LARGEST:
        raise ParameterError(f"the bound of a uniform integer is {bound}; 1 to 2^62 is accepted")
    drawn = np.empty(count, dtype=np.int64)
    fill = _by_product if bound <= _SHORT else _by_remainder
    for start in range(0, count, _CHUNK):
        fill(drawn[start : start + _CHUNK], bound, rng)
    return drawn


def _by_product(drawn: npt.NDArray[np.int64], bound: int, rng: Randomness) -> None:
    """High half of bound times a 32-bit word; low halves below 2^32 mod bound would favour some values."""
    product = rng.words(drawn.size, np.uint32) * np.uint64(bound)
    drawn[:] = product >> _HALF
    uneven = (1 << 32) % bound
    if uneven:
        product &= _LOW
        again = np.flatnonzero(product < np.uint64(uneven))
        if again.size:
            redrawn = np.empty(again.size, dtype=np.int64)
            _by_product(redrawn, bound, rng)
            drawn[again] = redrawn


def _by_remainder(drawn: npt.NDArray[np.int64], bound: int, rng: Randomness) -> None:
    """Remainder of a 64-bit word; words above the last multiple of bound would favour some values."""
    words = rng.words(drawn.size, np.uint64)
    drawn[:] = words % np.uint64(bound)
    uneven = (1 << 64) % bound
    if uneven:
        again = np.flatnonzero(words >= np.uint64((1 << 64) - uneven))
        if again.size:
            redrawn = np.empty(again.size, dtype=np.int64)
            _by_remainder(redrawn, bound, rng)
            drawn[again] = redrawn


def uniform_below_each(bounds: npt.NDArray[np.int64], rng: Randomness) -> npt.NDArray[np.int64]:
    """Draw independent integers, each uniform from 0 to its own bound less 1.

    Parameters
    ----------
    bounds : ndarray of int64
        From 1.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of int64, shape (bounds.size,)

    Raises
    ------
    ParameterError
        A bound is below 1.
    """
    if bounds.size and bounds.min() < 1:
        raise ParameterError(f"the bound of a uniform integer is {bounds.min()}; 1 or more is accepted")
    below = bounds.astype(np.uint64)
    words = rng.words(bounds.size, np.uint64)
    drawn = (words % below).astype(np.int64)
    # The last multiple of the bound that 64 bits hold, less one: words above it would favour some values.
    uneven = (np.uint64(_WORD_MAX) % below + np.uint64(1)) % below
    again = np.flatnonzero(words > np.uint64(_WORD_MAX) - uneven)
    if again.size:
        drawn[again] = uniform_below_each(bounds[again], rng)
    return drawn
