r"""Runs of an audited mechanism on one of two neighbouring inputs, and what an adversary notes of each.

A plan's run is noted by the log-likelihood ratio of all its noisy sums, were their noise as claimed,

.. math:: \ell = \sum_q \frac{\epsilon_q}{\Delta_q} \Big( \lVert y_q - s'_q \rVert_1 - \lVert y_q - s_q \rVert_1 \Big)

by the queries that it asked about the user's cells, and by the map. Here :math:`y_q` are the noisy sums of query q,
:math:`s_q` and :math:`s'_q` the exact ones with and without the user, :math:`\epsilon_q` and :math:`\Delta_q` its
budget and sensitivity. In a collection as many devices add no noise as may drop out or be corrupt: the shares of the
others must carry the guarantee alone. Everybody's contribution is in the sums, for the server knows who dropped out.
Where a report is private by itself, the user's is the only one.

A report of a local mechanism is noted by :math:`\ln q(y \mid x) / q(y \mid x')`, where q is the channel that the server
inverts, and by itself.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.attacks.audited_inputs import Neighbours, audited_devices
from mapveil.engines import UNIT, UserSums
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.mechanisms.fourier_features import sum_of_vectors
from mapveil.mechanisms.mechanism import Mechanism
from mapveil.mechanisms.private_fourier_kde import FeatureQuery
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Answerer, Estimate, Execution, Query, Raster, run
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

STATISTICS: Final = (
    "likelihood ratio of the noisy sums",
    "released value where the user is",
    "share of the map where the user is",
    "total of the map",
    "highest value of the map",
)
REPORT: Final = ("likelihood ratio of a report",)


class Runs(NamedTuple):
    """Runs, each on one side of a pair by a fair coin."""

    present: BoolArray  # (runs,), whether the user was there
    statistics: FloatArray  # (runs, statistics)
    shape: IntArray  # (runs,), a number for the queries asked, or the report

    def and_then(self, other: "Runs") -> "Runs":
        """Both together."""
        return Runs(
            np.concatenate([self.present, other.present]),
            np.concatenate([self.statistics, other.statistics]),
            np.concatenate([self.shape, other.shape]),
        )

    def part(self, rows: slice) -> "Runs":
        """Some of them."""
        return Runs(self.present[rows], self.statistics[rows], self.shape[rows])


def audited_runs(mechanism: Mechanism, pair: Neighbours, runs: int, rng: Randomness) -> Runs:
    """Run a mechanism on one side of a pair or the other. Run by: an auditor."""
    present = (rng.words(runs, np.uint8) & 1).astype(np.bool_)
    if isinstance(mechanism, LocalMechanism):
        return _reports(mechanism, pair, present, rng)
    if not isinstance(mechanism, SumMechanism):
        raise ParameterError(
            f"{mechanism.name} claims epsilon {mechanism.budget}, but this audit cannot run mechanisms of its kind"
        )
    if mechanism.trust.whole_noise:
        pair = pair._replace(without=pair.without * 0, with_one=pair.with_one - pair.without)
    made = Runs(present, np.empty((runs, len(STATISTICS))), np.empty(runs, dtype=np.int64))
    sides = [opened(mechanism, pair, side) for side in (False, True)]
    for number, side in enumerate(present.tolist()):
        notes = _Notes(pair, sides[side].raster)
        estimate = collect(mechanism, sides[side], rng, notes.read)
        made.statistics[number] = notes.likelihood, *_statistics(estimate, pair)
        made.shape[number] = hash(tuple(notes.asked))
    return made


class Side(NamedTuple):
    """One side of a pair, ready to be asked."""

    raster: Raster
    answerer: Callable[[Randomness], Answerer]


def opened(mechanism: SumMechanism, pair: Neighbours, present: bool) -> Side:
    """One side of a pair: exact sums of a curator, or clients under the least noise. Run by: an auditor."""
    model, raster = mechanism.trust, mechanism.raster(pair.tiling)
    if isinstance(model, Curator):
        source = UserSums(pair.with_one if present else pair.without, pair.tiling)
        return Side(raster, lambda rng: model.answerer(source, pair.tiling, raster, Execution(rng)))
    user = pair.with_one - pair.without if present else None
    devices = audited_devices(pair.tiling, pair.without, user, alone=model.whole_noise)
    return Side(
        raster, lambda rng: model.answerer(devices, pair.tiling, raster, Execution(rng), least_noise=True)
    )


def collect(
    mechanism: SumMechanism,
    side: Side,
    rng: Randomness,
    read: Callable[[Any, Any], None] = lambda query, reply: None,
) -> Estimate:
    """One release of a side, of cells; ``read`` is called with each query and its reply."""
    answerer = side.answerer(rng)

    def answer(query: Any) -> Any:
        reply = answerer.answer(query)
        read(query, reply)
        return reply

    return side.raster.on_cells(run(mechanism.plan(answerer.setting), answer))


class _Notes:
    """Notes of an adversary on the queries of one run."""

    def __init__(self, pair: Neighbours, raster: Raster) -> None:
        self.likelihood = 0.0
        self.asked: list[tuple[int, ...]] = []  # cells in the groups of the user's cells, of each query
        self._sides = [pair.without, pair.with_one]
        self._user = np.flatnonzero(pair.with_one - pair.without)
        self._site = raster.site

    def read(self, query: Any, reply: Any) -> None:
        """Note a query and its reply; trees are noted by the query of their leaves."""
        exact: list[npt.NDArray[Any]]
        if isinstance(query, FeatureQuery):
            exact = [
                np.array(sum_of_vectors(query.places, sums, query.features)) / UNIT for sums in self._sides
            ]
            rate = float(query.epsilon) / query.features.limit
        elif isinstance(query, Query):
            position = query.encoding.positions(self._site, np.zeros_like(self._site))
            inside, length = position >= 0, query.encoding.length
            each = [np.broadcast_to(sums[:, None] / UNIT, position.shape)[inside] for sums in self._sides]
            exact = [np.bincount(position[inside], users, length) for users in each]
            rate = float(query.epsilon) * reply.scale / reply.sensitivity
            held = np.append(np.bincount(position[inside], minlength=length), 0)
            self.asked.append(tuple(held[position[self._user, 0]].tolist()))
        else:
            return
        without, with_one = (float(np.abs(reply.values - sums).sum()) for sums in exact)
        self.likelihood += rate * (without - with_one)


def _statistics(estimate: Estimate, pair: Neighbours) -> tuple[float, ...]:
    """The scalars of a map, in the order of ``STATISTICS``, but for the first."""
    user = pair.with_one - pair.without
    here = float(estimate.values @ user) / float(user.sum())
    total = float(estimate.values.sum())
    return here, here / total if total else 0.0, total, float(estimate.values.max())


def _reports(mechanism: LocalMechanism, pair: Neighbours, present: BoolArray, rng: Randomness) -> Runs:
    """One report of a device for each run. Of a set of sites, the ratio grows with [x in y] - [x' in y]."""
    randomizer = mechanism.on(Domain(pair.tiling))
    cells = np.array([int(np.argmax(sums)) for sums in (pair.without, pair.with_one)])
    other, own = randomizer.domain.sites_of(cells)
    reports = randomizer.randomize(cells[present.astype(np.int64)], rng).values
    if isinstance(randomizer, SymbolRandomizer):
        here, there = (
            randomizer.forward(np.eye(1, randomizer.size, site)[0])[reports] for site in (own, other)
        )
        tiny = np.finfo(np.float64).tiny
        ratio = np.log(np.maximum(here, tiny)) - np.log(np.maximum(there, tiny))
        return Runs(present, ratio[:, None], reports)
    held = np.unpackbits(reports, axis=1, count=randomizer.size).astype(np.float64)
    return Runs(present, (held[:, own] - held[:, other])[:, None], np.zeros(present.size, dtype=np.int64))
