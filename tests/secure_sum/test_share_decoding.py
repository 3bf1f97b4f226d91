"""Decoding with errors, against every choice of errors in turn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.secure_sum.share_decoding import decode_shares
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.shamir import DIGITS, PRIME, split_secrets

SLOTS = 8


def on_one_polynomial(points: list[tuple[int, int]], threshold: int) -> bool:
    """Whether points lie on a polynomial of degree below the threshold, by Lagrange's formula."""
    base, rest = points[:threshold], points[threshold:]
    for x, y in rest:
        value = 0
        for i, (a, b) in enumerate(base):
            term = b
            for j, (c, _) in enumerate(base):
                if i != j:
                    term = term * (x - c) * pow(a - c, -1, PRIME)
            value += term
        if (value - y) % PRIME:
            return False
    return True


def slow_errors(there: np.ndarray, shares: np.ndarray, threshold: int) -> list[int] | None:
    """The fewest columns without which every digit lies on a polynomial, tried in turn; None beyond half."""
    columns = np.flatnonzero(there).tolist()
    for count in range((len(columns) - threshold) // 2 + 1):
        for wrong in itertools.combinations(columns, count):
            left = [c for c in columns if c not in wrong]
            if all(
                on_one_polynomial([(c + 1, int(shares[c, d])) for c in left], threshold)
                for d in range(DIGITS)
            ):
                return list(wrong)
    return None


@settings(max_examples=60, deadline=None)
@given(data=st.data(), threshold=st.integers(1, 6), seed=st.integers(0, 99))
def test_up_to_half_of_the_spare_shares_may_be_wrong_in_any_digit(data, threshold, seed):
    secrets = Randomness(seed).words(32, np.uint8).reshape(1, 32)
    shares = split_secrets(secrets, SLOTS, threshold, Randomness(seed + 1))[0]
    slots = sorted(data.draw(st.sets(st.integers(0, SLOTS - 1), min_size=threshold)))
    there = np.isin(np.arange(SLOTS), slots)
    liars = data.draw(st.lists(st.sampled_from(slots), max_size=(len(slots) - threshold) // 2, unique=True))
    for liar in liars:
        for digit in data.draw(st.sets(st.integers(0, DIGITS - 1), min_size=1, max_size=3)):
            shares[liar, digit] = (int(shares[liar, digit]) + data.draw(st.integers(1, PRIME - 1))) % PRIME
    found = decode_shares(there[None], shares[None], threshold)
    assert found.secrets == [secrets.tobytes()]
    assert np.flatnonzero(found.wrong[0]).tolist() == sorted(liars) == slow_errors(there, shares, threshold)


def test_many_secrets_at_once_each_with_its_own_liars():
    secrets = Randomness(5).words(32 * 50, np.uint8).reshape(50, 32)
    shares = split_secrets(secrets, 40, 15, Randomness(6))
    random = np.random.default_rng(7)
    there = random.random((50, 40)) < 0.9
    wrong = there & (random.random((50, 40)) < 0.15)
    # Random shares: beyond half of the spare ones all digits together still tell them.
    shares[wrong] = random.integers(0, PRIME, (int(wrong.sum()), DIGITS), dtype=np.uint16)
    found = decode_shares(there, shares, 15)
    assert found.secrets == [secret.tobytes() for secret in secrets]
    assert np.array_equal(found.wrong, wrong)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_shares_of_nothing_give_no_secret(count):
    random = np.random.default_rng(count)
    shares = random.integers(0, PRIME, (1, SLOTS, DIGITS), dtype=np.uint16)
    there = np.arange(SLOTS)[None] < SLOTS
    found = decode_shares(there, shares, count)
    assert found.secrets == [None]
    assert not found.wrong.any()


def test_too_few_shares_give_no_secret_and_blame_nobody():
    shares = split_secrets(np.ones((1, 32), dtype=np.uint8), SLOTS, 4, Randomness(1))
    found = decode_shares(np.arange(SLOTS)[None] < 3, shares, 4)
    assert found.secrets == [None]
    assert not found.wrong.any()
