"""Random sets: independent bits, and uniform ones of a size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mapveil.local.random_sets import ONE, independent_bits, put_bits, set_sizes, uniform_sets
from mapveil.privacy.random import Randomness


def unpacked(sets: np.ndarray, sites: int) -> np.ndarray:
    return np.unpackbits(sets, axis=1, count=sites)


class Words:
    """Given words, to look at single decisions."""

    def __init__(self, *words: int) -> None:
        self.given = list(words)

    def words(self, count: int, dtype: object) -> np.ndarray:
        return np.full(count, self.given.pop(0), dtype=dtype)


@pytest.mark.parametrize("chance", [1, ONE // 3, ONE // 2, 1155526733, ONE - 1])
def test_bits_come_with_their_chance_and_no_other(chance: int) -> None:
    rows, sites = 40_000, 61
    bits = unpacked(independent_bits(rows, sites, chance, Randomness(4)), sites)
    seen, n = int(bits.sum()), rows * sites

    def deviations(of: float) -> float:
        return abs(seen - n * of) / np.sqrt(n * of * (1 - of) + 1)

    p = chance / ONE
    assert deviations(p) < 6
    if 0.01 < p < 0.99:
        assert deviations(0.7 * p) > 30
        assert deviations(min(1.3 * p, 0.999)) > 30
    by_site = bits.sum(axis=0)
    assert (np.abs(by_site - rows * p) < 6.5 * np.sqrt(rows * p * (1 - p) + 1)).all()


def test_every_bit_of_the_chance_decides() -> None:
    # Eight planes of the leading bits, then the words of those still level with the chance.
    chance = 0b1010_0110 << 24 | 0x123456
    planes = [255 if chance >> place & 1 else 0 for place in range(31, 23, -1)]
    for rest, wanted in ((0x123455, 255), (0x123456, 0), (0x123457, 0)):
        made = independent_bits(1, 8, chance, Words(*planes, rest << 8))
        assert made.tolist() == [[wanted]]
    for place in range(8):
        below, above = planes.copy(), planes.copy()
        below[place], above[place] = 0, 255
        if planes[place]:
            assert independent_bits(1, 8, chance, Words(*below)).tolist() == [[255]]
        else:
            assert independent_bits(1, 8, chance, Words(*above)).tolist() == [[0]]


def test_bits_beyond_the_last_site_are_zero() -> None:
    for chance in (ONE, ONE - 1, ONE // 2):
        sets = independent_bits(50, 11, chance, Randomness(1))
        assert sets.shape == (50, 2)
        assert not (sets[:, 1] & 0b11111).any()
    assert set_sizes(independent_bits(3, 11, ONE, Randomness(1))).tolist() == [11, 11, 11]
    assert set_sizes(independent_bits(3, 11, 0, Randomness(1))).tolist() == [0, 0, 0]


def test_bits_are_put_where_they_are_meant() -> None:
    sets = np.zeros((3, 2), dtype=np.uint8)
    put_bits(sets, np.array([0, 7, 10]), np.array([True, True, True]))
    assert unpacked(sets, 16).argmax(axis=1).tolist() == [0, 7, 10]
    put_bits(sets, np.array([0, 7, 10]), np.array([False, True, False]))
    assert set_sizes(sets).tolist() == [0, 1, 0]


@pytest.mark.parametrize("size", [0, 1, 2, 4, 5])
def test_every_set_of_a_size_is_equally_likely(size: int) -> None:
    sites, without, rows = 6, 2, 60_000
    sets = uniform_sets(sites, np.full(rows, without), np.full(rows, size), Randomness(size + 1))
    bits = unpacked(sets, sites)
    assert (bits.sum(axis=1) == size).all()
    assert not bits[:, without].any()
    allowed = list(itertools.combinations([k for k in range(sites) if k != without], size))
    codes, counts = np.unique(bits @ (1 << np.arange(sites)), return_counts=True)
    assert len(codes) == len(allowed)
    expected = rows / len(allowed)
    excess = (np.square(counts - expected) / expected).sum() - (len(allowed) - 1)
    assert excess < 6.5 * np.sqrt(2 * len(allowed))


def test_sizes_and_sites_may_differ_from_row_to_row() -> None:
    generator = np.random.default_rng(0)
    without, size = generator.integers(0, 100, 500), generator.integers(0, 100, 500)
    bits = unpacked(uniform_sets(100, without, size, Randomness(3)), 100)
    np.testing.assert_array_equal(bits.sum(axis=1), size)
    assert not bits[np.arange(500), without].any()
