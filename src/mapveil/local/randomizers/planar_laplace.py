"""The server half of planar Laplace, and of every randomizer given by a whole table of weights."""

from dataclasses import dataclass

import numpy as np

from mapveil.local.estimators.candidate_sets import solve_regular
from mapveil.local.estimators.covariance import Covariance, SiteNoise
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.local import planar_laplace as client


class TableRandomizer(client.TableRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.planar_laplace.TableRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`, by LU decomposition."""
        return solve_regular(self._matrix.T, tally.counts / max(tally.reports, 1))

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: of the inverse."""
        return self._inverse_covariance(distribution)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: from the inverse."""
        inverse = np.linalg.inv(self._matrix)
        spread = (distribution @ self._matrix) @ np.square(inverse)
        return SiteNoise(spread - distribution, float(np.abs(inverse).max()))


class PlanarLaplaceRandomizer(client.PlanarLaplaceRandomizer, TableRandomizer):
    """Both halves of :class:`mapveil_client.local.planar_laplace.PlanarLaplaceRandomizer`."""


@dataclass(frozen=True, kw_only=True)
class PlanarLaplace(client.PlanarLaplace, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.planar_laplace.PlanarLaplace`."""

    randomizer = PlanarLaplaceRandomizer
