"""One round: devices in disjoint shards, a secure sum of each, and noisy sums or an abort.

Algorithm 1 of Bagdasaryan et al. (2022). This is the untrusted server with its devices in one process; what the
server half of a mechanism gets out of it is a :class:`~mapveil.distributed.query.NoisySums`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from mapveil.distributed.query import NoisySums, Query, Setting
from mapveil.distributed.round_terms import Overflow, RoundTerms, shard_boundaries
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Progress
from mapveil.privacy.claim import Share
from mapveil.privacy.sampling import check_round
from mapveil.secure_sum.drivers import SecureSum
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError
from mapveil_client.provision import promised_survivors, share_shape
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.faults import Abort
from mapveil_client.secure_sum.parameters import SumSettings
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors
from mapveil_client.sum_report import Devices, client_noise, client_report, encode_places
from mapveil_client.user_shares import Rounding

BeforeReveal = Callable[[Share], None]
"""Called once per round, when its sums are about to become known to the server; may refuse by raising."""

_ENTRIES = 1 << 20
_CONTEXT = b"mapveil distributed 1"


@dataclass
class Collection:
    """The devices of one release, and how they are asked.

    Parameters
    ----------
    devices : Devices
        All of them.
    sample : int, optional
        How many are asked; all by default.
    redraw : bool
        Whether each round asks a fresh sample (Algorithm 1) or the first one again (the paper's experiments).
    shard_size : int
        Devices of one secure sum at most; shards are as even as can be.
    tolerated_dropout, corrupt : Fraction
        Parts of a shard that may be lost, and whose noise may be missing.
    scale : int
        Units per device.
    rounding : str
        See :func:`mapveil_client.sum_report.encode_places`.
    bits : int, optional
        The modulus is 2**bits; the smallest safe one by default.
    overflow : str
        ``"refuse"`` a modulus in which a sum may overflow, or ``"wrap"``, to see what that does.
    dropout : float
        Part of each shard that does drop out, at a random step before its input arrives.
    silent : float
        Part of each shard that is corrupt and adds no noise, for audits.
    secure_sum : SecureSum
        What adds the vectors.
    rng : Randomness
        The source of bits.
    before_reveal : callable
        See :data:`BeforeReveal`.
    progress : callable
        Told the round's purpose and the done part.
    whole_noise : bool
        Whether every device adds a whole discrete Laplace variable, so that its report alone holds the promise.
    """

    devices: Devices
    sample: int | None
    redraw: bool
    shard_size: int
    tolerated_dropout: Fraction
    corrupt: Fraction
    scale: int
    rounding: Rounding
    bits: int | None
    overflow: Overflow
    dropout: float
    silent: float
    secure_sum: SecureSum
    rng: Randomness
    before_reveal: BeforeReveal
    progress: Progress
    whole_noise: bool = False
    costs: list[RoundCost] = field(default_factory=list)
    revealed: list[Share] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.devices.count < 1:
            raise InputError("there is no device to ask; at least one is accepted")
        # A stream of its own, so that a second collection from one seeded stream does not repeat the first.
        self.rng = self.rng.child("collection " + self.rng.words(16, np.uint8).tobytes().hex())
        self._simulation = self.rng.child("who is asked, who drops out").generator()
        self._asked = self._draw()

    @cached_property
    def asked(self) -> int:
        """Devices asked in each round."""
        return self.devices.count if self.sample is None else min(self.sample, self.devices.count)

    @cached_property
    def boundaries(self) -> IntArray:
        """First device of each shard, and the end, shape (shards + 1,)."""
        return shard_boundaries(self.asked, self.shard_size)

    @cached_property
    def alpha(self) -> Fraction:
        """Each device's part of a discrete Laplace variable, for the smallest shard."""
        if self.whole_noise:
            return Fraction(1)
        return share_shape(int(np.diff(self.boundaries).min()), self.tolerated_dropout, self.corrupt)

    def setting(self, depth: int, members: IntArray) -> Setting:
        """What is public before anybody is asked."""
        return Setting(depth, members, self.asked, self.boundaries.size - 1, self.alpha, self.scale)

    def ask(self, query: Query) -> NoisySums:
        """Run one round. Run by: the server and the devices.

        Raises
        ------
        Abort
            A shard kept fewer devices than were promised, so that its noise would not hold the promise.
        ParameterError
            The modulus given is too small.
        """
        number = len(self.costs) + 1
        if self.redraw and self.costs:
            self._asked = self._draw()
        boundaries, sizes = self.boundaries, np.diff(self.boundaries)
        terms = RoundTerms.of(
            query, sizes, self.alpha, self.scale, self.rounding, bits=self.bits, overflow=self.overflow
        )
        length, moves, bits = query.encoding.length, terms.sensitivity, terms.bits
        check_round(number, length, self.alpha, query.epsilon, moves)
        settings = SumSettings(
            length=length,
            bits=bits,
            corrupt=self.corrupt,
            dropout=self.tolerated_dropout,
            round_id=self.rng.words(16, np.uint8).tobytes(),
            context=_CONTEXT,
        )
        total = np.zeros(length, dtype=np.int64)
        included, sent = 0, []
        told = False
        kinds, kind = np.unique(sizes, return_inverse=True)  # few sizes, many shards
        survivors = [promised_survivors(size, self.tolerated_dropout) for size in kinds.tolist()]
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
        asked = (self.alpha, self.scale, self.rounding, rng)
        if self.silent == 0:
            return client_report(devices, query, *asked)
        honest = np.ones(devices.count, dtype=np.bool_)
        ends = np.cumsum(sizes)
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True):
            honest[end - math.floor(self.silent * size) : end] = False  # shards are in random order
        places = encode_places(devices, query.encoding, self.scale, self.rounding, rng)
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
            f"{float(self.tolerated_dropout):.0%} of a shard dropping out, raise the option tolerated_dropout"
        )


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest count of each phase."""
    largest: dict[str, int] = {}
    for each in counts:
        for phase, size in each.items():
            largest[phase] = max(size, largest.get(phase, 0))
    return largest
