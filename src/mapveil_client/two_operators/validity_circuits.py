r"""Validity circuits: the checks that a proof shows a client's encoded measurement to pass, over many reports at once.

A circuit is affine but for one kind of gadget: :meth:`Circuit.wires` are the inputs of its calls, and
:meth:`Circuit.outputs` are zero exactly where the measurement is valid, given the gadget's outputs. Both are affine in
the measurement, so that each operator computes its share of them from its share of the measurement.

.. math:: \sum_{i,j} r_i^{j}\, x_{ij} (x_{ij} - 1) = 0

is the range check of the chunked circuits, where: :math:`x_{ij}` is the j-th of chunk i of the encoded measurement, and
:math:`r_i` the chunk's joint randomness. Integers from 0 to ``most`` are encoded as bits whose weights are powers of
two but for the last, so that all bits together make ``most``.

Source: draft-irtf-cfrg-vdaf, section 7.4; draft-ietf-ppm-l1-bound-sum, section 3, for :class:`L1BoundSum`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError, check
from mapveil_client.two_operators.finite_fields import FIELD128, Elements, Field


def weights_of(most: int) -> list[int]:
    """Weights of the bits of a number from 0 to ``most``, the last the largest that is needed.

    Examples
    --------
    >>> weights_of(10)
    [1, 2, 4, 3]
    """
    bits = most.bit_length()
    return [*(1 << bit for bit in range(bits - 1)), most - (1 << (bits - 1)) + 1]


def bits_of(values: IntArray, most: int) -> IntArray:
    """The bits of numbers from 0 to ``most`` for :func:`weights_of`, shape ``(*values, bits)``.

    Raises
    ------
    InputError
        A number is outside 0 .. ``most``.
    """
    if values.size and (int(values.min()) < 0 or int(values.max()) > most):
        raise InputError(
            f"a measurement must hold numbers from 0 to {most}, got {values.min()} to {values.max()}"
        )
    bits = most.bit_length()
    last = values >= 1 << (bits - 1)
    rest = values - last * weights_of(most)[-1]
    low = (rest[..., None] >> np.arange(bits - 1)) & 1
    return np.concatenate([low, last[..., None]], axis=-1).astype(np.int64)


class Shape(NamedTuple):
    """The sizes of a circuit."""

    length: int  # elements of an encoded measurement
    outputs: int  # elements that are added up
    arity: int = 1  # inputs of the gadget
    calls: int = 1  # of the gadget
    joint: int = 0  # elements of joint randomness
    checks: int = 1  # outputs that must be zero


@dataclass(frozen=True, kw_only=True)
class Circuit(ABC):
    """A validity circuit; its fields are its parameters.

    Parameters
    ----------
    over : Field
        The field that it computes in.
    """

    degree: ClassVar[int] = 2  # of the gadget

    over: Field

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Its sizes."""

    @abstractmethod
    def encode(self, measurements: IntArray) -> Elements:
        """Encode measurements, shape (reports, length, words). Run by: the client.

        Raises
        ------
        InputError
            A measurement is not valid.
        """

    @abstractmethod
    def wires(self, share: Elements, joint: Elements, shares: int) -> Elements:
        """Inputs of the gadget's calls, shape (reports, arity, calls, words), of a share of the measurement."""

    def wires_at(self, share: Elements, joint: Elements, shares: int, weights: Elements) -> Elements:
        """The wires' sums over the calls, each call with its weight, shape (reports, arity, words)."""
        weighed = self.over.multiply(self.wires(share, joint, shares), weights[:, None])
        return self.over.total(weighed, axis=2)

    @abstractmethod
    def gadget(self, inputs: Elements) -> Elements:
        """The gadget on inputs, shape (reports, arity, ..., words)."""

    def outputs(self, share: Elements, called: Elements, shares: int) -> Elements:
        """The checks, shape (reports, checks, words), of shares of the measurement and of the calls' outputs."""
        return called

    def truncate(self, share: Elements) -> Elements:
        """The elements that are added up, shape (reports, outputs, words)."""
        return share


def numbers_of(field: Field, bits: Elements, most: int) -> Elements:
    """Numbers of encoded bits, which follow each other: (reports, n * bits, words) to (reports, n, words)."""
    grouped = bits.reshape(bits.shape[0], -1, most.bit_length(), field.words)
    return field.weighted(grouped, weights_of(most))


@dataclass(frozen=True, kw_only=True)
class Chunked(Circuit):
    """A circuit whose encoded measurement is bits, in chunks that one gadget call each checks.

    Parameters
    ----------
    count : int
        Numbers that are added up, each for itself.
    chunk : int
        Elements of a chunk.
    """

    over: Field = FIELD128
    count: int
    chunk: int

    def __post_init__(self) -> None:
        check(self.count >= 1 and self.chunk >= 1, "count and chunk", "at least 1", (self.count, self.chunk))

    def _shape(self, length: int, checks: int) -> Shape:
        calls = -(-length // self.chunk)
        return Shape(length, self.count, 2 * self.chunk, calls, calls, checks)

    def wires(self, share: Elements, joint: Elements, shares: int) -> Elements:
        """Each element times a power of its chunk's randomness, and each element less one's share."""
        chunks, shape = self._chunks(share), self.shape
        pairs = np.empty((*chunks.shape[:3], 2, self.over.words), dtype=np.uint64)
        pairs[..., 0, :] = self.over.multiply(self.over.powers(joint, self.chunk), chunks)
        pairs[..., 1, :] = self.over.subtract(chunks, self._one(shares))
        return np.moveaxis(pairs.reshape(share.shape[0], shape.calls, shape.arity, self.over.words), 1, 2)

    def wires_at(self, share: Elements, joint: Elements, shares: int, weights: Elements) -> Elements:
        """See :class:`Circuit`; a call's weight multiplies the powers of its randomness as they are made."""
        field, chunks = self.over, self._chunks(share)
        made = np.empty((share.shape[0], self.chunk, 2, field.words), dtype=np.uint64)
        made[:, :, 0] = field.total(field.multiply(field.powers(joint, self.chunk, weights), chunks), axis=1)
        ones = field.multiply(field.total(weights, axis=1), self._one(shares))
        less = field.total(field.multiply(chunks, weights[:, :, None]), axis=1)
        made[:, :, 1] = field.subtract(less, ones[:, None])
        return made.reshape(share.shape[0], self.shape.arity, field.words)

    def _chunks(self, share: Elements) -> Elements:
        """The measurement in chunks, zeros after its end: (reports, calls, chunk, words)."""
        shape, reports = self.shape, share.shape[0]
        padded = self.over.zeros(reports, shape.calls * self.chunk)
        padded[:, : shape.length] = share
        return padded.reshape(reports, shape.calls, self.chunk, self.over.words)

    def gadget(self, inputs: Elements) -> Elements:
        """The sum of the products of pairs."""
        return self.over.total(self.over.multiply(inputs[:, 0::2], inputs[:, 1::2]), axis=1)

    def outputs(self, share: Elements, called: Elements, shares: int) -> Elements:
        """The range check, and the :meth:`further_checks`."""
        ranges = self.over.total(called, axis=1)
        return np.stack([ranges, *self.further_checks(share, shares)], axis=1)

    def further_checks(self, share: Elements, shares: int) -> tuple[Elements, ...]:
        """Checks beside that of the ranges, each of shape (reports, words)."""
        return ()

    def _one(self, shares: int) -> Elements:
        """A share of one."""
        return self.over.of(pow(shares, -1, self.over.modulus))

    def _vectors(self, measurements: IntArray) -> IntArray:
        vectors = np.asarray(measurements, dtype=np.int64)
        good = vectors.ndim == 2 and vectors.shape[1] == self.count
        check(good, "measurements", f"of shape (reports, {self.count})", vectors.shape)
        return vectors


@dataclass(frozen=True, kw_only=True)
class L1BoundSum(Chunked):
    """A vector of whole numbers from 0 whose sum is at most ``most``."""

    most: int

    @property
    def shape(self) -> Shape:
        """Bits of all numbers, and of their sum."""
        return self._shape((self.count + 1) * self.most.bit_length(), 2)

    def encode(self, measurements: IntArray) -> Elements:
        """Vectors, shape (reports, count)."""
        vectors = self._vectors(measurements)
        numbers = np.concatenate([vectors, vectors.sum(axis=1, keepdims=True)], axis=1)
        return self.over.small(bits_of(numbers, self.most).reshape(vectors.shape[0], -1))

    def further_checks(self, share: Elements, shares: int) -> tuple[Elements, ...]:
        """The sum of all numbers less the sum claimed."""
        numbers = numbers_of(self.over, share, self.most)
        return (self.over.subtract(self.over.total(numbers[:, :-1], axis=1), numbers[:, -1]),)

    def truncate(self, share: Elements) -> Elements:
        """The numbers."""
        return numbers_of(self.over, share, self.most)[:, :-1]
