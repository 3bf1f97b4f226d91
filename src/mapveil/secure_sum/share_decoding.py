r"""Decoding of secret shares with errors: the shares of one digit are a codeword of a Reed-Solomon code.

The shares :math:`y_x = f(x)` of the slots :math:`x \in S` lie on a polynomial of degree below t exactly if the
syndromes

.. math:: S_m = \sum_{x \in S} v_x x^m y_x \bmod p, \qquad v_x = \prod_{z \in S, z \ne x} \frac{1}{x - z},
    \qquad 0 \le m < |S| - t

are zero. With errors :math:`e_x` at the slots :math:`E`, :math:`S_m = \sum_{x \in E} v_x e_x x^m`: a linear recurrence
with the characteristic polynomial :math:`\prod_{x \in E} (z - x)`, the first linear dependence of the columns of the
Hankel matrix :math:`(S_{n+i})`. One digit's matrix has it where :math:`2 |E| \le |S| - t`, whatever the errors. Those
of all 17 digits, one below the other, have it for random errors where :math:`18 |E| \le 17 (|S| - t)`, since a wrong
share is wrong at one slot of every digit.

where: t is the threshold of :mod:`mapveil_client.secure_sum.shamir`, and p its prime. A share that did not come is left
out of S: it costs one share, a wrong one costs two at most.

Sources: Reed and Solomon, "Polynomial codes over certain finite fields" (1960); Peterson, "Encoding and
error-correction procedures for the Bose-Chaudhuri codes" (1960); McEliece and Sarwate, "On sharing secrets and
Reed-Solomon codes" (1981); Bleichenbacher, Kiayias, Yung, "Decoding of interleaved Reed Solomon codes over noisy data"
(2003).
"""

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.secure_sum.shamir import DIGITS, PRIME, logarithms, reconstruct_secrets
from mapveil_client.secure_sum.states import PeerFault

_BATCH = 1 << 22  # float64 numbers held at once


class Decoded(NamedTuple):
    """The secrets that shares give back."""

    secrets: list[bytes | None]  # 32 bytes each; None where there is none
    wrong: BoolArray  # shares off the polynomial, shape (m, k); none of a secret that is not found


def decode_shares(given: BoolArray, shares: npt.NDArray[np.uint16], threshold: int) -> Decoded:
    """Give secrets back from any shares of theirs, some of them wrong. Run by: the server.

    Each share is one that the client dealt. Half of those beyond ``threshold`` may be wrong in any way, nearly all of
    them at random. With more, a secret is not found, or another one is: the caller checks it against what its client is
    bound to.

    Parameters
    ----------
    given : ndarray of bool, shape (m, k)
        For each secret, whether the share of slot x came, in column x - 1.
    shares : ndarray of uint16, shape (m, k, 17)
        The shares, every number below PRIME; of slots without a share, anything.
    threshold : int
        Number of shares that give a secret back.
    """
    count, slots = given.shape
    wrong = np.zeros_like(given)
    step = max(1, _BATCH // (slots * DIGITS))
    for start in range(0, count, step):
        part = slice(start, start + step)
        spoilt = _syndromes(given[part], shares[part], threshold).any(axis=(1, 2))
        for spoilt_row in np.flatnonzero(spoilt) + start:
            wrong[spoilt_row] = _locate(given[spoilt_row], shares[spoilt_row], threshold)
    right = given & ~wrong
    enough = np.flatnonzero(np.count_nonzero(right, axis=1) >= threshold)
    columns = np.argsort(~right[enough], axis=1, kind="stable")[:, :threshold]
    taken = np.take_along_axis(shares[enough], columns[:, :, None], axis=1)
    secrets: list[bytes | None] = [None] * count
    for row, secret in zip(enough.tolist(), _reconstruct(columns + 1, taken), strict=True):
        secrets[row] = secret
    wrong[[secret is None for secret in secrets]] = False
    return Decoded(secrets, wrong)


def _reconstruct(slots: IntArray, shares: npt.NDArray[np.uint16]) -> list[bytes | None]:
    """The secret of each row; None where its digits make no 32 bytes."""
    try:
        return [row.tobytes() for row in reconstruct_secrets(slots, shares)]
    except PeerFault:
        half = len(slots) // 2
        if not half:
            return [None]
        return _reconstruct(slots[:half], shares[:half]) + _reconstruct(slots[half:], shares[half:])


@functools.lru_cache(maxsize=2)
def _tables(slots: int, checks: int) -> tuple[FloatArray, FloatArray]:
    """log(x - z) by z and x, shape (k, k), its diagonal 0; and x^m by x and m, shape (k, checks)."""
    x = np.arange(1, slots + 1)
    differences = logarithms()[0][(x[None, :] - x[:, None]) % PRIME]
    powers = np.ones((slots, checks), dtype=np.int64)
    for m in range(1, checks):
        powers[:, m] = powers[:, m - 1] * x % PRIME
    return differences, powers.astype(np.float64)


def _syndromes(given: BoolArray, shares: npt.NDArray[np.uint16], threshold: int) -> IntArray:
    """S_m of every digit, zero for m >= |S| - t, shape (m, 17, k - t)."""
    slots = given.shape[1]
    checks = slots - threshold
    differences, powers = _tables(slots, checks)
    exponents = np.remainder(-(given.astype(np.float64) @ differences), PRIME - 1).astype(np.int64)
    weights = np.where(given, logarithms()[1][exponents], 0.0)
    weighted = np.remainder(shares.transpose(0, 2, 1) * weights[:, None, :], PRIME)
    syndromes = np.remainder(weighted @ powers, PRIME).astype(np.int64)
    valid = np.arange(checks) < (np.count_nonzero(given, axis=1) - threshold)[:, None]
    made: IntArray = syndromes * valid[:, None, :]
    return made


def _locate(given: BoolArray, shares: npt.NDArray[np.uint16], threshold: int) -> BoolArray:
    """The wrong shares of one secret, shape (k,); every share where they are too many to be told."""
    syndromes = _syndromes(given[None], shares[None], threshold)[0]
    slots = np.flatnonzero(given) + 1
    checks = slots.size - threshold
    for most in (checks // 2, checks * DIGITS // (DIGITS + 1)):
        locator = _locator(syndromes[:, :checks], most)
        value = np.zeros_like(slots)
        for coefficient in locator[::-1]:
            value = (value * slots + coefficient) % PRIME
        wrong = np.zeros_like(given)
        wrong[slots[value == 0] - 1] = True
        left = given & ~wrong
        if left.sum() > threshold and not _syndromes(left[None], shares[None], threshold).any():
            return wrong
    return given


def _locator(syndromes: IntArray, most: int) -> IntArray:
    """The first dependence of the columns 0 .. ``most`` of all Hankel matrices: coefficients, the lowest first."""
    windows = np.lib.stride_tricks.sliding_window_view(syndromes, most + 1, axis=1)
    rows = windows.reshape(-1, most + 1).copy()
    for column in range(most + 1):
        pivots = np.flatnonzero(rows[column:, column])
        if not pivots.size:
            return np.append(-rows[:column, column] % PRIME, 1)
        rows[[column, column + pivots[0]]] = rows[[column + pivots[0], column]]
        rows[column] = rows[column] * pow(int(rows[column, column]), -1, PRIME) % PRIME
        factors = rows[:, column].copy()
        factors[column] = 0
        rows = (rows - factors[:, None] * rows[column]) % PRIME
    return np.ones(1, dtype=np.int64)
