"""The server half of subset selection."""

from dataclasses import dataclass

import numpy as np

from mapveil.local.estimators.covariance import Covariance, ExchangeableCovariance
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SetRandomizer
from mapveil_client.arrays import FloatArray
from mapveil_client.local import subset_selection as client


class SubsetRandomizer(client.SubsetRandomizer, SetRandomizer):
    """Both halves of :class:`mapveil_client.local.subset_selection.SubsetRandomizer`."""

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: without the place, a set is a sample of the other sites."""
        p, k, others = self.held, self.subset, self.size - 1
        scale = (p - self.other) ** 2

        def sampled(number: FloatArray, drawn: int) -> FloatArray:
            # Variance of the hypergeometric law.
            part = number / others
            return np.asarray(drawn * part * (1 - part) * (others - drawn) / max(others - 1, 1))

        def spread(number: FloatArray, jump: FloatArray) -> FloatArray:
            mean = p * sampled(number, k - 1) + (1 - p) * sampled(number, k)
            return np.asarray((mean + p * (1 - p) * jump * jump) / scale)

        return ExchangeableCovariance(
            lambda number: spread(number - 1, 1 - (number - 1) / others),
            lambda number: spread(number, number / others),
            distribution,
        )


@dataclass(frozen=True, kw_only=True)
class SubsetSelection(client.SubsetSelection, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.subset_selection.SubsetSelection`."""

    randomizer = SubsetRandomizer
