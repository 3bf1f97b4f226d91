"""Thresholds and groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Codes
from mapveil_client.local.staircase_groups import (
    best_thresholds,
    blocks_at,
    check_thresholds,
    code_levels,
)

BITS = 10


def codes_of(values: list[int]) -> Codes:
    code = np.array(sorted(set(values)))
    rank = np.arange(code.size)
    return Codes(code, rank, rank, BITS)


def shared(a: int, b: int) -> int:
    """Bits of the longest common prefix."""
    return BITS - (a ^ b).bit_length()


def objective(codes: Codes, thresholds: tuple[int, ...]) -> int:
    """The paper's, pair by pair: each pair counts the longest threshold it reaches."""
    return sum(
        max(t for t in thresholds if shared(a, b) >= t)
        for a in codes.code.tolist()
        for b in codes.code.tolist()
    )


CODES = st.lists(st.integers(0, (1 << BITS) - 1), min_size=2, max_size=30, unique=True).map(codes_of)


@settings(max_examples=60)
@given(CODES, st.integers(2, 5), st.booleans())
def test_the_dynamic_programme_finds_the_best_thresholds(codes: Codes, groups: int, own: bool) -> None:
    levels = list(code_levels(codes))
    found = best_thresholds(codes, groups, own_group=own)
    assert len(found) == max(2, min(groups, len(levels)))
    assert found == check_thresholds(codes, found)
    assert not own or found[0] == BITS
    first = [levels[:1]] if own else [levels]
    best = max(
        objective(codes, thresholds)
        for thresholds in itertools.combinations(levels, len(found))
        if thresholds[-1] == levels[-1] and thresholds[0] in first[0]
    )
    assert objective(codes, found) == best


@given(CODES, st.integers(0, BITS))
def test_blocks_are_the_sites_that_share_a_prefix(codes: Codes, threshold: int) -> None:
    blocks = blocks_at(codes, threshold)
    pairs = 0
    for i, a in enumerate(codes.code.tolist()):
        mates = [k for k, b in enumerate(codes.code.tolist()) if shared(a, b) >= threshold]
        block = int(blocks.of_rank[i])
        start, size = int(blocks.first[block]), int(blocks.size[block])
        assert mates == list(range(start, start + size))
        pairs += len(mates)
    assert blocks.size @ blocks.size == pairs
    values = np.arange(codes.code.size, dtype=float)
    np.testing.assert_allclose(
        blocks.spread(blocks.sums(values)), [values[blocks.of_rank == b].sum() for b in blocks.of_rank]
    )


@given(CODES)
def test_levels_are_those_where_pairs_part(codes: Codes) -> None:
    levels = code_levels(codes)
    counts = list(levels.values())
    assert counts == sorted(counts)
    assert len(set(counts)) == len(counts)
    assert counts[-1] == codes.code.size**2


@pytest.mark.parametrize("thresholds", [(10,), (4, 6), (12, 0), (6, 6, 0), (6, -1)], ids=str)
def test_thresholds_that_make_no_groups_are_refused(thresholds: tuple[int, ...]) -> None:
    with pytest.raises(ParameterError, match="thresholds"):
        check_thresholds(codes_of([0, 1023]), thresholds)


def test_a_last_threshold_that_leaves_sites_without_a_group_is_refused() -> None:
    with pytest.raises(ParameterError, match="must be 2 at most"):
        check_thresholds(codes_of([0b0100000000, 0b0110000000]), (10, 4))
