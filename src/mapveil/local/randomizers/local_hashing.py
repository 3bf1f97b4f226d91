"""Local hashing: the server half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mapveil.local.estimators.covariance import (
    Covariance,
    ExchangeableCovariance,
    SiteNoise,
    two_level_noise,
)
from mapveil.local.mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray
from mapveil_client.local import local_hashing as client
from mapveil_client.local.domain import Domain
from mapveil_client.local.local_hashing import HashedReports


class SupportNoise(NamedTuple):
    """Moments of what one report of a known place adds to the estimates, the mean over all triples of sites."""

    at: float  # variance of the place's
    away: float  # of another site's
    own: float  # covariance of the place's with another one
    both: float  # of two other sites'


class LineNoise(NamedTuple):
    """What bounds the noise of any group of sites: who shares a line with whom is a matter of the family."""

    apart: float  # covariance of two sites' estimates that are on no line with the place
    more: float  # by so much is it larger on a line
    others: int  # sites that a line through the place holds at most, beside each one


def hash_support(reports: HashedReports, counts: FloatArray) -> FloatArray:
    """How many reports support each site, shape (sites,)."""
    return np.asarray(np.maximum(reports.sums(counts), 0.0))


def hash_estimates(reports: HashedReports, counts: FloatArray, number: float) -> FloatArray:
    """The unbiased estimate from how many reports support each site, shape (sites,)."""
    support = reports.sums(counts) / max(number, 1)
    return np.asarray((support - reports.other) / (reports.held - reports.other))


def hash_covariance(reports: HashedReports, distribution: FloatArray) -> Covariance:
    """Of the estimates of groups of sites, each with as many triples of sites on one line as an average group.

    Two sites and the place are hashed as if independently unless the three are on one line.
    """
    at, away, own, both = support_noise(reports)

    def without(number: FloatArray) -> FloatArray:
        return np.asarray(number * (away + (number - 1) * both))

    return ExchangeableCovariance(
        lambda number: without(number - 1) + at + 2 * (number - 1) * own, without, distribution
    )


def support_noise(reports: HashedReports) -> SupportNoise:
    """What one report adds to the estimates of two sites varies by so much."""
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
    """How lines of the family part covariances; where all sites are on one line, all are the same."""
    g, k, n = reports.hashes.buckets, reports.hashes.digits, reports.hashes.functions
    both = support_noise(reports).both
    if k == 1 or g == 2:
        return LineNoise(both, 0.0, 0)
    triple = (g ** (k - 2) - 1) / n
    on_line = (
        (reports.surplus / reports.total)
        * (reports.hashes.collision - triple)
        / (reports.held - reports.other) ** 2
    )
    return LineNoise(both - (g - 2) / (n - 1) * on_line, on_line, g - 2)


class HashingRandomizer(client.HashingRandomizer, SymbolRandomizer):
    """The server half of :class:`mapveil_client.local.local_hashing.HashingRandomizer`."""

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        return hash_estimates(self.reports, tally.counts.astype(np.float64), tally.reports)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        return two_level_noise(distribution, self.reports.held, self.reports.other)

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: that of an average group of as many sites."""
        return hash_covariance(self.reports, distribution)


@dataclass(frozen=True, kw_only=True)
class LocalHashing(client.LocalHashing, LocalMechanism):
    """Both halves of :class:`mapveil_client.local.local_hashing.LocalHashing`."""

    def on(self, domain: Domain) -> HashingRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return HashingRandomizer(domain, self.budget, self.buckets)
