"""Laws of Poplar1: prefixes of a path are counted, and a malformed report is dropped or counts as it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.two_operators import poplar1_verification as poplar
from mapveil_client.arrays import BoolArray
from mapveil_client.errors import ParameterError
from mapveil_client.two_operators.finite_fields import Octets
from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.prio3 import Sharded

KEY = bytes(range(32))


def bits(numbers: list[int], width: int) -> BoolArray:
    return ((np.array(numbers, dtype=np.int64)[:, None] >> np.arange(width - 1, -1, -1)) & 1).astype(np.bool_)


def sharded(vdaf: Poplar1, paths: list[int], seed: int = 0) -> tuple[Octets, Sharded]:
    generator = np.random.default_rng(seed)
    nonces, randomness = (
        generator.integers(0, 256, (len(paths), size), dtype=np.uint8) for size in (16, vdaf.randomness_bytes)
    )
    return nonces, vdaf.shard(bits(paths, vdaf.levels), nonces, randomness)


def verified(
    vdaf: Poplar1, prefixes: BoolArray, nonces: Octets, messages: Sharded
) -> tuple[list[list[int]], BoolArray]:
    """Each report's values at the prefixes, and which reports pass."""
    (first, one), (second, two) = (
        poplar.sketch(vdaf, KEY, operator, prefixes, nonces, messages.public, messages.inputs[operator])
        for operator in (0, 1)
    )
    field = first.field
    message, good = poplar.combine_sketch(field, (one, two))
    shares = [poplar.finish_sketch(state, message) for state in (first, second)]
    passed = poplar.decide_sketch(field, (shares[0][0], shares[1][0]))
    values = field.add(first.outputs, second.outputs)
    return [field.integers(each) for each in values], good & passed & first.accepted & second.accepted


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_prefixes_of_a_path_are_counted(data: st.DataObject) -> None:
    levels = data.draw(st.integers(1, 7))
    paths = data.draw(st.lists(st.integers(0, (1 << levels) - 1), min_size=1, max_size=4))
    length = data.draw(st.integers(1, levels))
    chosen = sorted(data.draw(st.sets(st.integers(0, (1 << length) - 1), min_size=1, max_size=12)))
    vdaf = Poplar1(levels, b"test")
    nonces, messages = sharded(vdaf, paths)
    assert messages.public.shape[1] == vdaf.public_bytes
    assert {each.shape[1] for each in messages.inputs} == {vdaf.input_bytes(0)}
    values, accepted = verified(vdaf, bits(chosen, length), nonces, messages)
    assert accepted.all()
    assert values == [[int(path >> (levels - length) == prefix) for prefix in chosen] for path in paths]


def test_a_change_of_any_byte_is_refused_or_changes_nothing() -> None:
    """Every byte of a report, one at a time: what passes counts the same as before, or nothing."""
    vdaf, prefixes = Poplar1(4, b"test"), bits(list(range(8)), 3)
    nonces, messages = sharded(vdaf, [11])
    whole = np.concatenate([nonces, messages.public, *messages.inputs], axis=1)
    changed = np.repeat(whole, whole.shape[1], axis=0)
    which = np.arange(whole.shape[1])
    changed[which, which] ^= np.random.default_rng(3).integers(1, 256, which.size, dtype=np.uint8)
    ends = np.cumsum([16, messages.public.shape[1], messages.inputs[0].shape[1]])
    nonce, public, *inputs = np.split(changed, ends, axis=1)
    values, accepted = verified(vdaf, prefixes, nonce, Sharded(public, tuple(inputs)))
    as_before = [int(prefix == 5) for prefix in range(8)]
    for value, good in zip(values, accepted.tolist(), strict=True):
        assert not good or value == as_before
    # Bytes of other levels, which are not asked for, pass; the seeds' of the levels above do not.
    assert accepted.any()
    assert not accepted[17 : 17 + 3 * 16].any()


@pytest.mark.parametrize("value", [2, 0xFFFFFFFF00000000])
def test_a_value_that_is_not_one_is_refused(value: int) -> None:
    """The client programs another value at the second level: its proof of a one no longer fits."""
    vdaf = Poplar1(3, b"test")
    nonces, messages = sharded(vdaf, [5])
    inner = 1 + 3 * 16 + 16  # control bits, seeds, the first level's pair
    public = messages.public.copy()
    word = public[0, inner : inner + 8].view("<u8")
    word[0] = (int(word[0]) + value) % 0xFFFFFFFF00000001
    _, accepted = verified(vdaf, bits([0, 1, 2, 3], 2), nonces, Sharded(public, messages.inputs))
    assert not accepted.any()


@pytest.mark.parametrize("prefixes", [[], [1, 1], [2, 1]])
def test_prefixes_must_ascend(prefixes: list[int]) -> None:
    vdaf = Poplar1(3, b"test")
    nonces, messages = sharded(vdaf, [5])
    with pytest.raises(ParameterError, match="ascending"):
        poplar.sketch(vdaf, KEY, 0, bits(prefixes, 2), nonces, messages.public, messages.inputs[0])


def test_prefixes_longer_than_a_path_are_refused() -> None:
    vdaf = Poplar1(3, b"test")
    nonces, messages = sharded(vdaf, [5])
    with pytest.raises(ParameterError, match="3 bits"):
        poplar.sketch(vdaf, KEY, 0, bits([1], 4), nonces, messages.public, messages.inputs[0])


def test_a_message_is_below_two_kilobytes_at_depth_ten() -> None:
    vdaf = Poplar1(2 * 10 + 2, b"test")
    assert vdaf.public_bytes + vdaf.input_bytes(0) + vdaf.input_bytes(1) < 2000
