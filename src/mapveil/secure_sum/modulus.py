r"""The modulus of a secure sum: bits per coordinate, and signed values of sums modulo a power of two.

A coordinate's exact sum lies in :math:`[0, M]`, :math:`M = S \Gamma`; the noise :math:`Z` comes on top. Residues
modulo :math:`2^b` are read in the window :math:`[-w, 2^b - w)` that leaves as much room below 0 as above M:

.. math:: w = \lfloor (2^b - M) / 2 \rfloor, \qquad \ell \Pr[|Z| > t] \le f, \qquad
    t = \min(w,\, 2^b - 1 - w - M)

where: :math:`S` clients add at most :math:`\Gamma` each; :math:`\ell` is ``length``; :math:`f` is ``failure``. Then
all coordinates together leave their windows with probability at most :math:`f`, whatever the data. With 64 bits the
window is that of a signed word.

An overflow wraps around: it costs accuracy, never privacy.

Source: Bagdasaryan et al. (2022), equation 2 and appendix A.3, where the bits were found by trial.
"""

import functools
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.privacy.laplace_sum import laplace_sum_quantile, laplace_sum_tail
from mapveil_client.errors import ParameterError

FAILURE: Final = 2.0**-40
"""Largest probability of an overflow, over all coordinates of one sum."""
_WORD = 64


@functools.lru_cache(maxsize=256)
def smallest_modulus(
    shard_size: int,
    per_user_max: int,
    length: int,
    terms: Fraction | float,
    epsilon: Fraction,
    sensitivity: int,
    *,
    failure: float = FAILURE,
) -> int:
    """The fewest bits b, from 1 to 64, whose overflow is improbable. Run by: the server, which publishes them.

    Parameters
    ----------
    shard_size : int
        Clients in one sum, at least 1.
    per_user_max : int
        Largest value that one client adds to one coordinate, in lattice units.
    length : int
        Number of coordinates.
    terms : Fraction or float
        Summed shape of the noise without dropouts: ``shard_size`` times the shape of a noise share.
    epsilon, sensitivity
        As for :func:`mapveil_client.randomness.noise_shares.noise_shares`.
    failure : float
        Largest probability of an overflow, over all coordinates of one sum.

    Raises
    ------
    ParameterError
        A number is outside its range, or 64 bits do not suffice.
    """
    highest = highest_sum(shard_size, per_user_max)
    if length < 1 or not 0 < failure < 1:
        raise ParameterError(
            f"length must be at least 1 and failure a probability, got {length} and {failure!r}"
        )
    reach = laplace_sum_quantile(failure / length, terms, epsilon, sensitivity)
    bits = (highest + 2 * reach).bit_length()
    # The quantile is a little above the smallest; the tail at the next power of two may still do.
    if bits - 1 <= _WORD and _overflow(bits - 1, highest, length, terms, epsilon, sensitivity) <= failure:
        bits -= 1
    if bits > _WORD or _overflow(bits, highest, length, terms, epsilon, sensitivity) > failure:
        raise ParameterError(
            f"sums of {shard_size} clients of up to {per_user_max} with noise of up to {float(reach):.3g} need "
            f"more than {_WORD} bits; use a smaller scale or shard, or a larger epsilon"
        )
    return bits


def highest_sum(shard_size: int, per_user_max: int) -> int:
    """The highest exact sum of a coordinate, M of the module's header."""
    if shard_size < 1 or per_user_max < 1:
        raise ParameterError(
            f"shard_size and per_user_max must be at least 1, got {shard_size} and {per_user_max}"
        )
    return shard_size * per_user_max


def _lowest(bits: int, highest: int) -> int:
    """The first number of the window, -w."""
    return -max(0, ((1 << bits) - highest) // 2) if bits < _WORD else -(1 << (_WORD - 1))


def _overflow(
    bits: int, highest: int, length: int, terms: Fraction | float, epsilon: Fraction, sensitivity: int
) -> float:
    """A bound of the probability that some coordinate leaves its window."""
    lowest = _lowest(bits, highest)
    room = min(-lowest, lowest + (1 << bits) - 1 - highest)
    return 1.0 if room < 0 else length * laplace_sum_tail(room, terms, epsilon, sensitivity)


def centre(total: npt.NDArray[np.uint64], bits: int, highest: int) -> npt.NDArray[np.int64]:
    """Read sums modulo 2^bits as the signed numbers of their window. Run by: the server.

    Parameters
    ----------
    total : ndarray of uint64
        Residues modulo 2^bits; higher bits are ignored.
    bits : int
        Bits of the modulus, 1 to 64.
    highest : int
        Highest exact sum, :func:`highest_sum`.

    Returns
    -------
    ndarray of int64
        Same shape; wrapped around where a noisy sum was outside the window.
    """
    if not 1 <= bits <= _WORD or not 0 <= highest < 1 << (_WORD - 1):
        raise ParameterError(f"bits must be from 1 to {_WORD}, highest below 2^63, got {bits} and {highest}")
    lowest = np.uint64(_lowest(bits, highest) % (1 << _WORD))
    mask = np.uint64((1 << bits) - 1)
    # Unsigned words wrap around, which is the arithmetic wanted.
    return (((total - lowest) & mask) + lowest).view(np.int64)
