"""Random sets: independent bits, and uniform ones of a size."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from mapveil_client.local.random_sets import (
    ONE,
    byte_law,
    independent_bits,
    put_bits,
    set_sizes,
    uniform_sets,
)
from mapveil_client.randomness.random import Randomness


def unpacked(sets: np.ndarray, sites: int) -> np.ndarray:
    return np.unpackbits(sets, axis=1, count=sites)


class Words:
    """Given words, one list for each call, to look at single decisions."""

    def __init__(self, *words: list[int]) -> None:
        self.given = list(words)

    def words(self, count: int, dtype: object) -> np.ndarray:
        given = self.given.pop(0)
        assert len(given) == count
        return np.array(given, dtype=dtype)


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


CHANCES = (0, 1, 12345, ONE // 8, 511922531, ONE // 3, ONE // 2, ONE // 2 + 1, 3 << 30, ONE - 1, ONE)


@pytest.mark.parametrize("chance", CHANCES)
def test_eight_bits_have_exactly_the_law_of_independent_ones(chance: int) -> None:
    law = byte_law(chance)
    words = np.bincount(law.table[: law.certain], minlength=256).tolist()
    remainders = np.diff(np.array([0, *law.ends], dtype=object)).tolist()
    held = Fraction(chance, ONE)
    for value in range(256):
        wanted = Fraction(1)
        for place in range(8):
            wanted *= held if value >> place & 1 else 1 - held
        assert Fraction(words[value], 1 << 16) + Fraction(remainders[value], 1 << 256) == wanted
    assert law.certain + Fraction(law.ends[-1], 1 << 240) == 1 << 16
    assert law.tops.tolist() == [end >> 184 for end in law.ends]


def test_a_word_beyond_the_table_is_refined_until_nothing_is_open() -> None:
    law = byte_law(511922531)
    rest = (1 << 184) - 1
    checked = 0
    for value in range(255):
        end = law.ends[value]
        if end == law.ends[value + 1] or end >> 184 == law.ends[value + 1] >> 184:
            continue
        # Just below the end of a byte's remainder, and there: they differ in the last of 240 bits.
        for position, wanted in ((end - 1, value), (end, value + 1)):
            unit, fine = position >> 240, position >> 184 & (1 << 56) - 1
            level = position >> 184 in [top >> 184 for top in law.ends]
            more = [list((position & rest).to_bytes(23, "little"))] if level else []
            rng = Words([law.certain + unit], [fine << 8 | 0xA5], *more)
            assert independent_bits(1, 8, 511922531, rng).tolist() == [[wanted]]
            assert not rng.given
            checked += level
    assert checked > 50


@pytest.mark.parametrize("chance", [511922531, ONE // 3])
def test_refined_words_follow_the_remainders(chance: int) -> None:
    law, n = byte_law(chance), 400_000

    class Beyond(Randomness):
        def words(self, count: int, dtype: object) -> np.ndarray:
            drawn = super().words(count, dtype)
            if np.dtype(dtype) != np.uint16:
                return drawn
            return (law.certain + drawn % ((1 << 16) - law.certain)).astype(np.uint16)

    seen = np.bincount(independent_bits(1, 8 * n, chance, Beyond(3))[0], minlength=256)
    share = np.diff([0.0, *(float(Fraction(end, law.ends[-1])) for end in law.ends)])
    # A residue of 16 bits is uneven by at most a part in a hundred of a unit: less than is looked for.
    far = np.abs(seen - n * share) / np.sqrt(n * share + 30)
    assert far.max() < 6.5
    assert np.square(seen - n * share[::-1]).sum() > 30 * n


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


@pytest.mark.parametrize("size", [3, 12, 13, 22])
def test_pairs_within_a_byte_are_as_likely_as_pairs_across(size: int) -> None:
    # Sets are filled many sites at a time: two that fall into one byte must not get in each other's way.
    sites, rows = 24, 40_000
    bits = unpacked(uniform_sets(sites, np.full(rows, 5), np.full(rows, size), Randomness(size)), sites)
    allowed = np.delete(bits.astype(np.float64), 5, axis=1)
    both = (allowed.T @ allowed)[np.triu_indices(sites - 1, 1)]
    p = size * (size - 1) / ((sites - 1) * (sites - 2))
    assert (np.abs(both - rows * p) < 6.5 * np.sqrt(rows * p * (1 - p))).all()
