"""The server half of local hashing."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mapveil.local.estimators.covariance import Covariance, ExchangeableCovariance, SiteNoise, two_level_noise
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import NodeEstimates, SymbolRandomizer, Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.local import local_hashing as client
from mapveil_client.local.local_hashing import HashedReports


class SupportNoise(NamedTuple):
    """Moments of one report's terms of the estimates, the mean over all triples of sites.

    The held site is the one where the report's user is.
    """

    variance_held: float  # of the held site's term
    variance_other: float  # of another site's term
    covariance_held: float  # of the held site's term and another one's
    covariance_others: float  # of two other sites' terms


class LineNoise(NamedTuple):
    """Bounds of the noise of any group of sites, whichever of them the family of functions has on one line."""

    covariance: float  # of the terms of two sites that are on no line with the held site
    surplus: float  # of the covariance where the three are on one line
    nodes: int  # largest number of other sites on a line with the held site and one more


def hash_estimates(reports: HashedReports, counts: FloatArray, number: float) -> FloatArray:
    """The unbiased estimate, from the number of reports that support each site, shape (sites,)."""
    support = reports.sums(counts) / max(number, 1)
    return np.asarray((support - reports.other) / (reports.held - reports.other))


def support_noise(reports: HashedReports) -> SupportNoise:
    """The moments of the terms of one report.

    Two sites and the held one are hashed as if independently unless the three are on one line.
    """
    g, k, n = reports.hashes.buckets, reports.hashes.digits, reports.hashes.functions
    p, q, pair = reports.held, reports.other, reports.hashes.collision
    surplus = reports.surplus / reports.total
    triple = (g ** (k - 2) - 1) / n if k > 1 else 0.0
    line = (g - 2) / (n - 1) if n > 1 else 0.0
    both = surplus * (triple + line * (pair - triple)) + (1 - surplus) * pair / g - q * q
    own = pair * (surplus + (1 - surplus) / g) - p * q
    scale = (p - q) ** 2
    return SupportNoise(p * (1 - p) / scale, q * (1 - q) / scale, own / scale, both / scale)


def line_noise(reports: HashedReports) -> LineNoise:
    """Covariances with and without a common line; the same where all sites are on one line."""
    g, k, n = reports.hashes.buckets, reports.hashes.digits, reports.hashes.functions
    covariance = support_noise(reports).covariance_others
    if k == 1 or g == 2:
        return LineNoise(covariance, 0.0, 0)
    triple = (g ** (k - 2) - 1) / n
    excess = (reports.surplus / reports.total) * (reports.hashes.collision - triple)
    on_line = excess / (reports.held - reports.other) ** 2
    return LineNoise(covariance - (g - 2) / (n - 1) * on_line, on_line, g - 2)


def hashed_nodes(reports: HashedReports, node: IntArray, counts: FloatArray, asked: float) -> NodeEstimates:
    """The estimates of hashed nodes, from the reports of a fraction ``asked`` of all users.

    The variance of a weighted sum of estimates of equal covariance c is at most that of uncorrelated ones whose
    variances are larger by max(-c, 0). A user who was asked about something else is missing at the user's own node.
    """
    noise = support_noise(reports)
    empty = noise.variance_other + max(-noise.covariance_others, 0.0)
    slope = max(noise.variance_held - noise.variance_other, 0.0) + (1.0 if asked < 1 else 0.0)
    estimates = hash_estimates(reports, counts, float(counts.sum()))
    step = 1 / (reports.held - reports.other)
    return NodeEstimates(node, estimates, empty / asked, slope / asked, step / asked)


class HashingRandomizer(client.HashingRandomizer, SymbolRandomizer):
    """Both halves of :class:`mapveil_client.local.local_hashing.HashingRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        return hash_estimates(self, tally.counts.astype(np.float64), tally.reports)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        return two_level_noise(distribution, self.held, self.other)

    def node_estimates(self, tally: Tally) -> tuple[NodeEstimates, ...]:
        """See :meth:`Randomizer.node_estimates`: the sites."""
        return (hashed_nodes(self, np.arange(self.size), tally.counts.astype(np.float64), 1.0),)

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: that of an average group of as many sites."""
        noise = support_noise(self)

        def without(number: FloatArray) -> FloatArray:
            return np.asarray(number * (noise.variance_other + (number - 1) * noise.covariance_others))

        def within(number: FloatArray) -> FloatArray:
            return without(number - 1) + noise.variance_held + 2 * (number - 1) * noise.covariance_held

        return ExchangeableCovariance(within, without, distribution)


@dataclass(frozen=True, kw_only=True)
class LocalHashing(client.LocalHashing, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.local_hashing.LocalHashing`."""

    randomizer = HashingRandomizer
