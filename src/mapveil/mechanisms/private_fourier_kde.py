r"""A kernel density from noisy sums of Fourier features that all users share, with one epsilon behind the surface.

The sum of feature m comes as :math:`\tilde F_m = F_m + \nu_m`, with noise of a known variance. Features of about one
length are shrunk together, by the part of their power that is signal (James and Stein 1961, with its positive part):

.. math::

    s = \max\Big(0,\ 1 - \frac{\sum_m w_m^2 \operatorname{Var} \nu_m}{\sum_m w_m^2 |\tilde F_m|^2}\Big), \qquad
    K(g) = \frac{1}{T_x T_y} \Big( n + 2 \operatorname{Re} \sum_m s w_m \bar{\tilde F}_m e^{i \kappa_m \cdot g} \Big)

where: n is the noisy number of users, and the symbols are those of :mod:`mapveil.mechanisms.fourier_features`. The
shrinkage and the nonuniform FFT are post-processing: they cost no privacy. Because a cosine's and a sine's noise are
equal, the noise left in the surface is the same everywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.fourier_features import (
    MOST_FEATURES,
    FourierFeatures,
    choose_features,
    signal_bandwidth,
    sum_of_vectors,
)
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.claim import Share
from mapveil.privacy.discrete_laplace import check_noise, discrete_laplace, laplace_variance
from mapveil.random_features.map_points import MapPoints, map_points
from mapveil.random_features.projection_mechanism import check_bandwidth, non_negative
from mapveil.trust.queries import Estimate, Plan, Progress, Setting
from mapveil_client.arrays import ComplexArray, FloatArray, IntArray
from mapveil_client.errors import InputError, is_whole
from mapveil_client.randomness.random import Randomness

_RING: Final = 1.15  # ratio of a ring's edges, where that is more than one period
_TOLERANCE: Final = 1e-9
_THREADED: Final = 100_000


class FeatureSums(NamedTuple):
    """Noisy sums of the users' vectors."""

    values: FloatArray  # (features.length,), in the features' units times users, unbiased
    variance: float  # of the noise on each, the same units squared


class FeatureDensity(NamedTuple):
    """A density, and the noise in it."""

    density: FloatArray  # users per square metre at each location, negative where noise says so
    noise: float  # its standard deviation at any location, users per square metre
    unshrunk_noise: float  # the same without shrinkage: the exact standard error of an unbiased estimate


@dataclass(frozen=True, kw_only=True)
class PrivateFourierKde(SumMechanism):
    r"""Sum every user's Fourier features of one public set, under noise; make the density of the sums.

    .. math:: \tilde F = \sum_j V(x_j) + \nu, \qquad \nu \sim \mathrm{DLap}(\epsilon_2 / \Delta), \qquad
              \lVert V(x) \rVert_1 \le \Delta

    where: V is the whole-numbered vector of a location (:mod:`mapveil.mechanisms.fourier_features`), :math:`\Delta` its
    exact bound, :math:`\epsilon_2` the budget but for the part that buys the number of users. A user at several
    locations is the mean of them in exact shares, so one user moves the sums by :math:`\Delta` at most. Run by: the
    curator.

    Under pure differential privacy M features of one user cost M times the noise of one cell, so a map of noisy cells
    that is smoothed afterwards (:class:`mapveil.mechanisms.multiscale.Multiscale`) has less error for narrow kernels.
    Features have less where the kernel is wide, from about an eighth of the region with 5,000 users and a sixteenth
    with 50,000 (epsilon 1), and send the fewest numbers: ``make reproduce PAPER=zong`` has the table.

    Deviation: the density that the kernel leaves outside the region is put back inside in proportion: the map's total
    is the noisy number of users. Locations count as the centres of their cells.

    Parameters
    ----------
    bandwidth_m : float, optional
        h of the Gaussian kernel, metres (cells without georeference); without one, as narrow as the signal carries
        (:func:`mapveil.mechanisms.fourier_features.signal_bandwidth`), and a cell at least.
    most_features : int
        No more features are used.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=2000, seed=1)
    >>> heat = PrivateFourierKde(epsilon=1, bandwidth_m=1500).release(city, mv.Quadtree(city.region, depth=6), rng=1)
    >>> [share.purpose for share in heat.guarantee.shares][0]
    'number of users'
    """

    name: ClassVar[str] = "private-fourier-kde"
    summary: ClassVar[str] = "noisy sums of features that all users share, made a smooth density"
    source: ClassVar[str] = "Mapveil, after Rahimi and Recht 2008 and Hall, Rinaldo and Wasserman 2013"
    of_cells: ClassVar[bool] = True
    unanswerable: ClassVar[Mapping[str, str]] = {
        "distributed": "every client's vector would have a number per feature, and its noise is not on sums of cells",
        "operators": "its noise is not on sums of cells, which are what operators answer",
    }

    bandwidth_m: float | None = None
    most_features: int = MOST_FEATURES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bandwidth_m is not None:
            self._check_positive("bandwidth_m")
        self._check(is_whole(self.most_features, 1, 1 << 31), "most_features", "a whole number of at least 1")

    def check_cells(self, tiling: Tiling) -> None:
        """Refuse a bandwidth in metres on cells in degrees."""
        if self.bandwidth_m is not None:
            check_bandwidth(self.bandwidth_m, tiling)

    def plan(self, setting: Setting) -> Plan:
        """Ask for the number of users, then for the features chosen by it; see :meth:`SumMechanism.plan`."""
        tiling = setting.tiling
        if tiling is None:
            raise InputError("random Fourier features need the tiling of their cells in the setting")
        number = yield from self.number_of_users(setting)
        total = number.users if number.noisy is None else float(number.noisy.values[0])
        where = map_points(tiling)
        features = self.features(where, number.users, float(number.rest))
        sums: FeatureSums = yield FeatureQuery(where.places, features, number.rest)
        made = server_density(sums, number.users, features, where.places)
        counted = _rescaled(made.density * where.area, tiling, total)
        kept, said = non_negative(counted, tiling, "keep-total")
        values = np.zeros(setting.members.size)
        values[: tiling.size] = kept
        # The number of users is the one sum over cells there is: it bounds every cell, and loosely.
        measured = number.measurements(setting.members.size)
        noise, unshrunk = 1e6 * made.noise, 1e6 * made.unshrunk_noise
        notes = (
            f"{features.count} Fourier features, bandwidth {features.bandwidth:.4g} m",
            f"noise: a standard deviation of {noise:.3g} users per km² everywhere ({unshrunk:.3g} before the "
            "shrinkage, whose own error is not in it); bounds of single cells are those of the number of users",
        )
        return Estimate(values, measured, (*notes, *said))

    def features(self, where: MapPoints, users: float, epsilon: float) -> FourierFeatures:
        """The public set for a region, from what is public or was bought. Run by: the server."""
        h = self.bandwidth_m
        if h is None:
            cell = math.sqrt(float(where.area.mean())) if where.area.size else 0.0
            h = max(signal_bandwidth(where.low, where.high, users * epsilon), cell)
        return choose_features(
            where.low, where.high, float(h), epsilon=epsilon, users=users, most=self.most_features
        )


@dataclass(frozen=True, eq=False)
class FeatureQuery:
    r"""Noisy sums of the users' features: the Laplace mechanism on the sums of the vectors, on their lattice.

    .. math:: \tilde F = (F + \nu) / u, \qquad \nu \sim \mathrm{DLap}(\epsilon / (u \Delta))

    where: F is the sum of the vectors in units of 1 / u of a user, u is :data:`mapveil.engines.UNIT`, :math:`\Delta`
    is ``features.limit``: one user's shares sum to u at most, and each multiplies a vector of L1 norm :math:`\Delta` at
    most.

    Parameters
    ----------
    places : ndarray of float64, shape (2, cells)
        Centres of the cells, metres.
    features : FourierFeatures
        The public set.
    epsilon : Fraction
        Budget of these sums.
    """

    places: FloatArray
    features: FourierFeatures
    epsilon: Fraction

    kind: ClassVar[type] = FeatureSums

    @property
    def share(self) -> Share:
        """Its entry in the guarantee."""
        return Share(f"{self.features.count} Fourier features", self.epsilon)

    def check(self) -> None:
        """Refuse noise that cannot be drawn."""
        check_noise(self.epsilon, UNIT * self.features.limit)

    def reply(self, sums: IntArray, rng: Randomness, progress: Progress) -> FeatureSums:
        """Add the vectors up, and noise. Run by: the curator."""
        exact = sum_of_vectors(self.places, sums[: self.places.shape[1]], self.features, progress)
        return noisy_features(exact, self.features, self.epsilon, rng)


def noisy_features(
    exact: list[int], features: FourierFeatures, epsilon: Fraction, rng: Randomness
) -> FeatureSums:
    """Sums of vectors, units of 1 / UNIT of a user, with the noise of :class:`FeatureQuery`. Run by: the curator."""
    sensitivity = UNIT * features.limit
    noise = discrete_laplace(features.length, epsilon, sensitivity, rng).tolist()
    # Whole numbers beyond 64 bits, divided once.
    values = np.array([(value + drawn) / UNIT for value, drawn in zip(exact, noise, strict=True)])
    return FeatureSums(values, laplace_variance(epsilon, sensitivity) / UNIT**2)


def server_density(
    sums: FeatureSums, users: float, features: FourierFeatures, places: FloatArray
) -> FeatureDensity:
    """Density of the users at given locations. Run by: the server.

    Parameters
    ----------
    sums : FeatureSums
        Noisy sums of the features.
    users : float
        Number of users, noisy or known.
    features : FourierFeatures
        The public set.
    places : ndarray of float64, shape (2, places)
        Locations in the region, metres.
    """
    found: ComplexArray = np.empty(features.count, dtype=np.complex128)
    np.divide(sums.values[: features.count], features.amplitude, out=found.real)
    np.divide(sums.values[features.count :], features.amplitude, out=found.imag)
    variance = 2 * sums.variance / np.square(features.amplitude.astype(np.float64))
    weights, area = features.weights, math.prod(features.period)
    kept = weights * shrink_factors(found, variance, features)
    density = (users + 2 * _evaluate(kept * found.conj(), features, places)) / area
    noise, unshrunk = (
        2 / area * math.sqrt(float((np.square(part) * variance / 2).sum())) for part in (kept, weights)
    )
    return FeatureDensity(density, noise, unshrunk)


def shrink_factors(found: ComplexArray, variance: FloatArray, features: FourierFeatures) -> FloatArray:
    """Factor s of each feature, 0 to 1, the same over rings of like length, shape (features,).

    Parameters
    ----------
    found : ndarray of complex128, shape (features,)
        Noisy sums of the features.
    variance : ndarray of float64, shape (features,)
        Variance of their noise, both parts together.
    features : FourierFeatures
        The public set.
    """
    edges = [0.0]
    while edges[-1] <= features.lengths[-1]:
        edges.append(max(edges[-1] + 1.0, edges[-1] * _RING))
    ring = np.searchsorted(np.asarray(edges), features.lengths * (1 + 1e-9), side="right")
    square = np.square(features.weights)
    power = np.bincount(ring, square * np.square(np.abs(found)))
    noise = np.bincount(ring, square * variance)
    part = np.divide(noise, power, out=np.ones(power.size), where=power > 0)
    return np.asarray(np.maximum(1 - part, 0.0)[ring])


def _evaluate(coefficients: ComplexArray, features: FourierFeatures, places: FloatArray) -> FloatArray:
    """The real part of the sum of features at each place, shape (places,)."""
    import finufft

    highest = np.abs(features.index).max(axis=1)
    modes = np.zeros(tuple((2 * highest + 1).tolist()), dtype=np.complex128)
    modes[features.index[0] + highest[0], features.index[1] + highest[1]] = coefficients
    angles = []
    for axis in range(2):
        angle = (places[axis] - features.origin[axis]) * (2 * math.pi / features.period[axis])
        angles.append(np.ascontiguousarray(angle - 2 * math.pi * np.rint(angle / (2 * math.pi))))
    threads = {"nthreads": 1} if angles[0].size < _THREADED else {}
    made = finufft.nufft2d2(*angles, modes, eps=_TOLERANCE, isign=1, **threads)
    return np.ascontiguousarray(np.asarray(made).real)


def _rescaled(users: FloatArray, tiling: Tiling, total: float) -> FloatArray:
    """The same with the noisy total; without anybody, as it is."""
    inside = getattr(tiling, "inside", None)
    if tiling.region.polygon is not None and inside is not None:
        users = np.where(inside(), users, 0.0)
    found = math.fsum(users)
    return users * (max(total, 0.0) / found) if found > 0 else np.zeros(users.size)
