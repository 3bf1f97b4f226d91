"""Local hashing of a random level of the hierarchy, with constrained inference over all of them: the server half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapveil.local.estimators.covariance import DenseCovariance, SiteNoise
from mapveil.local.estimators.hash_support import HashSupport, LevelSupport, Supporting
from mapveil.local.estimators.tree_consistency import (
    MeasuredLevel,
    consistent_covariance,
    consistent_site_noise,
    make_consistent,
)
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.local_hashing import hash_estimates, hash_support, line_noise, support_noise
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local import hierarchical_hashing as client
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import MOST_SITES


class HierarchicalHashingRandomizer(client.HierarchicalHashingRandomizer, SymbolRandomizer, Supporting):
    """The server half of :class:`mapveil_client.local.hierarchical_hashing.HierarchicalHashingRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`: every level by itself, then constrained inference."""
        estimates, variances = [], []
        for reports, part in zip(self._reports, self._parts(tally.counts.astype(np.float64)), strict=True):
            number = max(float(part.sum()), 1.0)
            estimates.append(hash_estimates(reports, part, number))
            variances.append(support_noise(reports).variance_other / number)
        children = [
            np.bincount(above.of_rank[below.first], minlength=above.first.size)
            for above, below in zip(self._levels[:-1], self._levels[1:], strict=True)
        ]
        made = np.empty(self.size)
        made[self.domain.codes.site] = make_consistent(estimates, variances, children, total=1.0)
        return made

    def covariance(self, distribution: FloatArray) -> DenseCovariance:
        """See :meth:`Randomizer.covariance`: of as many reports about each level as are asked for on average.

        Nodes of one level are hashed as an average group of them, see :class:`HashedReports`.
        """
        if self.size > MOST_SITES:
            raise ParameterError(
                f"the covariance matrix of {self.size} sites; expected {MOST_SITES} at most, or the "
                "estimator 'smoothed-em'"
            )
        site = self.domain.codes.site
        matrix = np.empty((self.size, self.size))
        matrix[np.ix_(site, site)] = consistent_covariance(self._measured(), distribution[site])
        return DenseCovariance(matrix)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: of as many reports about each level as are asked for on average.

        Never below what it is, whichever nodes are on lines together; who is asked about which level is part of it.
        """
        site = self.domain.codes.site
        found = consistent_site_noise(self._measured(), distribution[site])
        variance = np.empty(self.size)
        variance[site] = found.variance
        return SiteNoise(variance, found.step)

    def _measured(self) -> list[MeasuredLevel]:
        levels = []
        for blocks, weight, reports in zip(self._levels, self._weights, self._reports, strict=True):
            noise, probability = support_noise(reports), weight / self._weight
            levels.append(
                MeasuredLevel(
                    blocks,
                    noise,
                    probability,
                    noise.variance_other / probability,
                    line_noise(reports),
                    reports.held,
                    reports.other,
                )
            )
        return levels

    def support(self, tally: Tally) -> HashSupport:
        """Which nodes of every level the reports support. Run by: the server."""
        found = [
            LevelSupport(
                blocks,
                hash_support(reports, part),
                max(float(part.sum()), 1e-300),
                reports.held,
                reports.other,
            )
            for blocks, reports, part in zip(
                self._levels, self._reports, self._parts(tally.counts.astype(np.float64)), strict=True
            )
        ]
        return HashSupport(self.domain.codes.site, found)


@dataclass(frozen=True, kw_only=True)
class HierarchicalHashing(client.HierarchicalHashing, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.hierarchical_hashing.HierarchicalHashing`."""

    def on(self, domain: Domain) -> HierarchicalHashingRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return HierarchicalHashingRandomizer(domain, self.budget, self.buckets, self.growth, self.site_weight)
