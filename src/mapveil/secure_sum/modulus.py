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

from __future__ import annotations

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
    """The fewest bits whose overflow is proved to be improbable. Run by: the server, which publishes them.

    Parameters
    ----------
    shard_size : int
        Clients in one sum, at least 1.
    per_user_max : int
        The most that one client adds to one coordinate, in lattice units.
    length : int
        Coordinates.
    terms : Fraction or float
        The summed shape of the noise when nobody drops out: ``shard_size`` times the shape of a share.
    epsilon, sensitivity
        As for :func:`mapveil_client.randomness.noise_shares.noise_shares`.
    failure : float
        The probability allowed, over all coordinates of one sum.

    Returns
    -------
    int
        b, from 1 to 64.

    Raises
    ------
    ParameterError
        A number is outside its range, or 64 bits do not suffice.
    """
    highest = highest_sum(shard_size, per_user_max)
    if length < 1 or not 0 < failure < 1:
        raise ParameterError(
            f"{length} coordinates, failure {failure!r}; expected 1 or more, and a probability"
        )
    reach = laplace_sum_quantile(failure / length, terms, epsilon, sensitivity)
    bits = (highest + 2 * reach).bit_length()
    # The quantile is a little above the smallest; the tail at the next power of two may still do.
    if bits - 1 <= _WORD and _overflow(bits - 1, highest, length, terms, epsilon, sensitivity) <= failure:
        bits -= 1
    if bits > _WORD or _overflow(bits, highest, length, terms, epsilon, sensitivity) > failure:
        raise ParameterError(
            f"sums of {shard_size} clients of up to {per_user_max} with noise of up to "
            f"{float(reach):.3g} need more than {_WORD} bits; expected a smaller scale or shard, or a "
            "larger epsilon"
        )
    return bits


def check_modulus(
    bits: int,
    shard_size: int,
    per_user_max: int,
    length: int,
    terms: Fraction | float,
    epsilon: Fraction,
    sensitivity: int,
    *,
    failure: float = FAILURE,
) -> int:
    """Refuse too few bits, naming the fewest that do; return them where they do. Run by: the server.

    Parameters
    ----------
    bits : int
        What the user asks for.
    shard_size, per_user_max, length, terms, epsilon, sensitivity, failure
        As for :func:`smallest_modulus`.

    Raises
    ------
    ParameterError
        Fewer than the smallest, or more than 64.
    """
    smallest = smallest_modulus(
        shard_size, per_user_max, length, terms, epsilon, sensitivity, failure=failure
    )
    if not smallest <= bits <= _WORD:
        raise ParameterError(f"bits is {bits}; expected {smallest} to {_WORD} for these sums")
    return bits


def highest_sum(shard_size: int, per_user_max: int) -> int:
    """The highest exact sum of a coordinate, M of the module's header.

    Parameters
    ----------
    shard_size, per_user_max
        As for :func:`smallest_modulus`.
    """
    if shard_size < 1 or per_user_max < 1:
        raise ParameterError(
            f"{shard_size} clients of up to {per_user_max} each; expected whole numbers above 0"
        )
    return shard_size * per_user_max


def _lowest(bits: int, highest: int) -> int:
    """Where the window begins, -w."""
    return -max(0, ((1 << bits) - highest) // 2) if bits < _WORD else -(1 << (_WORD - 1))


def _overflow(
    bits: int,
    highest: int,
    length: int,
    terms: Fraction | float,
    epsilon: Fraction,
    sensitivity: int,
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
        From 1 to 64.
    highest : int
        The highest exact sum, :func:`highest_sum`.

    Returns
    -------
    ndarray of int64
        Of the same shape; wrapped around where a noisy sum was outside the window.

    Raises
    ------
    ParameterError
        A number is outside its range.
    """
    if not 1 <= bits <= _WORD or not 0 <= highest < 1 << (_WORD - 1):
        raise ParameterError(
            f"{bits} bits for sums of up to {highest}; expected 1 to {_WORD} bits, and sums of 63"
        )
    lowest = np.uint64(_lowest(bits, highest) % (1 << _WORD))
    mask = np.uint64((1 << bits) - 1)
    # Unsigned words wrap around, which is the arithmetic wanted.
    return (((total - lowest) & mask) + lowest).view(np.int64)
