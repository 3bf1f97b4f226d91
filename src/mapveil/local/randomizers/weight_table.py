"""The server half of a randomizer given by a whole table of weights."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from mapveil.local.estimators.covariance import Covariance, SiteNoise
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local import planar_laplace as client

_SINGULAR: Final = 1e-13


class TableRandomizer(client.TableRandomizer, SymbolRandomizer):
    """The server half of :class:`mapveil_client.local.planar_laplace.TableRandomizer`."""

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


def solve_regular(matrix: npt.NDArray[np.float64], right: FloatArray) -> FloatArray:
    """Solve a square system by LU decomposition.

    Raises
    ------
    ParameterError
        The system is singular to working precision.
    """
    from scipy.linalg.lapack import dgecon, dgetrf, dgetrs

    factors, pivots, failed = dgetrf(matrix)
    reciprocal = 0.0 if failed else float(dgecon(factors, np.linalg.norm(matrix, 1))[0])
    if reciprocal < _SINGULAR:
        raise ParameterError(
            "the system of equations is singular: different distributions have the same reports; "
            "expected the estimator 'smoothed-em', or groups whose first is the place alone"
        )
    return np.asarray(dgetrs(factors, pivots, right)[0])
