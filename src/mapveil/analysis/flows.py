"""Release flows between cells: one function for every randomizer, estimator and unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from mapveil.analysis.flow_choice import best_depth, best_randomizer
from mapveil.analysis.origin_destination import FlowEstimator, FlowUnit, OriginDestination
from mapveil.analysis.pair_channel import MOST_SITES
from mapveil.analysis.trip_cells import cells_of_trips
from mapveil.analysis.trips import Trips
from mapveil.geo.parse_tiling import parse_tiling
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.local.local_mechanism import LocalMechanism
from mapveil.maps.flow_map import FlowMap
from mapveil.mechanisms.mechanism import Progress, check_tiling
from mapveil.mechanisms.methods import find_method
from mapveil.privacy.accounting import Accounting
from mapveil.privacy.ledger import Ledger
from mapveil_client.arrays import IntArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import InputError, ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness, as_randomness


def flows(
    trips: Trips,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    estimator: FlowEstimator = "joint",
    unit: FlowUnit = "user",
    region: Region | None = None,
    candidates: tuple[IntArray, IntArray] | None = None,
    most: int = 5000,
    least: float = 0.0,
    account: Ledger | Accounting | None = None,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> FlowMap:
    """Release flows between the cells of a map: a client randomizes both ends of a trip.

    Simulated: this process reads the trips and plays every client. For parameters of the estimator beyond these see
    :class:`~mapveil.analysis.origin_destination.OriginDestination`.

    Parameters
    ----------
    trips : Trips
        See :func:`mapveil.analysis.trips.read_trips`.
    tiling : Tiling or str, optional
        The cells, at most 4,096 that can hold anybody, or their specification in ``region``. By default a quadtree
        of ``region`` as fine as the number of trips and epsilon allow.
    epsilon : int, float, str, Decimal or Fraction
        The whole budget of a trip, above 0: half for each end.
    method : str, optional
        A randomizer of the local trust model; ``"grr"`` on few cells and ``"hr"`` on many by default.
    options : mapping, optional
        Parameters of the randomizer.
    estimator, unit, most, least
        See :class:`~mapveil.analysis.origin_destination.OriginDestination`.
    region : Region, optional
        The region, where ``tiling`` is not a tiling.
    candidates : pair of arrays of int, optional
        Origin and destination cells of the pairs that are possible, public.
    account : Ledger or Accounting, optional
        The ledger that is charged. A guarantee about one trip (``unit="trip"``) is none about a user and is never
        charged.
    rng : Randomness or int, optional
        Leave it out for a release; an integer seeds the run and marks the flows.
    progress : callable, optional
        Told the name and the finished fraction of each step.

    Raises
    ------
    InputError
        The trips, the tiling or a parameter cannot be used.
    BudgetExceeded
        The account does not allow the epsilon.
    """
    budget = as_epsilon(epsilon)

    def mechanism_of(name: str) -> OriginDestination:
        given = dict(options or {}) if method else {"estimator": "multiscale", **(options or {})}
        randomizer = cast("LocalMechanism", find_method(name, "local").make(budget, given))
        return OriginDestination(mechanism=randomizer, estimator=estimator, unit=unit, most=most, least=least)

    mechanism = mechanism_of(method or "grr")
    cells = _cells(tiling, region, mechanism, trips)
    check_tiling(cells)
    if method is None:
        mechanism = mechanism_of(best_randomizer(Domain(cells).size, budget))
    charges = Accounting.of(account if unit == "user" else None)

    def charge() -> None:
        charges.open(
            trips.points,
            method=mechanism.method,
            parameters=mechanism.parameters(),
            tiling=cells.spec,
            region=str(cells.region),
        )
        charges.spend(budget)

    made = mechanism.release(
        trips,
        cells,
        candidates=candidates,
        rng=as_randomness(rng),
        progress=progress,
        before_reveal=charge,
    )
    return replace(made, guarantee=replace(made.guarantee, account=charges.reference))


def _cells(
    tiling: Tiling | str | None, region: Region | None, mechanism: OriginDestination, trips: Trips
) -> Tiling:
    """The cells as given, or a quadtree chosen by the number of reports, which the server sees anyway."""
    if tiling is not None and not isinstance(tiling, str):
        return tiling
    if region is None:
        raise InputError(f"{trips.source}: a table of trips needs a region or a tiling")
    if tiling is not None:
        cells = parse_tiling(tiling, region)
        if cells.size > 4 * MOST_SITES:
            raise ParameterError(
                f"tiling {tiling} must have at most {MOST_SITES} cells that can hold anybody, got {cells.size} cells"
            )
        return cells
    coarse = Domain(Quadtree(region, depth=1))
    outside, one_each = mechanism.mechanism.outside, mechanism.unit == "user"
    origins, _ = cells_of_trips(trips, coarse, outside, Randomness(0), one_each=one_each)
    return Quadtree(region, depth=best_depth(origins.size, mechanism.mechanism.budget))
