r"""Shamir's secret sharing of 32-byte secrets, many at once.

A secret, as a little-endian number, is written in 17 digits of base :math:`p = 65521`, the largest
prime below :math:`2^{16}`. Each digit d is the constant term of a polynomial over the integers
modulo p,

.. math:: f(x) = d + \sum_{j=1}^{t-1} a_j x^j \bmod p, \qquad d = \sum_{i \in S} f(x_i) \prod_{j \in S,
    j \ne i} \frac{x_j}{x_j - x_i} \bmod p

where: :math:`t` is ``threshold``, :math:`a_j` are uniform, the share of slot :math:`x` is
:math:`f(x)` for each digit, and :math:`S` is any t slots. Fewer than t shares are independent of
the secret.

All products of sharing are one float64 matrix product, exact because :math:`t p^2 < 2^{53}`; the
products of reconstruction become sums of discrete logarithms, and those again one matrix product.

Source: Shamir, "How to share a secret" (1979).
"""

import functools

import numpy as np
import numpy.typing as npt

from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.states import PeerFault

PRIME = 65521
SECRET_BYTES = 32
DIGITS = 17
"""Digits of base PRIME that hold any secret: a share is as many uint16."""

_GENERATOR = 17  # its powers run through 1 .. PRIME - 1
_BATCH = 1 << 22  # float64 numbers of shares held at once


def _digits(secrets: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Digits of each secret, least significant first, shape (m, 17)."""
    left = np.array([int.from_bytes(row.tobytes(), "little") for row in secrets], dtype=object)
    digits = np.empty((len(secrets), DIGITS))
    for i in range(DIGITS):
        digits[:, i] = left % PRIME
        left //= PRIME
    return digits


def _secrets(digits: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The secrets of digits, shape (m, 32)."""
    numbers = np.zeros(len(digits), dtype=object)
    for i in reversed(range(DIGITS)):
        numbers = numbers * PRIME + digits[:, i]
    try:
        written = b"".join(int(number).to_bytes(SECRET_BYTES, "little") for number in numbers)
    except OverflowError:
        raise PeerFault(
            "shares make no secret of 32 bytes; expected shares of one secret, none of them altered"
        ) from None
    return np.frombuffer(written, dtype=np.uint8).reshape(-1, SECRET_BYTES)


@functools.lru_cache(maxsize=8)
def _powers(shares: int, threshold: int) -> npt.NDArray[np.float64]:
    """x^j modulo PRIME for j = 0 .. threshold - 1 and x = 1 .. shares, shape (threshold, shares)."""
    slots = np.arange(1, shares + 1, dtype=np.int64)
    powers = np.ones((threshold, shares), dtype=np.int64)
    for j in range(1, threshold):
        powers[j] = powers[j - 1] * slots % PRIME
    made = powers.astype(np.float64)
    made.flags.writeable = False
    return made


@functools.lru_cache(maxsize=1)
def logarithms() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Discrete logarithms of 0 .. PRIME - 1 (of 0: 0, never used), and the powers they belong to."""
    powers = np.ones(1, dtype=np.int64)
    while powers.size < PRIME - 1:
        powers = np.concatenate([powers, powers * pow(_GENERATOR, powers.size, PRIME) % PRIME])
    powers = powers[: PRIME - 1]
    logarithms = np.zeros(PRIME)
    logarithms[powers] = np.arange(PRIME - 1)
    return logarithms, powers.astype(np.float64)


def _coefficients(shape: tuple[int, int], rng: Randomness) -> npt.NDArray[np.float64]:
    """Exactly uniform numbers below PRIME: words that are larger are thrown away."""
    drawn = rng.words(shape[0] * shape[1], np.uint16)
    while (poor := np.flatnonzero(drawn >= PRIME)).size:
        drawn[poor] = rng.words(poor.size, np.uint16)
    return drawn.astype(np.float64).reshape(shape)


def split_secrets(
    secrets: npt.NDArray[np.uint8], shares: int, threshold: int, rng: Randomness
) -> npt.NDArray[np.uint16]:
    """Split secrets into shares of which any ``threshold`` give them back. Run by: the client.

    Parameters
    ----------
    secrets : ndarray of uint8, shape (m, 32)
        The secrets.
    shares : int
        Number of shares of each, for the slots 1 .. shares.
    threshold : int
        Number of shares that give the secret back; fewer are independent of it.

    Returns
    -------
    ndarray of uint16, shape (m, shares, 17)
        The share of slot x is ``[:, x - 1]``; every number is below PRIME.

    Raises
    ------
    ParameterError
        A shape is wrong, or not ``1 <= threshold <= shares < PRIME``.
    """
    good = secrets.ndim == 2 and secrets.shape[1] == SECRET_BYTES and secrets.dtype == np.uint8
    check(good, "secrets", f"uint8 of shape (m, {SECRET_BYTES})", secrets.shape)
    check(
        1 <= threshold <= shares < PRIME, "threshold", f"from 1 to {shares} shares, below {PRIME}", threshold
    )
    count = len(secrets)
    polynomials = np.empty((count * DIGITS, threshold))
    polynomials[:, 0] = _digits(secrets).reshape(-1)
    polynomials[:, 1:] = _coefficients((count * DIGITS, threshold - 1), rng)
    values = np.remainder(polynomials @ _powers(shares, threshold), PRIME).astype(np.uint16)
    return np.ascontiguousarray(values.reshape(count, DIGITS, shares).transpose(0, 2, 1))


def _weights(slots: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Lagrange's weights at zero of each row's slots, shape (m, t)."""
    logs, powers = logarithms()
    largest = int(slots.max())
    present = np.zeros((len(slots), largest))
    np.put_along_axis(present, slots - 1, 1.0, axis=1)
    if np.any(present.sum(axis=1) != slots.shape[1]):
        raise ParameterError("a slot is given twice for one secret; expected distinct slots")
    x = np.arange(1, largest + 1)
    numerators = present @ logs[x]
    # Column i: sums over the slots j present of log(x_j - x_i); the diagonal adds log 0 = 0.
    denominators = present @ logs[(x[:, None] - x[None, :]) % PRIME]
    exponents = numerators[:, None] - logs[slots] - np.take_along_axis(denominators, slots - 1, axis=1)
    weights: npt.NDArray[np.float64] = powers[np.remainder(exponents, PRIME - 1).astype(np.int64)]
    return weights


def reconstruct_secrets(
    slots: npt.NDArray[np.integer], shares: npt.NDArray[np.uint16]
) -> npt.NDArray[np.uint8]:
    """Give secrets back from ``t`` shares each. Run by: the server.

    Parameters
    ----------
    slots : ndarray of int, shape (m, t)
        For each secret, the distinct slots whose shares are given, any order.
    shares : ndarray of uint16, shape (m, t, 17)
        Those shares.

    Returns
    -------
    ndarray of uint8, shape (m, 32)
        The secrets; wrong shares give wrong ones, which the caller checks against the client's commitments.

    Raises
    ------
    PeerFault
        A share holds a number of PRIME or above, or the digits make no number of 32 bytes.
    ParameterError
        Shapes disagree, a slot is outside 1 .. PRIME - 1, or a slot is given twice.
    """
    where = np.asarray(slots, dtype=np.int64)
    good = where.ndim == 2 and where.shape[1] >= 1 and shares.shape == (*where.shape, DIGITS)
    wanted = f"of shapes (m, t) and (m, t, {DIGITS})"
    check(good, "slots and shares", wanted, (where.shape, shares.shape))
    if not len(where):
        return np.zeros((0, SECRET_BYTES), dtype=np.uint8)
    check(bool(((where >= 1) & (where < PRIME)).all()), "slots", f"from 1 to {PRIME - 1}", where)
    if shares.max() >= PRIME:
        raise PeerFault(f"a share holds the number {shares.max()}; expected numbers below {PRIME}")
    digits = np.empty((len(where), DIGITS), dtype=np.int64)
    step = max(1, _BATCH // (where.shape[1] * DIGITS + int(where.max())))
    for start in range(0, len(where), step):
        part = slice(start, start + step)
        sums = np.matmul(_weights(where[part])[:, None, :], shares[part].astype(np.float64))
        digits[part] = np.remainder(sums[:, 0], PRIME)
    return _secrets(digits)
