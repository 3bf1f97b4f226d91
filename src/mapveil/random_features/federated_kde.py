"""Federated KDE: Algorithm 1 of Zong et al. (2023), exact, and without any privacy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.engines.contributions import count_users
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.privacy.claim import Assumes, Assumption, Disclosure, Measured, Quantity, Reveals
from mapveil.random_features.map_points import MapPoints, map_points, sum_of_kernels
from mapveil.random_features.projection_mechanism import Collected, ProjectionMechanism, check_bandwidth
from mapveil.random_features.visits import Chunk, sum_chunks, visits_of
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.random_features.feature_policy import PlaceChoice
from mapveil_client.random_features.kernels import kernel_named
from mapveil_client.randomness.random import Randomness

Reported = tuple[FloatArray, FloatArray | None]
"""Places, shape (2, places), metres, and their weights (1 each for None)."""


def collect_kernels(
    points: Points | Counts,
    tiling: Tiling,
    rng: Randomness,
    progress: Progress,
    *,
    bandwidth_m: float,
    kernel: str,
    places: PlaceChoice,
    reported: Callable[[Chunk, MapPoints], Reported],
) -> Collected:
    """The kernel density of the places that each chunk of devices reports, in users per cell."""
    check_bandwidth(bandwidth_m, tiling)
    where, total = map_points(tiling), count_users(points, tiling)
    law, h = kernel_named(kernel), float(bandwidth_m)

    def kernels_of(chunk: Chunk) -> FloatArray:
        return sum_of_kernels(where, *reported(chunk, where), law, (h, h), threads=chunk.threads)

    made = sum_chunks(
        visits_of(points, tiling, places),
        rng,
        kernels_of,
        lambda done: progress("sum the kernels", min(1.0, done / total)),
    )
    users = np.maximum(made.values, 0.0)  # negative by the transform's rounding only
    return Collected(users / (law.integral(2) * h * h) * where.area, made.devices, bandwidth=h)


@dataclass(frozen=True, kw_only=True)
class FederatedKde(ProjectionMechanism):
    r"""Every device sends its kernel on the grid; the server adds them up. The best map, and no privacy at all.

    .. math:: f(g) = \frac{1}{\int k_h} \sum_i k_h(g - d_i)

    where: h is ``bandwidth_m`` and :math:`d_i` the place of device i (for several places the mean of their kernels),
    equations 1 and 5. The maximum of a device's kernel is its place.

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
    known: ClassVar[tuple[Measured, ...]] = (Measured(Quantity.POSTERIOR_ERROR, 0.0, "m", "any server"),)

    bandwidth_m: float
    kernel: str = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("bandwidth_m")
        kernel_named(self.kernel)

    @property
    def disclosure(self) -> Disclosure:
        """See :class:`ProjectionMechanism`."""
        return Reveals.LOCATION()

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """See :class:`ProjectionMechanism`."""
        return (Assumes.LOCATIONS_TRUSTED(),)

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """See :class:`ProjectionMechanism`."""

        def reported(chunk: Chunk, where: MapPoints) -> Reported:
            return chunk.visits.places, chunk.visits.shares()

        return collect_kernels(
            points, tiling, rng, progress,
            bandwidth_m=self.bandwidth_m, kernel=self.kernel, places="mean", reported=reported,
        )  # fmt: skip
