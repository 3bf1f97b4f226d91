"""The server half of hierarchical hashing: constrained inference over all levels."""

from dataclasses import dataclass, replace

import numpy as np

from mapveil.geo.places import Places
from mapveil.local.estimators.covariance import DenseCovariance, SiteNoise
from mapveil.local.estimators.likelihood import LevelSupport, SupportLikelihood
from mapveil.local.estimators.tree_consistency import (
    MeasuredLevel,
    consistent_covariance,
    consistent_site_noise,
    make_consistent,
)
from mapveil.local.level_design import best_design
from mapveil.local.local_mechanism import Designed, LocalMechanism
from mapveil.local.randomizers.local_hashing import hash_estimates, hashed_nodes, line_noise, support_noise
from mapveil.local.randomizers.randomizer import NodeEstimates, SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.local import hierarchical_hashing as client
from mapveil_client.local.domain import Domain


class HierarchicalHashingRandomizer(client.HierarchicalHashingRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.hierarchical_hashing.HierarchicalHashingRandomizer`."""

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
        """See :meth:`Randomizer.covariance`: of the mean number of reports about each level.

        Nodes of one level are hashed as an average group of them, see :class:`SupportNoise`.
        """
        self._check_dense()
        site = self.domain.codes.site
        matrix = np.empty((self.size, self.size))
        matrix[np.ix_(site, site)] = consistent_covariance(self._measured(), distribution[site])
        return DenseCovariance(matrix)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`: an upper bound, whichever nodes are on lines together.

        It includes the variance of the choice of each report's level.
        """
        site = self.domain.codes.site
        found = consistent_site_noise(self._measured(), distribution[site])
        variance = np.empty(self.size)
        variance[site] = found.variance
        return SiteNoise(variance, found.step)

    def node_estimates(self, tally: Tally) -> tuple[NodeEstimates, ...]:
        """See :meth:`Randomizer.node_estimates`: every level that anybody reported about."""
        found = []
        rank, parts = self.domain.codes.rank, self._parts(tally.counts.astype(np.float64))
        for blocks, reports, part in zip(self._levels, self._reports, parts, strict=True):
            asked = float(part.sum()) / max(tally.reports, 1)
            if asked > 0:
                found.append(hashed_nodes(reports, blocks.of_rank[rank], part, asked))
        return tuple(found)

    def _measured(self) -> list[MeasuredLevel]:
        levels = []
        for blocks, weight, reports in zip(self._levels, self._weights, self._reports, strict=True):
            noise, probability = support_noise(reports), weight / self._weight
            variance, lines = noise.variance_other / probability, line_noise(reports)
            levels.append(
                MeasuredLevel(blocks, noise, probability, variance, lines, reports.held, reports.other)
            )
        return levels

    def likelihood(self, tally: Tally) -> SupportLikelihood:
        """See :meth:`Randomizer.likelihood`: of the nodes of every level that the reports support."""
        found = []
        parts = self._parts(tally.counts.astype(np.float64))
        for blocks, reports, part in zip(self._levels, self._reports, parts, strict=True):
            supports, number = np.maximum(reports.sums(part), 0.0), max(float(part.sum()), 1e-300)
            found.append(LevelSupport(blocks, supports, number, reports.held, reports.other))
        return SupportLikelihood(self.domain.codes.site, found)


@dataclass(frozen=True, kw_only=True)
class HierarchicalHashing(client.HierarchicalHashing, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.hierarchical_hashing.HierarchicalHashing`."""

    randomizer = HierarchicalHashingRandomizer

    def designed(self, domain: Domain, reports: int) -> Designed:
        """With the levels of the least predicted error, where they are not given; see :func:`best_design`.

        Scattered places keep the levels that were best on cities' venues (docs/explanation/choosing-local.md).
        """
        if (self.growth and self.site_weight) or isinstance(domain.tiling, Places):
            return Designed(self)
        best = best_design(self.budget, domain, reports, self.growth, self.site_weight)
        note = (
            f"reports are about blocks of several sizes, at least {best.growth} times as many of each smaller size "
            f"(option growth={best.growth}), and about single cells, {best.site_weight} times as often as about one "
            f"size (option site_weight={best.site_weight}): of all such choices the one of the least predicted error "
            f"for {reports:,} reports at epsilon {float(self.budget):g} about {domain.size:,} cells"
        )
        return Designed(replace(self, growth=best.growth, site_weight=best.site_weight), (note,))
