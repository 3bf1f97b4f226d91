"""The server half of staircase randomized response."""

from dataclasses import dataclass

import numpy as np

from mapveil.local.estimators.covariance import Covariance, SiteNoise
from mapveil.local.estimators.nested_system import NestedSystem
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local import staircase_response as client


class StaircaseRandomizer(client.StaircaseRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.staircase_response.StaircaseRandomizer`."""

    @property
    def system(self) -> NestedSystem:
        """The equations of the estimate, in the order of the codes.

        Raises
        ------
        ParameterError
            The first group holds more than the place itself: its sites have the same law.
        """
        if self._blocks[0].first.size < self.size:
            raise ParameterError(
                f"thresholds {list(self.thresholds)}: sites of one first group have the same law, so the "
                f"system is singular; use the estimator 'smoothed-em', or {self.domain.codes.bits} as the first "
                "threshold"
            )
        more = float(self.steps.more)
        return NestedSystem(more, self._blocks[1:], [more] * (len(self._blocks) - 1), self._even)

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`: the structured inverse, O(d m)."""
        codes = self.domain.codes
        share = tally.counts[codes.site] / max(tally.reports, 1)
        made = np.empty(self.size)
        made[codes.site] = self.system.solve(share) * self._total
        return made

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: O(d m^2), at any size."""
        codes = self.domain.codes
        reported = self.forward(distribution)[codes.site]
        made = np.empty(self.size)
        made[codes.site] = self.totals**2 * self.system.square_sums(reported)
        return SiteNoise(made - distribution, float(self.totals.max() / self.steps.more))

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: of the inverse, for small domains."""
        _ = self.system
        return self._inverse_covariance(distribution)


@dataclass(frozen=True, kw_only=True)
class StaircaseResponse(client.StaircaseResponse, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.staircase_response.StaircaseResponse`."""

    randomizer = StaircaseRandomizer
