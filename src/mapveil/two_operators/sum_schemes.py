r"""Schemes of two-operator sums: vectors by Prio3L1BoundSum, or one path by Poplar1, verified in the same two steps.

A scheme turns contributions to ``sites`` into messages, and an operator's messages into shares of the sites' sums.

- :class:`VectorScheme`: a vector of whole numbers whose sum is proven to be at most ``most``.
- :class:`PathScheme`: one site, at most, as a path: a first bit that is set where the client is at a site at all, the
  bits of the site's Morton code, and one bit more, so that all sites lie above the last level and their sums are in
  the field of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from mapveil.two_operators import poplar1_verification as poplar
from mapveil.two_operators import prio3_verification as prio
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import check
from mapveil_client.two_operators.finite_fields import FIELD64, Elements, Field, Octets
from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.prio3 import L1_BOUND_SUM, Prio3, Sharded
from mapveil_client.two_operators.validity_circuits import L1BoundSum
from mapveil_client.two_operators.xofs import SEED_BYTES

DEEPEST: Final = 10
"""Depth of the finest raster of a path: every site, a million of them, is evaluated for every report."""

COLLECTION_BYTES: Final = 16
"""Least size of a collection's id: of random ids so long, two are equal once in 2^128 pairs."""


class Batch(NamedTuple):
    """One operator's messages of reports."""

    nonces: Octets  # shape (reports, 16)
    public: Octets
    inputs: Octets

    def take(self, rows: IntArray) -> Batch:
        """The chosen reports."""
        return Batch(*(each[rows] for each in self))


class Step(NamedTuple):
    """One operator's step: its state, its share for the other operator, and the reports that it does not refuse."""

    state: Any
    share: Octets
    accepted: BoolArray


class Scheme(Protocol):
    """A VDAF as both operators run it: shares, a message of both, shares again, and a decision."""

    @property
    def collection(self) -> bytes:
        """The id of the collection that the reports are for, at least 16 bytes."""

    @property
    def field(self) -> Field:
        """The field of the sums."""

    @property
    def sites(self) -> int:
        """Numbers that are added up."""

    @property
    def most(self) -> int:
        """The largest sum of a client's contributions."""

    def sizes(self, operator: int) -> tuple[int, int]:
        """Bytes of the public share, and of an operator's input share."""

    def shard(self, contributions: IntArray, nonces: Octets, randomness: Octets) -> Sharded:
        """Messages of contributions, shape (reports, sites). Run by: the client."""

    @property
    def randomness_bytes(self) -> int:
        """Random bytes that a client needs for one report."""

    def start(self, verify_key: bytes, operator: int, batch: Batch) -> Step:
        """The first share of a verification. Run by: each operator."""

    def combine(self, shares: tuple[Octets, Octets]) -> tuple[Octets, BoolArray]:
        """The message of both first shares, and the reports that it does not refuse. Run by: the helper."""

    def answer(self, state: Any, message: Octets) -> Step:
        """The second share. Run by: each operator."""

    def decide(self, shares: tuple[Octets, Octets]) -> BoolArray:
        """The reports that pass, by both second shares. Run by: each operator."""

    def outputs(self, state: Any) -> Elements:
        """Shares of the sites' numbers, shape (reports, sites, words)."""


def _check_collection(collection: bytes) -> None:
    size = len(collection)
    check(size >= COLLECTION_BYTES, "collection", f"an id of at least {COLLECTION_BYTES} random bytes", size)


def _context(collection: bytes) -> bytes:
    """The application context of draft-irtf-cfrg-vdaf, which enters every hash, those of the verify key among them."""
    return b"mapveil two operators 2" + collection


@dataclass(frozen=True)
class VectorScheme:
    """Vectors of whole numbers, by Prio3L1BoundSum.

    Parameters
    ----------
    sites : int
        Length of the vector.
    most : int
        Largest sum of its numbers.
    collection : bytes
        The collection's id, at least 16 random bytes. Shares, proofs and checks of another collection do not fit.
    """

    sites: int
    most: int
    collection: bytes

    def __post_init__(self) -> None:
        _check_collection(self.collection)

    @cached_property
    def vdaf(self) -> Prio3:
        """The instance, with the chunk that makes the shortest proof."""
        length = (self.sites + 1) * self.most.bit_length()
        calls = [(1 << bits) - 1 for bits in range(1, length.bit_length() + 1)]
        best = min((-(-length // each) for each in calls), key=lambda chunk: _proof_length(length, chunk))
        return Prio3(
            L1BoundSum(count=self.sites, most=self.most, chunk=best), L1_BOUND_SUM, _context(self.collection)
        )

    @property
    def field(self) -> Field:
        """See :class:`Scheme`."""
        return self.vdaf.circuit.over

    @property
    def randomness_bytes(self) -> int:
        """See :class:`Scheme`."""
        return self.vdaf.randomness_bytes

    def sizes(self, operator: int) -> tuple[int, int]:
        """See :class:`Scheme`."""
        return self.vdaf.public_bytes, self.vdaf.input_bytes(operator)

    def shard(self, contributions: IntArray, nonces: Octets, randomness: Octets) -> Sharded:
        """See :class:`Scheme`."""
        return self.vdaf.shard(contributions, nonces, randomness)

    def start(self, verify_key: bytes, operator: int, batch: Batch) -> Step:
        """See :class:`Scheme`.

        A report whose public share does not fit is refused here, before the other operator would refuse it: the
        leader's share is the same in every context, so that verifier shares of two collections would give it away.
        """
        made = prio.verify_init(self.vdaf, verify_key, operator, *batch)
        part = slice(operator * SEED_BYTES, (operator + 1) * SEED_BYTES)
        fits = (made.verifier[:, -SEED_BYTES:] == batch.public[:, part]).all(axis=1)
        return Step(made.state, made.verifier, made.state.accepted & fits)

    def combine(self, shares: tuple[Octets, Octets]) -> tuple[Octets, BoolArray]:
        """See :class:`Scheme`."""
        made = prio.combine_verifiers(self.vdaf, list(shares))
        return made.message, made.accepted

    def answer(self, state: Any, message: Octets) -> Step:
        """See :class:`Scheme`; the second share is empty."""
        _, accepted = prio.verify_next(state, message)
        return Step(state, np.zeros((message.shape[0], 0), dtype=np.uint8), accepted)

    def decide(self, shares: tuple[Octets, Octets]) -> BoolArray:
        """See :class:`Scheme`: the first shares have decided."""
        return np.ones(shares[0].shape[0], dtype=np.bool_)

    def outputs(self, state: Any) -> Elements:
        """See :class:`Scheme`."""
        made: Elements = state.outputs
        return made


def _proof_length(length: int, chunk: int) -> int:
    calls = -(-length // chunk)
    return 2 * chunk + 2 * (1 << calls.bit_length())


@dataclass(frozen=True)
class PathScheme:
    """One site of a raster at most, by Poplar1.

    Parameters
    ----------
    depth : int
        The raster has 4**depth sites; at most ``DEEPEST``.
    collection : bytes
        The collection's id, at least 16 random bytes. Shares, proofs and checks of another collection do not fit.
    """

    depth: int
    collection: bytes

    def __post_init__(self) -> None:
        needed = f"from 0 to {DEEPEST}: every site is evaluated for every report"
        check(0 <= self.depth <= DEEPEST, "depth", needed, self.depth)
        _check_collection(self.collection)

    most = 1

    @property
    def sites(self) -> int:
        """See :class:`Scheme`."""
        return 1 << (2 * self.depth)

    @property
    def field(self) -> Field:
        """See :class:`Scheme`."""
        return FIELD64

    @cached_property
    def vdaf(self) -> Poplar1:
        """The instance."""
        return Poplar1(2 * self.depth + 2, _context(self.collection))

    @cached_property
    def prefixes(self) -> BoolArray:
        """The paths of all sites."""
        return self._paths(np.arange(self.sites))[:, :-1]

    def _paths(self, sites: IntArray) -> BoolArray:
        shifts = np.arange(2 * self.depth - 1, -1, -1)
        inside = sites >= 0
        bits = (np.where(inside, sites, 0)[:, None] >> shifts) & 1
        last = np.zeros((sites.size, 1), dtype=np.int64)
        return np.concatenate([inside[:, None], bits, last], axis=1).astype(np.bool_)

    @property
    def randomness_bytes(self) -> int:
        """See :class:`Scheme`."""
        return self.vdaf.randomness_bytes

    def sizes(self, operator: int) -> tuple[int, int]:
        """See :class:`Scheme`."""
        return self.vdaf.public_bytes, self.vdaf.input_bytes(operator)

    def shard(self, contributions: IntArray, nonces: Octets, randomness: Octets) -> Sharded:
        """See :class:`Scheme`; rows of at most one 1."""
        good = contributions.min(initial=0) >= 0 and contributions.sum(axis=1).max(initial=0) <= 1
        check(bool(good), "contributions", "rows of zeros with at most one 1", contributions.shape)
        held = contributions.any(axis=1)
        sites = np.where(held, contributions.argmax(axis=1), -1)
        return self.vdaf.shard(self._paths(sites), nonces, randomness)

    def start(self, verify_key: bytes, operator: int, batch: Batch) -> Step:
        """See :class:`Scheme`."""
        state, share = poplar.sketch(self.vdaf, verify_key, operator, self.prefixes, *batch)
        return Step(state, share, state.accepted)

    def combine(self, shares: tuple[Octets, Octets]) -> tuple[Octets, BoolArray]:
        """See :class:`Scheme`."""
        return poplar.combine_sketch(self.field, shares)

    def answer(self, state: Any, message: Octets) -> Step:
        """See :class:`Scheme`."""
        share, accepted = poplar.finish_sketch(state, message)
        return Step(state, share, accepted & state.accepted)

    def decide(self, shares: tuple[Octets, Octets]) -> BoolArray:
        """See :class:`Scheme`."""
        return poplar.decide_sketch(self.field, shares)

    def outputs(self, state: Any) -> Elements:
        """See :class:`Scheme`."""
        made: Elements = state.outputs
        return made


def scheme_of(depth: int, most: int, collection: bytes) -> Scheme:
    """A path where each client is at one site of a raster of ``4**depth`` sites that is not too fine, else a vector."""
    if most == 1 and depth <= DEEPEST:
        return PathScheme(depth, collection)
    return VectorScheme(1 << (2 * depth), most, collection)
