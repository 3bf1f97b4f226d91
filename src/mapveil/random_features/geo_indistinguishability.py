"""Geo-indistinguishability: every device moves its place by planar Laplace noise (the paper's baseline)."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.privacy.claim import Assumes, Assumption, ContributionBound, Disclosure, Norm, Reveals
from mapveil.random_features.federated_kde import Reported, collect_kernels
from mapveil.random_features.map_points import MapPoints
from mapveil.random_features.projection_mechanism import Collected, ProjectionMechanism
from mapveil.random_features.visits import Chunk
from mapveil.trust.queries import Progress
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

    where: :math:`W_{-1}` is the lower branch of Lambert's W function. Near p = 0, where the branch point costs digits,
    the radius is the inverse of the series of C. One Newton step restores the other digits.

    Source: Andres et al. (2013), section 4.2.

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

    A uniform direction, and the radius of a uniform probability (:func:`laplace_radius`). ``epsilon`` is per metre, the
    noise in metres, shape (2, count). Run by: each client.
    """
    angle = uniforms(count, rng) * (2 * math.pi)
    radius = laplace_radius(1 - uniforms(count, rng), epsilon)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def remap(places: FloatArray, where: MapPoints, epsilon: float, how: Remap, prior: FloatArray) -> FloatArray:
    r"""Move reported places to more likely origins: post-processing. Run by: the server, or the client.

    - ``region``: a place outside the region's box moves to the nearest inside (Andres et al. 2013, section 4.4).
    - ``prior``: the mean of the posterior over the cells (Chatzikokolakis et al. 2017),
      :math:`\sum_c \pi_c e^{-\epsilon |z - c|} c / \sum_c \pi_c e^{-\epsilon |z - c|}`, computed at the cells' middles
      and interpolated between them.

    Parameters
    ----------
    places : ndarray of float64, shape (2, places)
        Reported places, metres.
    where : MapPoints
        Plane of the map.
    epsilon : float
        Epsilon of the noise, per metre.
    how : str
        ``none``, ``region`` or ``prior``.
    prior : ndarray of float64, shape (cells,)
        A public density, for ``prior``.

    Raises
    ------
    InputError
        ``how`` is ``prior`` and the cells are no even grid in metres.
    """
    if how == "none":
        return places
    low, high = np.asarray(where.low)[:, None], np.asarray(where.high)[:, None]
    inside = np.clip(places, low, high)
    grid = where.grid
    if how == "region":
        return np.asarray(inside)
    if grid is None:
        raise InputError("remap='prior' needs a tiling whose cells are an even grid in metres")
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
    r"""Each device reports its place with planar Laplace noise; the map is the kernel density of the reports.

    The probabilities of a report from two places at distance r differ by a factor of at most :math:`e^{\epsilon r}`,
    with :math:`\epsilon` = ``level`` / ``radius_m`` (geo-indistinguishability, definition 4.1). This is no differential
    privacy over a city, whose diameter makes the factor astronomical.

    Parameters
    ----------
    bandwidth_m : float
        Bandwidth of the kernel density of the reports, metres.
    radius_m : float
        Distance at which the factor is at most e to the power of ``level``, metres.
    level : float
        Logarithm of the factor at ``radius_m``.
    kernel : str
        As for :class:`mapveil.random_features.fourier_kde.FourierKde`.
    remap : str
        As for :func:`remap`, with a uniform prior.
    """

    name: ClassVar[str] = "planar-laplace"
    summary: ClassVar[str] = "each device reports its place moved by noise of a few hundred metres"
    source: ClassVar[str] = "Andres et al. 2013; Zong et al. 2023, section 4.2.3"
    bound: ClassVar[ContributionBound | None] = ContributionBound(Norm.REPORTS, Fraction(1))

    bandwidth_m: float
    radius_m: float = 200.0
    level: float = math.log(4)
    kernel: str = "gaussian"
    remap: Remap = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("bandwidth_m", "radius_m", "level")
        kernel_named(self.kernel)

    @property
    def epsilon_per_m(self) -> float:
        """Epsilon of the noise, per metre."""
        return self.level / self.radius_m

    @property
    def disclosure(self) -> Disclosure:
        """See :class:`ProjectionMechanism`."""
        return Reveals.PLANAR_LAPLACE(
            per_m=self.epsilon_per_m, radius_m=float(self.radius_m), level=float(self.level)
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """See :class:`ProjectionMechanism`."""
        return Assumes.ONE_CLIENT(), Assumes.FLOATING_POINT()

    def collect(
        self, points: Points | Counts, tiling: Tiling, rng: Randomness, progress: Progress
    ) -> Collected:
        """See :class:`ProjectionMechanism`."""

        def reported(chunk: Chunk, where: MapPoints) -> Reported:
            noise = planar_laplace(chunk.visits.devices, self.epsilon_per_m, chunk.rng)
            sent = np.round(chunk.visits.places + noise, _DECIMALS)
            prior = where.area / where.area.sum()
            return remap(sent, where, self.epsilon_per_m, self.remap, prior), None

        return collect_kernels(
            points, tiling, rng, progress,
            bandwidth_m=self.bandwidth_m, kernel=self.kernel, places="most-visited", reported=reported,
        )  # fmt: skip
