"""Release flows between cells, of noisy sums or of randomized reports.

Of randomized reports, resolution and randomizer are chosen from public numbers alone
(:mod:`mapveil.analysis.flow_design`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from mapveil.analysis.flow_design import FlowDesign, best_depth, best_mechanism
from mapveil.analysis.origin_destination import FlowEstimator, FlowUnit, OriginDestination
from mapveil.analysis.pair_channel import MOST_SITES
from mapveil.analysis.trip_reports import MOST_CELLS, TripReports
from mapveil.analysis.trips import Trips, cells_of_trips
from mapveil.geo.parse_tiling import parse_tiling
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import check_times
from mapveil.geo.windows import Windows
from mapveil.geo.zone_cells import ZoneCells
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.hadamard_response import HadamardResponse
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.provenance import Provenance
from mapveil.mechanisms.flow_blocks import FlowBlocks
from mapveil.mechanisms.flow_series import FlowSeries
from mapveil.mechanisms.mechanism import check_tiling
from mapveil.mechanisms.methods import find_method, flow_blocks
from mapveil.mechanisms.release import SecureSumName, transport_for
from mapveil.mechanisms.window_error import check_error
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Assumes
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Progress
from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum


def flows(
    trips: Trips,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    trust: Literal["central", "distributed", "operators", "local"] = "local",
    estimator: FlowEstimator | Literal["mixed", "pair"] | None = None,
    unit: FlowUnit = "user",
    region: Region | None = None,
    candidates: tuple[IntArray, IntArray] | None = None,
    most: int = 5000,
    least: float = 0.0,
    windows: Windows | None = None,
    windows_per_user: int | None = None,
    window_error: float | None = None,
    secure_sum: SecureSumName | None = None,
    dropout: float | None = None,
    accept_large_epsilon: bool = False,
    account: Account | None = OWN,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> FlowMap:
    """Release flows between the cells of a map.

    Under ``"local"`` a client randomizes the ends of a trip; else a curator, or secure sums, add up each user's trips
    (:class:`~mapveil.mechanisms.flow_blocks.FlowBlocks`). Simulated but for a curator: this process reads the trips and
    plays every client.

    Parameters
    ----------
    trips : Trips
        See :func:`mapveil.analysis.trips.read_trips`.
    tiling : Tiling or str, optional
        The cells, at most 4,096 that can hold anybody, or their specification in ``region``. By default a quadtree
        of ``region`` as fine as the number of clients that report and epsilon allow, which the guarantee names as not
        protected; under local trust only.
    epsilon : int, float, str, Decimal or Fraction
        The whole budget of a user, or of a trip, above 0.
    method : str, optional
        A randomizer of the local trust model; by default that of the least variance on so many cells.
    options : mapping, optional
        Parameters of the randomizer, or of the flows from noisy sums and their trust model.
    trust : str
        Who adds up the trips: see :func:`mapveil.release`.
    estimator, unit, most, least
        See :class:`~mapveil.analysis.origin_destination.OriginDestination`; estimator and unit are for local trust. The
        estimators ``"mixed"`` and ``"pair"`` take one report of each user (:mod:`mapveil.analysis.trip_reports`), of
        both ends or of one, or of both ends only: ``"mixed"`` is the default for at most 64 cells, else ``"joint"``.
    windows, windows_per_user, window_error
        Windows of a series, not under local trust, and as for :func:`mapveil.release_series`: the flows of each window
        are those of the trips whose rows lie in it (:class:`~mapveil.mechanisms.flow_series.FlowSeries`).
    secure_sum, dropout
        See :func:`mapveil.release`.
    region : Region, optional
        The region, where ``tiling`` is not a tiling.
    candidates
        See :meth:`~mapveil.analysis.origin_destination.OriginDestination.release`.
    accept_large_epsilon : bool
        Whether epsilon may be above 20.
    account, rng, progress
        See :meth:`~mapveil.analysis.origin_destination.OriginDestination.release`.

    Raises
    ------
    InputError
        The trips, the tiling or a parameter cannot be used.
    BudgetExceeded
        The account does not allow the epsilon.
    """
    text = "Trips, which mapveil.analysis.trips.read_trips makes of a table"
    check(isinstance(trips, Trips), "trips", text, type(trips).__name__)
    if isinstance(tiling, ZoneCells):
        tiling.check_names()
    budget = as_epsilon(epsilon)
    transport = transport_for(trust, secure_sum, dropout)
    if windows is None:
        check(
            windows_per_user is None,
            "windows_per_user (--windows-per-user)",
            "left out without windows",
            windows_per_user,
        )
        check(window_error is None, "window_error (--window-error)", "left out without windows", window_error)
    elif trust == "local":
        raise ParameterError(
            "trust (--trust) must be central, distributed or operators for flows over windows, got local"
        )
    check(
        trust == "central" or window_error is None,
        "window_error (--window-error)",
        "left out without a curator",
        window_error,
    )
    listing = _Listing(most, least, accept_large_epsilon)
    run = _Run(account, rng, progress)
    if trust != "local":
        given = {"method": method, "estimator": estimator, "candidates": candidates}
        given["unit"] = None if unit == "user" else unit
        for name, value in given.items():
            if value is not None:
                raise ParameterError(f"{name} is for flows under trust local only, got trust {trust}")
        if tiling is None:
            raise ParameterError(
                "zones (--zones) or a tiling (--tiling) are required for flows from sums: a default would follow from "
                "the number of trips"
            )
        over_time = {} if windows is None else {"windows": windows, "windows_per_user": windows_per_user}
        summing = flow_blocks(budget, trust, {**(options or {}), **over_time}, **listing._asdict())
        cells = tiling if isinstance(tiling, Tiling) else _parsed(tiling, region, trips)
        rows = trips.as_points() if windows is None else _numbered(trips, summing, window_error)
        made = _of_sums(trips, rows, cells, summing, run, transport, dropout)
        made_by = Provenance.of("flows", trips.points, secure_sum=secure_sum, dropout=dropout)
        notes = () if windows is None else windows.clock_notes
        return replace(made, provenance=made_by, notes=(*made.notes, *notes))

    asked = _Asked(budget, method, options or {}, unit, listing)
    of_users = unit == "user" and candidates is None
    design = design_of(estimator, method, of_users=of_users)
    cells = _cells(tiling, region, asked, trips, design)
    check_tiling(cells)
    if design == "default":
        design = "mixed" if Domain(cells).size <= MOST_CELLS else "ends"
    if design == "ends":
        ends = "joint" if estimator is None or estimator == "mixed" or estimator == "pair" else estimator
        made = _of_two_reports(trips, cells, asked, ends, candidates, run)
    elif of_users:
        made = _of_one_report(trips, cells, asked, design, run)
    else:
        raise ParameterError(f"estimator {design} is for unit user, without candidates")
    made_by = Provenance.of("flows", trips.points, candidates=candidates is not None)
    return replace(made, guarantee=_counted(made.guarantee, tiling), provenance=made_by)


def design_of(
    estimator: FlowEstimator | Literal["mixed", "pair"] | None, method: str | None, *, of_users: bool
) -> FlowDesign:
    """Design of randomized reports by the arguments of :func:`flows`; ``of_users``: of users, on all pairs."""
    if estimator is None and method is None and of_users:
        return "default"
    return estimator if estimator == "mixed" or estimator == "pair" else "ends"


class _Listing(NamedTuple):
    """Flows to list, and whether epsilon may be large."""

    most: int
    least: float
    accept_large_epsilon: bool


class _Run(NamedTuple):
    """Arguments of every release."""

    account: Account | None
    rng: Randomness | int | None
    progress: Progress | None


class _Asked(NamedTuple):
    """Local flows as they are asked for."""

    budget: Fraction  # of all reports about a trip
    method: str | None
    options: Mapping[str, Any]
    unit: FlowUnit
    listing: _Listing

    def randomizer(self, sites: int, reports: int = 1) -> LocalMechanism:
        """The mechanism of so many reports of so many values, with the whole budget: as asked for, or the best."""
        name, given = self.method, dict(self.options)
        if name is None:
            best = best_mechanism(sites, self.budget / reports)
            own = {"blocks": best.blocks} if isinstance(best, HadamardResponse) else {}
            name, given = best.name, {"estimator": "multiscale", **own, **given}
        made = cast("LocalMechanism", find_method(name, "local").make(self.budget, given))
        return replace(made, accept_large_epsilon=self.listing.accept_large_epsilon)


def _of_sums(
    trips: Trips,
    rows: Points,
    cells: Tiling,
    summing: FlowBlocks,
    run: _Run,
    transport: SecureSum | None,
    dropout: float | None,
) -> FlowMap:
    """Flows that a curator or secure sums add up."""
    return summing.release(
        rows, cells, people=trips.points, secure_sum=transport, dropout=dropout or 0.0, **run._asdict()
    )


def _of_one_report(
    trips: Trips, cells: Tiling, asked: _Asked, design: Literal["mixed", "pair"], run: _Run
) -> FlowMap:
    """Flows of one report of each user, with all of epsilon."""
    size = Domain(cells).size
    pair, end = (asked.randomizer(number) for number in (size**2, size))
    share = 1.0 if design == "pair" else None
    most, least, _ = asked.listing
    reporting = TripReports(mechanism=pair, ends=end, share=share, most=most, least=least)
    return reporting.release(trips, cells, **run._asdict())


def _of_two_reports(
    trips: Trips,
    cells: Tiling,
    asked: _Asked,
    estimator: FlowEstimator,
    candidates: tuple[IntArray, IntArray] | None,
    run: _Run,
) -> FlowMap:
    """Flows of a report of each end of a trip, with half of epsilon each."""
    most, least, _ = asked.listing
    mechanism = OriginDestination(
        mechanism=asked.randomizer(Domain(cells).size, reports=2),
        estimator=estimator,
        unit=asked.unit,
        most=most,
        least=least,
    )
    return mechanism.release(trips, cells, candidates=candidates, **run._asdict())


def _numbered(trips: Trips, summing: FlowBlocks, window_error: float | None) -> Points:
    """The trips with their windows; refused where times are missing, or the sums of a window too far off."""
    assert isinstance(summing, FlowSeries)
    if window_error is not None:
        check_error(summing.block_budget, summing.contribution, window_error, fix="raise epsilon")
    if trips.points is not None and trips.points.columns.to_lon is None:
        raise InputError(
            f"{trips.source}: windows of flows need a row a trip, with both ends and a time; got a row a position"
        )
    numbered = summing.numbered(trips.as_points())
    check_times(numbered)
    return numbered


def _counted(guarantee: Guarantee, tiling: Tiling | str | None) -> Guarantee:
    """The guarantee, where the number of clients that report chose the cells: participation is not protected."""
    if tiling is not None or Assumes.PARTICIPATION_PUBLIC() in guarantee.assumptions:
        return guarantee
    return replace(guarantee, assumptions=(*guarantee.assumptions, Assumes.PARTICIPATION_PUBLIC()))


def _cells(
    tiling: Tiling | str | None, region: Region | None, asked: _Asked, trips: Trips, design: FlowDesign
) -> Tiling:
    """The cells as given, or a quadtree chosen by the number of reports, which the server sees anyway."""
    if tiling is not None and not isinstance(tiling, str):
        return tiling
    if tiling is not None:
        return _parsed(tiling, region, trips)
    if region is None:
        raise _no_region(trips)
    coarse = Quadtree(region, depth=1)
    outside, one_each = asked.randomizer(coarse.size).outside, asked.unit == "user"
    try:
        origins, _ = cells_of_trips(trips, Domain(coarse), outside, Randomness(0), one_each=one_each)
    except InputError:  # an end outside is refused: the release says so, after it has checked the budget
        return coarse
    return Quadtree(region, depth=best_depth(max(origins.size, 1), asked.budget, design))


def _parsed(tiling: str, region: Region | None, trips: Trips) -> Tiling:
    if region is None:
        raise _no_region(trips)
    cells = parse_tiling(tiling, region)
    if cells.size > 4 * MOST_SITES:
        raise ParameterError(
            f"tiling {tiling} must have at most {MOST_SITES} cells that can hold anybody, got {cells.size} cells"
        )
    return cells


def _no_region(trips: Trips) -> InputError:
    return InputError(f"{trips.source}: a table of trips needs a region or a tiling")
