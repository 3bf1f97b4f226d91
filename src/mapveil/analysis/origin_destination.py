"""Origin-destination flows under local differential privacy: both ends randomized, each with half of epsilon."""

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.analysis.joint_flows import PairTally, estimate_joint
from mapveil.analysis.lasso_flows import estimate_lasso
from mapveil.analysis.pair_channel import check_pairs, check_sites, pair_channel, unbiased_flows
from mapveil.analysis.trips import Trips, cells_of_trips
from mapveil.geo.tiling import Tiling
from mapveil.inference.gravity import spacing_m
from mapveil.local.estimators.estimators import check_reports, estimate_distribution
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import Randomizer
from mapveil.maps.flow_map import FlowMap
from mapveil.mechanisms.mechanism import charged_to, check_outputs, check_tiling
from mapveil.privacy.account import OWN, Account, charges_of
from mapveil.privacy.claim import Assumes, ContributionBound, Norm, Share, Unit
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Progress
from mapveil_client.arrays import BoolArray, FloatArray, IntArray
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import Reports
from mapveil_client.randomness.random import Randomness, as_randomness

FlowEstimator = Literal["joint", "lasso", "independent"]
FlowUnit = Literal["user", "trip"]

FLOW_ESTIMATORS: Final[tuple[FlowEstimator, ...]] = ("joint", "lasso", "independent")
"""Likelihood of the pairs; the paper's Lasso on the marginals; the product of the marginals."""

_LEAST_FLOW: Final = 1e-9  # trips; the estimators leave such crumbs


class PairReports(NamedTuple):
    """Reports of the clients: one of the origin and one of the destination of each trip."""

    origin: Reports
    destination: Reports


class EstimatedFlows(NamedTuple):
    """A distribution of trips over pairs of sites, and remarks for a reader."""

    joint: FloatArray  # summing to 1, shape (sites, sites)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OriginDestination:
    r"""Flows between the cells of a map, of trips whose ends never leave the client.

    Client: each user takes one of their trips at random, and randomizes origin and destination independently with

    .. math:: \epsilon_o = \epsilon_d = \epsilon / 2

    where: :math:`\epsilon` is the mechanism's; by sequential composition the pair of reports is
    :math:`\epsilon`-locally differentially private, however much the two ends have to do with each other. Server:
    estimates the distribution over pairs. ``"joint"`` uses which reports came together
    (:mod:`mapveil.analysis.joint_flows`); ``"lasso"`` is the paper's method, on the marginals
    (:mod:`mapveil.analysis.lasso_flows`).

    Deviation: one trip of each user rather than every row, so that the epsilon is the user's; ``unit = "trip"`` is the
    paper's, and then the epsilon is a trip's.

    Source: Wang et al. (2022), section 4.1.

    Parameters
    ----------
    mechanism : LocalMechanism
        The randomizer; its epsilon is the whole budget of a trip, its estimator that of the marginals, and its
        ``outside`` the treatment of trips with an end outside the region.
    estimator : str
        One of :data:`FLOW_ESTIMATORS`.
    unit : str
        ``"user"``: one trip of each user, at random; ``"trip"``: every trip is reported, each with the whole epsilon.
    gravity : bool
        For ``"joint"``: whether short trips may be preferred where the reports bear it out.
    steps : int, optional
        For ``"joint"``: steps of the iteration, found from the reports by default.
    penalty : float
        For ``"lasso"``: see :func:`mapveil.analysis.lasso_flows.estimate_lasso`.
    most : int
        How many of the largest flows to list; the others are counted as unlisted.
    least : float
        The smallest flow to list, trips.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Examples
    --------
    >>> import mapveil as mv
    >>> from mapveil.local.randomizers.generalized_response import GeneralizedRandomizedResponse
    >>> grid = mv.Grid(mv.Region.from_bbox(-8.70, 41.10, -8.52, 41.22), rows=2, columns=2)
    >>> a, b = np.array([-8.65, -8.57]), np.array([41.13, 41.19])
    >>> trips = Trips(np.arange(4000), a[[0] * 4000], b[[0] * 4000], a[[1] * 4000], b[[1] * 4000])
    >>> flows = OriginDestination(mechanism=GeneralizedRandomizedResponse(epsilon=4)).release(trips, grid, rng=1)
    >>> int(flows.origin[0]), int(flows.destination[0]), flows.guarantee.epsilon
    (2, 1, Fraction(4, 1))
    """

    mechanism: LocalMechanism
    estimator: FlowEstimator = "joint"
    unit: FlowUnit = "user"
    gravity: bool = True
    steps: int | None = None
    penalty: float = 0.01
    most: int = 5000
    least: float = 0.0

    def __post_init__(self) -> None:
        check(self.estimator in FLOW_ESTIMATORS, "estimator", ", ".join(FLOW_ESTIMATORS), self.estimator)
        check(self.unit in ("user", "trip"), "unit (--unit)", "user or trip", self.unit)
        check(self.steps is None or self.steps >= 0, "steps", "a number of at least 0", self.steps)
        check(0 < self.penalty < 1, "penalty", "a number between 0 and 1", self.penalty)
        check(self.most >= 1, "most", "a number of flows of at least 1", self.most)
        check(self.least >= 0, "least", "a number of trips of at least 0", self.least)

    @property
    def method(self) -> str:
        """Randomizer and estimator, for titles."""
        return f"{self.mechanism.name}, {self.estimator} flows"

    def on(self, domain: Domain) -> Randomizer:
        """The public randomizer of each end, at half of epsilon.

        Raises
        ------
        ParameterError
            The domain is too large for flows, or the estimator does not fit the randomizer.
        """
        randomizer = replace(self.mechanism, epsilon=self._half).on(domain)
        self._check_randomizer(randomizer)
        return randomizer

    def randomize(
        self, randomizer: Randomizer, origins: npt.ArrayLike, destinations: npt.ArrayLike, rng: Randomness
    ) -> PairReports:
        """Randomize both ends of a trip each. Run by: the client.

        Parameters
        ----------
        randomizer : Randomizer
            See :meth:`on`.
        origins, destinations : int or array of int
            Cells.
        rng : Randomness
            The source of bits.
        """
        return PairReports(randomizer.randomize(origins, rng), randomizer.randomize(destinations, rng))

    def estimate(
        self,
        randomizer: Randomizer,
        reports: PairReports,
        rng: Randomness,
        *,
        candidates: BoolArray | None = None,
        progress: Progress | None = None,
    ) -> EstimatedFlows:
        """Estimate the distribution of trips over pairs of sites. Run by: the server; costs no privacy.

        Parameters
        ----------
        randomizer : Randomizer
            The randomizer of the reports.
        reports : PairReports
            Reports of each trip.
        rng : Randomness
            Source of the choice of reports that the joint estimator sets aside.
        candidates : ndarray of bool, shape (sites, sites), optional
            The pairs that are possible, where that is public.
        progress : callable, optional
            Called with a step's name and its finished fraction.

        Raises
        ------
        InputError
            Not as many reports of origins as of destinations.
        ParameterError
            The estimator does not fit the randomizer, or the domain is too large.
        """
        if reports.origin.count != reports.destination.count:
            raise InputError(
                f"{reports.origin.count} reports of origins and {reports.destination.count} of "
                "destinations; expected one of each for every trip"
            )
        self._check_randomizer(randomizer)
        if candidates is not None and (
            candidates.shape != (randomizer.size, randomizer.size) or not candidates.any()
        ):
            raise ParameterError(
                f"candidates have shape {candidates.shape}; expected ({randomizer.size}, "
                f"{randomizer.size}) with at least one pair"
            )
        tell = progress or (lambda step, done: None)
        ends = [
            estimate_distribution(randomizer, randomizer.tally(end), self.mechanism.estimator)
            for end in reports
        ]
        origins, destinations = (end.distribution for end in ends)
        notes = tuple(dict.fromkeys(note for end in ends for note in end.notes))
        if self.estimator == "joint" and reports.origin.count:
            channel = pair_channel(randomizer)
            plane = randomizer.domain.plane
            made = estimate_joint(
                channel,
                PairTally.of(channel, reports.origin.values, reports.destination.values),
                origins,
                destinations,
                plane,
                spacing_m(plane),
                rng,
                allowed=candidates,
                gravity=self.gravity,
                steps=self.steps,
                progress=lambda done: tell("estimate flows", done),
            )
            decay = (
                f"trips get e times rarer every {made.length_m:.0f} m"
                if np.isfinite(made.length_m)
                else "no decay with distance was found"
            )
            steps = f"{made.steps} step{'' if made.steps == 1 else 's'} of the joint estimator"
            return EstimatedFlows(made.joint, (*notes, f"{decay}; {steps}"))
        joint = np.outer(origins, destinations)
        if candidates is not None:
            joint = np.where(candidates, joint, 0.0)
        if self.estimator == "lasso" and reports.origin.count:
            first, second = np.nonzero(np.ones_like(joint) if candidates is None else candidates)
            found = estimate_lasso(origins, destinations, first, second, penalty=self.penalty)
            tell("estimate flows", 1.0)
            if found.frequency.any():
                joint = np.zeros_like(joint)
                joint[first, second] = found.frequency
            else:
                notes = (*notes, "the Lasso kept no pair: flows are the product of the marginals")
        return EstimatedFlows(joint / joint.sum(), notes)

    def release(
        self,
        trips: Trips,
        tiling: Tiling,
        *,
        candidates: tuple[IntArray, IntArray] | None = None,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> FlowMap:
        """Run a whole collection in this process: clients and server.

        Parameters
        ----------
        trips : Trips
            The trips of all clients.
        tiling : Tiling
            The cells; at most 4,096 that can hold anybody.
        candidates : pair of arrays of int, optional
            Origin and destination cells of the pairs that are possible. Public: a list taken from the trips
            themselves tells who went where.
        account : Account, optional
            The budget that is charged before any client reports, the user's own by default; None: not accounted. A
            guarantee about one trip (``unit="trip"``) is none about a user and is never charged.
        rng : Randomness, int or None
            Leave it out for a release; an integer seeds the run, which marks the flows and charges nothing.
        progress : callable, optional
            Called with a step's name and its finished fraction.

        Raises
        ------
        InputError
            A trip with an end outside is refused, or the tiling has too many cells.
        BudgetExceeded
            The account does not allow the epsilon.
        """
        stream = as_randomness(rng)
        tell = progress or (lambda step, done: None)
        check_tiling(tiling)
        domain = Domain(tiling)
        randomizer = self.on(domain)
        check_reports(self.mechanism.estimator, randomizer)
        allowed = None if candidates is None else _candidates(domain, *candidates)
        check_outputs(account, tiling)
        if self.unit == "trip" and account is not None:
            account = account.unaccounted(self.unit)
        budget, accepted = self.mechanism.budget, self.mechanism.accept_large_epsilon
        about = (self.method, self.parameters(), tiling)
        charges = charges_of(
            account, trips.points, budget, *about, seeded=stream.seeded, accept_large_epsilon=accepted
        )
        tell("ask the devices", 0.0)
        origins, destinations = cells_of_trips(
            trips, domain, self.mechanism.outside, stream, one_each=self.unit == "user"
        )
        with charges:
            charges.spend(budget)
            reports = charges.keep(
                "reports", PairReports, lambda: self.randomize(randomizer, origins, destinations, stream)
            )
            tell("ask the devices", 1.0)
            made = self.estimate(randomizer, reports, stream, candidates=allowed, progress=progress)
            tell("error bars", 0.0)
            ends = (end.values for end in reports)
            unbiased = unbiased_flows(randomizer, made.joint, *ends)
            tell("error bars", 1.0)
        count = reports.origin.count
        kept = domain.cells
        first, second = np.unravel_index(self._listed(count * made.joint), made.joint.shape)
        trips_of = count * made.joint[first, second]
        who = "users reported one trip each" if self.unit == "user" else "trips were reported"
        released = FlowMap(
            kept[first],
            kept[second],
            trips_of,
            tiling,
            self.guarantee(seeded=stream.seeded).as_simulation(),
            self.method,
            deviation=None if unbiased is None else unbiased.deviation[first, second],
            unbiased=None if unbiased is None else unbiased.trips[first, second],
            p_value=None if unbiased is None else unbiased.p_value[first, second],
            unlisted=max(count - float(trips_of.sum()), 0.0),
            parameters=self.parameters(),
            notes=(f"{count} {who}", *made.notes),
        )
        return charged_to(released.with_told_note(), charges)

    @property
    def _half(self) -> Fraction:
        return self.mechanism.budget / 2

    def _check_randomizer(self, randomizer: Randomizer) -> None:
        check_sites(randomizer)
        if self.estimator == "joint":
            check_pairs(randomizer)

    def _listed(self, trips: FloatArray) -> IntArray:
        """The flat numbers of the pairs that are listed."""
        flat = trips.ravel()
        found = np.flatnonzero(flat >= max(self.least, _LEAST_FLOW))
        if found.size > self.most:
            found = found[np.argpartition(-flat[found], self.most - 1)[: self.most]]
        return found

    def guarantee(self, *, seeded: bool = False) -> Guarantee:
        """The guarantee of one release with these parameters."""
        base = self.mechanism.guarantee(seeded=seeded)
        assumptions = base.assumptions
        if self.unit == "trip":
            besides = base.assumes_besides(Assumes.ONE_CLIENT, Assumes.ONE_CONTRIBUTION)
            assumptions = (Assumes.COMPOSES(), *besides)
        return replace(
            base,
            unit=Unit(self.unit),
            bound=ContributionBound(Norm.REPORTS, Fraction(2)),
            assumptions=assumptions,
            shares=(Share("the origin", self._half), Share("the destination", self._half)),
        )

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        # Which place a user of many reports about is a matter of their trips here.
        randomizer = {name: part for name, part in self.mechanism.parameters().items() if name != "place"}
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "mechanism"}
        return {
            "randomizer": self.mechanism.name,
            **randomizer,
            "flow_estimator": own.pop("estimator"),
            **own,
        }


def _candidates(domain: Domain, origins: IntArray, destinations: IntArray) -> BoolArray:
    allowed = np.zeros((domain.size, domain.size), dtype=np.bool_)
    allowed[domain.sites_of(origins), domain.sites_of(destinations)] = True
    return allowed
