"""One round: clients in disjoint shards, a secure sum of each, and noisy sums or an abort.

Algorithm 1 of Bagdasaryan et al. (2022), the untrusted server and its clients in one process.
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.claim import Share
from mapveil.secure_sum.drivers import IdealSum
from mapveil.trust.queries import Execution, NoisySums, Query, Raster, Setting
from mapveil.trust.secure_aggregation.round_terms import RoundTerms
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Devices, client_noise, client_report, encode_places
from mapveil_client.errors import InputError
from mapveil_client.method_parameters import SumParameters, shard_boundaries
from mapveil_client.plane import Box
from mapveil_client.randomness.noise_shares import check_round, exact_fraction, promised_survivors
from mapveil_client.randomness.random import Randomness
from mapveil_client.secure_sum.round_parameters import SumSettings
from mapveil_client.secure_sum.states import Abort
from mapveil_client.secure_sum.vectors import Leaves, SparseVectors

_ENTRIES = 1 << 20  # of the sparse vectors of a batch of shards, about
_CONTEXT = b"mapveil distributed 1"


class _Round(NamedTuple):
    sums: NoisySums
    cost: RoundCost


class Simulation:
    """The server and all clients of one release in this process; answers the queries of a plan.

    Parameters
    ----------
    model : SumParameters
        Parameters of the secure sums.
    raster : Raster
        The sites that queries are about.
    region : Box
        The region, which is public.
    devices : Devices
        All clients.
    scale : int
        Units per client.
    execution : Execution
        Randomness, callbacks and the transport of secure sums.
    least_noise : bool
        Whether only the promised honest survivors of each shard add noise, for audits.
    """

    def __init__(
        self,
        model: SumParameters,
        raster: Raster,
        region: Box,
        devices: Devices,
        scale: int,
        execution: Execution,
        least_noise: bool,
    ) -> None:
        if devices.count < 1:
            raise InputError("there is no device to ask; at least one is needed")
        self.costs: list[RoundCost] = []
        self.revealed: list[Share] = []
        self._model, self._devices, self._least_noise = model, devices, least_noise
        self._dropout, self._progress = execution.dropout, execution.progress
        self._before_reveal, self._secure_sum = execution.before_reveal, execution.secure_sum or IdealSum()
        self._keep = execution.keep
        asked = int(model.asked(devices.count))
        self.boundaries = shard_boundaries(asked, model.shard_size)
        self._sizes = np.diff(self.boundaries)
        self.setting = Setting.of_shards(model, raster, self._sizes, scale, region)
        # A stream of its own, so that a second collection from one seeded stream does not repeat the first.
        words = execution.rng.words(16, np.uint8).tobytes()
        self._rng = execution.rng.child("collection " + words.hex())
        self._simulation = self._rng.child("who is asked, who drops out").generator()
        self._asked = self._draw(asked)

    def answer(self, query: Query) -> NoisySums:
        """Run one round. Run by: the server and the clients.

        Raises
        ------
        Abort
            A shard kept fewer clients than were promised, so that its noise would not hold the promise.
        ParameterError
            The modulus given is too small.
        """
        rounds = len(self.revealed)
        made = self._keep(query.purpose, _Round, lambda: self._round(query))
        if len(self.revealed) == rounds:  # the kept sums of a round that was charged
            self._before_reveal(query.share)
            self.revealed.append(query.share)
        self.costs.append(made.cost)
        return made.sums

    def _round(self, query: Query) -> _Round:
        model, setting, sizes, number = self._model, self.setting, self._sizes, len(self.costs) + 1
        asked = int(self.boundaries[-1])
        lost = exact_fraction(model.tolerated_dropout, "tolerated_dropout")
        corrupt = exact_fraction(model.corrupt, "corrupt")
        if model.redraw and self.costs:
            self._asked = self._draw(asked)
        terms = RoundTerms.of(
            query,
            sizes,
            setting.alpha,
            setting.scale,
            model.rounding,
            bits=model.bits,
            overflow=model.overflow,
        )
        length = query.encoding.length
        check_round(number, length, setting.alpha, query.epsilon, terms.sensitivity)
        settings = SumSettings(
            length=length,
            bits=terms.bits,
            corrupt=corrupt,
            dropout=lost,
            round_id=self._rng.words(16, np.uint8).tobytes(),
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
            short = np.flatnonzero(counts < promised[first : first + counts.size])
            if short.size:
                shard = first + int(short[0])
                raise Abort(
                    f"{counts[short[0]]} of the {sizes[shard]} devices of shard {shard + 1} are left, and "
                    f"{promised[shard]} were promised"
                )
            if not told:
                self._before_reveal(query.share)
                self.revealed.append(query.share)
                told = True

        for first, last in self._batches(query, terms.sensitivity):
            low, high = int(self.boundaries[first]), int(self.boundaries[last])
            devices = self._asked.between(low, high)
            stream = self._rng.child(f"round {number} shard {first}")
            reports = self._reports(devices, query, sizes[first:last], stream)
            try:
                found = self._secure_sum.sums(
                    reports,
                    self.boundaries[first : last + 1] - low,
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
            self._progress(query.purpose, high / max(asked, 1))
        cost = RoundCost(
            query.purpose,
            length,
            terms.bits,
            asked,
            included,
            sizes.size,
            _most(up for up, _ in sent),
            _most(down for _, down in sent),
        )
        return _Round(terms.noisy_sums(total, included), cost)

    def _draw(self, asked: int) -> Devices:
        """The clients that are asked, in random order: a shard is a slice of them."""
        if asked < self._devices.count:
            return self._devices.take(self._simulation.choice(self._devices.count, asked, replace=False))
        return self._devices.shuffled(self._simulation)

    def _batches(self, query: Query, moves: int) -> list[tuple[int, int]]:
        """Shards to be summed together, so that memory follows a batch and never the number of clients."""
        beta = math.exp(-float(query.epsilon) / moves)
        events = 2 * query.encoding.length * float(self.setting.alpha) * -math.log1p(-beta)
        each = float(self._sizes.max()) * (query.encoding.copies + events) + query.encoding.length
        together, shards = max(1, int(_ENTRIES / max(each, 1.0))), self._sizes.size
        return [(first, min(first + together, shards)) for first in range(0, shards, together)]

    def _reports(self, devices: Devices, query: Query, sizes: IntArray, rng: Randomness) -> SparseVectors:
        """Reports of the clients; of ``least_noise``, those of the last of each shard without noise."""
        setting = self.setting
        asked = (setting.alpha, setting.scale, setting.rounding, rng)
        if not self._least_noise:
            return client_report(devices, query, *asked)
        honest = np.ones(devices.count, dtype=np.bool_)
        lost, corrupt = (
            exact_fraction(part, "part") for part in (self._model.tolerated_dropout, self._model.corrupt)
        )
        for end, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
            adding = promised_survivors(size, lost) - math.floor(corrupt * size)
            honest[end - size + adding : end] = False  # shards are in random order
        places = encode_places(devices, query.encoding, setting.scale, setting.rounding, rng)
        return places + client_noise(devices.count, query, *asked).only(honest)

    def _leaves(self, sizes: IntArray) -> npt.NDArray[np.int8]:
        """The step at which each client drops out: the given fraction of a shard, before its input arrives."""
        leaves = np.full(int(sizes.sum()), Leaves.NEVER, dtype=np.int8)
        start = 0
        for size in sizes.tolist() if self._dropout > 0 else []:
            lost = self._simulation.choice(size, round(self._dropout * size), replace=False)
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
            f"{float(self._model.tolerated_dropout):.0%} of a shard dropping out, raise the option tolerated_dropout"
        )


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest count of each phase."""
    largest: dict[str, int] = {}
    for each in counts:
        for phase, size in each.items():
            largest[phase] = max(size, largest.get(phase, 0))
    return largest
