"""Release a density map: one function for every mechanism and trust model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from mapveil.geo.counts import Counts
from mapveil.geo.parse_tiling import DEFAULT_TILING, column_of_places, tiling_for
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.provenance import Provenance
from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism, charged_to, check_tiling, held_for
from mapveil.mechanisms.methods import METHODS, find_method
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Assumes
from mapveil.privacy.sampling import RELEASE, sampling_delta
from mapveil.trust.queries import Execution, Progress
from mapveil_client.epsilon import EpsilonLike, as_epsilon, split_epsilon
from mapveil_client.errors import ParameterError, check
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum

REGION_SHARE: Final = Fraction(1, 10)
"""Fraction of epsilon that finds the region where none is given: of 10,000 users at epsilon 1 a tenth keeps 86 % of the
rows, a twentieth 52 %, a fifth 95 % (docs/reference/mechanism-constants.md)."""

_SMALL_BOX: Final = (45.366, -0.0204, 45.368, -0.0184)
"""About 200 m around the centre of an H3 cell of resolution 0: every resolution has a cell there, and not too many."""

SecureSumName = Literal["ideal", "protocol", "active"]
SECURE_SUMS: Final[tuple[str, ...]] = get_args(SecureSumName)


def release(
    points: Points | Counts,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike | None = None,
    method: str | AnyMechanism | None = None,
    trust: str = "central",
    options: Mapping[str, Any] | None = None,
    region: Region | None = None,
    places_are_public: bool = False,
    accept_large_epsilon: bool = False,
    secure_sum: SecureSumName | None = None,
    dropout: float | None = None,
    account: Account | None = OWN,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> DensityMap:
    """Release a private map of where the users are.

    The account is charged before any noisy sum is known: by a curator the whole epsilon at the first sum (what finds
    the region and the rest apart), under the other trust models each share before the sums it pays for. What can be
    refused from the input and the parameters of the first sum is refused before that. The trust models other than
    ``"central"`` are simulated: this process reads the table and plays every client.

    Parameters
    ----------
    points : Points or Counts
        A table of visits, where all rows of a user count 1 together, or a raster of counts with each unit one user.
    tiling : Tiling or str, optional
        The cells, or their specification in ``region`` such as ``"h3:8"``; ``"quadtree:8"`` by default. Counts bring
        their own.
    epsilon : int, float, str, Decimal or Fraction, optional
        The whole privacy budget of the map, above 0; needed by a method that has a budget and is named.
    method : str or mechanism, optional
        A name from the table of methods, or a mechanism with its parameters and epsilon; the default method of the
        trust model if left out.
    trust : str
        The party that may see raw locations: ``"central"`` (the curator), ``"distributed"`` (nobody; a server sums
        reports securely), ``"local"`` or ``"random-features"`` (nobody; clients report randomized or projected
        locations). A mechanism brings its own.
    options : mapping, optional
        Parameters of a named method.
    region : Region, optional
        The region of a ``tiling`` that is a specification. Where it is left out a tenth of epsilon finds one, under
        the trust models that can.
    places_are_public : bool
        States that the list of places of ``tiling="places:COLUMN"`` is public; an assumption of the guarantee.
    accept_large_epsilon : bool
        Whether epsilon may be above 20, or delta above 1/100.
    secure_sum : str, optional
        For ``"distributed"``: ``"ideal"`` (the default) adds in the clear; ``"protocol"`` runs secure aggregation
        against an honest-but-curious server, ``"active"`` against a malicious one.
    dropout : float, optional
        For ``"distributed"``: fraction of the clients that drop out, in [0, 1).
    account : Account, optional
        The budget that is charged: the user's own ledger by default, which recognises the people of the data. None: not
        accounted, so that nothing adds this release to others of the same users, and the guarantee says so.
    rng : Randomness or int, optional
        Leave it out for a release; an integer seeds the run, which marks the map and charges nothing.
    progress : callable, optional
        Called with the name and the finished fraction of each step.

    Returns
    -------
    DensityMap
        Estimated users per cell, with the guarantee.

    Raises
    ------
    InputError
        The data, the tiling or a parameter cannot be used.
    BudgetExceeded
        The account does not allow the epsilon.
    PromiseError
        The guarantee cannot be kept, such as when too many clients drop out; nothing is released.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=500, seed=1)
    >>> heat = mv.release(city, mv.Quadtree(city.region, depth=4), epsilon=1)
    >>> heat.method, heat.guarantee.epsilon
    ('multiscale', Fraction(1, 1))
    """
    _check_kinds(points, tiling)
    mechanism, trust = _mechanism(method, trust, epsilon, options)
    if accept_large_epsilon and isinstance(mechanism, Mechanism):
        mechanism = replace(mechanism, accept_large_epsilon=True)
    if trust != "distributed":
        for name, value in (("secure_sum", secure_sum), ("dropout", dropout)):
            if value is not None:
                raise ParameterError(f"{name} is for trust distributed only, got trust {trust}")
    check(secure_sum is None or secure_sum in SECURE_SUMS, "secure_sum", " or ".join(SECURE_SUMS), secure_sum)
    check(dropout is None or 0 <= dropout < 1, "dropout", "in [0, 1)", dropout)
    spec = tiling if isinstance(tiling, str) else None
    cells: Tiling | None = None
    if region is not None or isinstance(points, Counts) or (tiling is not None and spec is None):
        cells = tiling_for(points, tiling, region, places_are_public=places_are_public)
        check_tiling(cells)
    elif trust not in ("central", "distributed"):
        raise ParameterError(
            f"region (--region) is required under trust {trust}: clients report about its cells, and nobody sees "
            "the locations that it could be found from"
        )
    tell = progress or (lambda step, done: None)
    how: dict[str, Any] = {"rng": as_randomness(rng), "progress": tell}
    if trust == "distributed":
        how |= {"secure_sum": _transport(secure_sum or "ideal"), "dropout": dropout or 0.0}
    if cells is None:
        table, planned = cast("Points", points), cast("SumMechanism", mechanism)
        _check_specification(table, spec, planned, places_are_public)
        made = _with_region(table, spec, planned, account, how)
    else:
        made = mechanism.release(points, cells, account=account, **how)
    provenance = Provenance.of("release", points, secure_sum=secure_sum, dropout=dropout)
    assumptions = (Assumes.PLACES_PUBLIC(),) if column_of_places(spec) else ()
    guarantee = replace(made.guarantee, assumptions=(*made.guarantee.assumptions, *assumptions))
    return replace(made, guarantee=guarantee, provenance=provenance)


def _check_kinds(points: object, tiling: object) -> None:
    """Refuse a path in the place of the data, and a region in the place of the tiling."""
    if isinstance(points, str | os.PathLike):
        path = os.fspath(points)
        raise ParameterError(
            f"points must be Points or Counts, got a path; read it: mv.read_points({path!r})"
        )
    if isinstance(tiling, Region):
        raise ParameterError(
            'tiling must be a Tiling, or a specification such as "quadtree:8" with region=..., got a Region'
        )


def _mechanism(
    method: str | AnyMechanism | None,
    trust: str,
    epsilon: EpsilonLike | None,
    options: Mapping[str, Any] | None,
) -> tuple[AnyMechanism, str]:
    """The mechanism, and the trust model it runs under."""
    if not isinstance(method, AnyMechanism):
        return find_method(method, trust).make(
            None if epsilon is None else as_epsilon(epsilon), options
        ), trust
    if epsilon is not None or options:
        raise ParameterError(f"{method.name} is a mechanism with parameters; leave out epsilon and options")
    if isinstance(method, SumMechanism):
        return method, method.trust.name
    path = f"{type(method).__module__}:{type(method).__qualname__}"
    return method, next((row.trust for row in METHODS if row.mechanism.path == path), trust)


def _transport(name: SecureSumName) -> SecureSum:
    from mapveil.secure_sum.drivers import IdealSum
    from mapveil.secure_sum.protocol_sum import ProtocolSum

    return IdealSum() if name == "ideal" else ProtocolSum(os.cpu_count() or 1, active=name == "active")


def _check_specification(
    table: Points, spec: str | None, mechanism: SumMechanism, places_are_public: bool
) -> None:
    """Refuse a specification that cannot be read in any region, before a region is searched for."""
    from mapveil.mechanisms.private_region import WORLD

    if (spec or DEFAULT_TILING).startswith("places:"):
        tiling_for(table, spec, Region.from_bbox(*WORLD), places_are_public=places_are_public)
        return
    cells = tiling_for(table, spec, Region.from_bbox(*_SMALL_BOX))
    check_tiling(cells)
    mechanism.check_cells(cells)
    replace(mechanism, epsilon=split_region(mechanism.budget)[1]).rehearse(cells)


def _with_region(
    table: Points, spec: str | None, mechanism: SumMechanism, account: Account | None, how: dict[str, Any]
) -> DensityMap:
    """Find the region with a tenth of the budget, and release with the rest; each is charged when it is needed."""
    from mapveil.mechanisms.private_region import NoRegion, find_region

    part, rest = split_region(mechanism.budget)
    tiling = spec or DEFAULT_TILING
    with held_for(table, tiling, account) as held:
        delta = sampling_delta(mechanism.budget, 2 * RELEASE)
        charges = mechanism.charges(account, held, tiling, delta=delta, seeded=how["rng"].seeded)
        search, measure = (mechanism.before_reveal(charges, each) for each in (part, rest))
        with charges:
            execution = Execution(before_reveal=search, keep=charges.keep, **how)
            try:
                found = find_region(held, mechanism.trust, part, execution)
            except NoRegion as error:
                charges.answered(error)
                raise
            cells = tiling_for(table, spec, found.region, places_are_public=True)  # or refused before
            execution = execution._replace(before_reveal=measure)
            made = replace(mechanism, epsilon=rest).execute(held, cells, execution)
    guarantee = replace(
        made.guarantee,
        epsilon=part + rest,
        delta=sampling_delta(part + rest, 2 * RELEASE),
        shares=(*found.shares, *made.guarantee.shares),
    )
    if sum(share.epsilon for share in guarantee.shares) > mechanism.budget:
        raise AssertionError("the shares of epsilon exceed the budget")
    made = replace(
        made,
        rounds=(*found.rounds, *made.rounds),
        guarantee=guarantee,
        notes=(*made.notes, "the region was found privately"),
    )
    return charged_to(made, charges)


def split_region(budget: Fraction) -> tuple[Fraction, Fraction]:
    """The fraction of a budget that finds the region, and the rest."""
    part, rest = split_epsilon(budget, [float(REGION_SHARE), float(1 - REGION_SHARE)])
    return part, rest
