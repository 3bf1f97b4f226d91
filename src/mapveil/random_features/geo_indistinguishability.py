"""Geo-indistinguishability: every device moves its place by planar Laplace noise (the paper's baseline)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from mapveil.engines.contributions import count_users
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.mechanism import Progress
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    Assumption,
    ContributionBound,
    Measured,
    Norm,
    Reveals,
    TrustModel,
)
from mapveil.privacy.guarantee import Guarantee
from mapveil.random_features.devices import Chunk, sum_chunks, visits_of
from mapveil.random_features.map_points import MapPoints, map_points, sum_of_kernels
from mapveil.random_features.projection_mechanism import Collected, ProjectionMechanism, check_bandwidth
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError
from mapveil_client.random_features.kernels import kernel_named, uniforms
from mapveil_client.randomness.random import Randomness

Remap = Literal["none", "region", "prior"]

_TINY = 1e-4
_DECIMALS = 2  # of a reported metre: the digits below are those of the arithmetic


def laplace_radius(probability: FloatArray, epsilon: float) -> FloatArray:
    r"""The radius that planar Laplace noise stays within with this probability, metres.

    .. math:: C_\epsilon^{-1}(p) = -\frac{1}{\epsilon} \Big( W_{-1}\big(\frac{p - 1}{e}\big) + 1 \Big), \qquad
              C_\epsilon(r) = 1 - (1 + \epsilon r) e^{-\epsilon r}

    where: :math:`W_{-1}` is the lower branch of Lambert's W function. Source: Andres et al. (2013), section 4.2. Next
    to p = 0, where the branch point costs digits, the radius is the inverse of the series of C. One Newton step makes
    up for the rest.

    Parameters
    ----------
    probability : ndarray of float64
        p, in [0, 1).
    epsilon : float
        Per metre, above 0.
    """
    from scipy.special import lambertw

    p = np.asarray(probability, dtype=np.float64)
    # C(r) = t^2 / 2 - t^3 / 3 + ..., t = epsilon r.
    root = np.sqrt(2 * p)
    near = root + root**2 / 3 + root**3 * (11 / 72)
    t = np.where(p < _TINY, near, -(lambertw((np.maximum(p, _TINY) - 1) / math.e, k=-1).real + 1))
    # -expm1(-t) - t exp(-t) loses no digits for large t, and the step is nothing for small ones.
    error = -np.expm1(-t) - t * np.exp(-t) - p
    t = np.where(p < _TINY, t, t - error / np.maximum(t * np.exp(-t), 1e-300))
    return np.asarray(t / epsilon)


def planar_laplace(count: int, epsilon: float, rng: Randomness) -> FloatArray:
    r"""Noise of density :math:`\frac{\epsilon^2}{2\pi} e^{-\epsilon \lVert x \rVert}`, equation 18.

    A uniform direction, and the radius of a uniform probability (:func:`laplace_radius`). Run by: each client.

    Parameters
    ----------
    count : int
        Number of draws.
    epsilon : float
        Per metre.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of float64, shape (2, count)
        Metres.
    """
    angle = uniforms(count, rng) * (2 * math.pi)
    radius = laplace_radius(1 - uniforms(count, rng), epsilon)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def remap(places: FloatArray, where: MapPoints, epsilon: float, how: Remap, prior: FloatArray) -> FloatArray:
    r"""Move reported places to where they likelier came from: costs no privacy. Run by: the server, or the client.

    - ``region``: a place outside the region's box moves to the nearest inside (Andres et al. 2013, section 4.4).
    - ``prior``: the mean of the posterior over the cells (Chatzikokolakis et al. 2017),
      :math:`\sum_c \pi_c e^{-\epsilon |z - c|} c / \sum_c \pi_c e^{-\epsilon |z - c|}`, computed at the cells' middles
      and interpolated between them.

    Parameters
    ----------
    places : ndarray of float64, shape (2, places)
        Reported ones, metres.
    where : MapPoints
        The map's plane.
    epsilon : float
        Epsilon of the noise, per metre.
    how : str
        ``none``, ``region`` or ``prior``.
    prior : ndarray of float64, shape (cells,)
        A public density, for ``prior``.

    Raises
    ------
    InputError
        ``prior`` on a tiling whose cells are no even grid in metres.
    """
    if how == "none":
        return places
    low, high = np.asarray(where.low)[:, None], np.asarray(where.high)[:, None]
    inside = np.clip(places, low, high)
    grid = where.grid
    if how == "region":
        return np.asarray(inside)
    if grid is None:
        raise InputError("a prior is remapped by on an even grid of metres; this tiling has none")
    from scipy.ndimage import map_coordinates

    weights = np.zeros(grid.count)
    weights[where.column, where.row] = prior
    offsets = [np.arange(1 - n, n) * step for n, step in zip(grid.count, grid.step, strict=True)]
    likelihood = np.exp(-epsilon * np.hypot(offsets[0][:, None], offsets[1][None, :]))
    total = np.maximum(_convolved(weights, likelihood), 1e-300)
    index = np.stack([(inside[a] - grid.start[a]) / grid.step[a] for a in range(2)])
    moved = np.empty_like(inside)
    for axis in range(2):
        middle = grid.axis(axis)
        shape = (-1, 1) if axis == 0 else (1, -1)
        mean = _convolved(weights * middle.reshape(shape), likelihood) / total
        moved[axis] = map_coordinates(mean, index, order=1, mode="nearest")
    return moved


def _convolved(weights: FloatArray, likelihood: FloatArray) -> FloatArray:
    from scipy.signal import fftconvolve

    n, m = weights.shape
    return np.asarray(fftconvolve(weights, likelihood)[n - 1 : 2 * n - 1, m - 1 : 2 * m - 1])


@dataclass(frozen=True, kw_only=True)
class PlanarLaplace(ProjectionMechanism):
    r"""Each device reports its place with planar Laplace noise; the map is the kernel density of what was reported.

    Two places at distance r are told apart by a report by a factor of at most :math:`e^{\epsilon r}`, with
    :math:`\epsilon` = ``level`` / ``radius_m`` (geo-indistinguishability, definition 4.1). That is no differential
    privacy: over a city the factor is astronomical.

    Parameters
    ----------
    bandwidth_m : float
        Bandwidth of the kernel density of the reports, metres.
    radius_m : float
        Within so many metres ...
    level : float
        ... the factor is at most e to this.
    kernel : str
        As for :class:`mapveil.random_features.fourier_kde.FourierKde`.
    remap : str
        ``none``; ``region``: reports outside move to its edge; ``prior``: to the mean of what a uniform prior makes
        of them.
    """

    name: ClassVar[str] = "planar-laplace"
    summary: ClassVar[str] = "each device reports its place moved by noise of a few hundred metres"
    source: ClassVar[str] = "Andres et al. 2013; Zong et al. 2023, section 4.2.3"

    bandwidth_m: float
    radius_m: float = 200.0
    level: float = math.log(4)
    kernel: str = "gaussian"
    remap: Remap = "none"

    def __post_init__(self) -> None:
        self._check_positive("bandwidth_m", "radius_m", "level")
        kernel_named(self.kernel)
        self._check(self.remap in ("none", "region", "prior"), "remap", "none, region or prior")

    @property
    def epsilon_per_m(self) -> float:
        """Epsilon of the noise, per metre."""
        return self.level / self.radius_m

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """See :class:`ProjectionMechanism`."""
        check_bandwidth(self.bandwidth_m, tiling)
        where, total = map_points(tiling), count_users(points, tiling)
        kernel, h = kernel_named(self.kernel), float(self.bandwidth_m)
        prior = where.area / where.area.sum()

        def kernels_of(chunk: Chunk) -> FloatArray:
            noise = planar_laplace(chunk.visits.devices, self.epsilon_per_m, chunk.rng)
            reported = np.round(chunk.visits.places + noise, _DECIMALS)
            moved = remap(reported, where, self.epsilon_per_m, self.remap, prior)
            return sum_of_kernels(where, moved, None, kernel, (h, h), threads=chunk.threads)

        made = sum_chunks(
            visits_of(points, tiling, "most-visited"),
            rng,
            kernels_of,
            lambda done: progress("sum the kernels", min(1.0, done / total)),
        )
        users = np.maximum(made.values, 0.0) / (kernel.integral(2) * h * h) * where.area
        return Collected(users, made.devices, bandwidth=h)

    def promise(
        self, measured: tuple[Measured, ...], assumptions: tuple[Assumption, ...], *, seeded: bool
    ) -> Guarantee:
        """See :class:`ProjectionMechanism`."""
        return Guarantee(
            model=TrustModel.RANDOM_FEATURES,
            epsilon=None,
            adversary=Adversary.REPORTS,
            bound=ContributionBound(Norm.REPORTS, Fraction(1)),
            disclosure=Reveals.PLANAR_LAPLACE(
                per_m=self.epsilon_per_m, radius_m=float(self.radius_m), level=float(self.level)
            ),
            assumptions=(Assumes.ONE_CLIENT(), Assumes.FLOATING_POINT(), *assumptions),
            measured=measured,
            seeded=seeded,
        )
