"""A kernel density from noisy sums of waves that all share: Mapveil's own, with one epsilon behind the surface."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap, Measurement
from mapveil.mechanisms.mechanism import Estimate, Mechanism, Progress, tiling_of
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Neighbouring,
    Norm,
    Share,
    TrustModel,
)
from mapveil.privacy.discrete_laplace import discrete_laplace, laplace_variance
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import sampling_delta
from mapveil.random_features.map_points import MapPoints, map_points
from mapveil.random_features.mechanism import check_bandwidth, non_negative
from mapveil.random_features.shared_waves import MOST_WAVES, SharedWaves, choose_waves, signal_bandwidth
from mapveil.random_features.wave_density import WaveSums, server_density
from mapveil.random_features.wave_vectors import sum_of_vectors
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness, as_randomness


def noisy_waves(exact: list[int], waves: SharedWaves, epsilon: Fraction, rng: Randomness) -> WaveSums:
    r"""The Laplace mechanism on the sums of the vectors, on their lattice. Run by: the curator.

    .. math:: \tilde F = (F + \nu) / u, \qquad \nu \sim \mathrm{DLap}(\epsilon / (u \Delta))

    where: F is ``exact`` in units of 1 / u of a user, u is :data:`mapveil.engines.UNIT`, :math:`\Delta` is
    ``waves.limit``: one user's shares sum to u at most, and each multiplies a vector of L1 norm :math:`\Delta` at most.

    Parameters
    ----------
    exact : list of int
        Sums of :func:`mapveil.random_features.wave_vectors.sum_of_vectors`, of users in units of 1 / UNIT.
    waves : SharedWaves
        The public set.
    epsilon : Fraction
        Budget of these sums.
    rng : Randomness
        The source of bits.
    """
    sensitivity = UNIT * waves.limit
    noise = discrete_laplace(waves.length, epsilon, sensitivity, rng).tolist()
    # Whole numbers beyond 64 bits, divided once.
    values = np.array([(value + drawn) / UNIT for value, drawn in zip(exact, noise, strict=True)])
    return WaveSums(values, laplace_variance(epsilon, sensitivity) / UNIT**2)


@dataclass(frozen=True, kw_only=True)
class PrivateFourierKde(Mechanism):
    r"""Sum every user's cosines and sines on one public set of waves, under noise; make the density of the sums.

    .. math:: \tilde F = \sum_j V(x_j) + \nu, \qquad \nu \sim \mathrm{DLap}(\epsilon_2 / \Delta), \qquad
              \lVert V(x) \rVert_1 \le \Delta

    where: V are the whole-numbered waves of a place (:mod:`mapveil.random_features.wave_vectors`), :math:`\Delta` their
    exact bound, :math:`\epsilon_2` the budget but for ``users_share`` of it, which buys the number of users. A user at
    several places is the mean of them in exact shares, so one user moves the sums by :math:`\Delta` at most. The waves
    are chosen by the bandwidth, the budget and the noisy number (:mod:`mapveil.random_features.shared_waves`); the sums
    become a surface by shrinkage and a nonuniform FFT (:mod:`mapveil.random_features.wave_density`). Run by:
    the curator.

    Under pure differential privacy M waves of one user cost M times the noise of one cell, so a map of noisy cells that
    is smoothed afterwards (:class:`mapveil.central.multiscale_heatmap.MultiscaleHeatmap`) has less error for narrow
    kernels. Waves have less where the kernel is wide, from about an eighth of the region with 5,000 users and a
    sixteenth with 50,000 (epsilon 1), and send the fewest numbers: ``mapveil reproduce zong`` has the table.

    Deviation: the density that the kernel leaves outside the region is put back inside in proportion: the map's total
    is the noisy number of users. Places count as the middles of their cells.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole budget.
    bandwidth_m : float, optional
        h of the Gaussian kernel, metres (cells without georeference); without one, as narrow as the signal carries
        (:func:`mapveil.random_features.shared_waves.signal_bandwidth`), and a cell at least.
    users_share : float
        Part of the budget for the number of users, in (0, 1).
    most_waves : int
        No more waves are used.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=2000, seed=1)
    >>> heat = PrivateFourierKde(epsilon=1, bandwidth_m=1500).release(city, mv.Quadtree(city.region, depth=6), rng=1)
    >>> [share.purpose for share in heat.guarantee.shares][0]
    'number of users'
    """

    name: ClassVar[str] = "private-fourier-kde"
    summary: ClassVar[str] = "noisy sums of waves that all users share, made a smooth density"
    source: ClassVar[str] = "Mapveil, after Rahimi and Recht 2008 and Hall, Rinaldo and Wasserman 2013"

    bandwidth_m: float | None = None
    users_share: float = 0.05
    most_waves: int = MOST_WAVES

    def __post_init__(self) -> None:
        super().__post_init__()
        h = self.bandwidth_m
        number = h is None or (isinstance(h, (int, float)) and not isinstance(h, bool) and 0 < h < math.inf)
        self._check(number, "bandwidth_m", "a number of metres above 0, or none,")
        self._check(0 < self.users_share < 1, "users_share", "a number between 0 and 1")
        whole = isinstance(self.most_waves, int) and not isinstance(self.most_waves, bool)
        self._check(whole and self.most_waves >= 1, "most_waves", "a whole number of at least 1")

    def release(
        self,
        points: Points | Counts | UserSums,
        tiling: Tiling | None = None,
        *,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> DensityMap:
        """Release a map of where the users are, epsilon-DP for each user. Run by: the curator.

        Parameters
        ----------
        points : Points, Counts or UserSums
            The table, or ready counts with each unit one user.
        tiling : Tiling, optional
            The cells; counts bring their own.
        rng : Randomness, int or None
            Leave it out for a release; an integer seeds the run and marks the map.
        progress : callable, optional
            Told the name and the done part of each step.

        Raises
        ------
        InputError
            The table cannot be used, the tiling has too many cells for a dense map, or the bandwidth is in degrees.
        """
        stream = as_randomness(rng)
        tell = progress or (lambda step, done: None)
        cells = tiling_of(points, tiling)
        if self.bandwidth_m is not None:
            check_bandwidth(self.bandwidth_m, cells)
        sums = user_sums(points, cells, progress=tell).sums
        made = self.estimate(sums, cells, stream, tell)
        return DensityMap(
            values=made.values,
            tiling=cells,
            guarantee=self.guarantee(made.shares, seeded=stream.seeded),
            method=self.name,
            parameters=self.parameters(),
            measurements=made.measurements,
            notes=made.notes,
        )

    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Buy the number of users, choose the waves by it, sum them under noise, make the map. Run by: the curator.

        Parameters
        ----------
        sums : ndarray of int64, shape (tiling.size,)
            Exact sums per cell, units of 1 / UNIT user; touched through noise only.
        tiling : Tiling
            The cells.
        rng : Randomness
            The source of bits.
        progress : callable
            Told the name and the done part of each step.
        """
        number, rest = split_epsilon(self.budget, [self.users_share, 1 - self.users_share])
        noisy = (sums.sum(keepdims=True) + discrete_laplace(1, number, UNIT, rng)) / UNIT
        users = max(float(noisy[0]), 1.0)
        where = map_points(tiling)
        waves = self.waves(where, users, float(rest))
        exact = sum_of_vectors(where.places, sums, waves, progress)
        made = server_density(noisy_waves(exact, waves, rest, rng), users, waves, where.places)
        counted = _rescaled(made.density * where.area, tiling, float(noisy[0]))
        kept, said = non_negative(counted, tiling, "keep-total")
        return Estimate(
            values=kept,
            # The number of users is the one sum over cells there is: it bounds every cell, and loosely.
            measurements=(Measurement(np.zeros(tiling.size, dtype=np.int64), noisy, number, UNIT),),
            shares=(Share("number of users", number), Share(f"{waves.count} waves", rest)),
            notes=(*_notes(waves, made.noise, made.unshrunk_noise), *said),
        )

    def waves(self, where: MapPoints, users: float, epsilon: float) -> SharedWaves:
        """The public set for a region, from what is public or was bought. Run by: the server."""
        h = self.bandwidth_m
        if h is None:
            cell = math.sqrt(float(where.area.mean())) if where.area.size else 0.0
            h = max(signal_bandwidth(where.low, where.high, users * epsilon), cell)
        return choose_waves(
            where.low, where.high, float(h), epsilon=epsilon, users=users, most=self.most_waves
        )

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        self._spent(shares)
        return Guarantee(
            model=TrustModel.CURATOR,
            neighbours=Neighbouring.ADD_OR_REMOVE,
            epsilon=self.budget,
            delta=sampling_delta(self.budget),
            adversary=Adversary.RELEASE,
            bound=ContributionBound(Norm.L1, Fraction(1), Fraction(1, UNIT)),
            assumptions=(Assumes.TABLE_SECRET(), Assumes.DISTINCT_USERS()),
            shares=shares,
            seeded=seeded,
        )


def _rescaled(users: FloatArray, tiling: Tiling, total: float) -> FloatArray:
    """The same with the noisy total; without anybody, as it is."""
    inside = getattr(tiling, "inside", None)
    if tiling.region.polygon is not None and inside is not None:
        users = np.where(inside(), users, 0.0)
    found = math.fsum(users)
    return users * (max(total, 0.0) / found) if found > 0 else np.zeros(users.size)


def _notes(waves: SharedWaves, noise: float, unshrunk: float) -> tuple[str, ...]:
    return (
        f"{waves.count} waves, bandwidth {waves.bandwidth:.4g} m",
        f"noise: a standard deviation of {noise * 1e6:.3g} users per km² everywhere ({unshrunk * 1e6:.3g} before the "
        "shrinkage, whose own error is not in it); bounds of single cells are those of the number of users",
    )
