r"""The vectors of shared waves: a location becomes a vector of whole numbers whose L1 norm is bounded exactly.

.. math:: V(x) = \big( \operatorname{rint}(A_m \cos \kappa_m \cdot (x - o)),\;
                 \operatorname{rint}(A_m \sin \kappa_m \cdot (x - o)) \big)_m

where: :math:`A_m` are the waves' amplitudes and o is their origin. Where the L1 norm exceeds ``waves.limit`` the vector
is scaled down in integers, so the bound holds whatever floating point did. Rounding moves a coordinate by half a unit,
a part of :math:`2^{-22}` of the noise and less.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.mechanisms.mechanism import Progress
from mapveil.mechanisms.shared_waves import SharedWaves
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError

_BLOCK: Final = 1 << 18  # coordinates at once, so that temporaries stay in the cache
_BLOCKS: Final = 64  # so many times what float64 holds exactly fits an integer
_LIMB: Final = 18
_EXACT: Final = 53


def place_vectors(places: FloatArray, waves: SharedWaves) -> IntArray:
    """The vector of each place, without noise. Run by: the curator.

    Parameters
    ----------
    places : ndarray of float64, shape (2, places)
        Metres.
    waves : SharedWaves
        The public set.

    Returns
    -------
    ndarray of int64, shape (places, waves.length)
        Units; of L1 norm at most ``waves.limit`` each.

    Raises
    ------
    InputError
        A place is not a number.
    """
    if places.ndim != 2 or places.shape[0] != 2 or not bool(np.isfinite(places).all()):
        raise InputError("a place is not two finite numbers; nothing is answered")
    return _whole(places, waves).astype(np.int64)


def _whole(places: FloatArray, waves: SharedWaves) -> FloatArray:
    """The vectors as whole numbers in float64, which BLAS can add up."""
    parts: list[npt.NDArray[np.complex128]] = []
    for axis in range(2):
        angle = (places[axis] - waves.origin[axis]) * (2 * math.pi / waves.period[axis])
        highest = int(np.abs(waves.index[axis]).max())
        powers = np.exp(1j * np.outer(angle, np.arange(-highest, highest + 1)))
        parts.append(np.take(powers, waves.index[axis] + highest, axis=1))
    product = np.multiply(parts[0], parts[1], out=parts[0])
    made = np.empty((places.shape[1], waves.length))
    np.multiply(product.real, waves.amplitude, out=made[:, : waves.count])
    np.multiply(product.imag, waves.amplitude, out=made[:, waves.count :])
    np.rint(made, out=made)
    norm = np.abs(made).sum(axis=1)
    over = np.flatnonzero(norm > waves.limit)
    if over.size:
        part = made[over].astype(np.int64)
        bound = norm[over, None].astype(np.int64)
        made[over] = np.sign(part) * (np.abs(part) * waves.limit // bound)
    return made


def sum_of_vectors(
    places: FloatArray, users: IntArray, waves: SharedWaves, progress: Progress | None = None
) -> list[int]:
    r"""The exact sum of places' vectors, each times a number: :math:`\sum_c s_c V(c)`. Run by: the curator.

    Parameters
    ----------
    places : ndarray of float64, shape (2, places)
        Metres.
    users : ndarray of int64, shape (places,)
        s, not negative: units of users at each place.
    waves : SharedWaves
        The public set.
    progress : callable, optional
        Told the step and the done part.

    Returns
    -------
    list of int
        ``waves.length`` exact sums, of any size.
    """
    held = np.flatnonzero(users)
    wide = int(waves.amplitude.max()).bit_length()
    # Products of limbs add up exactly in float64, which BLAS sums at full speed.
    block = max(1, min(_BLOCK // waves.length, 1 << max(0, _EXACT - _LIMB - wide)))
    starts = range(0, held.size, block)

    def summed(start: int) -> IntArray:
        at = held[start : start + block]
        vectors = _whole(places[:, at], waves)
        return np.stack([(limb @ vectors).astype(np.int64) for limb in _limbs(users[at], limbs)])

    limbs = -(-int(users.max(initial=0)).bit_length() // _LIMB)
    total = [0] * waves.length
    running = np.zeros((limbs, waves.length), dtype=np.int64)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for number, part in enumerate(pool.map(summed, starts), start=1):
            running += part
            if number % _BLOCKS == 0 or number == len(starts):
                for place, row in enumerate(running.tolist()):
                    total = [
                        value + (more << (place * _LIMB)) for value, more in zip(total, row, strict=True)
                    ]
                running[:] = 0
                if progress is not None:
                    progress("sum the waves", number / len(starts))
    return total


def _limbs(users: IntArray, limbs: int) -> list[FloatArray]:
    mask = (1 << _LIMB) - 1
    return [((users >> (_LIMB * place)) & mask).astype(np.float64) for place in range(limbs)]
