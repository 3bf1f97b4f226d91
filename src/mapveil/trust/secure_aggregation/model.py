"""Secure aggregation as a trust model: one server, many clients, the noise in shares."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

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
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.noise_shares import share_shape

if TYPE_CHECKING:
    from mapveil_client.contribution import Rounding

Overflow = Literal["refuse", "wrap"]

TABLE_SCALE: Final = 1024
"""Units per client where a table of visits is collected and none are set."""


@dataclass(frozen=True, kw_only=True)
class SecureAggregation:
    """Clients answer in secure sums; the server sees noisy sums, and who takes part.

    Parameters
    ----------
    shard_size : int
        Maximum number of clients of one secure sum (S_max).
    tolerated_dropout : float
        Fraction of a shard that may drop out; the noise is provisioned for it. More than that: nothing is released.
    corrupt : float
        Fraction of a shard that may be corrupt and add no noise; provisioned for likewise.
        Deviation: the paper provisions for dropouts only.
    sample : int, optional
        Clients asked in each round (U); all of them by default.
    redraw : bool
        Whether every round asks a fresh sample (Algorithm 1) or all rounds the same (the paper's experiments).
    scale : int, optional
        Units that a client divides over its locations (gamma). With 1 a client reports its most frequent location. By
        default 1 for counts, where each user is at one location, and 1024 for a table of visits.
    rounding : str
        ``"largest-remainder"``: sensitivity gamma; or ``"stochastic"``, the paper's: gamma + d.
    bits : int, optional
        Vectors are summed modulo 2**bits; the smallest modulus that is safe by default.
    overflow : str
        ``"refuse"`` a modulus in which a sum overflows with probability 2^-40 or more; ``"wrap"`` lets it, for
        experiments.

    Source: Bagdasaryan et al., "Towards Sparse Federated Analytics: Location Heatmaps under Distributed Differential
    Privacy with Secure Aggregation" (PoPETs 2022), Algorithm 1.
    """

    name: ClassVar[str] = "distributed"
    whole_noise: ClassVar[bool] = False  # whether each client adds the noise of a whole sum

    shard_size: int = 10_000
    tolerated_dropout: float | Fraction = 0.1
    corrupt: float | Fraction = 0.05
    sample: int | None = None
    redraw: bool = False
    scale: int | None = None
    rounding: Rounding = "largest-remainder"
    bits: int | None = None
    overflow: Overflow = "refuse"

    def __post_init__(self) -> None:
        self._check(self.shard_size >= 1, "shard_size", "a whole number of at least 1")
        for name in ("tolerated_dropout", "corrupt"):
            self._check(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")
        lost = float(self.tolerated_dropout) + float(self.corrupt)
        self._check(lost < 1, "corrupt", "below 1 together with tolerated_dropout")
        self._check(
            self.sample is None or self.sample >= 1, "sample", "a whole number of at least 1, or none"
        )
        self._check(self.scale is None or 1 <= self.scale <= 1 << 28, "scale", "from 1 to 2**28, or none")
        self._check(
            self.rounding in ("largest-remainder", "stochastic"),
            "rounding",
            "largest-remainder or stochastic",
        )
        self._check(self.bits is None or 1 <= self.bits <= 64, "bits", "from 1 to 64, or none")
        self._check(self.overflow in ("refuse", "wrap"), "overflow", "refuse or wrap")

    def _check(self, held: bool, name: str, needed: str) -> None:
        if not held:
            raise ParameterError(f"{name} must be {needed}, got {getattr(self, name)!r}")

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
class WholeNoise(SecureAggregation):
    """The local model for comparison: every client adds the noise of a whole sum, so its report alone is private.

    Parameters
    ----------
    shard_size : int
        Reports drawn and added up at a time. Privacy does not depend on it, memory does.
    """

    whole_noise: ClassVar[bool] = True

    shard_size: int = 100

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
