"""Arrays of measurements come back to the last bit, and nested groups from finer ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from mapveil.engines import UNIT
from mapveil.formats.coded_arrays import code, decode, within

NUMBERS = arrays(np.int64, array_shapes(max_dims=2), elements=st.integers(-(1 << 61), 1 << 61))
FLOATS = arrays(np.float64, array_shapes(max_dims=2), elements=st.floats(allow_nan=False))


@given(NUMBERS)
def test_group_numbers_come_back(values: np.ndarray) -> None:
    coded, record = code(values, 1)
    assert np.array_equal(decode(coded, record, 1), values)


@given(FLOATS, st.sampled_from([1, 3, UNIT]))
def test_every_float_comes_back(values: np.ndarray, unit: int) -> None:
    coded, record = code(values, unit)
    assert np.array_equal(decode(coded, record, unit), values)


@given(arrays(np.int64, 9, elements=st.integers(-(1 << 40), 1 << 40)))
def test_sums_of_whole_units_are_kept_as_such(units: np.ndarray) -> None:
    values = units / UNIT
    coded, record = code(values, UNIT)
    assert record["as"] == "units"
    assert np.array_equal(decode(coded, record, UNIT), values)


def test_noise_takes_little_more_than_its_entropy() -> None:
    """A discrete Laplace number of rate epsilon / unit has log2(2 e unit / epsilon) bits."""
    import zlib

    rng = np.random.default_rng(3)
    sums = np.rint(rng.laplace(0, UNIT, 20_000)) / UNIT
    coded, _ = code(sums, UNIT)
    bits = 8 * len(zlib.compress(coded.tobytes())) / sums.size
    assert bits < np.log2(2 * np.e * UNIT) + 1.5


@given(FLOATS, st.sampled_from([2.0**-9, 0.25, 4.0]))
def test_sums_are_rounded_to_their_step_where_they_are_none(values: np.ndarray, step: float) -> None:
    coded, record = code(values, UNIT, step)
    back = decode(coded, record, UNIT)
    if record["as"] == "multiples":
        assert np.array_equal(back, np.rint(values / step) * step)
    else:  # too large to count in steps
        assert not np.isfinite(values).all() or np.abs(values).max() >= step * 2.0**52
        assert np.array_equal(back, values)


def test_no_step_is_finer_than_a_unit() -> None:
    assert code(np.array([1 / UNIT]), UNIT, 0.5 / UNIT)[1]["as"] == "units"


def test_coarse_groups_follow_from_fine_ones_where_they_are_nested() -> None:
    fine = np.array([0, 0, 1, 2, -1, 3])
    assert within(np.array([0, 0, 0, 1, -1, -1]), fine, 4) is not None
    table = within(np.array([0, 0, 0, 1, -1, -1]), fine, 4)
    assert table is not None
    assert table.tolist() == [0, 0, 1, -1]
    assert within(np.array([0, 1, 1, 1, -1, 1]), fine, 4) is None
    assert within(np.array([0, 0, 0, 1, 1, 1]), fine, 4) is None


@pytest.mark.parametrize("changed", [{"as": "guesses"}, {"type": "<M8[s]"}, {"shape": [7]}, {"type": "<u8"}])
def test_another_record_is_refused(changed: dict[str, object]) -> None:
    coded, record = code(np.arange(5), 1)
    with pytest.raises((ValueError, TypeError)):
        decode(coded, {**record, **changed}, 1)
