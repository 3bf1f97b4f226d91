"""What the mechanisms of the trusted curator share: from a table to a released map."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

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
from mapveil.privacy.discrete_laplace import discrete_laplace
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import sampling_delta
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import split_epsilon
from mapveil_client.randomness.random import Randomness, as_randomness


def noisy_sums(sums: IntArray, epsilon: Fraction, rng: Randomness) -> FloatArray:
    r"""The Laplace mechanism on user sums, Lemma 2.2 of Ghazi et al. (2023), on a lattice.

    .. math:: \tilde{s} = (s + \nu) / u, \qquad \nu \sim \mathrm{DLap}(\epsilon / u)

    where: :math:`s` is ``sums`` in units of 1 / :math:`u` of a user, :math:`u` is
    :data:`mapveil.engines.UNIT`, :math:`\epsilon` is ``epsilon``. One user changes the sums of
    disjoint groups by at most :math:`u` in L1, so the result is epsilon-DP. Run by: the curator.

    Parameters
    ----------
    sums : ndarray of int64, any shape
        Exact sums over disjoint groups, units of 1 / UNIT user.
    epsilon : Fraction
        Budget of this measurement.
    rng : Randomness
        The source of bits.

    Returns
    -------
    ndarray of float64, same shape
        Users, unbiased, with negative values where the noise says so.
    """
    noise = discrete_laplace(sums.size, epsilon, UNIT, rng).reshape(sums.shape)
    return np.asarray((sums + noise) / UNIT, dtype=np.float64)


class UserNumber(NamedTuple):
    """A number of users that may be used: declared, or bought with a share of the budget."""

    users: float  # at least 1
    rest: Fraction  # the budget that is left
    shares: tuple[Share, ...]
    noisy: FloatArray | None  # the noisy total, where it was bought

    def measurements(self, cells: int) -> tuple[Measurement, ...]:
        """The noisy total as a measurement of all cells, where it was bought."""
        if self.noisy is None:
            return ()
        return (Measurement(np.zeros(cells, dtype=np.int64), self.noisy, self.shares[0].epsilon, UNIT),)


def declared_or_noisy_users(
    declared: int | None, share: float, budget: Fraction, sums: IntArray, rng: Randomness
) -> UserNumber:
    """The declared number of users, or a noisy total. Run by: the curator.

    Under add or remove of one user the number of users is not public.

    Parameters
    ----------
    declared : int or None
        A public estimate.
    share : float
        Part of ``budget`` that a noisy total costs where none is declared.
    budget : Fraction
        The whole budget.
    sums : ndarray of int64
        Exact sums, units of 1 / UNIT user.
    rng : Randomness
        The source of bits.
    """
    if declared is not None:
        return UserNumber(float(declared), budget, (), None)
    part, rest = split_epsilon(budget, [share, 1 - share])
    noisy = noisy_sums(sums.sum(keepdims=True), part, rng)
    return UserNumber(max(float(noisy[0]), 1.0), rest, (Share("number of users", part),), noisy)


@dataclass(frozen=True, kw_only=True)
class CentralMechanism(Mechanism):
    """A mechanism of the trusted curator: exact sums, noise, an estimate.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole privacy budget of one release, above zero; kept exactly.
    """

    @abstractmethod
    def estimate(self, sums: IntArray, tiling: Tiling, rng: Randomness, progress: Progress) -> Estimate:
        """Measure exact per-cell sums under noise, and make an estimate of them.

        ``sums`` (int64, shape (tiling.size,), units of 1 / UNIT user) is the only thing here that
        depends on data: it may be touched through noise only. Run by: the curator.
        """

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
            The table cannot be used, or the tiling has too many cells for a dense map.
        """
        stream = as_randomness(rng)
        tell = progress or (lambda step, done: None)
        tiling = tiling_of(points, tiling)
        sums = user_sums(points, tiling, progress=tell).sums
        made = self.estimate(sums, tiling, stream, tell)
        return DensityMap(
            values=np.asarray(made.values, dtype=np.float64),
            tiling=tiling,
            guarantee=self.guarantee(made.shares, seeded=stream.seeded),
            method=self.name,
            parameters=self.parameters(),
            measurements=made.measurements,
            notes=made.notes,
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
