"""Secret sharing: whole-number polynomials as oracle, shares that tell nothing, exact to the last digit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.shamir import DIGITS, PRIME, reconstruct_secrets, split_secrets
from mapveil_client.secure_sum.states import PeerFault

CERTAIN = 1e-9
LARGEST = np.full((1, 32), 255, dtype=np.uint8)


class Stub(Randomness):
    """Words as given, over and over."""

    def __init__(self, *words: int) -> None:
        super().__init__(0)
        self._given = itertools.cycle(words)

    def words(self, count, dtype):
        return np.array(list(itertools.islice(self._given, count)), dtype=dtype)


def digits_of(secret: np.ndarray) -> list[int]:
    number = int.from_bytes(secret.tobytes(), "little")
    return [number // PRIME**i % PRIME for i in range(DIGITS)]


def slow_shares(secret: np.ndarray, shares: int, threshold: int, words: list[int]) -> list[list[int]]:
    """Each digit's polynomial at each slot; ``words`` are its coefficients, digit after digit."""
    made = []
    for x in range(1, shares + 1):
        row = []
        for i, digit in enumerate(digits_of(secret)):
            higher = words[i * (threshold - 1) : (i + 1) * (threshold - 1)]
            row.append(sum(c * x**j for j, c in enumerate([digit, *higher])) % PRIME)
        made.append(row)
    return made


def slow_secret(slots: list[int], shares: list[list[int]]) -> int:
    """Lagrange's formula at zero, digit by digit."""
    number = 0
    for i in range(DIGITS):
        digit = 0
        for x, share in zip(slots, shares, strict=True):
            weight = int(share[i])
            for other in slots:
                if other != x:
                    weight = weight * other * pow(other - x, -1, PRIME)
            digit += weight
        number += digit % PRIME * PRIME**i
    return number


def secrets_of(number: int, count: int) -> np.ndarray:
    return Randomness(number).words(32 * count, np.uint8).reshape(count, 32)


def taken(number: int, made: np.ndarray, threshold: int) -> tuple[np.ndarray, np.ndarray]:
    """Some ``threshold`` slots of each secret, in any order, and their shares."""
    count, shares, _ = made.shape
    keys = Randomness(number).words(count * shares, np.uint32).reshape(count, shares)
    slots = np.argsort(keys, axis=1)[:, :threshold] + 1
    return slots, np.take_along_axis(made, slots[:, :, None] - 1, axis=1)


@st.composite
def sizes(draw):
    shares = draw(st.integers(1, 30))
    return shares, draw(st.integers(1, shares)), draw(st.integers(0, 4)), draw(st.integers(0, 99))


@settings(max_examples=60)
@given(sizes())
def test_any_threshold_of_shares_gives_the_secrets_back(size):
    shares, threshold, count, number = size
    secrets = secrets_of(number, count)
    made = split_secrets(secrets, shares, threshold, Randomness(number + 1))
    assert made.shape == (count, shares, DIGITS)
    assert made.dtype == np.uint16
    slots, given_shares = taken(number, made, threshold)
    assert np.array_equal(reconstruct_secrets(slots, given_shares), secrets)


@settings(max_examples=30)
@given(sizes())
def test_shares_are_the_polynomials_values(size):
    shares, threshold, _, number = size
    secret = secrets_of(number, 1)
    words = Randomness(number).words(DIGITS * (threshold - 1), np.uint16)
    words %= PRIME
    made = split_secrets(secret, shares, threshold, Stub(*words.tolist() or [0]))
    assert made[0].tolist() == slow_shares(secret[0], shares, threshold, words.tolist())


@settings(max_examples=30)
@given(sizes())
def test_reconstruction_is_lagranges_formula_on_any_shares(size):
    _, threshold, _, number = size
    made = Randomness(number).words(2 * threshold * DIGITS, np.uint16).reshape(2, threshold, DIGITS)
    made %= PRIME
    made[:, :, -1] = 0  # so that 32 bytes hold it
    slots = np.stack([np.arange(threshold) * 3 + 1, PRIME - 1 - np.arange(threshold)[::-1] * 7])[:1]
    found = reconstruct_secrets(slots, made[:1])
    assert int.from_bytes(found[0].tobytes(), "little") == slow_secret(slots[0].tolist(), made[0].tolist())


def test_the_ends_of_the_secrets_range_come_back():
    secrets = np.concatenate([LARGEST, np.zeros_like(LARGEST)])
    made = split_secrets(secrets, 7, 4, Randomness(1))
    slots, given_shares = taken(2, made, 4)
    assert np.array_equal(reconstruct_secrets(slots, given_shares), secrets)


def test_sums_stay_exact_where_they_are_largest():
    shares = threshold = 2_000
    made = split_secrets(LARGEST, shares, threshold, Stub(PRIME - 1))
    for x in (1, 2, 999, 2_000):
        power = [pow(x, j, PRIME) for j in range(threshold)]
        wanted = [(digit - sum(power[1:])) % PRIME for digit in digits_of(LARGEST[0])]
        assert made[0, x - 1].tolist() == wanted
    slots = np.arange(1, threshold + 1)[None]
    assert np.array_equal(reconstruct_secrets(slots, made), LARGEST)


def test_words_of_the_prime_and_above_are_thrown_away():
    refused = [PRIME, 0xFFFF, PRIME + 3]
    made = split_secrets(LARGEST, 2, 2, Stub(*refused, 5, *refused, 9))
    coefficients = (made[0, 0].astype(int) - digits_of(LARGEST[0])) % PRIME
    assert set(coefficients.tolist()) == {5, 9}


def uniformity(secret: np.ndarray, rng: Randomness) -> float:
    """The p-value of two shares of a secret of threshold three being uniform, and independent."""
    made = split_secrets(np.repeat(secret, 20_000, axis=0), 3, 3, rng)[:, 1:]
    buckets = (made.astype(np.int64) * 16 // PRIME).transpose(0, 2, 1).reshape(-1, 2)
    counts = np.bincount(buckets[:, 0] * 16 + buckets[:, 1], minlength=256)
    edges = np.diff(np.ceil(np.arange(17) * PRIME / 16))
    expected = np.outer(edges, edges).reshape(-1) / PRIME**2 * len(buckets)
    return float(stats.chisquare(counts, expected).pvalue)


class Narrow(Randomness):
    """Words from the lower 70 % of the range only."""

    def words(self, count, dtype):
        drawn = super().words(count, np.uint32).astype(np.uint64)
        return (drawn * (PRIME * 70 // 100) >> np.uint64(32)).astype(dtype)


@pytest.mark.parametrize("secret", [np.zeros_like(LARGEST), LARGEST], ids=["zeros", "ones"])
def test_fewer_shares_than_the_threshold_are_uniform_whatever_the_secret(secret):
    assert uniformity(secret, Randomness(5)) > CERTAIN
    assert uniformity(secret, Narrow(5)) < CERTAIN


def test_altered_shares_give_another_secret_or_none():
    secrets = secrets_of(3, 200)
    slots, made = taken(1, split_secrets(secrets, 5, 3, Randomness(1)), 3)
    made = made.copy()
    made[:, 1, 4] = (made[:, 1, 4] + 1) % PRIME
    assert not np.any(np.all(reconstruct_secrets(slots, made) == secrets, axis=1))
    made[:, 1, DIGITS - 1] = (made[:, 1, DIGITS - 1] + 1) % PRIME
    with pytest.raises(PeerFault, match="make no secret of 32 bytes"):
        reconstruct_secrets(slots, made)


def test_numbers_that_no_share_holds_are_refused():
    made = split_secrets(LARGEST, 3, 2, Randomness(1))[:, :2].copy()
    made[0, 1, 0] = PRIME
    with pytest.raises(PeerFault, match=f"holds the number {PRIME}"):
        reconstruct_secrets(np.array([[1, 2]]), made)


@pytest.mark.parametrize(
    ("slots", "shape", "message"),
    [
        ([[1, 1]], (1, 2, DIGITS), "given twice"),
        ([[0, 1]], (1, 2, DIGITS), "slots must be"),
        ([[1, PRIME]], (1, 2, DIGITS), "slots must be"),
        ([[1, 2]], (1, 2, DIGITS - 1), "slots and shares must be"),
        ([[1, 2, 3]], (1, 2, DIGITS), "slots and shares must be"),
    ],
)
def test_slots_and_shares_must_fit(slots, shape, message):
    with pytest.raises(ParameterError, match=message):
        reconstruct_secrets(np.array(slots), np.zeros(shape, dtype=np.uint16))


@pytest.mark.parametrize(
    ("secrets", "shares", "threshold", "message"),
    [
        (np.zeros((1, 31), np.uint8), 3, 2, "secrets must be uint8"),
        (np.zeros(32, np.uint8), 3, 2, "secrets must be uint8"),
        (np.zeros((1, 32), np.int64), 3, 2, "secrets must be uint8"),
        (LARGEST, 3, 4, "threshold must be"),
        (LARGEST, 3, 0, "threshold must be"),
        (LARGEST, PRIME, 2, "threshold must be"),
    ],
)
def test_splits_outside_the_range_are_refused(secrets, shares, threshold, message):
    with pytest.raises(ParameterError, match=message):
        split_secrets(secrets, shares, threshold, Randomness(1))
