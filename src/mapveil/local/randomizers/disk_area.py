"""The disk area mechanism: the server half."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mapveil.local.estimators.covariance import DenseCovariance, SiteNoise
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local import disk_area as client
from mapveil_client.local.domain import Domain

_DENSE: Final = 1 << 23
_BOUNDED: Final = 1 << 20
_SINGULAR: Final = 1e-10


class DiskRandomizer(client.DiskRandomizer, SymbolRandomizer):
    """The server half of :class:`mapveil_client.local.disk_area.DiskRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`: least squares over the pixels, for small domains."""
        return np.asarray(self._least_squares @ (tally.counts / max(tally.reports, 1)))

    def covariance(self, distribution: FloatArray) -> DenseCovariance:
        """See :meth:`Randomizer.covariance`: of the least squares, for small domains."""
        return DenseCovariance.of_estimator(self._least_squares, self.forward(distribution), distribution)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: of the least squares, where they take no longer than the map itself."""
        if self.size * self.symbols > _BOUNDED:
            raise ParameterError(
                f"the noise of {self.size} sites by {self.symbols} pixels; expected 2**20 pairs at most"
            )
        inverse = self._least_squares
        reported = self.forward(distribution)
        return SiteNoise(inverse**2 @ reported - distribution, float(np.ptp(inverse, axis=1).max()))

    @cached_property
    def _least_squares(self) -> FloatArray:
        """The pseudo-inverse of the channel, shape (sites, symbols)."""
        if self.size * self.symbols > _DENSE:
            raise ParameterError(
                f"least squares over {self.size} sites and {self.symbols} pixels would need a matrix of "
                "more than 2**23 entries; expected the estimators 'smoothed-em' and 'em'"
            )
        left, values, right = np.linalg.svd(self.transition_matrix().T, full_matrices=False)
        rank = int((values > _SINGULAR * values[0]).sum())
        if rank < self.size:
            raise ParameterError(
                f"the system of equations is singular: its rank is {rank} of {self.size} sites; expected "
                "the estimator 'smoothed-em'"
            )
        return np.asarray((right.T / values) @ left.T)


@dataclass(frozen=True, kw_only=True)
class DiskArea(client.DiskArea, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.disk_area.DiskArea`."""

    def on(self, domain: Domain) -> DiskRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return DiskRandomizer(domain, self.budget, None if self.radius_m is None else float(self.radius_m))
