"""The fields against whole numbers of Python, with NumPy alone and compiled."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil_client.errors import MissingExtra
from mapveil_client.two_operators import field_arithmetic
from mapveil_client.two_operators.finite_fields import FIELD64, FIELD128, FIELD255, Field
from mapveil_client.two_operators.xofs import drawn_elements

FIELDS = [FIELD64, FIELD128, FIELD255]
SMALL = Field(13, 1)  # refuses most numbers of its bits' width


def numbers(field: Field) -> st.SearchStrategy[int]:
    edges = [0, 1, 2, field.modulus - 1, field.modulus - 2, (1 << 64) - 1, 1 << 64, (1 << 32) - 1, 1 << 32]
    return st.one_of(st.sampled_from(edges), st.integers(0, 1 << 260)).map(
        lambda value: value % field.modulus
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("field", FIELDS)
def test_arithmetic_is_that_of_whole_numbers(
    field: Field, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        pytest.importorskip("numba")
    monkeypatch.setattr(field_arithmetic, "COMPILE_AFTER_S", 0.0 if compiled else math.inf)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(numbers(field), numbers(field)), min_size=1, max_size=40))
    def holds(pairs: list[tuple[int, int]]) -> None:
        x, y = (field.of(column) for column in zip(*pairs, strict=True))
        p = field.modulus
        assert field.integers(field.add(x, y)) == [(a + b) % p for a, b in pairs]
        assert field.integers(field.subtract(x, y)) == [(a - b) % p for a, b in pairs]
        assert field.integers(field.multiply(x, y)) == [a * b % p for a, b in pairs]
        assert field.integers(field.total(x, axis=0)) == [sum(a for a, _ in pairs) % p]
        assert field.reduced(x).all()
        again, good = field.decode(field.encode(x[None]))
        assert good.all()
        assert (again[0] == x).all()

    holds()


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_not_below_the_modulus_is_no_element(field: Field) -> None:
    over = [field.modulus, field.modulus + 1, (1 << (64 * field.words)) - 1]
    octets = np.frombuffer(b"".join(each.to_bytes(field.size, "little") for each in over), dtype=np.uint8)
    assert not field.decode(octets.reshape(3, -1))[1].any()
    last = np.frombuffer((field.modulus - 1).to_bytes(field.size, "little"), dtype=np.uint8)
    assert field.decode(last[None])[1].all()


@pytest.mark.parametrize("field", FIELDS)
def test_small_numbers_of_either_sign_and_groups(field: Field) -> None:
    values = np.array([0, 1, -1, 5, -(1 << 60), 1 << 60])
    elements = field.small(values)
    assert field.integers(elements) == [value % field.modulus for value in values.tolist()]
    group = np.array([0, 2, 2, -1, 1, 0])
    wanted = [1 << 60, -(1 << 60), 0, 0]
    assert field.integers(field.grouped(elements, group, 4)) == [value % field.modulus for value in wanted]


@pytest.mark.parametrize("field", [FIELD64, FIELD128])
@pytest.mark.parametrize("n", [1, 2, 8])
def test_values_and_coefficients_of_polynomials(field: Field, n: int) -> None:
    p, root = field.modulus, field.root(n)
    coefficients = [(7**i * 123456789123456789) % p for i in range(n)]
    values = [sum(c * pow(root, i * j, p) for j, c in enumerate(coefficients)) % p for i in range(n)]
    found = field.values(field.of(coefficients)[None], n)
    assert field.integers(found) == values
    assert field.integers(field.coefficients(found)) == coefficients
    at = 987654321987654321 % p
    for nodes in {n, max(1, n - 1), (n + 1) // 2}:
        short = coefficients[:nodes]
        table = field.values(field.of(short)[None], n)[:, :nodes]
        weights = field.weights(field.of(at)[None], nodes, n)
        assert field.integers(field.total(field.multiply(table, weights), axis=1)) == [
            sum(c * pow(at, j, p) for j, c in enumerate(short)) % p
        ]


@given(st.binary(min_size=8 * 40, max_size=8 * 40))
def test_numbers_above_the_modulus_are_left_out_of_a_stream(stream: bytes) -> None:
    """Three of the sixteen numbers of four bits are refused: against one number after another."""
    numbers = [int.from_bytes(stream[at : at + 8], "little") & 15 for at in range(0, len(stream), 8)]
    wanted = [number for number in numbers if number < 13]

    def longer(row: int, size: int) -> bytes:
        return (stream + bytes(8 * 400))[:size]

    first, second = drawn_elements(
        [(SMALL, 4), (SMALL, 3)], np.frombuffer(stream[:56], dtype=np.uint8)[None], longer
    )
    found = SMALL.integers(first) + SMALL.integers(second)
    assert found == (wanted + [0] * 7)[:7]


def test_a_function_is_compiled_once_it_has_cost_as_much_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compile_nothing(name: str) -> None:
        asked.append(name)
        raise MissingExtra("numba is not installed")

    monkeypatch.setattr(field_arithmetic, "_spent", defaultdict(float))
    monkeypatch.setattr(field_arithmetic, "COMPILE_AFTER_S", 1e-9)
    monkeypatch.setattr(field_arithmetic, "compiled_arithmetic", compile_nothing)
    one = FIELD64.of([1])
    for expected in ([], ["add_64"], ["add_64"]):  # where it is not installed it is asked for once
        assert FIELD64.integers(FIELD64.add(one, one)) == [2]
        assert asked == expected
