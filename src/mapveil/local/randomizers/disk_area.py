"""The server half of the disk area mechanism."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mapveil.local.estimators.covariance import DenseCovariance, SiteNoise
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local import disk_area as client

_DENSE: Final = 1 << 23  # entries of the largest matrix that is inverted
_BOUNDED: Final = 1 << 20  # entries of the largest whose noise is computed: no longer than the map itself
_SINGULAR: Final = 1e-10  # of the largest singular value


class DiskRandomizer(client.DiskRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.disk_area.DiskRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`: least squares over the pixels, for small domains."""
        return np.asarray(self._least_squares @ (tally.counts / max(tally.reports, 1)))

    def covariance(self, distribution: FloatArray) -> DenseCovariance:
        """See :meth:`Randomizer.covariance`: of the least squares, for small domains."""
        return DenseCovariance.of_estimator(self._least_squares, self.forward(distribution), distribution)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: of the least squares, for small domains."""
        if self.size * self.symbols > _BOUNDED:
            raise ParameterError(
                f"the noise is known for 2**20 pairs at most, got {self.size} sites by {self.symbols} pixels"
            )
        inverse = self._least_squares
        reported = self.forward(distribution)
        return SiteNoise(inverse**2 @ reported - distribution, float(np.ptp(inverse, axis=1).max()))

    @cached_property
    def _least_squares(self) -> FloatArray:
        """The pseudo-inverse of the channel, shape (sites, symbols)."""
        if self.size * self.symbols > _DENSE:
            raise ParameterError(
                f"the matrix of least squares must have 2**23 entries at most, got {self.size} sites by "
                f"{self.symbols} pixels; use the estimator 'smoothed-em' or 'em'"
            )
        left, values, right = np.linalg.svd(self.transition_matrix().T, full_matrices=False)
        rank = int((values > _SINGULAR * values[0]).sum())
        if rank < self.size:
            raise ParameterError(
                f"the system of equations is singular: its rank is {rank} of {self.size} sites; use the "
                "estimator 'smoothed-em'"
            )
        return np.asarray((right.T / values) @ left.T)


@dataclass(frozen=True, kw_only=True)
class DiskArea(client.DiskArea, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.disk_area.DiskArea`."""

    randomizer = DiskRandomizer
