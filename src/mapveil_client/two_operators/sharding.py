"""A contribution to sums by two operators, as secret shares: a vector by Prio3L1BoundSum, or a path by Poplar1.

- :class:`VectorSharding`: a vector of whole numbers whose sum is proven to be at most ``most``.
- :class:`PathSharding`: one site, at most, as a path: a first bit that is set where the client is at a site at all, the
  bits of the site's Morton code, and one bit more, so that all sites lie above the last level and their sums are in
  the field of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import check
from mapveil_client.randomness.random import Randomness
from mapveil_client.two_operators.finite_fields import FIELD64, Field, Octets
from mapveil_client.two_operators.hpke import KEY_BYTES
from mapveil_client.two_operators.poplar1 import Poplar1
from mapveil_client.two_operators.prio3 import L1_BOUND_SUM, Prio3, Sharded
from mapveil_client.two_operators.sealed_report import (
    ID_BYTES,
    TASK_BYTES,
    HpkeConfig,
    Metadata,
    Report,
    context_of,
    seal_report,
)
from mapveil_client.two_operators.validity_circuits import L1BoundSum

DEEPEST: Final = 10
"""Depth of the finest raster of a path: every site, a million of them, is evaluated for every report."""


def _check_collection(collection: bytes) -> None:
    check(len(collection) == TASK_BYTES, "collection", f"an id of {TASK_BYTES} bytes", len(collection))


@dataclass(frozen=True)
class VectorSharding:
    """Vectors of whole numbers, by Prio3L1BoundSum.

    Parameters
    ----------
    sites : int
        Length of the vector.
    most : int
        Largest sum of its numbers.
    collection : bytes
        The task's id, 32 bytes. Shares, proofs and checks of another collection do not fit.
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
            L1BoundSum(count=self.sites, most=self.most, chunk=best),
            L1_BOUND_SUM,
            context_of(self.collection),
        )

    @property
    def field(self) -> Field:
        """The field of the sums."""
        return self.vdaf.circuit.over

    @property
    def randomness_bytes(self) -> int:
        """Random bytes that a client needs for one report."""
        return self.vdaf.randomness_bytes

    def sizes(self, operator: int) -> tuple[int, int]:
        """Bytes of the public share, and of an operator's input share."""
        return self.vdaf.public_bytes, self.vdaf.input_bytes(operator)

    def shard(self, contributions: IntArray, nonces: Octets, randomness: Octets) -> Sharded:
        """Messages of contributions, shape (reports, sites). Run by: the client."""
        return self.vdaf.shard(contributions, nonces, randomness)


def _proof_length(length: int, chunk: int) -> int:
    calls = -(-length // chunk)
    return 2 * chunk + 2 * (1 << calls.bit_length())


@dataclass(frozen=True)
class PathSharding:
    """One site of a raster at most, by Poplar1.

    Parameters
    ----------
    depth : int
        The raster has 4**depth sites; at most ``DEEPEST``.
    collection : bytes
        The task's id, 32 bytes. Shares, proofs and checks of another collection do not fit.
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
        """Numbers that are added up."""
        return 1 << (2 * self.depth)

    @property
    def field(self) -> Field:
        """The field of the sums."""
        return FIELD64

    @cached_property
    def vdaf(self) -> Poplar1:
        """The instance."""
        return Poplar1(2 * self.depth + 2, context_of(self.collection))

    @property
    def randomness_bytes(self) -> int:
        """Random bytes that a client needs for one report."""
        return self.vdaf.randomness_bytes

    def sizes(self, operator: int) -> tuple[int, int]:
        """Bytes of the public share, and of an operator's input share."""
        return self.vdaf.public_bytes, self.vdaf.input_bytes(operator)

    def paths(self, sites: IntArray) -> BoolArray:
        """The paths of sites, shape (sites, levels); of -1 the path of nobody."""
        shifts = np.arange(2 * self.depth - 1, -1, -1)
        inside = sites >= 0
        bits = (np.where(inside, sites, 0)[:, None] >> shifts) & 1
        last = np.zeros((sites.size, 1), dtype=np.int64)
        return np.concatenate([inside[:, None], bits, last], axis=1).astype(np.bool_)

    def shard(self, contributions: IntArray, nonces: Octets, randomness: Octets) -> Sharded:
        """Messages of contributions, shape (reports, sites), rows of at most one 1. Run by: the client."""
        good = contributions.min(initial=0) >= 0 and contributions.sum(axis=1).max(initial=0) <= 1
        check(bool(good), "contributions", "rows of zeros with at most one 1", contributions.shape)
        held = contributions.any(axis=1)
        sites = np.where(held, contributions.argmax(axis=1), -1)
        return self.vdaf.shard(self.paths(sites), nonces, randomness)


Sharding = VectorSharding | PathSharding


def sharding_of(depth: int, most: int, collection: bytes) -> Sharding:
    """A path where each client is at one site of a raster of ``4**depth`` sites that is not too fine, else a vector."""
    if most == 1 and depth <= DEEPEST:
        return PathSharding(depth, collection)
    return VectorSharding(1 << (2 * depth), most, collection)


class ReportRandomness(NamedTuple):
    """The randomness of one report, all of it secret but the id."""

    report_id: bytes
    shares: bytes
    ephemerals: tuple[bytes, bytes]

    @classmethod
    def draw(cls, sharding: Sharding, rng: Randomness) -> ReportRandomness:
        """Draw it, in the order of the fields."""
        sizes = ID_BYTES, sharding.randomness_bytes, KEY_BYTES, KEY_BYTES
        report_id, shares, *ephemerals = (rng.words(size, np.uint8).tobytes() for size in sizes)
        return cls(report_id, shares, (ephemerals[0], ephemerals[1]))


def make_reports(
    sharding: Sharding,
    contributions: IntArray,
    configs: tuple[HpkeConfig, HpkeConfig],
    hour: int,
    randomness: Sequence[ReportRandomness],
) -> list[Report]:
    """The one message of each device, many of them in a simulation. Run by: the client.

    Parameters
    ----------
    sharding : VectorSharding or PathSharding
        What clients of the collection send.
    contributions : ndarray of int64, shape (devices, sites)
        Units of each client at each site.
    configs : tuple of HpkeConfig
        Of the leader and of the helper.
    hour : int
        Whole hours since 1970.
    randomness : sequence of ReportRandomness
        Drawn for each report alone.

    Raises
    ------
    InputError
        A contribution is not valid, or a public key is none.
    """
    nonces, drawn = (
        np.frombuffer(b"".join(each), dtype=np.uint8).reshape(len(randomness), -1)
        for each in zip(*((own.report_id, own.shares) for own in randomness), strict=True)
    )
    made = sharding.shard(contributions, nonces, drawn)
    return [
        seal_report(
            sharding.collection,
            configs,
            Metadata(own.report_id, hour),
            made.public[row].tobytes(),
            (made.inputs[0][row].tobytes(), made.inputs[1][row].tobytes()),
            own.ephemerals,
        )
        for row, own in enumerate(randomness)
    ]


def make_report(
    sharding: Sharding,
    contribution: IntArray,
    configs: tuple[HpkeConfig, HpkeConfig],
    hour: int,
    randomness: ReportRandomness,
) -> Report:
    """The one message of one device; see :func:`make_reports`."""
    return make_reports(sharding, contribution[None], configs, hour, [randomness])[0]
