"""A kernel density from noisy sums of waves that all share: Mapveil's own, with one epsilon behind the surface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from mapveil.engines import UNIT
from mapveil.geo.tiling import Tiling
from mapveil.mechanisms.mechanism import Estimate, Progress
from mapveil.mechanisms.plan import Plan, Setting
from mapveil.mechanisms.shared_waves import MOST_WAVES, SharedWaves, choose_waves, signal_bandwidth
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.mechanisms.wave_density import WaveSums, server_density
from mapveil.mechanisms.wave_vectors import sum_of_vectors
from mapveil.privacy.claim import Share
from mapveil.privacy.discrete_laplace import discrete_laplace, laplace_variance
from mapveil.random_features.map_points import MapPoints, map_points
from mapveil.random_features.projection_mechanism import check_bandwidth, non_negative
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness


@dataclass(frozen=True, kw_only=True)
class PrivateFourierKde(SumMechanism):
    r"""Sum every user's cosines and sines on one public set of waves, under noise; make the density of the sums.

    .. math:: \tilde F = \sum_j V(x_j) + \nu, \qquad \nu \sim \mathrm{DLap}(\epsilon_2 / \Delta), \qquad
              \lVert V(x) \rVert_1 \le \Delta

    where: V are the whole-numbered waves of a place (:mod:`mapveil.mechanisms.wave_vectors`), :math:`\Delta` their
    exact bound, :math:`\epsilon_2` the budget but for the part that buys the number of users. A user at
    several places is the mean of them in exact shares, so one user moves the sums by :math:`\Delta` at most. The waves
    are chosen by the bandwidth, the budget and the noisy number (:mod:`mapveil.mechanisms.shared_waves`); the sums
    become a surface by shrinkage and a nonuniform FFT (:mod:`mapveil.mechanisms.wave_density`). Run by:
    the curator.

    Under pure differential privacy M waves of one user cost M times the noise of one cell, so a map of noisy cells that
    is smoothed afterwards (:class:`mapveil.mechanisms.multiscale.Multiscale`) has less error for narrow
    kernels. Waves have less where the kernel is wide, from about an eighth of the region with 5,000 users and a
    sixteenth with 50,000 (epsilon 1), and send the fewest numbers: ``make reproduce PAPER=zong`` has the table.

    Deviation: the density that the kernel leaves outside the region is put back inside in proportion: the map's total
    is the noisy number of users. Places count as the middles of their cells.

    Parameters
    ----------
    epsilon, trust
        See :class:`~mapveil.mechanisms.sum_mechanism.SumMechanism`.
    bandwidth_m : float, optional
        h of the Gaussian kernel, metres (cells without georeference); without one, as narrow as the signal carries
        (:func:`mapveil.mechanisms.shared_waves.signal_bandwidth`), and a cell at least.
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
    of_cells: ClassVar[bool] = True
    unanswerable: ClassVar[Mapping[str, str]] = {
        "distributed": "every client's vector would have a number for each wave, and its noise is not on sums of cells"
    }

    bandwidth_m: float | None = None
    most_waves: int = MOST_WAVES

    def __post_init__(self) -> None:
        super().__post_init__()
        h = self.bandwidth_m
        number = h is None or (isinstance(h, (int, float)) and not isinstance(h, bool) and 0 < h < math.inf)
        self._check(number, "bandwidth_m", "a number of metres above 0, or none")
        whole = isinstance(self.most_waves, int) and not isinstance(self.most_waves, bool)
        self._check(whole and self.most_waves >= 1, "most_waves", "a whole number of at least 1")

    def check_cells(self, tiling: Tiling) -> None:
        """Refuse a bandwidth in metres on cells in degrees."""
        if self.bandwidth_m is not None:
            check_bandwidth(self.bandwidth_m, tiling)

    def plan(self, setting: Setting) -> Plan:
        """Ask for the number of users, then for the waves chosen by it; see :meth:`SumMechanism.plan`."""
        tiling = setting.tiling
        if tiling is None:
            raise InputError("random Fourier features need the tiling of their cells in the setting")
        number = yield from self.number_of_users(setting)
        total = number.users if number.noisy is None else float(number.noisy.values[0])
        where = map_points(tiling)
        waves = self.waves(where, number.users, float(number.rest))
        sums: WaveSums = yield WaveQuery(where.places, waves, number.rest)
        made = server_density(sums, number.users, waves, where.places)
        counted = _rescaled(made.density * where.area, tiling, total)
        kept, said = non_negative(counted, tiling, "keep-total")
        values = np.zeros(setting.members.size)
        values[: tiling.size] = kept
        # The number of users is the one sum over cells there is: it bounds every cell, and loosely.
        measured = number.measurements(setting.members.size)
        return Estimate(values, measured, (*_notes(waves, made.noise, made.unshrunk_noise), *said))

    def waves(self, where: MapPoints, users: float, epsilon: float) -> SharedWaves:
        """The public set for a region, from what is public or was bought. Run by: the server."""
        h = self.bandwidth_m
        if h is None:
            cell = math.sqrt(float(where.area.mean())) if where.area.size else 0.0
            h = max(signal_bandwidth(where.low, where.high, users * epsilon), cell)
        return choose_waves(
            where.low, where.high, float(h), epsilon=epsilon, users=users, most=self.most_waves
        )


@dataclass(frozen=True, eq=False)
class WaveQuery:
    r"""Noisy sums of the users' waves: the Laplace mechanism on the sums of the vectors, on their lattice.

    .. math:: \tilde F = (F + \nu) / u, \qquad \nu \sim \mathrm{DLap}(\epsilon / (u \Delta))

    where: F is the sum of the vectors in units of 1 / u of a user, u is :data:`mapveil.engines.UNIT`, :math:`\Delta`
    is ``waves.limit``: one user's shares sum to u at most, and each multiplies a vector of L1 norm :math:`\Delta` at
    most.

    Parameters
    ----------
    places : ndarray of float64, shape (2, cells)
        Middles of the cells, metres.
    waves : SharedWaves
        The public set.
    epsilon : Fraction
        Budget of these sums.
    """

    places: FloatArray
    waves: SharedWaves
    epsilon: Fraction

    @property
    def share(self) -> Share:
        """Its entry in the guarantee."""
        return Share(f"{self.waves.count} waves", self.epsilon)

    def reply(self, sums: IntArray, rng: Randomness, progress: Progress) -> WaveSums:
        """Add the vectors up, and noise. Run by: the curator."""
        exact = sum_of_vectors(self.places, sums[: self.places.shape[1]], self.waves, progress)
        return noisy_waves(exact, self.waves, self.epsilon, rng)


def noisy_waves(exact: list[int], waves: SharedWaves, epsilon: Fraction, rng: Randomness) -> WaveSums:
    """Sums of vectors, units of 1 / UNIT of a user, with their noise: see :class:`WaveQuery`. Run by: the curator."""
    sensitivity = UNIT * waves.limit
    noise = discrete_laplace(waves.length, epsilon, sensitivity, rng).tolist()
    # Whole numbers beyond 64 bits, divided once.
    values = np.array([(value + drawn) / UNIT for value, drawn in zip(exact, noise, strict=True)])
    return WaveSums(values, laplace_variance(epsilon, sensitivity) / UNIT**2)


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
