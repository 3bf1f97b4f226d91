"""One round: devices in disjoint shards, a secure sum of each, and noisy sums or an abort.

Algorithm 1 of Bagdasaryan et al. (2022). This is the untrusted server with its devices in one process; what the
server half of a mechanism gets out of it is a :class:`~mapveil.mechanisms.plan.NoisySums`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from mapveil.engines.devices import devices_of
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Progress
from mapveil.mechanisms.plan import BeforeReveal, NoisySums, Query, Raster, Setting
from mapveil.privacy.claim import Share
from mapveil.privacy.sampling import check_round
from mapveil.secure_sum.drivers import IdealSum, SecureSum
from mapveil.trust.secure_aggregation.model import SecureAggregation, exactly
from mapveil.trust.secure_aggregation.round_terms import RoundTerms, shard_boundaries
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Devices, client_noise, client_report, encode_places
from mapveil_client.errors import InputError
from mapveil_client.methods import TABLE_SCALE
from mapveil_client.randomness.noise_shares import promised_survivors
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.parameters import SumSettings
from mapveil_client.secure_sum.states import Abort
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

_ENTRIES = 1 << 20
_CONTEXT = b"mapveil distributed 1"


@dataclass
class Simulation:
    """The server and all clients of one release in this process; answers the queries of a plan.

    Parameters
    ----------
    model : SecureAggregation
        How clients are asked; with a scale.
    raster : Raster
        The sites that queries are about.
    devices : Devices
        All clients.
    dropout : float
        Fraction of each shard that does drop out, at a random step before its input arrives.
    silent : float
        Fraction of each shard that is corrupt and adds no noise, for audits.
    secure_sum : SecureSum
        What adds the vectors.
    rng : Randomness
        The source of bits.
    before_reveal : callable
        See :data:`mapveil.mechanisms.plan.BeforeReveal`.
    progress : callable
        Told the round's purpose and the done part.
    """

    model: SecureAggregation
    raster: Raster
    devices: Devices
    dropout: float
    silent: float
    secure_sum: SecureSum
    rng: Randomness
    before_reveal: BeforeReveal
    progress: Progress
    costs: list[RoundCost] = field(default_factory=list)
    revealed: list[Share] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.devices.count < 1:
            raise InputError("there is no device to ask; at least one is needed")
        # A stream of its own, so that a second collection from one seeded stream does not repeat the first.
        self.rng = self.rng.child("collection " + self.rng.words(16, np.uint8).tobytes().hex())
        self._simulation = self.rng.child("who is asked, who drops out").generator()
        self._asked = self._draw()

    @cached_property
    def asked(self) -> int:
        """Clients asked in each round."""
        return int(self.model.asked(self.devices.count))

    @cached_property
    def boundaries(self) -> IntArray:
        """First client of each shard, and the end, shape (shards + 1,)."""
        return shard_boundaries(self.asked, self.model.shard_size)

    @cached_property
    def alpha(self) -> Fraction:
        """Each client's part of a discrete Laplace variable, for the smallest shard."""
        return self.model.alpha(int(np.diff(self.boundaries).min()))

    @cached_property
    def scale(self) -> int:
        """Units per client."""
        return self.model.scale or TABLE_SCALE

    @cached_property
    def setting(self) -> Setting:
        """What is public before anybody is asked."""
        return Setting(
            self.raster.depth,
            self.raster.members,
            self.asked,
            self.boundaries.size - 1,
            self.alpha,
            self.scale,
            self.model.rounding,
        )

    def answer(self, query: Query) -> NoisySums:
        """Run one round. Run by: the server and the devices.

        Raises
        ------
        Abort
            A shard kept fewer devices than were promised, so that its noise would not hold the promise.
        ParameterError
            The modulus given is too small.
        """
        model, number = self.model, len(self.costs) + 1
        lost, corrupt = exactly(model.tolerated_dropout), exactly(model.corrupt)
        if model.redraw and self.costs:
            self._asked = self._draw()
        boundaries, sizes = self.boundaries, np.diff(self.boundaries)
        terms = RoundTerms.of(
            query, sizes, self.alpha, self.scale, model.rounding, bits=model.bits, overflow=model.overflow
        )
        length, moves, bits = query.encoding.length, terms.sensitivity, terms.bits
        check_round(number, length, self.alpha, query.epsilon, moves)
        settings = SumSettings(
            length=length,
            bits=bits,
            corrupt=corrupt,
            dropout=lost,
            round_id=self.rng.words(16, np.uint8).tobytes(),
            context=_CONTEXT,
        )
        total = np.zeros(length, dtype=np.int64)
        included, sent = 0, []
        told = False
        kinds, kind = np.unique(sizes, return_inverse=True)  # few sizes, many shards
        survivors = [promised_survivors(size, lost) for size in kinds.tolist()]
        promised = np.array(survivors)[kind]

        def hold(first: int, counts: IntArray) -> None:
            """Refuse before anything is known: too few devices left in a shard."""
            nonlocal told
            for index in np.flatnonzero(counts < promised[first : first + counts.size]).tolist():
                shard = first + index
                raise Abort(
                    f"{counts[index]} of the {sizes[shard]} devices of shard {shard + 1} are left, and "
                    f"{promised[shard]} were promised"
                )
            if not told:
                self.before_reveal(query.share)
                self.revealed.append(query.share)
                told = True

        for first, last in self._batches(query, moves):
            low, high = int(boundaries[first]), int(boundaries[last])
            devices = self._asked.between(low, high)
            stream = self.rng.child(f"round {number} shard {first}")
            reports = self._reports(devices, query, sizes[first:last], stream)
            try:
                found = self.secure_sum.sums(
                    reports,
                    boundaries[first : last + 1] - low,
                    self._leaves(sizes[first:last]),
                    settings,
                    stream.child("secure sum"),
                    before_reveal=partial(hold, first),
                )
            except Abort as error:
                raise Abort(self._refusal(query, number, str(error))) from error
            total += terms.units(each.total for each in found)
            included += sum(int(each.included.sum()) for each in found)
            # Shards are even: the first is as large as any but for one device. Its sum is not kept.
            sent += [(each.bytes_up, each.bytes_down) for each in found[:1]]
            self.progress(query.purpose, high / max(self.asked, 1))
        self.costs.append(
            RoundCost(
                query.purpose,
                length,
                bits,
                self.asked,
                included,
                sizes.size,
                _most(up for up, _ in sent),
                _most(down for _, down in sent),
            )
        )
        return terms.noisy_sums(total, included)

    def _draw(self) -> Devices:
        """The devices that are asked, in random order: a shard is a slice of them."""
        if self.asked < self.devices.count:
            return self.devices.take(self._simulation.choice(self.devices.count, self.asked, replace=False))
        return self.devices.shuffled(self._simulation)

    def _batches(self, query: Query, moves: int) -> list[tuple[int, int]]:
        """Shards to be summed together, so that memory follows a batch and never the number of devices."""
        sizes = np.diff(self.boundaries)
        beta = math.exp(-float(query.epsilon) / moves)
        events = 2 * query.encoding.length * float(self.alpha) * -math.log1p(-beta)
        each = float(sizes.max()) * (query.encoding.copies + events) + query.encoding.length
        together = max(1, int(_ENTRIES / max(each, 1.0)))
        return [(first, min(first + together, sizes.size)) for first in range(0, sizes.size, together)]

    def _reports(self, devices: Devices, query: Query, sizes: IntArray, rng: Randomness) -> SparseVectors:
        """What the devices hand over; those that are silent, without noise."""
        asked = (self.alpha, self.scale, self.model.rounding, rng)
        if self.silent == 0:
            return client_report(devices, query, *asked)
        honest = np.ones(devices.count, dtype=np.bool_)
        ends = np.cumsum(sizes)
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            honest[end - math.floor(self.silent * size) : end] = False  # shards are in random order
        places = encode_places(devices, query.encoding, self.scale, self.model.rounding, rng)
        return places + client_noise(devices.count, query, *asked).only(honest)

    def _leaves(self, sizes: IntArray) -> npt.NDArray[np.int8]:
        """When each device drops out: the given part of every shard, at a random step before its input."""
        leaves = np.full(int(sizes.sum()), Leaves.NEVER, dtype=np.int8)
        start = 0
        for size in sizes.tolist() if self.dropout > 0 else []:
            # A corrupt device stays: that is the worst case.
            may_leave = size - math.floor(self.silent * size)
            lost = self._simulation.choice(may_leave, round(self.dropout * size), replace=False)
            leaves[start + lost] = self._simulation.integers(Leaves.NOTHING, Leaves.INPUT, lost.size)
            start += size
        return leaves

    def _refusal(self, query: Query, number: int, reason: str) -> str:
        spent = sum((share.epsilon for share in self.revealed), Fraction(0))
        known = (
            f"epsilon {float(spent):.4g} stays spent on sums that the server already knows"
            if spent
            else "nothing was revealed, so nothing is spent"
        )
        return (
            f"round {number} ({query.purpose}): {reason}; with fewer noise shares than are promised the sums would not "
            f"keep epsilon, so nothing is released; {known}; to tolerate more than "
            f"{float(self.model.tolerated_dropout):.0%} of a shard dropping out, raise the option tolerated_dropout"
        )


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest count of each phase."""
    largest: dict[str, int] = {}
    for each in counts:
        for phase, size in each.items():
            largest[phase] = max(size, largest.get(phase, 0))
    return largest


def simulate(
    model: SecureAggregation,
    points: Points | Counts | Devices,
    tiling: Tiling,
    raster: Raster,
    *,
    rng: Randomness,
    progress: Progress,
    secure_sum: SecureSum | None = None,
    dropout: float = 0.0,
    before_reveal: BeforeReveal | None = None,
    silent: float = 0.0,
    may_be_outside: bool = False,
) -> Simulation:
    """Give every user of a table a client, and simulate them and the server in this process.

    Parameters
    ----------
    model : SecureAggregation
        How clients are asked.
    points : Points, Counts or Devices
        What each client knows: one client per user.
    tiling : Tiling
        The cells.
    raster : Raster
        The raster of sites that queries are about.
    rng, progress, secure_sum, dropout, before_reveal
        As for :meth:`mapveil.mechanisms.sum_mechanism.SumMechanism.release`.
    silent : float
        Fraction of each shard that is corrupt and adds no noise, for audits.
    may_be_outside : bool
        Whether clients none of which is inside are an answer.
    """
    devices = devices_of(points, tiling, progress, may_be_outside=may_be_outside)
    usual = 1 if devices.starts is None else TABLE_SCALE
    return Simulation(
        model=dataclasses.replace(model, scale=model.scale or usual),
        raster=raster,
        devices=devices,
        dropout=dropout,
        silent=silent,
        secure_sum=secure_sum or IdealSum(),
        rng=rng,
        before_reveal=before_reveal or (lambda share: None),
        progress=progress,
    )
