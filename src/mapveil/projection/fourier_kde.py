"""Federated KDE by projection: Algorithm 2 of Zong et al. (2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.mechanism import Progress
from mapveil.privacy.guarantee import Guarantee, Measured, Share
from mapveil.privacy.random import Randomness
from mapveil.projection.devices import PlaceChoice, count_devices, visits_of
from mapveil.projection.frequencies import unit_frequencies
from mapveil.projection.kernels import kernel_named
from mapveil.projection.mechanism import MapPoints, ProjectionMechanism, Surface, map_points
from mapveil.projection.policy import Policy
from mapveil.projection.query import Query
from mapveil.projection.report import client_reports
from mapveil.projection.surface import SurfaceSum

__all__ = ["FourierKde"]


@dataclass(frozen=True, kw_only=True)
class FourierKde(ProjectionMechanism):
    r"""Every device answers with a few plane waves through its place; their sum tends to the kernel density.

    .. math:: \hat f(g) = \frac{1}{B \int k_h} \sum_i \sum_b \cos(\omega_{ib} \cdot (g - d_i)),
              \qquad h\, \omega_{ib} \sim p

    where: B is ``features``, h is ``bandwidth_m``, p the spectral law of ``kernel``, :math:`d_i` the place of device i
    (for several places the mean of the cosines); a cell's estimate is :math:`\hat f` at its middle times its area. The
    client half is :func:`mapveil.projection.report.client_reports`, behind a :class:`mapveil.projection.policy.Policy`;
    the server half is :class:`mapveil.projection.surface.SurfaceSum`.

    Deviation: the paper's surface is the mean of the waves; here it is divided by the kernel's integral, so that it is
    a density of users, and negative densities are shown as 0.

    Parameters
    ----------
    bandwidth_m : float
        h, metres (cells without georeference).
    features : int
        B, waves per device. With more than one a server that knows where people live usually finds the place.
    kernel : str
        ``gaussian``, ``laplace``, ``cauchy``, ``matern-3/2``, ``matern-5/2`` or ``matern-7/2``.
    places : str
        What a device with several places reports: the ``"mean"`` of their waves, or its ``"most-visited"`` cell's.
    bands : int
        j of the devices' policy, Lemma 3.
    gamma : float
        Its :math:`\gamma`.
    """

    name: ClassVar[str] = "fourier-kde"
    summary: ClassVar[str] = "each device sends plane waves through its place; their sum is the density"
    source: ClassVar[str] = "Zong et al. 2023, Algorithm 2"

    bandwidth_m: float
    features: int = 1
    kernel: str = "gaussian"
    places: PlaceChoice = "mean"
    bands: int = 3
    gamma: float = 0.1

    def __post_init__(self) -> None:
        finite = isinstance(self.bandwidth_m, (int, float)) and math.isfinite(self.bandwidth_m)
        self._check(finite and self.bandwidth_m > 0, "bandwidth_m", "a number of metres above 0")
        whole = isinstance(self.features, int) and not isinstance(self.features, bool)
        self._check(whole and self.features >= 1, "features", "a whole number of at least 1")
        kernel_named(self.kernel)
        self._check(self.places in ("mean", "most-visited"), "places", "mean or most-visited")
        self._check(self.bands >= 1, "bands", "a whole number of at least 1")
        self._check(0 < self.gamma < math.inf, "gamma", "a number above 0")

    def policy(self) -> Policy:
        """The devices' policy under which this asks: Run by: the client."""
        h = float(self.bandwidth_m)
        return Policy((h, h), self.kernel, self.features, self.bands, self.gamma, smallest_side=0.0)

    def query(self, where: MapPoints) -> Query:
        """What the server asks. Run by: the server."""
        h = float(self.bandwidth_m)
        return Query((h, h), where.low, where.high, self.features, self.kernel, where.grid)

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Surface:
        """See :class:`ProjectionMechanism`."""
        self._check_bandwidth(self.bandwidth_m, tiling)
        where = map_points(tiling)
        query = self.query(where)
        self.policy().check(query)
        total = count_devices(points, tiling)
        sum_ = SurfaceSum(query)
        for visits in visits_of(points, tiling, self.places):
            progress("sum the waves", sum_.devices / total)
            units = unit_frequencies(visits.devices, self.features, query.law, 2, rng)
            sum_.add(client_reports(units, visits, query))
        progress("sum the waves", 1.0)
        users = where.on_cells(sum_.density()) * where.area
        spread = math.sqrt(sum_.devices / (2 * self.features)) * _peak(query)
        note = f"chance of the waves alone: a standard error of {spread * 1e6:.4g} users per km² everywhere"
        return Surface(users, sum_.devices, (note,))

    def promise(self, measured: tuple[Measured, ...], *, seeded: bool) -> Guarantee:
        """See :class:`ProjectionMechanism`."""
        return self._promise(measured, seeded)

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        return self._promise((), seeded)

    def _promise(self, measured: tuple[Measured, ...], seeded: bool) -> Guarantee:
        return Guarantee(
            trust="projection",
            epsilon=None,
            unit="user",
            bounding=(
                f"Each device reports the phase of its place on {self.features} random plane wave(s), without noise."
            ),
            neighbours="which of the places with the same phase it is at",
            assumptions=("one device per user",),
            measured=measured,
            seeded=seeded,
        )


def _peak(query: Query) -> float:
    """The kernel's value at 0 as a density, per square metre."""
    return float(1 / (query.law.integral(query.dimension) * np.prod(query.bandwidth)))
