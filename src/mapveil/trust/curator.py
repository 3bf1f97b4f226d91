"""The trusted curator: exact sums of a table, and discrete Laplace noise."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from mapveil.engines import UNIT, UserSums, user_sums
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import WindowedPoints
from mapveil.maps.round_cost import RoundCost
from mapveil.privacy.claim import (
    Adversary,
    Assumes,
    ContributionBound,
    Neighbouring,
    Norm,
    Share,
    TrustModel,
)
from mapveil.privacy.discrete_laplace import check_noise, discrete_laplace
from mapveil.privacy.guarantee import Guarantee
from mapveil.privacy.sampling import MOST_SAMPLES, sampling_delta
from mapveil.trust.queries import CuratorQuery, Execution, NoisySums, Query, Raster, Setting
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Devices
from mapveil_client.encodings import Encoding
from mapveil_client.errors import Checked, CuratorWarning, InputError, ParameterError
from mapveil_client.randomness.random import Randomness


def noisy_sums(sums: IntArray, epsilon: Fraction, rng: Randomness, copies: int = 1) -> FloatArray:
    r"""The Laplace mechanism on user sums, Lemma 2.2 of Ghazi et al. (2023), on a lattice.

    .. math:: \tilde{s} = (s + \nu) / u, \qquad \nu \sim \mathrm{DLap}(\epsilon / (u m))

    where: :math:`s` is ``sums`` in units of 1 / :math:`u` of a user, :math:`u` is
    :data:`mapveil.engines.UNIT`, :math:`\epsilon` is ``epsilon`` and m is ``copies``. One user changes the sums
    by at most :math:`u m` in L1, so the result is epsilon-DP. Run by: the curator.

    Parameters
    ----------
    sums : ndarray of int64, any shape
        Exact sums, units of 1 / UNIT user.
    epsilon : Fraction
        Budget of this measurement.
    rng : Randomness
        The source of bits.
    copies : int
        Number of sums that a location counts in.

    Returns
    -------
    ndarray of float64, same shape
        Users, unbiased, with negative values where the noise says so.
    """
    noise = discrete_laplace(sums.size, epsilon, UNIT * copies, rng).reshape(sums.shape)
    return np.asarray((sums + noise) / UNIT, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Curator(Checked):
    """One trusted party holds the table and releases what noise allows.

    Parameters
    ----------
    users : int, optional
        A public estimate of the number of users, for plans that want one; under add-or-remove neighbours the number
        itself is not public, and without an estimate ``users_share`` is spent on a noisy one.
    users_share : float
        Fraction of the budget for a noisy number of users, in (0, 1). A twentieth changes the
        error of ``multiscale`` by +4 % +- 5 on synthetic cities (docs/reference/mechanism-constants.md).
    """

    name: ClassVar[str] = "central"
    whole_noise: ClassVar[bool] = False
    scale: ClassVar[int] = UNIT

    users: int | None = None
    users_share: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.users is None or self.users >= 1, "users", "a whole number of at least 1, or none")
        self._check(0 < self.users_share < 1, "users_share", "a number between 0 and 1")

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        return dataclasses.asdict(self)

    def answerer(
        self,
        points: Points | Counts | UserSums | Devices,
        tiling: Tiling,
        raster: Raster,
        execution: Execution,
    ) -> CuratorAnswerer:
        """Sum a table exactly, and answer queries about the sums.

        Parameters
        ----------
        points : Points, Counts or UserSums
            A table, counts with each unit one user, or exact sums.
        tiling, raster : Tiling, Raster
            The cells, and the raster of sites that queries are about.
        execution : Execution
            Randomness and callbacks of the release.

        Raises
        ------
        InputError
            The table or the sums cannot be used, or the arguments are for secure sums.
        """
        if isinstance(points, Devices) or execution.secure_sum is not None or execution.dropout:
            raise InputError("a curator sums a table: devices, secure_sum and dropout need SecureAggregation")
        # A key is drawn where windows of a user are chosen by it, so that other releases draw as they did.
        chosen = isinstance(points, WindowedPoints) and points.parts is not None
        key = execution.rng.words(16, np.uint8).tobytes().hex() if chosen else ""
        sums = user_sums(points, tiling, progress=execution.progress, key=key).sums
        if sums.size != raster.labels * raster.site.size:
            raise InputError(
                f"exact sums must be of {raster.site.size} cells in {raster.labels} windows or labels, got shape "
                f"{sums.shape}"
            )
        if isinstance(points, Points) and not sums.any():
            where = (
                "windows"
                if isinstance(points, WindowedPoints)
                else "cells (are latitude and longitude swapped?)"
            )
            text = (
                f"{points.source}: has no rows in the {where}, so the map is about nobody; it is charged as any "
                "other, for a refusal would tell that nobody is there; keep this private"
            )
            warnings.warn(text, CuratorWarning, stacklevel=2)
        setting = Setting(
            raster.depth,
            raster.members,
            self.users,
            1,
            Fraction(1),
            UNIT,
            curator=True,
            users_share=self.users_share,
            tiling=tiling,
            region=tiling.region,
        )
        return CuratorAnswerer(setting, sums, raster, execution)

    def noise_terms(self, users: float) -> float:
        """Discrete Laplace variables in the noise of a sum: one."""
        return 1.0

    def asked(self, users: float) -> float:
        """Of so many users, those whose locations count: all."""
        return users

    def guarantee(self, epsilon: Fraction, shares: tuple[Share, ...], *, seeded: bool) -> Guarantee:
        """The promise of one release."""
        return Guarantee(
            model=TrustModel.CURATOR,
            neighbours=Neighbouring.ADD_OR_REMOVE,
            epsilon=epsilon,
            delta=sampling_delta(epsilon),
            adversary=Adversary.RELEASE,
            bound=ContributionBound(Norm.L1, Fraction(1), Fraction(1, UNIT)),
            assumptions=(Assumes.TABLE_SECRET(), Assumes.DISTINCT_USERS()),
            shares=shares,
            seeded=seeded,
        )


class CuratorAnswerer:
    """Exact sums of one table, revealed through noise only. Run by: the curator."""

    def __init__(self, setting: Setting, sums: IntArray, raster: Raster, execution: Execution) -> None:
        self.setting = setting
        self.revealed: list[Share] = []
        self.costs: list[RoundCost] = []
        self._execution, self._drawn = execution, 0
        self._windows = sums.shape[0] if sums.ndim == 2 else None
        sites = setting.members.size
        self._sites = np.zeros(sites * (self._windows or 1), dtype=np.int64)
        for start, of_window in zip(range(0, self._sites.size, sites), np.atleast_2d(sums), strict=True):
            np.add.at(self._sites[start : start + sites], raster.site, of_window)

    def answer(self, query: Query | CuratorQuery) -> Any:
        """Charge the query's share, then reveal its noisy sums; a query that cannot be answered costs nothing."""
        rng, progress, keep = self._execution.rng, self._execution.progress, self._execution.keep
        purpose = query.share.purpose
        if isinstance(query, Query):
            self._drawn += query.encoding.length
            if self._drawn > MOST_SAMPLES:
                raise ParameterError(
                    f"a release must draw at most {MOST_SAMPLES} samples of noise, got {self._drawn}"
                )
            check_noise(query.epsilon, UNIT * query.encoding.copies * query.contribution)
        else:
            query.check()
        self._execution.before_reveal(query.share)
        self.revealed.append(query.share)
        if isinstance(query, Query):
            return keep(purpose, NoisySums, lambda: self._noisy(query))
        return keep(purpose, query.kind, lambda: query.reply(self._sites, rng, progress))

    def _noisy(self, query: Query) -> NoisySums:
        rng, progress = self._execution.rng, self._execution.progress
        progress(query.purpose, 0.0)
        copies = query.encoding.copies * query.contribution
        exact = self._exact(query.encoding)
        values = np.empty(exact.size)
        order = slice(None) if query.noise_order is None else query.noise_order
        values[order] = noisy_sums(exact[order], query.epsilon, rng, copies)
        progress(query.purpose, 1.0)
        # The continuous law's variance: the lattice is finer than a float tells.
        variance = 2 * copies**2 / float(query.epsilon) ** 2
        return NoisySums(values, variance, 1.0, query.epsilon, UNIT * copies, UNIT, self.setting.clients)

    def _exact(self, encoding: Encoding) -> IntArray:
        """Exact sums of the groups, units of 1 / UNIT user."""
        held = np.flatnonzero(self._sites)
        window, site = np.divmod(held, self.setting.members.size)
        return grouped_sums(site, self._sites[held], encoding, None if self._windows is None else window)


def grouped_sums(
    site: IntArray, units: IntArray, encoding: Encoding, window: IntArray | None = None
) -> IntArray:
    """Exact sums of the groups of an encoding, shape (length,), of exact sums of sites, or of sites in windows."""
    exact = np.zeros(encoding.length, dtype=np.int64)
    for position in encoding.positions(site, window).T if site.size else ():
        inside = position >= 0
        np.add.at(exact, position[inside], units[inside])
    return exact
