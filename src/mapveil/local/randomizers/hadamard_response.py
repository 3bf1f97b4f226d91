"""The server half of Hadamard response."""

from dataclasses import dataclass

import numpy as np

from mapveil.local.estimators.covariance import Covariance, DenseCovariance, IndependentCovariance, SiteNoise
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.local import hadamard_response as client
from mapveil_client.local.hadamard_response import walsh_hadamard
from mapveil_client.local.randomizer import MOST_SITES


class HadamardRandomizer(client.HadamardRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.hadamard_response.HadamardRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`: the reports in a site's half of its block less those in the other."""
        rows = tally.counts.reshape(self.blocks, self.length) / max(tally.reports, 1)
        return self._sites(walsh_hadamard(rows)) * self.step

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: the whole matrix of a small domain, of others its diagonal."""
        if self.size <= MOST_SITES:
            reported = self.forward(distribution)
            rows = np.zeros((self.size, self.symbols))
            block, row = np.divmod(np.arange(self.size), self.length - 1)
            signs = walsh_hadamard(np.eye(self.length))[row + 1] * self.step
            for number in range(self.blocks):
                of = np.flatnonzero(block == number)
                rows[of, number * self.length : (number + 1) * self.length] = signs[of]
            return DenseCovariance.of_estimator(rows, reported, distribution)
        return IndependentCovariance(self.site_noise(distribution).variance)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: each report raises or lowers the estimates of its block's sites."""
        often = self.forward(distribution).reshape(self.blocks, self.length).sum(axis=1)
        spread = self.step**2 * np.repeat(often, self.length - 1)[: self.size]
        return SiteNoise(spread - distribution, self.step)


@dataclass(frozen=True, kw_only=True)
class HadamardResponse(client.HadamardResponse, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.hadamard_response.HadamardResponse`."""

    randomizer = HadamardRandomizer
