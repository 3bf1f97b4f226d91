"""Validity circuits of published test vectors that no release uses: Count, Sum, SumVec, Histogram, MultihotCountVec.

They run the proof system of :mod:`mapveil_client.two_operators.prio3` in other fields, with other gadgets and without
joint randomness. Source: draft-irtf-cfrg-vdaf, section 7.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError
from mapveil_client.two_operators.finite_fields import FIELD64, Elements, Field
from mapveil_client.two_operators.validity_circuits import Chunked, Circuit, Shape, bits_of, numbers_of


@dataclass(frozen=True, kw_only=True)
class Count(Circuit):
    """A bit."""

    over: Field = FIELD64

    @property
    def shape(self) -> Shape:
        """See :class:`Circuit`."""
        return Shape(1, 1, arity=2)

    def encode(self, measurements: IntArray) -> Elements:
        """Bits, shape (reports,)."""
        return self.over.small(bits_of(np.asarray(measurements), 1))

    def wires(self, share: Elements, joint: Elements, shares: int) -> Elements:
        """The bit, twice."""
        return np.stack([share, share], axis=1)

    def gadget(self, inputs: Elements) -> Elements:
        """A product."""
        return self.over.multiply(inputs[:, 0], inputs[:, 1])

    def outputs(self, share: Elements, called: Elements, shares: int) -> Elements:
        """The bit squared, less the bit."""
        return self.over.subtract(called, share)


@dataclass(frozen=True, kw_only=True)
class Sum(Circuit):
    """A number from 0 to ``most``."""

    over: Field = FIELD64
    most: int

    @property
    def shape(self) -> Shape:
        """One call and one check for each bit of the number."""
        bits = self.most.bit_length()
        return Shape(bits, 1, calls=bits, checks=bits)

    def encode(self, measurements: IntArray) -> Elements:
        """Numbers, shape (reports,)."""
        return self.over.small(bits_of(np.asarray(measurements), self.most))

    def wires(self, share: Elements, joint: Elements, shares: int) -> Elements:
        """The bits."""
        return share[:, None]

    def gadget(self, inputs: Elements) -> Elements:
        """x^2 - x."""
        x = inputs[:, 0]
        return self.over.subtract(self.over.multiply(x, x), x)

    def truncate(self, share: Elements) -> Elements:
        """The number."""
        return numbers_of(self.over, share, self.most)


@dataclass(frozen=True, kw_only=True)
class SumVec(Chunked):
    """A vector of numbers from 0 to ``most``."""

    most: int

    @property
    def shape(self) -> Shape:
        """See :class:`Circuit`."""
        return self._shape(self.count * self.most.bit_length(), 1)

    def encode(self, measurements: IntArray) -> Elements:
        """Vectors, shape (reports, count)."""
        vectors = self._vectors(measurements)
        return self.over.small(bits_of(vectors, self.most).reshape(vectors.shape[0], -1))

    def truncate(self, share: Elements) -> Elements:
        """The numbers."""
        return numbers_of(self.over, share, self.most)


@dataclass(frozen=True, kw_only=True)
class Histogram(Chunked):
    """One of ``count`` places."""

    @property
    def shape(self) -> Shape:
        """See :class:`Circuit`."""
        return self._shape(self.count, 2)

    def encode(self, measurements: IntArray) -> Elements:
        """Places from 0, shape (reports,)."""
        places = np.asarray(measurements)
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < self.count:
            raise InputError(
                f"a place must be from 0 to {self.count - 1}, got {places.min()} to {places.max()}"
            )
        return self.over.small((places[:, None] == np.arange(self.count)).astype(np.int64))

    def further_checks(self, share: Elements, shares: int) -> tuple[Elements, ...]:
        """The sum of all elements less one."""
        return (self.over.subtract(self.over.total(share, axis=1), self._one(shares)),)


@dataclass(frozen=True, kw_only=True)
class MultihotCountVec(Chunked):
    """A vector of bits of which at most ``most`` are set."""

    most: int

    @property
    def shape(self) -> Shape:
        """The bits, and those of their number."""
        return self._shape(self.count + self.most.bit_length(), 2)

    def encode(self, measurements: IntArray) -> Elements:
        """Bits, shape (reports, count)."""
        bits = bits_of(self._vectors(measurements), 1)[..., 0]
        return self.over.small(np.concatenate([bits, bits_of(bits.sum(axis=1), self.most)], axis=1))

    def further_checks(self, share: Elements, shares: int) -> tuple[Elements, ...]:
        """The number of bits set less the number claimed."""
        claimed = numbers_of(self.over, share[:, self.count :], self.most)[:, 0]
        return (self.over.subtract(self.over.total(self.truncate(share), axis=1), claimed),)

    def truncate(self, share: Elements) -> Elements:
        """The bits."""
        return share[:, : self.count]
