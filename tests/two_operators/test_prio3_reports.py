"""Laws of Prio3: valid measurements are accepted and add up, everything else is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapveil.two_operators.prio3_verification import combine_verifiers, verify_init, verify_next
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.two_operators.finite_fields import FIELD64, Elements, Octets
from mapveil_client.two_operators.prio3 import Prio3, Sharded
from mapveil_client.two_operators.validity_circuits import Circuit, L1BoundSum, bits_of, weights_of

from .vector_circuits import Count, Histogram, MultihotCountVec, Sum, SumVec

KEY = bytes(range(32))


def randoms(generator: np.random.Generator, reports: int, size: int) -> Octets:
    return generator.integers(0, 256, (reports, size), dtype=np.uint8)


def verified(vdaf: Prio3, nonces: Octets, sharded: Sharded, key: bytes = KEY) -> tuple[Elements, BoolArray]:
    """Sums of output shares of each report, and which reports all operators accept."""
    starts = [
        verify_init(vdaf, key, operator, nonces, sharded.public, inputs)
        for operator, inputs in enumerate(sharded.inputs)
    ]
    message = combine_verifiers(vdaf, [start.verifier for start in starts])
    ends = [verify_next(start.state, message.message) for start in starts]
    accepted = message.accepted & np.logical_and.reduce([good for _, good in ends])
    outputs = ends[0][0]
    for other, _ in ends[1:]:
        outputs = vdaf.circuit.over.add(outputs, other)
    return outputs, accepted


def sharded(vdaf: Prio3, measurements: IntArray, seed: int = 0) -> tuple[Octets, Sharded]:
    generator = np.random.default_rng(seed)
    nonces = randoms(generator, len(measurements), 16)
    return nonces, vdaf.shard(
        measurements, nonces, randoms(generator, len(measurements), vdaf.randomness_bytes)
    )


@st.composite
def instances(draw: Any) -> tuple[Prio3, IntArray, list[list[int]]]:
    """An instance, measurements of three clients, and what each adds."""
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    count, chunk, most = draw(st.integers(1, 9)), draw(st.integers(1, 7)), draw(st.integers(1, 40))
    kind = draw(st.sampled_from(["count", "sum", "vector", "histogram", "multihot", "l1"]))
    circuit: Circuit
    if kind == "count":
        circuit, values = Count(), generator.integers(0, 2, 3)
        wanted = values[:, None]
    elif kind == "sum":
        circuit, values = Sum(most=most), generator.integers(0, most + 1, 3)
        wanted = values[:, None]
    elif kind == "vector":
        field = draw(st.booleans())
        circuit = SumVec(count=count, chunk=chunk, most=most, **({"over": FIELD64} if field else {}))
        values = wanted = generator.integers(0, most + 1, (3, count))
    elif kind == "histogram":
        circuit, values = Histogram(count=count, chunk=chunk), generator.integers(0, count, 3)
        wanted = (values[:, None] == np.arange(count)).astype(np.int64)
    elif kind == "multihot":
        weight = 1 + most % count
        circuit = MultihotCountVec(count=count, chunk=chunk, most=weight)
        values = wanted = np.array([generator.permutation(np.arange(count) < weight) for _ in range(3)]) * 1
    else:
        circuit = L1BoundSum(count=count, chunk=chunk, most=most)
        values = wanted = np.array(
            [generator.multinomial(most - i % (most + 1), [1 / count] * count) for i in range(3)]
        )
    shares, proofs = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    return Prio3(circuit, 99, b"test", shares, proofs), values, wanted.tolist()


@settings(max_examples=25, deadline=None)
@given(instances())
def test_a_valid_measurement_is_accepted_and_counts_as_it_is(
    made: tuple[Prio3, IntArray, list[list[int]]],
) -> None:
    vdaf, values, wanted = made
    nonces, messages = sharded(vdaf, values)
    assert messages.public.shape == (3, vdaf.public_bytes)
    assert [each.shape[1] for each in messages.inputs] == [vdaf.input_bytes(i) for i in range(vdaf.shares)]
    outputs, accepted = verified(vdaf, nonces, messages)
    assert accepted.all()
    assert [vdaf.circuit.over.integers(each) for each in outputs] == wanted


@given(st.integers(1, 1 << 40), st.data())
def test_every_number_up_to_the_bound_has_bits_and_no_bits_make_more(most: int, data: st.DataObject) -> None:
    values = np.array(data.draw(st.lists(st.integers(0, most), min_size=1, max_size=5)))
    weights = np.array(weights_of(most))
    bits = bits_of(values, most)
    assert set(np.unique(bits).tolist()) <= {0, 1}
    np.testing.assert_array_equal(bits @ weights, values)
    assert weights.sum() == most


class Lying(L1BoundSum):
    """A client that proves what it likes: the elements are given, and the proof is made as if they were valid."""

    def encode(self, measurements: IntArray) -> Elements:
        return self.over.small(measurements)


@pytest.mark.parametrize(
    ("kind", "numbers", "claimed"),
    [
        ("a bit of two", [2, 0, 0, 0, 0, 0], [0, 1, 0]),
        ("a negative bit", [-1, 0, 0, 1, 0, 0], [0, 0, 0]),
        ("a norm above its bound, claimed too small", [1, 1, 1, 1, 1, 1], [1, 1, 1]),
        ("a norm claimed too large", [1, 0, 0, 0, 0, 0], [0, 1, 0]),
        ("a huge number", [1 << 60, 0, 0, 0, 0, 0], [0, 0, 0]),
    ],
)
def test_a_lying_client_is_refused(kind: str, numbers: list[int], claimed: list[int]) -> None:
    honest = L1BoundSum(count=2, chunk=2, most=6)
    lying = Lying(count=2, chunk=2, most=6)
    elements = np.array([numbers + claimed] * 40)
    nonces, messages = sharded(Prio3(lying, 7, b"test"), elements)
    _, accepted = verified(Prio3(honest, 7, b"test"), nonces, messages)
    assert not accepted.any(), kind


CIRCUITS: list[tuple[Circuit, IntArray]] = [
    (Count(), np.array([1])),
    (Sum(most=10), np.array([7])),
    (Histogram(count=3, chunk=2), np.array([1])),
    (L1BoundSum(count=2, chunk=3, most=3), np.array([[1, 1]])),
]


@pytest.mark.parametrize(("circuit", "measurement"), CIRCUITS, ids=lambda each: type(each).__name__)
def test_a_change_of_any_byte_is_refused(circuit: Circuit, measurement: IntArray) -> None:
    """Every byte of every message of one report, one at a time."""
    vdaf = Prio3(circuit, 9, b"test")
    nonces, messages = sharded(vdaf, measurement)
    whole = np.concatenate([nonces, messages.public, *messages.inputs], axis=1)
    changed = np.repeat(whole, whole.shape[1], axis=0)
    which = np.arange(whole.shape[1])
    changed[which, which] ^= np.random.default_rng(3).integers(1, 256, which.size, dtype=np.uint8)
    ends = np.cumsum([16, messages.public.shape[1], messages.inputs[0].shape[1]])
    nonce, public, *inputs = np.split(changed, ends, axis=1)
    _, accepted = verified(vdaf, nonce, Sharded(public, tuple(inputs)))
    if not vdaf.joint:
        # Without joint randomness the nonce only chooses the operators' random point.
        assert accepted[:16].all()
        accepted = accepted[16:]
    assert not accepted.any()


def test_another_context_key_or_codepoint_is_refused() -> None:
    circuit = L1BoundSum(count=2, chunk=3, most=3)
    nonces, messages = sharded(Prio3(circuit, 7, b"test"), np.array([[1, 1]]))
    for other in (Prio3(circuit, 7, b"other"), Prio3(circuit, 8, b"test")):
        assert not verified(other, nonces, messages)[1].any()
    assert verified(Prio3(circuit, 7, b"test"), nonces, messages, bytes(32))[1].all()


def test_a_measurement_outside_its_range_is_refused_by_the_client() -> None:
    circuit = L1BoundSum(count=2, chunk=3, most=3)
    for wrong in ([[2, 2]], [[-1, 1]], [[4, 0]]):
        with pytest.raises(InputError, match="0 to 3"):
            sharded(Prio3(circuit, 7, b"test"), np.array(wrong))
    with pytest.raises(ParameterError, match="shape"):
        sharded(Prio3(circuit, 7, b"test"), np.array([[1, 1, 1]]))
    with pytest.raises(InputError, match="0 to 2"):
        sharded(Prio3(Histogram(count=3, chunk=2), 4, b"test"), np.array([3]))
    with pytest.raises(ParameterError, match="randomness"):
        Prio3(circuit, 7, b"test").shard(
            np.array([[1, 1]]), np.zeros((1, 16), np.uint8), np.zeros((1, 5), np.uint8)
        )


def test_a_share_that_is_no_element_is_refused_and_others_are_not() -> None:
    vdaf = Prio3(L1BoundSum(count=2, chunk=3, most=3), 7, b"test")
    nonces, messages = sharded(vdaf, np.array([[1, 1], [0, 3], [2, 0]]))
    leader = messages.inputs[0].copy()
    leader[1, :16] = 255
    _, accepted = verified(vdaf, nonces, Sharded(messages.public, (leader, messages.inputs[1])))
    assert accepted.tolist() == [True, False, True]
