"""Releases about a decoy population, and a record of their queries, noise, charges and the exact sums behind them.

Data enter a release at one place of each trust model: a curator's exact sums per site, the locations of clients.
While a query is answered, the decoy stands there instead, and all other code runs as it is, the noise included. So

- whatever differs between two tables was read from the data elsewhere (:mod:`.test_non_interference`);
- neighbours get the same replies, hence the same queries, so that the exact privacy losses of the queries add up
  (:mod:`.test_accounting`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms import private_fourier_kde, privtree
from mapveil.privacy.claim import Share
from mapveil.secure_sum.drivers import IdealSum
from mapveil.trust import curator, two_operators
from mapveil.trust.curator import CuratorAnswerer
from mapveil.trust.queries import Query
from mapveil.trust.secure_aggregation import simulation
from mapveil.trust.secure_aggregation.simulation import Simulation
from mapveil.trust.two_operators import OperatorsAnswerer
from mapveil.two_operators.site_queries import of_sites
from mapveil_client import contribution
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Devices
from mapveil_client.secure_sum.vectors import SparseVectors

LABELS = 2


class Draw(NamedTuple):
    """Noise of one query, as its sampler was asked for it."""

    length: int  # coordinates
    rate: Fraction  # epsilon over sensitivity: the privacy loss of one unit of L1 change
    noise: Any
    alpha: Fraction = Fraction(1)  # of a client's share


@dataclass
class Record:
    """Everything that one release said, drew and charged."""

    queries: list[bytes] = field(default_factory=list)
    charged: list[Share] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)  # of the query that is being answered
    vectors: list[SparseVectors] = field(default_factory=list)  # encoded for the query that is being answered
    events: list[str] = field(default_factory=list)
    replies: dict[bytes, bytes] = field(default_factory=dict)  # the last to each query

    def repeats(self, reply: Any) -> bool:
        """Whether the reply is that to an earlier query, to the bit, and nothing was drawn for it: a kept one."""
        said, before = public_bytes(reply), self.replies.get(self.queries[-1])
        self.replies[self.queries[-1]] = said
        return said == before and not self.draws

    def charge(self, share: Share) -> None:
        """A ``before_reveal`` that allows everything."""
        self.charged.append(share)
        self.events.append("charge")


AfterAnswer = Callable[[Any, Any, Any], None]
"""Called with the answerer (its data in place), the query and its reply about the decoy."""


def decoy_sums(sites: int) -> IntArray:
    """Sums per site of a population that has nothing to do with any table, units of 1 / UNIT user."""
    generator = np.random.default_rng(11)
    weight = generator.pareto(0.7, sites) + 1e-3
    return generator.multinomial(900, weight / weight.sum()).astype(np.int64) * curator.UNIT


def decoy_devices(count: int, sites: int) -> Devices:
    """As many clients, whose locations have nothing to do with any table."""
    generator = np.random.default_rng(12)
    starts = np.concatenate([[0], np.cumsum(generator.integers(1, 5, count))])
    total = int(starts[-1])
    crowded = np.minimum(generator.pareto(1.0, total), 1.0) * (sites - 1)
    return Devices(
        np.where(generator.random(total) < 0.1, -1, crowded.astype(np.int64)),
        starts,
        generator.integers(1, 9, total),
        generator.integers(0, LABELS, total),
    )


def public_bytes(value: Any) -> bytes:
    """Everything that a query or a map says, as bytes."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if dataclasses.is_dataclass(value):
        parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
        return type(value).__name__.encode() + b"(" + b",".join(map(public_bytes, parts)) + b")"
    if isinstance(value, (tuple, list)):
        return b"[" + b",".join(map(public_bytes, value)) + b"]"
    return repr(value).encode()


def output_bytes(heat: DensityMap) -> bytes:
    """A released map as bytes: values, measurements, and all that its metadata says."""
    said = (heat.values, heat.measurements, heat.notes, heat.rounds, heat.outside, heat.noise_floor)
    return heat.metadata_json().encode() + public_bytes(said) + repr(heat.guarantee).encode()


@contextmanager
def watched(after: AfterAnswer = lambda answerer, query, reply: None) -> Iterator[Record]:
    """Answer every query about the decoy, under all trust models that answer plans, and record."""
    record = Record()
    with pytest.MonkeyPatch.context() as patch:
        for room in (curator, two_operators, privtree, private_fourier_kde):
            patch.setattr(room, "discrete_laplace", _recorded_noise(room.discrete_laplace, record))
        patch.setattr(contribution, "noise_shares", _recorded_shares(contribution.noise_shares, record))
        for client in (contribution, simulation, two_operators):
            patch.setattr(client, "encode_places", _recorded_vectors(client.encode_places, record))
        _watch_curator(patch, record, after)
        _watch_simulation(patch, record, after)
        _watch_operators(patch, record, after)
        yield record


def _watch_curator(patch: pytest.MonkeyPatch, record: Record, after: AfterAnswer) -> None:
    made, answer = CuratorAnswerer.__init__, CuratorAnswerer.answer

    def init(self: Any, setting: Any, sums: IntArray, raster: Any, execution: Any) -> None:
        made(self, setting, sums, raster, execution)
        self.raster = raster

    def about_the_decoy(self: Any, query: Any) -> Any:
        _asked(record, query)
        truth, self._sites = self._sites, decoy_sums(self._sites.size)
        reply = answer(self, query)
        repeated = record.repeats(reply)
        if isinstance(query, Query) and not repeated:
            _check_noisy_sums(self._exact(query.encoding), query, reply, record)
            assert reply.clients == self.setting.clients, (
                "the reply tells a number of users that is not public"
            )
        self._sites = truth
        after(self, query, reply)
        return reply

    patch.setattr(CuratorAnswerer, "__init__", init)
    patch.setattr(CuratorAnswerer, "answer", about_the_decoy)


def _check_noisy_sums(exact: IntArray, query: Query, reply: Any, record: Record) -> None:
    """The reply is the exact sums with one draw of noise on each, in the query's order, and nothing else."""
    assert [draw.length for draw in record.draws] == [exact.size], "not one draw of noise for every sum"
    order = slice(None) if query.noise_order is None else query.noise_order
    noisy = exact.copy()
    noisy[order] += record.draws[0].noise
    np.testing.assert_array_equal(reply.values, noisy / curator.UNIT, "the reply is not sums and noise")


def _watch_simulation(patch: pytest.MonkeyPatch, record: Record, after: AfterAnswer) -> None:
    answer, sums = Simulation.answer, IdealSum.sums

    def about_the_decoy(self: Any, query: Query) -> Any:
        _asked(record, query)
        truth = self._devices, self._asked
        decoy = decoy_devices(self._devices.count, self.setting.members.size)
        self._devices, self._asked = decoy, decoy.between(0, self._asked.count)
        reply = answer(self, query)
        self._devices, self._asked = truth
        if not record.repeats(reply):
            _check_secure_sum(reply, query.encoding.length, record)
        after(self, query, reply)
        return reply

    def reveal(self: IdealSum, *given: Any, **named: Any) -> Any:
        found = sums(self, *given, **named)
        record.events.append("reveal")
        return found

    patch.setattr(Simulation, "answer", about_the_decoy)
    patch.setattr(IdealSum, "sums", reveal)


def _watch_operators(patch: pytest.MonkeyPatch, record: Record, after: AfterAnswer) -> None:
    answer = OperatorsAnswerer.answer

    def about_the_decoy(self: Any, query: Query) -> Any:
        _asked(record, query)
        truth = self._held
        decoy = self._vectors(decoy_devices(self._devices.count, self.setting.members.size))
        self._held = decoy.position, decoy.value
        exact = curator.grouped_sums(*self._held, of_sites(query.encoding, self._sites))
        reply = answer(self, query)
        self._held = truth
        if not record.repeats(reply):
            noise = sum(draw.noise for draw in record.draws)
            np.testing.assert_array_equal(
                reply.values, (exact + noise) / reply.scale, "the reply is not sums and noise"
            )
        after(self, query, reply)
        return reply

    patch.setattr(OperatorsAnswerer, "answer", about_the_decoy)


def _check_secure_sum(reply: Any, length: int, record: Record) -> None:
    """The reply is the sum of the clients' vectors and of their noise shares, and nothing else."""
    total = np.zeros(length, dtype=np.int64)
    for vectors in record.vectors:
        np.add.at(total, vectors.position, vectors.value)
    for draw in record.draws:
        assert draw.length == length, "noise on a part of the sums"
        np.add.at(total, draw.noise.position, draw.noise.value)
    np.testing.assert_array_equal(
        reply.values, total / reply.scale, "the reply is not vectors and noise shares"
    )


def _asked(record: Record, query: Any) -> None:
    said = query.encoding.to_dict() if isinstance(query, Query) else query
    record.queries.append(public_bytes((query.share, said, getattr(query, "noise_order", None))))
    record.draws.clear()
    record.vectors.clear()
    record.events.append("ask")


def _recorded_noise(draw: Callable[..., IntArray], record: Record) -> Callable[..., IntArray]:
    def drawn(count: int, epsilon: Fraction, sensitivity: int, rng: Any) -> IntArray:
        noise = draw(count, epsilon, sensitivity, rng)
        record.draws.append(Draw(count, Fraction(epsilon) / sensitivity, noise.copy()))
        record.events.append("reveal")  # whoever draws may add and return
        return noise

    return drawn


def _recorded_shares(draw: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def drawn(
        clients: int, length: int, alpha: Fraction, epsilon: Fraction, sensitivity: int, rng: Any
    ) -> Any:
        noise = draw(clients, length, alpha, epsilon, sensitivity, rng)
        record.draws.append(Draw(length, Fraction(epsilon) / sensitivity, noise, Fraction(alpha)))
        return noise

    return drawn


def _recorded_vectors(encode: Callable[..., SparseVectors], record: Record) -> Callable[..., SparseVectors]:
    def encoded(*given: Any) -> SparseVectors:
        vectors = encode(*given)
        record.vectors.append(vectors)
        return vectors

    return encoded
