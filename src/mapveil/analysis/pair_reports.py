r"""Origin-destination flows under local differential privacy: the pair of both ends as one report with all of epsilon.

Client: each user takes one of their trips at random, and randomizes the pair of its cells, one of :math:`d^2`. Server:
the three steps of :mod:`mapveil.analysis.joint_flows`, for one report instead of two. The standard deviation of an
unbiased estimate of one pair's trips is about

.. math:: \sigma = \sqrt n\, \frac{2 e^{\epsilon / 2}}{e^\epsilon - 1}

where: n is the number of reports; it is far less than that of two reports with :math:`\epsilon / 2` each
(:mod:`mapveil.analysis.flows`), but the trips from and to one cell are sums of d such estimates. So few cells favour
the pair: :func:`pair_is_better`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from mapveil.analysis.joint_flows import PairTally, estimate_joint
from mapveil.analysis.pair_channel import PairChannel
from mapveil.analysis.trips import Trips, cells_of_trips
from mapveil.geo.grid import Grid
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.zone_order import zone_order
from mapveil.inference.flow_shrinkage import shrink_margin
from mapveil.inference.gravity import spacing_m
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.local.randomizers.randomizer import Randomizer, SymbolRandomizer
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
from mapveil_client.randomness.random import Randomness, as_randomness

_MOST: Final = 64  # cells: 4,096 pairs
_FEW: Final = 16  # cells for which the pair is better
_NORMAL: Final = 16.0  # Laplace variables whose sum is as good as normal, as the sum of many reports is
_LEAST_FLOW: Final = 1e-9  # trips


def pair_is_better(cells: int) -> bool:
    """Whether one report of the pair is taken instead of one of each end: on at most 16 cells, 256 pairs."""
    return cells <= _FEW


class _PairsTogether(PairChannel):
    """The channel of one report of a pair of sites, as if a second report told nothing."""

    def __init__(self, randomizer: SymbolRandomizer, size: int) -> None:
        super().__init__(size, randomizer.symbols)
        self._randomizer = randomizer

    def forward(self, joint: FloatArray) -> FloatArray:
        """The law of the report, shape (symbols, 1)."""
        return self._randomizer.forward(joint.ravel())[:, None]

    def backward(self, ratio: FloatArray) -> FloatArray:
        """The adjoint, shape (sites, sites)."""
        return self._randomizer.backward(ratio[:, 0]).reshape(self.sites, self.sites)


@dataclass(frozen=True, kw_only=True)
class PairReports:
    """Flows between at most 64 cells, of trips whose pair of cells is one randomized report of each user.

    Parameters
    ----------
    mechanism : LocalMechanism
        Generalized randomized or Hadamard response; its epsilon is the whole budget of a user, and its ``outside`` the
        treatment of trips with an end outside the region.
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
    most: int = 5000
    least: float = 0.0

    def __post_init__(self) -> None:
        kinds = (GeneralizedRandomizedResponse, HadamardResponse)
        check(
            isinstance(self.mechanism, kinds), "mechanism", "grr or hr for reports of pairs", self.mechanism
        )
        check(self.most >= 1, "most", "a number of flows of at least 1", self.most)
        check(self.least >= 0, "least", "a number of trips of at least 0", self.least)

    @property
    def method(self) -> str:
        """Randomizer and design, for titles."""
        return f"{self.mechanism.name}, flows of pairs"

    def on(self, domain: Domain) -> SymbolRandomizer:
        """The public randomizer of pairs of sites, with all of epsilon."""
        size = domain.size
        check(size <= _MOST, "cells", f"at most {_MOST} for reports of pairs", size)
        pairs = Grid(Region.without_georeference(size, size), rows=size, columns=size)
        return cast("SymbolRandomizer", self.mechanism.on(Domain(pairs)))

    def randomize(
        self, randomizer: Randomizer, origins: npt.ArrayLike, destinations: npt.ArrayLike, rng: Randomness
    ) -> Reports:
        """Randomize the pair of sites of each trip. Run by: the client."""
        size = round(randomizer.size**0.5)
        pair = np.asarray(origins, dtype=np.int64) * size + np.asarray(destinations, dtype=np.int64)
        return randomizer.randomize(pair, rng)

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
        randomizer = self.on(domain)
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
                "reports", Reports, lambda: self.randomize(randomizer, origins, destinations, stream)
            )
            tell("ask the devices", 1.0)
            made, deviation = self._estimate(randomizer, reports, tiling, domain.cells, stream)
        count = reports.count
        flat = made.ravel()
        listed = np.flatnonzero(flat >= max(self.least, _LEAST_FLOW))
        listed = listed[np.argsort(-flat[listed], kind="stable")[: self.most]]
        first, second = np.divmod(listed, domain.size)
        told = flat[listed] > 2 * deviation
        released = FlowMap(
            domain.cells[first],
            domain.cells[second],
            flat[listed],
            tiling,
            self.guarantee(seeded=stream.seeded).as_simulation(),
            self.method,
            deviation=np.full(listed.size, deviation),
            unlisted=max(count - float(flat[listed].sum()), 0.0),
            parameters=self.parameters(),
            notes=(
                f"{count} users reported one trip each, both ends in one report",
                f"{int(told.sum())} of {told.size} listed flows are above twice their standard deviation",
            ),
        )
        return charged_to(released, charges)

    def _estimate(
        self,
        randomizer: SymbolRandomizer,
        reports: Reports,
        tiling: Tiling,
        cells: IntArray,
        rng: Randomness,
    ) -> tuple[FloatArray, float]:
        """Trips of every pair of sites, and the standard deviation of an unbiased estimate. Run by: the server."""
        size, count = cells.size, reports.count
        if not count:
            return np.zeros((size, size)), 0.0
        unbiased = count * randomizer.invert(randomizer.tally(reports)).reshape(size, size)
        likely = np.maximum(unbiased.ravel(), 0.0)
        noise = randomizer.site_noise(likely / max(float(likely.sum()), 1e-300))
        variance = count * float(noise.variance.mean())
        order = zone_order(tiling)
        place = order.place[cells]
        square = np.zeros((1 << order.depth,) * 2)
        square[np.ix_(place, place)] = unbiased
        ends = [
            shrink_margin(square.sum(axis=axis), order.held, size * variance, _NORMAL, float(count))[place]
            / count
            for axis in (1, 0)
        ]
        channel = _PairsTogether(randomizer, size)
        nothing = np.zeros(count, dtype=np.int64)
        plane = Domain(tiling).plane
        made = estimate_joint(
            channel,
            PairTally.of(channel, reports.values, nothing),
            ends[0],
            ends[1],
            plane,
            spacing_m(plane),
            rng,
        )
        return count * made.joint, float(np.sqrt(variance))

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one release with these parameters."""
        base = self.mechanism.guarantee(seeded=seeded)
        bound = ContributionBound(Norm.REPORTS, Fraction(1))
        return replace(base, bound=bound, shares=(Share("the pair", self.mechanism.budget),))

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        # Which place a user of many reports about is a matter of their trips here.
        randomizer = {name: part for name, part in self.mechanism.parameters().items() if name != "place"}
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "mechanism"}
        return {"randomizer": self.mechanism.name, **randomizer, "flow_estimator": "pair", **own}
