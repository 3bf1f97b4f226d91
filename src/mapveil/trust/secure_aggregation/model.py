"""Secure aggregation as a trust model: one server, many clients, the noise in shares."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

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
from mapveil_client.methods import SumParameters, WholeNoiseParameters
from mapveil_client.randomness.noise_shares import share_shape


@dataclass(frozen=True, kw_only=True)
class SecureAggregation(SumParameters):
    """Clients answer in secure sums; the server sees noisy sums, and who takes part.

    Its parameters are those of :class:`mapveil_client.methods.SumParameters`.

    Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
    Privacy with Secure Aggregation" (PoPETs 2022), Algorithm 1.
    """

    name: ClassVar[str] = "distributed"

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        record = dataclasses.asdict(self)
        return {name: str(value) if isinstance(value, Fraction) else value for name, value in record.items()}

    def alpha(self, smallest: int) -> Fraction:
        """Each client's part of a discrete Laplace variable, where the smallest shard has so many clients."""
        if self.whole_noise:
            return Fraction(1)
        return share_shape(smallest, exactly(self.tolerated_dropout), exactly(self.corrupt))

    def noise_terms(self, users: float) -> float:
        """Discrete Laplace variables in the noise of a sum over so many clients, about."""
        shards = max(1.0, math.ceil(users / self.shard_size))
        return shards / (1 - float(self.tolerated_dropout) - float(self.corrupt))

    def asked(self, users: float) -> float:
        """Of so many users, those that are asked."""
        return min(users, self.sample or math.inf)

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
                Assumes.PARTICIPATION_PUBLIC(),
            ),
            shares=shares,
            seeded=seeded,
        )


@dataclass(frozen=True, kw_only=True)
class WholeNoise(WholeNoiseParameters, SecureAggregation):
    """The local model for comparison: every client adds the noise of a whole sum, so its report alone is private.

    Its parameters are those of :class:`mapveil_client.methods.WholeNoiseParameters`.
    """

    def noise_terms(self, users: float) -> float:
        """Discrete Laplace variables in the noise of a sum over so many clients: as many."""
        return users

    def guarantee(self, epsilon: Fraction, shares: tuple[Share, ...], *, seeded: bool) -> Guarantee:
        """The promise of every report, without any cryptography."""
        return dataclasses.replace(
            super().guarantee(epsilon, shares, seeded=seeded),
            adversary=Adversary.REPORTS,
            assumptions=(Assumes.ONE_CLIENT(), Assumes.CLIENT_ALONE()),
        )


def exactly(fraction: float | Fraction) -> Fraction:
    """A fraction as people write it: 0.1 is a tenth exactly."""
    return Fraction(str(fraction))
