"""Two operators as a trust model: one message per client, sums that either operator alone sees under noise only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np

from mapveil.engines import UserSums
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Neighbouring,
    Norm,
    Share,
    TrustModel,
)
from mapveil.privacy.discrete_laplace import check_noise, discrete_laplace
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import MOST_SAMPLES, sampling_delta
from mapveil.secure_sum.drivers import IdealSum
from mapveil.trust.curator import grouped_sums
from mapveil.trust.queries import Execution, NoisySums, Query, Raster, Setting
from mapveil.two_operators.aggregation import HELPER, LEADER, Operator, verify_together
from mapveil.two_operators.site_queries import of_sites
from mapveil.two_operators.sum_schemes import Scheme, VectorScheme, noisy_sums_of, scheme_of
from mapveil.two_operators.verification_messages import InputShares
from mapveil_client.arrays import IntArray
from mapveil_client.contribution import Devices, encode_places
from mapveil_client.encodings import SiteEncoding
from mapveil_client.errors import InputError, ParameterError, PromiseError
from mapveil_client.method_parameters import TABLE_SCALE, OperatorParameters
from mapveil_client.secure_sum.vectors import SparseVectors
from mapveil_client.two_operators.sealed_report import TASK_BYTES

_LONGEST: Final = 1 << 14  # of a vector: 2.9 MB from every client at 1024 units
_TOGETHER: Final = 1 << 20  # numbers of the reports that are made together


@dataclass(frozen=True, kw_only=True)
class TwoOperators(OperatorParameters):
    """Two operators that do not collude add up secret shares; each adds the whole noise to every answer.

    Parameters
    ----------
    scale : int, optional
        Units that a client divides over its locations; with 1 it reports its most frequent location. By default 1 for
        counts, where each user is at one location, and 1024 for a table of visits.
    minimum_batch : int
        Least number of accepted reports: with fewer nothing is answered. Noise protects each client whatever the
        number; this keeps a collection of a handful from being published by mistake. Chosen, not measured.
    """

    name: ClassVar[str] = "operators"
    whole_noise: ClassVar[bool] = False

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        return dataclasses.asdict(self)

    def answerer(
        self,
        points: Points | Counts | UserSums | Devices,
        tiling: Tiling,
        raster: Raster,
        execution: Execution,
        *,
        least_noise: bool = False,
    ) -> OperatorsAnswerer:
        """Give every user of a table a client, and simulate the clients and both operators in this process.

        Parameters
        ----------
        points : Points, Counts or Devices
            A table, counts with each unit one user, or the clients.
        tiling, raster, execution
            See :meth:`mapveil.trust.curator.Curator.answerer`.
        least_noise : bool
            Whether one operator alone adds noise, for audits: the view of the other. The sums are then added in the
            clear: the protocol has no operator without noise.

        Raises
        ------
        InputError
            The table cannot be used, or holds a curator's sums.
        ParameterError
            The least noise is to be audited through the protocol.
        PromiseError
            There are fewer clients than the minimum batch.
        """
        from mapveil.trust.secure_aggregation.clients import devices_of

        if least_noise and not isinstance(execution.secure_sum, IdealSum | None):
            raise ParameterError(
                "least_noise must be False where clients and operators run the protocol: both add noise; audit with "
                "an ideal sum"
            )
        devices = devices_of(points, tiling, execution.progress, raster.site)
        scale = self.scale or (1 if devices.starts is None else TABLE_SCALE)
        return OperatorsAnswerer(self, raster, tiling, devices, scale, execution, least_noise)

    def noise_terms(self, users: float) -> float:
        """Discrete Laplace variables in the noise of a sum: one of each operator."""
        return 2.0

    def asked(self, users: float) -> float:
        """Of so many users, those that are asked: all."""
        return users

    def guarantee(self, epsilon: Fraction, shares: tuple[Share, ...], *, seeded: bool) -> Guarantee:
        """The promise of one release."""
        return Guarantee(
            model=TrustModel.TWO_OPERATORS,
            neighbours=Neighbouring.ZERO_OUT,
            epsilon=epsilon,
            delta=sampling_delta(epsilon),
            adversary=Adversary.EITHER_OPERATOR,
            bound=ContributionBound(Norm.L1, Fraction(1)),
            assumptions=(
                Assumes.ONE_CLIENT(),
                Assumes.OPERATORS_APART(),
                Assumes.SECRET_SHARES(),
                Assumes.PARTICIPATION_PUBLIC(),
            ),
            shares=shares,
            seeded=seeded,
        )


def setting_of(raster: Raster, tiling: Tiling, clients: int, scale: int) -> Setting:
    """The setting of a plan that two operators answer from so many reports."""
    fixed = (raster.depth, raster.members, clients, 1, Fraction(2, clients), scale)
    return Setting(*fixed, tiling=tiling, region=tiling.region)


def noisy_sums(units: IntArray, epsilon: Fraction, moves: int, setting: Setting) -> NoisySums:
    """Both operators' answer, shape (length,), to a plan whose query one client moves by ``moves`` units."""
    scale = setting.scale
    variance = 2 * 2 * (moves / scale / float(epsilon)) ** 2  # the continuous law's, of two variables
    return NoisySums(units / scale, variance, 2.0, epsilon, moves, scale, setting.clients)


class OperatorsAnswerer:
    """Both operators of one release and all clients in this process; answers the queries of a plan."""

    def __init__(
        self,
        model: TwoOperators,
        raster: Raster,
        tiling: Tiling,
        devices: Devices,
        scale: int,
        execution: Execution,
        least_noise: bool,
    ) -> None:
        self.revealed: list[Share] = []
        self.costs: list[RoundCost] = []
        self._model, self._execution, self._least_noise = model, execution, least_noise
        self._raster, self._drawn = raster, 0
        # A stream of its own, so that a second collection from one seeded stream does not repeat the first.
        self._collection = execution.rng.words(TASK_BYTES, np.uint8).tobytes()
        self._rng = execution.rng.child("collection " + self._collection.hex())
        asked, self._devices = devices.count, self._reporting(devices)
        if self._devices.count < model.minimum_batch:
            raise PromiseError(
                f"{self._devices.count} devices report and {model.minimum_batch} are needed (the option "
                "minimum_batch), so nothing is released and nothing is spent"
            )
        self.setting = setting_of(raster, tiling, self._devices.count, scale)
        self.costs.append(self._cost(asked))
        self._held = self._exact_sums()
        self._operators: tuple[Operator, Operator] | None = None

    def answer(self, query: Query) -> NoisySums:
        """Charge the query's share, then have both operators answer it; one that cannot be answered costs nothing."""
        length = query.encoding.length
        drawn = self._drawn + length
        if drawn > MOST_SAMPLES:
            raise ParameterError(
                f"an operator must draw at most {MOST_SAMPLES} samples of noise, got {drawn}"
            )
        moves = self.setting.sensitivity(query.encoding)
        check_noise(query.epsilon, moves)
        if self._in_full and self._operators is None:
            self._operators = self._collected()
        self._execution.before_reveal(query.share)
        self._drawn = drawn
        self.revealed.append(query.share)
        return self._execution.keep(query.purpose, NoisySums, lambda: self._noisy(query, moves))

    def _noisy(self, query: Query, moves: int) -> NoisySums:
        progress, encoding = self._execution.progress, of_sites(query.encoding, self._sites)
        progress(query.purpose, 0.0)
        streams = [
            self._rng.child(f"operator {number} answer {len(self.revealed)}") for number in (LEADER, HELPER)
        ]
        if self._operators is None:
            units = grouped_sums(*self._held, encoding)
            for stream in streams[: 1 if self._least_noise else 2]:
                units = units + discrete_laplace(encoding.length, query.epsilon, moves, stream)
        else:
            leader, helper = (
                operator.answer(query.purpose, encoding, query.epsilon, stream)
                for operator, stream in zip(self._operators, streams, strict=True)
            )
            units = noisy_sums_of(self._scheme, (leader, helper))
        progress(query.purpose, 1.0)
        return noisy_sums(units, query.epsilon, moves, self.setting)

    @property
    def _sites(self) -> SiteEncoding:
        """The sites that clients share, which may be divided by label."""
        return SiteEncoding(self._raster.depth, self._raster.labels)

    @property
    def _in_full(self) -> bool:
        """Whether clients and operators run all the cryptography."""
        return not isinstance(self._execution.secure_sum, IdealSum | None)

    @property
    def _scheme(self) -> Scheme:
        return scheme_of(self._sites.depth + self._sites.levels, self.setting.scale, self._collection)

    def _reporting(self, devices: Devices) -> Devices:
        """The clients whose message arrives."""
        lost = round(self._execution.dropout * devices.count)
        if not lost:
            return devices
        simulation = self._rng.child("who drops out").generator()
        return devices.take(np.sort(simulation.choice(devices.count, devices.count - lost, replace=False)))

    def _cost(self, asked: int) -> RoundCost:
        scheme = self._scheme
        size = scheme.sizes(LEADER)[0] + sum(scheme.sizes(number)[1] for number in (LEADER, HELPER))
        bits = 64 * scheme.field.words
        return RoundCost("reports", scheme.sites, bits, asked, self._devices.count, 1, {"report": size}, {})

    def _vectors(self, devices: Devices) -> SparseVectors:
        setting = self.setting
        return encode_places(devices, self._sites, setting.scale, setting.rounding, self._rng)

    def _exact_sums(self) -> tuple[IntArray, IntArray]:
        """The sites that anybody is at, and their units: few of the sites of a series, or of pairs."""
        vectors = self._vectors(self._devices)
        site, entry = np.unique(vectors.position, return_inverse=True)
        units = np.zeros(site.size, dtype=np.int64)
        np.add.at(units, entry, vectors.value)
        return site, units

    def _collected(self) -> tuple[Operator, Operator]:
        """Shard every client's contribution, and verify the reports. Run by: clients and operators."""
        scheme, progress = self._scheme, self._execution.progress
        if scheme.sites > _LONGEST and isinstance(scheme, VectorScheme):
            raise InputError(
                f"a vector of {scheme.sites} sites is too long to be sent by every device; expected at most "
                f"{_LONGEST}, or one location a device (--option scale=1)"
            )
        key = self._rng.words(32, np.uint8).tobytes()
        budget = Fraction(1 << 40)  # the release's account refuses before an operator's would
        leader, helper = (
            Operator(scheme, number, self._collection, key, budget, self._model.minimum_batch)
            for number in (LEADER, HELPER)
        )
        step = max(1, _TOGETHER // (scheme.sites * 8))
        for first in range(0, self._devices.count, step):
            last = min(first + step, self._devices.count)
            for operator, reports in zip((leader, helper), self._reports(scheme, first, last), strict=True):
                operator.receive(reports)
            verify_together(leader, helper)
            progress("verify reports", last / self._devices.count)
        return leader, helper

    def _reports(self, scheme: Scheme, first: int, last: int) -> Iterator[list[InputShares]]:
        vectors = self._vectors(self._devices.between(first, last))
        contributions = np.zeros((last - first, scheme.sites), dtype=np.int64)
        np.add.at(contributions, (vectors.client, vectors.position), vectors.value)
        nonces, randomness = (
            self._rng.words((last - first) * size, np.uint8).reshape(last - first, size).astype(np.uint8)
            for size in (16, scheme.randomness_bytes)
        )
        made = scheme.shard(contributions, nonces, randomness)
        for inputs in made.inputs:
            rows = zip(nonces, made.public, inputs, strict=True)
            yield [InputShares(*(part.tobytes() for part in row)) for row in rows]
