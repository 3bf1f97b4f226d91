r"""Release flows between cells; resolution and randomizer are chosen from public numbers alone.

The unbiased estimate of the trips of one pair, from n pairs of reports of which each end has :math:`\epsilon / 2`, has
a standard deviation of about

.. math:: \sigma = \varphi \sqrt{n}, \qquad \varphi = \frac{4 e^{\epsilon / 2}}{(e^{\epsilon / 2} - 1)^2}

however many sites there are (that of unary encodings and Hadamard responses, squared, because there are two ends).
With c cells the largest flows are about n / c trips; they are twice their deviation where

.. math:: c = \frac{\sqrt n}{2 \varphi}

Source: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation" (2017), for the
variances and for where generalized randomized response has the smaller one.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, Literal, cast

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

_DEEPEST: Final = 6  # 4,096 cells


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
        A randomizer of the local trust model; ``"grr"`` on few cells and ``"hr"`` on many by default.
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
            "trust must be central, distributed or operators for flows over windows, got local"
        )
    check(
        trust == "central" or window_error is None,
        "window_error (--window-error)",
        "left out without a curator",
        window_error,
    )
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
        summing = flow_blocks(
            budget,
            trust,
            {**(options or {}), **over_time},
            most=most,
            least=least,
            accept_large_epsilon=accept_large_epsilon,
        )
        summed = summing.release(
            trips.as_points() if windows is None else _numbered(trips, summing, window_error),
            tiling if isinstance(tiling, Tiling) else _parsed(tiling, region, trips),
            people=trips.points,
            account=account,
            rng=rng,
            progress=progress,
            secure_sum=transport,
            dropout=dropout or 0.0,
        )
        made_by = Provenance.of("flows", trips.points, secure_sum=secure_sum, dropout=dropout)
        notes = () if windows is None else windows.clock_notes
        return replace(summed, provenance=made_by, notes=(*summed.notes, *notes))

    ends = "joint" if estimator is None or estimator == "mixed" or estimator == "pair" else estimator

    def mechanism_of(name: str) -> OriginDestination:
        given = dict(options or {}) if method else {"estimator": "multiscale", **(options or {})}
        randomizer = cast("LocalMechanism", find_method(name, "local").make(budget, given))
        randomizer = replace(randomizer, accept_large_epsilon=accept_large_epsilon)
        return OriginDestination(mechanism=randomizer, estimator=ends, unit=unit, most=most, least=least)

    mechanism = mechanism_of(method or "grr")
    cells = _cells(tiling, region, mechanism, trips)
    check_tiling(cells)
    size = Domain(cells).size
    of_users = unit == "user" and candidates is None
    if estimator is None and method is None and of_users and size <= MOST_CELLS:
        estimator = "mixed"
    if estimator in ("mixed", "pair"):
        if not of_users:
            raise ParameterError(f"estimator {estimator} is for unit user, without candidates")
        pair, end = (
            mechanism_of(method or best_randomizer(number, 2 * budget)).mechanism
            for number in (size**2, size)
        )
        share = 1.0 if estimator == "pair" else None
        reporting = TripReports(mechanism=pair, ends=end, share=share, most=most, least=least)
        found = reporting.release(trips, cells, account=account, rng=rng, progress=progress)
        made_by = Provenance.of("flows", trips.points)
        return replace(found, guarantee=_counted(found.guarantee, tiling), provenance=made_by)
    if method is None:
        mechanism = mechanism_of(best_randomizer(size, budget))
    made = mechanism.release(trips, cells, candidates=candidates, account=account, rng=rng, progress=progress)
    made_by = Provenance.of("flows", trips.points, candidates=candidates is not None)
    return replace(made, guarantee=_counted(made.guarantee, tiling), provenance=made_by)


def _numbered(trips: Trips, summing: FlowBlocks, window_error: float | None) -> Points:
    """The trips with their windows; refused where times are missing, or the sums of a window too far off."""
    assert isinstance(summing, FlowSeries)
    if window_error is not None:
        check_error(summing.window_budget, summing.contribution, window_error, fix="raise epsilon")
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
    tiling: Tiling | str | None, region: Region | None, mechanism: OriginDestination, trips: Trips
) -> Tiling:
    """The cells as given, or a quadtree chosen by the number of reports, which the server sees anyway."""
    if tiling is not None and not isinstance(tiling, str):
        return tiling
    if tiling is not None:
        return _parsed(tiling, region, trips)
    if region is None:
        raise _no_region(trips)
    coarse = Quadtree(region, depth=1)
    outside, one_each = mechanism.mechanism.outside, mechanism.unit == "user"
    try:
        origins, _ = cells_of_trips(trips, Domain(coarse), outside, Randomness(0), one_each=one_each)
    except InputError:  # an end outside is refused: the release says so, after it has checked the budget
        return coarse
    return Quadtree(region, depth=best_depth(max(origins.size, 1), mechanism.mechanism.budget))


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


def best_depth(trips: int, epsilon: Fraction) -> int:
    """Depth of the quadtree whose number of cells is nearest the module's c, from 1 to 6. Run by: the server.

    Parameters
    ----------
    trips : int
        n, which the server counts.
    epsilon : Fraction
        Of a pair of reports.

    Raises
    ------
    ParameterError
        There is no trip, or epsilon is not above 0.

    Examples
    --------
    >>> [best_depth(trips, Fraction(3)) for trips in (1_000, 30_000, 1_000_000)]
    [2, 3, 4]
    """
    if trips < 1 or epsilon <= 0:
        raise ParameterError(f"{trips} trips and epsilon {epsilon}; expected at least one, and above 0")
    half = min(float(epsilon) / 2, 350.0)
    # Logarithms to the base 4 of sqrt(n) / (2 phi), kept apart: phi overflows for tiny epsilons.
    log_phi = math.log(4) + half - 2 * math.log(math.expm1(half))
    cells = (math.log(trips) / 2 - math.log(2) - log_phi) / math.log(4)
    return min(max(round(cells), 1), _DEEPEST)


def best_randomizer(sites: int, epsilon: Fraction) -> str:
    r"""``"grr"`` where its variance is the smaller one, :math:`d < 3 e^{\epsilon / 2} + 2`; else ``"hr"``.

    Parameters
    ----------
    sites : int
        d.
    epsilon : Fraction
        Of a pair of reports.

    Examples
    --------
    >>> best_randomizer(4, Fraction(3)), best_randomizer(256, Fraction(3))
    ('grr', 'hr')
    """
    return "grr" if sites < 3 * math.exp(min(float(epsilon) / 2, 350.0)) + 2 else "hr"
