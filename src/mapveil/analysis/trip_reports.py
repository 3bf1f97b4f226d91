r"""Origin-destination flows under local differential privacy: one report of each user, with all of epsilon.

Client: each user takes one of their trips at random, and reports with all of :math:`\epsilon` either the pair of its
cells, one of :math:`d^2`, or its origin, or its destination. Which of the three is drawn by the client with public
probabilities :math:`f, (1 - f) / 2, (1 - f) / 2` whatever the trip, so that the report is
:math:`\epsilon`-locally differentially private. Server: the three steps of :mod:`mapveil.analysis.joint_flows`, for the
likelihood of all three kinds together. The standard deviation of an unbiased estimate of one pair's trips
(:meth:`TripChannel.deviation`) is about

.. math:: \sigma = \sqrt{n / f}\, \frac{2 e^{\epsilon / 2}}{e^\epsilon - 1}

where: n is the number of reports; it is far less than that of two reports with :math:`\epsilon / 2` each
(:mod:`mapveil.analysis.flow_design`). The trips from and to one cell would be sums of d such estimates: the reports of
one end tell those. The less epsilon, the more of these: :func:`pair_share` is f.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, NamedTuple, cast

import numpy as np

from mapveil.analysis.joint_flows import PairTally, estimate_joint
from mapveil.analysis.pair_channel import PairChannel, UnbiasedFlows
from mapveil.analysis.trips import Trips, cells_of_trips
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.zone_order import zone_order
from mapveil.inference.flow_shrinkage import shrink_margin
from mapveil.inference.gravity import spacing_m
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.generalized_response import (
    GeneralizedRandomizedResponse,
    GeneralizedRandomizer,
)
from mapveil.local.randomizers.hadamard_response import HadamardRandomizer, HadamardResponse
from mapveil.local.randomizers.randomizer import SymbolRandomizer, Tally
from mapveil.maps.flow_map import FlowMap
from mapveil.mechanisms.mechanism import charged_to, check_outputs, check_tiling
from mapveil.privacy.account import OWN, Account, charges_of
from mapveil.privacy.claim import ContributionBound, Norm, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import check
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness, as_randomness, uniform_below

MOST_CELLS: Final = 64
"""Cells between which trips are reported in one report: 4,096 pairs."""

_STEPS: Final = 1024  # f is a multiple of 1 / 1024, which clients draw exactly
_NORMAL: Final = 16.0  # Laplace variables whose sum is as good as normal, as the sum of many reports is
_LEAST_FLOW: Final = 1e-9  # trips


def pair_share(epsilon: Fraction) -> float:
    r"""The fraction of clients that report the pair: :math:`f = \min(0.35 \sqrt\epsilon, 0.8)`.

    Shares of 0.2 to 1 were tried on two tables of the tune role at epsilon 1, 2 and 4, on 16 and 64 cells: errors were
    least at about this one, on both numbers of cells (``benchmarks/local_flows.py`` measures the rule).

    Examples
    --------
    >>> pair_share(Fraction(1)), pair_share(Fraction(4)), pair_share(Fraction(8))
    (0.35, 0.7, 0.8)
    """
    return min(0.35 * math.sqrt(epsilon), 0.8)


class TripChannel(PairChannel):
    """The channel of one report about a trip: a symbol of the pair's, else of the origin's, else of the destination's.

    Parameters
    ----------
    pair, end : SymbolRandomizer
        Randomizers of pairs of sites, and of sites.
    share : float
        f, from 0 to 1, rounded to a multiple of 1 / 1024.
    """

    def __init__(self, pair: SymbolRandomizer, end: SymbolRandomizer, share: float) -> None:
        super().__init__(end.size, pair.symbols + 2 * end.symbols)
        self.randomizers = (pair, end, end)
        self._of_pairs = round(share * _STEPS)
        share = self._of_pairs / _STEPS
        self.shares = (share, (1 - share) / 2, (1 - share) / 2)
        self._starts = np.cumsum([pair.symbols, end.symbols])

    def randomize(self, origins: IntArray, destinations: IntArray, rng: Randomness) -> Reports:
        """Randomize one trip of each client, of sites. Run by: the client."""
        drawn = uniform_below(origins.size, 2 * _STEPS, rng)
        kind = np.where(drawn < 2 * self._of_pairs, 0, 1 + drawn % 2)
        values = np.empty(origins.size, dtype=np.int64)
        ends = (origins * self.sites + destinations, origins, destinations)
        for number, (randomizer, held) in enumerate(zip(self.randomizers, ends, strict=True)):
            chosen = kind == number
            values[chosen] = randomizer.randomize(held[chosen], rng).values
        return Reports(values + np.append(0, self._starts)[kind])

    def tallies(self, reports: Reports) -> list[Tally]:
        """Reports of the pair, of the origin and of the destination, added up. Run by: the server."""
        counts = np.split(np.bincount(reports.values, minlength=self.symbols), self._starts)
        return [Tally(each, int(each.sum())) for each in counts]

    def forward(self, joint: FloatArray) -> FloatArray:
        """The law of the report, shape (symbols, 1)."""
        held = (joint.ravel(), joint.sum(axis=1), joint.sum(axis=0))
        laws = zip(self.shares, self.randomizers, held, strict=True)
        return np.concatenate([share * randomizer.forward(each) for share, randomizer, each in laws])[:, None]

    def backward(self, ratio: FloatArray) -> FloatArray:
        """The adjoint, shape (sites, sites)."""
        laws = zip(self.shares, self.randomizers, np.split(ratio[:, 0], self._starts), strict=True)
        pair, origin, destination = (share * randomizer.backward(each) for share, randomizer, each in laws)
        return np.asarray(pair.reshape(self.sites, self.sites) + origin[:, None] + destination)

    def deviation(self, joint: FloatArray, reports: int, of_pairs: float) -> FloatArray:
        r"""Standard deviation of the unbiased estimate of each pair's trips, by the clients' draws alone.

        .. math:: \sigma_{x x'}^2
            = \frac{n^2}{m} \Big( v_{x x'} + \big(1 - \tfrac m n\big) F_{x x'} (1 - F_{x x'}) \Big)

        where: n is ``reports``, of which m, ``of_pairs``, are of the pair, of clients that drew so at random; F is
        ``joint``, shape (sites, sites), and v the noise that one report of the pair adds to a site's estimate.
        """
        noise = self.randomizers[0].site_noise(joint.ravel()).variance.reshape(joint.shape)
        if not of_pairs:
            return np.full(joint.shape, np.inf)
        drawn = (1 - of_pairs / reports) * joint * (1 - joint)
        return np.asarray(reports * np.sqrt(np.maximum(noise + drawn, 0.0) / of_pairs))

    def p_values(self, tally: Tally) -> FloatArray:
        r"""Probability that a pair of which nobody reports has an estimate as large, shape (sites, sites): exact.

        Generalized response: each of n reports of other pairs is this one with probability q. Hadamard response: each
        report in the pair's block is in the pair's half of it with probability 1/2, whatever other pair it is of.

        Parameters
        ----------
        tally : Tally
            The reports of pairs.
        """
        from scipy.stats import binom

        pair = self.randomizers[0]
        if isinstance(pair, GeneralizedRandomizer):
            found = np.asarray(binom.sf(tally.counts - 1, tally.reports, pair.probabilities[1]))
        else:
            assert isinstance(pair, HadamardRandomizer)
            of_block = tally.counts.reshape(pair.blocks, pair.length).sum(axis=1)
            of_block = np.repeat(of_block, pair.length - 1)[: pair.size]
            more = np.rint(pair.invert(tally) / pair.step * tally.reports)
            found = np.asarray(binom.sf((of_block + more) / 2 - 1, of_block, 0.5))
        return found.reshape(self.sites, self.sites)

    def margin_precision(self, tallies: Sequence[Tally]) -> FloatArray:
        """Reciprocal variances of both estimates of a fraction of trips from, and to, a cell, shape (2, 2).

        A row each for origins and destinations, of the reports of the pair and of that end: the former sum ``sites``
        estimates of pairs, whose noise is as good as uncorrelated where users are everywhere. 0 without a report.
        """
        each = [
            tally.reports
            / float(randomizer.site_noise(np.full(randomizer.size, 1 / randomizer.size)).variance.mean())
            for randomizer, tally in zip(self.randomizers, tallies, strict=True)
        ]
        return np.array([[each[0] / self.sites, end] for end in each[1:]])


class _Estimated(NamedTuple):
    trips: FloatArray  # of every pair of sites
    unbiased: UnbiasedFlows | None = None


@dataclass(frozen=True, kw_only=True)
class TripReports:
    """Flows between at most 64 cells, of trips of which each user sends one randomized report: a pair, or one end.

    Parameters
    ----------
    mechanism : LocalMechanism
        Generalized randomized or Hadamard response; its epsilon is the whole budget of a user, and its ``outside`` the
        treatment of trips with an end outside the region.
    ends : LocalMechanism, optional
        The same for reports of one end, with the same epsilon; the mechanism itself by default.
    share : float, optional
        Fraction of the clients that report the pair, above 0; :func:`pair_share` by default, and 1 for pairs only.
    most : int
        How many of the largest flows to list; the others are counted as unlisted.
    least : float
        The smallest flow to list, trips.

    Raises
    ------
    ParameterError
        A parameter is outside its range.
    """

    mechanism: LocalMechanism
    ends: LocalMechanism | None = None
    share: float | None = None
    most: int = 5000
    least: float = 0.0

    def __post_init__(self) -> None:
        kinds = (GeneralizedRandomizedResponse, HadamardResponse)
        for each in (self.mechanism, self._of_end):
            check(isinstance(each, kinds), "mechanism", "grr or hr for reports of pairs", each)
            check(each.budget == self.mechanism.budget, "ends", "of the same epsilon", each)
        check(
            self.share is None or 1 / _STEPS <= self.share <= 1, "share", f"from 1/{_STEPS} to 1", self.share
        )
        check(self.most >= 1, "most", "a number of flows of at least 1", self.most)
        check(self.least >= 0, "least", "a number of trips of at least 0", self.least)

    @property
    def _of_end(self) -> LocalMechanism:
        return self.ends or self.mechanism

    @property
    def design(self) -> str:
        """``"pair"`` where every client reports the pair, else ``"mixed"``."""
        return "pair" if self.share == 1 else "mixed"

    @property
    def method(self) -> str:
        """Randomizer and design, for titles."""
        return f"{self.mechanism.name}, {self.design} flows"

    def on(self, domain: Domain) -> TripChannel:
        """The public channel of one report about a trip, with all of epsilon."""
        size = domain.size
        check(size <= MOST_CELLS, "cells", f"at most {MOST_CELLS} for reports of pairs", size)
        pairs = Domain(Grid(Region.without_georeference(size, size), rows=size, columns=size))
        pair = cast("SymbolRandomizer", self.mechanism.on(pairs))
        end = cast("SymbolRandomizer", self._of_end.on(domain))
        return TripChannel(pair, end, pair_share(self.mechanism.budget) if self.share is None else self.share)

    def release(
        self,
        trips: Trips,
        tiling: Tiling,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> FlowMap:
        """Run a whole collection in this process: clients and server.

        Arguments and errors are those of :meth:`mapveil.analysis.origin_destination.OriginDestination.release`.
        """
        stream, tell = as_randomness(rng), progress or (lambda step, done: None)
        check_tiling(tiling)
        domain = Domain(tiling)
        channel = self.on(domain)
        check_outputs(account, tiling)
        budget, accepted = self.mechanism.budget, self.mechanism.accept_large_epsilon
        about = (self.method, self.parameters(), tiling)
        charges = charges_of(
            account, trips.points, budget, *about, seeded=stream.seeded, accept_large_epsilon=accepted
        )
        tell("ask the devices", 0.0)
        ends = cells_of_trips(trips, domain, self.mechanism.outside, stream, one_each=True)
        origins, destinations = (domain.sites_of(each) for each in ends)
        with charges:
            charges.spend(budget)
            reports = charges.keep(
                "reports", Reports, lambda: channel.randomize(origins, destinations, stream)
            )
            tell("ask the devices", 1.0)
            found = self._estimate(channel, reports, tiling, domain, stream)
        count = reports.count
        flat = found.trips.ravel()
        listed = np.flatnonzero(flat >= max(self.least, _LEAST_FLOW))
        listed = listed[np.argsort(-flat[listed], kind="stable")[: self.most]]
        first, second = np.divmod(listed, domain.size)
        unbiased = found.unbiased
        released = FlowMap(
            domain.cells[first],
            domain.cells[second],
            flat[listed],
            tiling,
            self.guarantee(seeded=stream.seeded).as_simulation(),
            self.method,
            deviation=None if unbiased is None else unbiased.deviation.ravel()[listed],
            unbiased=None if unbiased is None else unbiased.trips.ravel()[listed],
            p_value=None if unbiased is None else unbiased.p_value.ravel()[listed],
            unlisted=max(count - float(flat[listed].sum()), 0.0),
            parameters=self.parameters(),
            notes=(f"{count} users sent one report of one trip each: {self._kinds(channel)}",),
        )
        return charged_to(released.with_told_note(), charges)

    @staticmethod
    def _kinds(channel: TripChannel) -> str:
        pairs = 100 * channel.shares[0]
        return "of both its ends" if pairs == 100 else f"{pairs:.0f} % of them of both its ends, else of one"

    @staticmethod
    def _estimate(
        channel: TripChannel, reports: Reports, tiling: Tiling, domain: Domain, rng: Randomness
    ) -> _Estimated:
        """Trips of every pair of sites, and unbiased estimates where anybody reported a pair. Run by: the server."""
        size, count = channel.sites, reports.count
        if not count:
            return _Estimated(np.zeros((size, size)))
        tallies = channel.tallies(reports)
        pairs, *ends = (
            randomizer.invert(tally) if tally.reports else np.zeros(randomizer.size)
            for randomizer, tally in zip(channel.randomizers, tallies, strict=True)
        )
        order, margins = zone_order(tiling), []
        place = order.place[domain.cells]
        for axis, end, precision in zip((1, 0), ends, channel.margin_precision(tallies), strict=True):
            # Both kinds of reports tell the margin: each with the weight of its precision.
            if not precision.any():
                margins.append(np.full(size, 1 / size))
                continue
            seen = np.zeros(1 << order.depth)
            seen[place] = precision @ [pairs.reshape(size, size).sum(axis=axis), end] / precision.sum()
            margin = shrink_margin(seen, order.held, 1 / float(precision.sum()), _NORMAL, 1.0)
            margins.append(margin[place])
        nothing, plane = np.zeros(count, dtype=np.int64), domain.plane
        tally = PairTally.of(channel, reports.values, nothing)
        made = estimate_joint(channel, tally, margins[0], margins[1], plane, spacing_m(plane), rng)
        if not tallies[0].reports:
            return _Estimated(count * made.joint)
        deviation = channel.deviation(made.joint, count, tallies[0].reports)
        unbiased = UnbiasedFlows(count * pairs.reshape(size, size), deviation, channel.p_values(tallies[0]))
        return _Estimated(count * made.joint, unbiased)

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one release with these parameters."""
        base = self.mechanism.guarantee(seeded=seeded)
        bound = ContributionBound(Norm.REPORTS, Fraction(1))
        return replace(base, bound=bound, shares=(Share("the report", self.mechanism.budget),))

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        # Which place a user of many reports about is a matter of their trips here.
        randomizer = {name: part for name, part in self.mechanism.parameters().items() if name != "place"}
        own = {each.name: getattr(self, each.name) for each in fields(self)[2:]}
        own |= {"end_randomizer": self._of_end.name, "flow_estimator": self.design}
        return {"randomizer": self.mechanism.name, **randomizer, **own}
