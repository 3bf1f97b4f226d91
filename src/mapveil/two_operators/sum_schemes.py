"""Schemes of two-operator sums: vectors by Prio3L1BoundSum, or one path by Poplar1, verified in the same two steps.

A scheme turns contributions to ``sites`` into messages (its client's half is in
:mod:`mapveil_client.two_operators.sharding`), and an operator's messages into shares of the sites' sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from mapveil.two_operators import poplar1_verification as poplar
from mapveil.two_operators import prio3_verification as prio
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.secure_sum.states import PeerFault
from mapveil_client.two_operators.finite_fields import Elements, Field, Octets
from mapveil_client.two_operators.prio3 import Sharded
from mapveil_client.two_operators.sharding import PathSharding, VectorSharding, sharding_of
from mapveil_client.two_operators.xofs import SEED_BYTES


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
        """The id of the collection that the reports are for, 32 bytes."""

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


@dataclass(frozen=True)
class VectorScheme(VectorSharding):
    """Vectors of whole numbers, by Prio3L1BoundSum; see its client's half for the parameters."""

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


@dataclass(frozen=True)
class PathScheme(PathSharding):
    """One site of a raster at most, by Poplar1; see its client's half for the parameters."""

    @cached_property
    def prefixes(self) -> BoolArray:
        """The paths of all sites."""
        return self.paths(np.arange(self.sites))[:, :-1]

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
    """Both operators' half of :func:`mapveil_client.two_operators.sharding.sharding_of`."""
    client = sharding_of(depth, most, collection)
    if isinstance(client, PathSharding):
        return PathScheme(client.depth, collection)
    return VectorScheme(client.sites, client.most, collection)


def noisy_sums_of(scheme: Scheme, shares: tuple[Octets, Octets]) -> IntArray:
    """Signed sums of both operators' shares: numbers above half the modulus are negative. Run by: whoever collects.

    Raises
    ------
    PeerFault
        A share is malformed, or the sums are beyond 64 bits: one of the operators did not follow the protocol.
    """
    field = scheme.field
    if any(each.shape[1] % field.size for each in shares):
        raise PeerFault("an operator's share of the sums is malformed")
    decoded = [field.decode(each) for each in shares]
    if not all(good.all() for _, good in decoded) or decoded[0][0].shape != decoded[1][0].shape:
        raise PeerFault("an operator's share of the sums is malformed")
    total = field.integers(field.add(decoded[0][0], decoded[1][0]))
    signed = [each - field.modulus if each > field.modulus // 2 else each for each in total]
    if any(abs(each) >> 62 for each in signed):
        raise PeerFault("the operators' shares make no sums; one of them did not follow the protocol")
    return np.array(signed, dtype=np.int64)
