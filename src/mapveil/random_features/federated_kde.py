"""Federated KDE: Algorithm 1 of Zong et al. (2023), exact, and without any privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.engines.contributions import count_users
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.mechanism import Progress
from mapveil.privacy.claim import Adversary, Assumes, Assumption, Measured, Quantity, Reveals, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil.random_features.devices import Chunk, sum_chunks, visits_of
from mapveil.random_features.map_points import map_points, sum_of_kernels
from mapveil.random_features.projection_mechanism import Collected, ProjectionMechanism, check_bandwidth
from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.kernels import kernel_named
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class FederatedKde(ProjectionMechanism):
    r"""Every device sends its kernel on the grid; the server adds them up. The best map, and no privacy at all.

    .. math:: f(g) = \frac{1}{\int k_h} \sum_i k_h(g - d_i)

    where: h is ``bandwidth_m`` and :math:`d_i` the place of device i (for several places the mean of their kernels),
    equations 1 and 5. Its maximum is the place.

    Parameters
    ----------
    bandwidth_m : float
        h, metres (cells without georeference).
    kernel : str
        As for :class:`mapveil.random_features.fourier_kde.FourierKde`.
    """

    name: ClassVar[str] = "federated-kde"
    summary: ClassVar[str] = "each device sends its whole kernel: exact, and without privacy"
    source: ClassVar[str] = "Zong et al. 2023, Algorithm 1"

    bandwidth_m: float
    kernel: str = "gaussian"

    def __post_init__(self) -> None:
        self._check_positive("bandwidth_m")
        kernel_named(self.kernel)

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """See :class:`ProjectionMechanism`."""
        check_bandwidth(self.bandwidth_m, tiling)
        where, total = map_points(tiling), count_users(points, tiling)
        kernel, h = kernel_named(self.kernel), float(self.bandwidth_m)

        def kernels_of(chunk: Chunk) -> FloatArray:
            visits = chunk.visits
            return sum_of_kernels(
                where, visits.places, visits.shares(), kernel, (h, h), threads=chunk.threads
            )

        made = sum_chunks(
            visits_of(points, tiling),
            rng,
            kernels_of,
            lambda done: progress("sum the kernels", min(1.0, done / total)),
        )
        users = np.maximum(made.values, 0.0)  # the transform's rounding, not an estimate's
        return Collected(users / (kernel.integral(2) * h * h) * where.area, made.devices, bandwidth=h)

    def promise(
        self, measured: tuple[Measured, ...], assumptions: tuple[Assumption, ...], *, seeded: bool
    ) -> Guarantee:
        """See :class:`ProjectionMechanism`."""
        return Guarantee(
            model=TrustModel.RANDOM_FEATURES,
            epsilon=None,
            adversary=Adversary.REPORTS,
            disclosure=Reveals.LOCATION(),
            assumptions=(Assumes.LOCATIONS_TRUSTED(), *assumptions),
            measured=(Measured(Quantity.POSTERIOR_ERROR, 0.0, "m", "any server"), *measured),
            seeded=seeded,
        )
