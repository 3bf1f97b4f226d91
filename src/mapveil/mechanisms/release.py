"""Release a density map: one function for every mechanism and trust model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast, get_args

from mapveil.formats.read_prior import as_prior
from mapveil.geo.counts import Counts
from mapveil.geo.parse_tiling import column_of_places, tiling_for
from mapveil.geo.points import Points
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.maps.prior import Prior
from mapveil.maps.provenance import Provenance
from mapveil.mechanisms.default_tiling import default_tiling
from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism, check_locations, check_tiling
from mapveil.mechanisms.methods import METHODS, Method, find_method
from mapveil.mechanisms.release_after_search import after_search, buys_users
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Assumes
from mapveil.trust.queries import Progress
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum

SecureSumName = Literal["ideal", "protocol", "active"]
Aim = Literal["totals"]
_SUMMED: Final = ("distributed", "operators")
_COARSE: Final = 6  # depth of the cells on which a prior is looked at where the map's are not chosen yet


class ReleaseChoices(TypedDict, total=False):
    """Arguments of :func:`release` that every kind of release takes."""

    aim: Aim | None
    prior: Prior | DensityMap | str | PathLike[str] | None
    places_are_public: bool
    secure_sum: SecureSumName | None
    dropout: float | None
    account: Account | None
    rng: Randomness | int | None
    progress: Progress | None


SECURE_SUMS: Final[tuple[str, ...]] = get_args(SecureSumName)


def release(
    points: Points | Counts,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike | None = None,
    method: str | AnyMechanism | None = None,
    trust: str = "central",
    options: Mapping[str, Any] | None = None,
    aim: Aim | None = None,
    prior: Prior | DensityMap | str | PathLike[str] | None = None,
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
        The cells, or their specification in ``region`` such as ``"h3:8"``; by default a quadtree whose depth follows
        from the number of users, epsilon and the trust model (:mod:`mapveil.mechanisms.default_tiling`); the notes say
        why. Counts bring their own.
    epsilon : int, float, str, Decimal or Fraction, optional
        The whole privacy budget of the map, above 0; needed by a method that has a budget and is named.
    method : str or mechanism, optional
        A name from the table of methods, or a mechanism with its parameters and epsilon; the default method of the
        trust model if left out.
    trust : str
        The party that may see raw locations: ``"central"`` (the curator), ``"distributed"`` (nobody; a server sums
        reports securely), ``"operators"`` (nobody; two operators sum secret shares), ``"local"`` or
        ``"random-features"`` (nobody; clients report randomized or projected locations). A mechanism brings its own.
    options : mapping, optional
        Parameters of a named method.
    aim : str, optional
        Use of a curator's map: ``"totals"`` of districts; a compromise by default. It changes what is measured, never
        the promise.
    prior : Prior, DensityMap or path, optional
        A public raster, which the caller states to be public, or an earlier release. The estimate leans on it as far as
        the noisy sums agree with it; budget, noise and guarantee are the same. Its name, licence and hash are recorded.
    region : Region, optional
        The region of a ``tiling`` that is a specification. Where it is left out a tenth of epsilon finds one, under
        the trust models that can.
    places_are_public : bool
        States that the list of places of ``tiling="places:COLUMN"`` is public; an assumption of the guarantee.
    accept_large_epsilon : bool
        Whether epsilon may be above 20, or delta above 1/100.
    secure_sum : str, optional
        For ``"distributed"`` and ``"operators"``: ``"ideal"`` (the default) adds in the clear; ``"protocol"`` runs
        secure aggregation against an honest-but-curious server, or all that clients and operators compute; for
        ``"distributed"`` ``"active"`` runs it against a malicious server.
    dropout : float, optional
        For ``"distributed"`` and ``"operators"``: fraction of the clients that drop out, in [0, 1).
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
    _check_kinds(points, tiling, region)
    mechanism, trust = _mechanism(method, trust, epsilon, options)
    if aim is not None:
        mechanism = _with(mechanism, aim=aim)
    if prior is not None:
        mechanism = _with(mechanism, prior=_public_prior(prior, points, region))
    if accept_large_epsilon and isinstance(mechanism, Mechanism):
        mechanism = replace(mechanism, accept_large_epsilon=True)
    transport = transport_for(trust, secure_sum, dropout)
    spec = tiling if isinstance(tiling, str) else None
    chosen = tiling is None and not isinstance(
        points, Counts
    )  # whether the cells are for this function to choose
    known = region is not None or not (chosen or spec)
    if not known and trust not in ("central", "distributed"):
        raise ParameterError(
            f"region (--region) is required under trust {trust}: clients report about its cells, and nobody sees "
            "the locations that it could be found from"
        )
    tell = progress or (lambda step, done: None)
    how: dict[str, Any] = {"rng": as_randomness(rng), "progress": tell}
    if trust in _SUMMED:
        how |= {"secure_sum": transport, "dropout": dropout or 0.0}
    if not known or (chosen and buys_users(mechanism)):
        made = after_search(cast("Points", points), spec, region, mechanism, account, how, places_are_public)
    else:
        cells = default_tiling(mechanism, points, region) if chosen and region is not None else None
        found = tiling_for(
            points, cells.spec if cells else tiling, region, places_are_public=places_are_public
        )
        check_tiling(found)
        made = mechanism.release(points, found, account=account, **how)
        made = replace(made, notes=(*made.notes, cells.reason)) if cells else made
    provenance = Provenance.of("release", points, secure_sum=secure_sum, dropout=dropout)
    stated = {
        Assumes.PLACES_PUBLIC: column_of_places(spec) is not None,
        Assumes.PRIOR_PUBLIC: getattr(mechanism, "prior", None) is not None,
    }
    assumptions = tuple(kind() for kind, holds in stated.items() if holds)
    guarantee = replace(made.guarantee, assumptions=(*made.guarantee.assumptions, *assumptions))
    return replace(made, guarantee=guarantee, provenance=provenance)


def _check_kinds(points: object, tiling: object, region: object) -> None:
    """Refuse a path or a frame in the place of the data, and a region in the place of the tiling."""
    if not isinstance(points, Points | Counts):
        kind, named = type(points).__name__, "..."
        if isinstance(points, str | os.PathLike):
            kind, named = "path", repr(os.fspath(points))
        hint = (
            "flows are made of trips: mv.flows(...)"
            if kind == "Trips"
            else f"read it: mv.read_points({named})"
        )
        raise ParameterError(f"points must be Points or Counts, got a {kind}; {hint}")
    check_locations(points)
    if isinstance(tiling, Region):
        raise ParameterError(
            'tiling must be a Tiling, or a specification such as "quadtree:8" with region=..., got a Region'
        )
    wanted = "a Region, such as Region.from_bbox(west, south, east, north)"
    check(region is None or isinstance(region, Region), "region", wanted, region)


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


def _with(mechanism: AnyMechanism, **given: Any) -> AnyMechanism:
    """The mechanism with a further parameter, where it has one of that name."""
    ((name, value),) = given.items()
    if name in (each.name for each in fields(mechanism)):
        return replace(mechanism, **given)
    known = [each for each in METHODS if name in each.options() and _takes(each, {name: value})]
    names = ", ".join(f"{each.name} under trust {each.trust}" for each in known)
    raise ParameterError(f"{mechanism.name} takes no {name}; the methods that do: {names}")


def _takes(method: Method, options: dict[str, Any]) -> bool:
    try:
        method.make(1, options)
    except (ParameterError, InputError):
        return False
    return True


def _public_prior(
    given: Prior | DensityMap | str | PathLike[str], points: Points | Counts, region: Region | None
) -> Prior:
    """The prior; refused where it is the table itself, or covers nothing of the region."""
    prior = as_prior(given)
    if isinstance(points, Counts) and prior.is_file(points.source):
        raise ParameterError(f"prior {prior.name} must be public, got the file of the people themselves")
    if region is not None:
        prior.check_covers(Quadtree(region, _COARSE))
    return prior


def transport_for(trust: str, secure_sum: SecureSumName | None, dropout: float | None) -> SecureSum | None:
    """The transport of secure sums under a trust model, checked; None where nothing is summed securely.

    Raises
    ------
    ParameterError
        The transport or the dropout is for another trust model, or there is none of this name.
    """
    if trust not in _SUMMED:
        for name, value in (("secure_sum", secure_sum), ("dropout", dropout)):
            if value is not None:
                raise ParameterError(f"{name} is for trust {' or '.join(_SUMMED)} only, got trust {trust}")
        return None
    if trust == "operators" and secure_sum == "active":
        raise ParameterError(
            "secure_sum must be ideal or protocol under trust operators, which need no 'active'"
        )
    check(secure_sum is None or secure_sum in SECURE_SUMS, "secure_sum", " or ".join(SECURE_SUMS), secure_sum)
    check(dropout is None or 0 <= dropout < 1, "dropout", "in [0, 1)", dropout)
    from mapveil.secure_sum.drivers import IdealSum
    from mapveil.secure_sum.protocol_sum import ProtocolSum

    name = secure_sum or "ideal"
    return IdealSum() if name == "ideal" else ProtocolSum(os.cpu_count() or 1, active=name == "active")
