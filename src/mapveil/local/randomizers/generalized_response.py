"""The server half of generalized randomized response."""

from dataclasses import dataclass

import numpy as np

from mapveil.local.estimators.covariance import Covariance, ExchangeableCovariance, SiteNoise, two_level_noise
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.local import generalized_response as client


class GeneralizedRandomizer(client.GeneralizedRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.generalized_response.GeneralizedRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        true, other = self.probabilities
        return np.asarray((tally.counts / max(tally.reports, 1) - other) / (true - other))

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        return two_level_noise(distribution, *self.probabilities)

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`."""
        true, other = self.probabilities

        def spread(inside: FloatArray) -> FloatArray:
            return np.asarray(inside * (1 - inside) / (true - other) ** 2)

        return ExchangeableCovariance(
            lambda number: spread(true + (number - 1) * other),
            lambda number: spread(number * other),
            distribution,
        )


@dataclass(frozen=True, kw_only=True)
class GeneralizedRandomizedResponse(client.GeneralizedRandomizedResponse, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.generalized_response.GeneralizedRandomizedResponse`."""

    randomizer = GeneralizedRandomizer
