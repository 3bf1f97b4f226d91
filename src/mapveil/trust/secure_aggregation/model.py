"""Secure aggregation as a trust model: one server, many clients, the noise in shares."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from mapveil.engines import UserSums
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Neighbouring,
    Norm,
    Share,
    TrustModel,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import sampling_delta
from mapveil.trust.secure_aggregation.simulation import Simulation
from mapveil_client.method_parameters import TABLE_SCALE, SumParameters, WholeNoiseParameters

if TYPE_CHECKING:
    from mapveil.geo.counts import Counts
    from mapveil.geo.points import Points
    from mapveil.geo.tiling import Tiling
    from mapveil.trust.queries import Execution, Raster
    from mapveil_client.contribution import Devices


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(SumParameters):
    """Clients answer in secure sums; the server sees noisy sums, and who takes part.

    Its parameters are those of :class:`mapveil_client.method_parameters.SumParameters`.

    Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
    Privacy with Secure Aggregation" (PoPETs 2022), Algorithm 1.
    """

    name: ClassVar[str] = "distributed"

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        record = dataclasses.asdict(self)
        return {name: str(value) if isinstance(value, Fraction) else value for name, value in record.items()}

    def answerer(
        self,
        points: Points | Counts | UserSums | Devices,
        tiling: Tiling,
        raster: Raster,
        execution: Execution,
        *,
        least_noise: bool = False,
    ) -> Simulation:
        """Give every user of a table a client, and simulate the clients and the server in this process.

        Parameters
        ----------
        points : Points, Counts or Devices
            A table, counts with each unit one user, or the clients.
        tiling, raster, execution
            See :meth:`mapveil.trust.curator.Curator.answerer`.
        least_noise : bool
            Whether only the promised honest survivors of each shard add noise, for audits.

        Raises
        ------
        InputError
            The table cannot be used, or holds a curator's sums.
        """
        from mapveil.trust.secure_aggregation.clients import devices_of

        devices = devices_of(points, tiling, execution.progress, raster.site)
        usual = 1 if devices.starts is None else TABLE_SCALE
        return Simulation(self, raster, tiling.region, devices, self.scale or usual, execution, least_noise)

    def noise_terms(self, users: float) -> float:
        """Discrete Laplace variables in the noise of a sum over so many clients, about."""
        shards = max(1.0, math.ceil(users / self.shard_size))
        return shards / (1 - float(self.tolerated_dropout) - float(self.corrupt))

    def guarantee(self, epsilon: Fraction, shares: tuple[Share, ...], *, seeded: bool) -> Guarantee:
        """The promise of one release."""
        return Guarantee(
            model=TrustModel.SECURE_AGGREGATION,
            neighbours=Neighbouring.ZERO_OUT,
            epsilon=epsilon,
            delta=sampling_delta(epsilon),
            adversary=Adversary.HONEST_SERVER,
            # Stochastic rounding exceeds 1 by up to a unit a coordinate, which the sensitivity counts.
            bound=ContributionBound(Norm.L1, Fraction(1)) if self.rounding == "largest-remainder" else None,
            assumptions=(
                Assumes.ONE_CLIENT(),
                Assumes.DROPOUT(tolerated=float(self.tolerated_dropout), corrupt=float(self.corrupt)),
                Assumes.SECURE_SUM(),
                Assumes.ROSTER_TRUSTED(),
                Assumes.PARTICIPATION_PUBLIC(),
            ),
            shares=shares,
            seeded=seeded,
        )


@dataclass(frozen=True, kw_only=True)
class WholeNoise(WholeNoiseParameters, SecureAggregation):
    """The local model for comparison: every client adds the noise of a whole sum, so its report alone is private.

    Its parameters are those of :class:`mapveil_client.method_parameters.WholeNoiseParameters`.
    """

    def noise_terms(self, users: float) -> float:
        """Discrete Laplace variables in the noise of a sum over so many clients: as many."""
        return users

    def guarantee(self, epsilon: Fraction, shares: tuple[Share, ...], *, seeded: bool) -> Guarantee:
        """The promise of every report, without any cryptography."""
        return dataclasses.replace(
            super().guarantee(epsilon, shares, seeded=seeded),
            adversary=Adversary.REPORTS,
            assumptions=(Assumes.ONE_CLIENT(), Assumes.CLIENT_ALONE(), Assumes.PARTICIPATION_PUBLIC()),
        )
