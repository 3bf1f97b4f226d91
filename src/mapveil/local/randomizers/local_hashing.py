"""Local hashing: each phone hashes the sites to few buckets by a function of its own, and randomizes the bucket."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

import numpy as np

from mapveil.local.estimators.covariance import (
    Covariance,
    ExchangeableCovariance,
    SiteNoise,
    two_level_noise,
)
from mapveil.local.mechanism import LocalMechanism
from mapveil.local.randomizers.domain import Domain
from mapveil.local.randomizers.linear_hashes import LinearHashes, is_prime
from mapveil.local.randomizers.odds import Odds, odds
from mapveil.local.randomizers.randomizer import SymbolRandomizer
from mapveil.local.randomizers.report import Tally
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness
from mapveil_client.randomness.uniform import uniform_below

_LARGEST_TABLE: Final = 1 << 25
_TOTAL_BITS: Final = 61


def best_buckets(epsilon: Fraction, sites: int, largest_table: int = _LARGEST_TABLE) -> int:
    r"""The prime g of least variance, near :math:`e^\epsilon + 1`, whose table of counts the server can hold.

    Parameters
    ----------
    epsilon : Fraction
        Of a report.
    sites : int
        d; no more buckets than it takes to have one for each are of use.
    largest_table : int
        Counts at most, about :math:`g^{k+1}`.

    Raises
    ------
    ParameterError
        No prime has so small a table.
    """
    e = math.exp(min(float(epsilon), 60.0))

    def variance(g: int) -> float:
        held, less = e / (e + g - 1), 1 / (e + g - 1)
        other = (held - less) * LinearHashes(g, sites).collision + less
        return other * (1 - other) / (held - other) ** 2

    most = min(2 * sites, math.isqrt(largest_table) + 1, int(min(4 * e + 8, 1e9)))
    primes = [g for g in range(2, most + 1) if is_prime(g)]
    accepted = [g for g in primes if g ** (LinearHashes(g, sites).digits + 1) <= largest_table]
    if not accepted:
        raise ParameterError(f"{sites} sites are too many for hashing; srr, grr and hr accept them")
    return min(accepted, key=variance)


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


class HashedReports:
    """One family of functions with the weights of a randomized bucket: what a level of a hierarchy reports, or all.

    Parameters
    ----------
    sites : int
        How many sites are hashed.
    epsilon : Fraction
        Of a report.
    buckets : int
        g.
    """

    def __init__(self, sites: int, epsilon: Fraction, buckets: int) -> None:
        self.hashes = LinearHashes(buckets, sites)
        room = _TOTAL_BITS - buckets.bit_length()
        self.weights: Odds = odds(epsilon, room, min(room, 40))
        self._surplus = self.weights.more - self.weights.less
        self._total = self._surplus + buckets * self.weights.less

    @property
    def symbols(self) -> int:
        """A function and a bucket."""
        return self.hashes.functions * self.hashes.buckets

    @property
    def held(self) -> float:
        """Probability that the bucket is the place's."""
        return self.weights.more / self._total

    @property
    def other(self) -> float:
        """Probability that the bucket is any one other site's."""
        return (self._surplus * self.hashes.collision + self.weights.less) / self._total

    def draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        """A function and a bucket for each site, as one number. Run by: the client."""
        function = uniform_below(sites.size, self.hashes.functions, rng)
        left = uniform_below(sites.size, self._total, rng) - self._surplus
        bucket = np.where(left < 0, self.hashes.values(function, sites), left // self.weights.less)
        return function * self.hashes.buckets + bucket

    def forward(self, distribution: FloatArray) -> FloatArray:
        """How likely each symbol is, shape (symbols,)."""
        table = np.maximum(self.hashes.table(distribution), 0.0)
        table *= self._surplus
        table += self.weights.less * distribution.sum()
        return np.asarray(table.reshape(-1) / (self._total * float(self.hashes.functions)))

    def backward(self, values: FloatArray) -> FloatArray:
        """The adjoint, shape (sites,)."""
        sums = self._sums(values)
        made = self._surplus * sums + self.weights.less * values.sum()
        return np.asarray(made / (self._total * float(self.hashes.functions)))

    def support(self, counts: FloatArray) -> FloatArray:
        """How many reports support each site, shape (sites,)."""
        return np.asarray(np.maximum(self._sums(counts), 0.0))

    def invert(self, counts: FloatArray, reports: float) -> FloatArray:
        """The unbiased estimate from how many reports support each site, shape (sites,)."""
        support = self._sums(counts) / max(reports, 1)
        return np.asarray((support - self.other) / (self.held - self.other))

    def covariance(self, distribution: FloatArray) -> Covariance:
        """Of the estimates of groups of sites, each with as many triples of sites on one line as an average group.

        Two sites and the place are hashed as if independently unless the three are on one line.
        """
        at, away, own, both = self.noise()

        def without(number: FloatArray) -> FloatArray:
            return np.asarray(number * (away + (number - 1) * both))

        return ExchangeableCovariance(
            lambda number: without(number - 1) + at + 2 * (number - 1) * own, without, distribution
        )

    def noise(self) -> SupportNoise:
        """What one report adds to the estimates of two sites varies by so much."""
        g, k, n = self.hashes.buckets, self.hashes.digits, self.hashes.functions
        p, q, pair = self.held, self.other, self.hashes.collision
        surplus = self._surplus / self._total
        triple = (g ** (k - 2) - 1) / n if k > 1 else 0.0
        line = (g - 2) / (n - 1) if n > 1 else 0.0
        both = surplus * (triple + line * (pair - triple)) + (1 - surplus) * pair / g - q * q
        own = pair * (surplus + (1 - surplus) / g) - p * q
        scale = (p - q) ** 2
        return SupportNoise(p * (1 - p) / scale, q * (1 - q) / scale, own / scale, both / scale)

    def line_noise(self) -> LineNoise:
        """How lines of the family part covariances; where all sites are on one line, all are the same."""
        g, k, n = self.hashes.buckets, self.hashes.digits, self.hashes.functions
        both = self.noise().both
        if k == 1 or g == 2:
            return LineNoise(both, 0.0, 0)
        triple = (g ** (k - 2) - 1) / n
        on_line = (
            (self._surplus / self._total) * (self.hashes.collision - triple) / (self.held - self.other) ** 2
        )
        return LineNoise(both - (g - 2) / (n - 1) * on_line, on_line, g - 2)

    def _sums(self, values: FloatArray) -> FloatArray:
        return self.hashes.sums(values.reshape(self.hashes.functions, self.hashes.buckets))


class HashingRandomizer(SymbolRandomizer):
    """The halves of :class:`LocalHashing` on one domain."""

    kind: ClassVar[int] = 6

    def __init__(self, domain: Domain, epsilon: Fraction, buckets: int | None) -> None:
        super().__init__(domain, epsilon)
        g = best_buckets(epsilon, domain.size) if buckets is None else buckets
        self.reports = HashedReports(domain.size, epsilon, g)
        if self.symbols > _LARGEST_TABLE:
            raise ParameterError(
                f"buckets is {g} for {domain.size} sites: a table of {self.symbols} counts; 2**25 at most are accepted"
            )

    @property
    def symbols(self) -> int:
        """One for each function and bucket."""
        return self.reports.symbols

    def worst_ratio(self) -> Fraction:
        """See :meth:`Randomizer.worst_ratio`: under some function two places differ."""
        return Fraction(*self.reports.weights)

    def _draw(self, sites: IntArray, rng: Randomness) -> IntArray:
        return self.reports.draw(sites, rng)

    def forward(self, distribution: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.forward`: Fourier transforms."""
        return self.reports.forward(distribution)

    def backward(self, values: FloatArray) -> FloatArray:
        """See :meth:`SymbolRandomizer.backward`: Fourier transforms."""
        return self.reports.backward(values)

    def invert(self, tally: Tally) -> FloatArray:
        """See :meth:`Randomizer.invert`."""
        return self.reports.invert(tally.counts.astype(np.float64), tally.reports)

    def site_noise(self, distribution: FloatArray) -> SiteNoise:
        """See :meth:`Randomizer.site_noise`."""
        return two_level_noise(distribution, self.reports.held, self.reports.other)

    def covariance(self, distribution: FloatArray) -> Covariance:
        """See :meth:`Randomizer.covariance`: that of an average group of as many sites."""
        return self.reports.covariance(distribution)

    def identity(self) -> str:
        """See :meth:`Randomizer.identity`."""
        weights = self.reports.weights
        return f"hashing {self.reports.hashes.buckets} {weights.more}:{weights.less}"


@dataclass(frozen=True, kw_only=True)
class LocalHashing(LocalMechanism):
    r"""Report a random hash function and a bucket, the place's bucket likelier than each other one.

    .. math:: q(a, v \mid x) = \frac{1}{g^k - 1} \cdot \frac{e^\epsilon}{e^\epsilon + g - 1} \text{ if } v = h_a(x),
        \quad \frac{1}{g^k - 1} \cdot \frac{1}{e^\epsilon + g - 1} \text{ otherwise}

    where: :math:`h_a` are the :math:`g^k - 1` functions of :mod:`mapveil.local.randomizers.linear_hashes` and
    g is the prime of
    least variance, about :math:`e^\epsilon + 1`.

    Deviation: the published protocol takes any universal family, and the server evaluates every report's function at
    every site. This family makes the work independent of the number of reports, and collisions exactly as often for
    all pairs. A prime instead of the nearest whole number costs a few percent of variance at most.

    Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (2017), OLH.

    Parameters
    ----------
    buckets : int, optional
        g, a prime; the best by default.
    """

    name: ClassVar[str] = "olh"
    summary: ClassVar[str] = "each phone hashes the sites to few buckets and reports a randomized one"
    source: ClassVar[str] = "Wang et al. 2017"

    buckets: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.buckets is None or is_prime(self.buckets), "buckets", "a prime, or none,")

    def on(self, domain: Domain) -> HashingRandomizer:
        """Both halves on a domain; see :meth:`LocalMechanism.on`."""
        return HashingRandomizer(domain, self.budget, self.buckets)
