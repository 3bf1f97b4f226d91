"""Randomness: one keyed stream, from the operating system's CSPRNG unless a seed is given; exactly uniform integers.

Every random bit of every mechanism comes from a :class:`Randomness`, an AES-256 counter-mode
stream. Without a seed its key is drawn from the operating system. With a seed the key is a hash of the
seed, the run is repeatable, and anybody with the seed can remove the noise: such a
result is marked ``seeded: not for release``.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError, Secret

_CHUNK = 1 << 18
_ZEROS = bytes(_CHUNK)
_BLOCK_SLACK = 16


class Randomness(Secret):
    """A stream of independent uniform bits.

    Parameters
    ----------
    seed : int, optional
        Makes the stream repeatable. Never give one for a release.

    Attributes
    ----------
    seeded : bool
        Whether the stream can be repeated.

    Examples
    --------
    >>> Randomness(seed=1).words(2, np.uint16).dtype
    dtype('uint16')
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
            raise ParameterError(f"seed must be an integer, got {seed!r}")
        self.seeded = seed is not None
        if seed is None:
            self._start(os.urandom(32))
        else:
            self._start(hashlib.sha256(b"mapveil seed " + str(int(seed)).encode()).digest())

    def _start(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._key = key
        self._pid = os.getpid()
        # A key is used for one stream only, so the counter may start at zero.
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    @classmethod
    def keyed(cls, key: bytes) -> Randomness:
        """The stream of a secret key of 32 bytes: its holder alone can repeat it, so it is not marked as seeded."""
        made = cls.__new__(cls)
        made.seeded = False
        made._start(hashlib.sha256(b"mapveil keyed " + key).digest())
        return made

    def words(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[np.unsignedinteger]:
        """Draw uniform words.

        Parameters
        ----------
        count : int
            Number of words.
        dtype : dtype
            An unsigned integer type; every value is equally likely.
        """
        if not self.seeded and os.getpid() != self._pid:
            self._start(os.urandom(32))  # a forked child must not repeat its parent's noise
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        buffer = np.empty(size + _BLOCK_SLACK, dtype=np.uint8)
        view = buffer.data
        for start in range(0, size, _CHUNK):
            part = min(_CHUNK, size - start)
            zeros = _ZEROS if part == _CHUNK else _ZEROS[:part]
            self._stream.update_into(zeros, view[start : start + part + _BLOCK_SLACK - 1])
        return buffer[:size].view(dtype)

    def child(self, label: str) -> Randomness:
        """Derive an independent stream; the same label of the same seed gives the same stream."""
        made = Randomness.__new__(Randomness)
        made.seeded = self.seeded
        if self.seeded:
            made._start(hashlib.sha256(b"mapveil child " + self._key + label.encode()).digest())
        else:
            made._start(os.urandom(32))
        return made

    def generator(self) -> np.random.Generator:
        """A NumPy generator keyed from this stream, for simulations, never for privacy noise."""
        return np.random.Generator(np.random.Philox(key=self.words(2, np.uint64)))

    def __repr__(self) -> str:
        return f"Randomness({'seeded: not for release' if self.seeded else 'operating system'})"


def as_randomness(rng: Randomness | int | None) -> Randomness:
    """The given stream, or one keyed by a seed or (``None``) by the operating system."""
    return rng if isinstance(rng, Randomness) else Randomness(rng)


_SHORT = 1 << 24
_UNIFORM_CHUNK = 1 << 16
_LARGEST = 1 << 62
_WORD_MAX = (1 << 64) - 1
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


def uniforms(count: int, rng: Randomness) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), multiples of 2^-53, shape (count,)."""
    return (rng.words(count, np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform_below(count: int, bound: int, rng: Randomness) -> npt.NDArray[np.int64]:
    """Draw independent integers, every value from 0 to ``bound - 1`` equally likely, shape (count,).

    Parameters
    ----------
    count : int
        Number of samples.
    bound : int
        From 1 to 2^62.
    rng : Randomness
        The source of bits.

    Raises
    ------
    ParameterError
        The bound is outside its range.
    """
    if not 1 <= bound <= _LARGEST:
        raise ParameterError(f"the bound of a uniform integer must be 1 to 2^62, got {bound}")
    drawn = np.empty(count, dtype=np.int64)
    fill = _by_product if bound <= _SHORT else _by_remainder
    for start in range(0, count, _UNIFORM_CHUNK):
        fill(drawn[start : start + _UNIFORM_CHUNK], bound, rng)
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
    """Draw independent integers, each uniform from 0 to its own bound less 1, shape (bounds.size,).

    Parameters
    ----------
    bounds : ndarray of int64
        At least 1 each.
    rng : Randomness
        The source of bits.

    Raises
    ------
    ParameterError
        A bound is below 1.
    """
    if bounds.size and bounds.min() < 1:
        raise ParameterError(f"the bound of a uniform integer must be 1 or more, got {bounds.min()}")
    below = bounds.astype(np.uint64)
    words = rng.words(bounds.size, np.uint64)
    drawn = (words % below).astype(np.int64)
    # The last multiple of the bound that 64 bits hold, less one: words above it would favour some values.
    uneven = (np.uint64(_WORD_MAX) % below + np.uint64(1)) % below
    again = np.flatnonzero(words > np.uint64(_WORD_MAX) - uneven)
    if again.size:
        drawn[again] = uniform_below_each(bounds[again], rng)
    return drawn
