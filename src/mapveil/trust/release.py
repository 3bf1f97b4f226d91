"""Release a density map: one function for every mechanism and trust model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from mapveil.geo.counts import Counts
from mapveil.geo.parse_tiling import DEFAULT_TILING, tiling_for
from mapveil.geo.points import Points
from mapveil.geo.region import Region
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.mechanism import AnyMechanism, Mechanism, Progress, check_tiling
from mapveil.mechanisms.methods import METHODS, find_method
from mapveil.mechanisms.plan import Execution
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.privacy.accounting import Accounting
from mapveil.privacy.claim import Share
from mapveil.privacy.ledger import Ledger
from mapveil.privacy.sampling import RELEASE, sampling_delta
from mapveil_client.epsilon import EpsilonLike, as_epsilon, split_epsilon
from mapveil_client.errors import ParameterError
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.local.local_mechanism import LocalMechanism

REGION_SHARE: Final = Fraction(1, 10)
"""Fraction of epsilon that finds the region where none is given."""

SecureSumName = Literal["ideal", "protocol", "active"]


class _Request(NamedTuple):
    """A release, checked before any data are read."""

    points: Points | Counts
    cells: Tiling | None  # None: the region is still to be found
    tiling: str | None  # the specification of the cells in that region
    mechanism: AnyMechanism
    account: Accounting
    open_account: Callable[[], None]
    secure_sum: SecureSumName
    dropout: float
    rng: Randomness
    progress: Progress

    @property
    def budget(self) -> Fraction:
        """The whole epsilon of the release."""
        return cast("Mechanism", self.mechanism).budget

    def with_epsilon(self, epsilon: Fraction) -> Any:
        """The mechanism, with a fraction of the budget."""
        return replace(cast("Mechanism", self.mechanism), epsilon=epsilon)

    def cells_in(self, region: Region) -> Tiling:
        """The cells of a region that was found."""
        return tiling_for(self.points, self.tiling, region)


def release(
    points: Points | Counts,
    tiling: Tiling | str | None = None,
    *,
    epsilon: EpsilonLike | None = None,
    method: str | AnyMechanism | None = None,
    trust: str = "central",
    options: Mapping[str, Any] | None = None,
    region: Region | None = None,
    secure_sum: SecureSumName | None = None,
    dropout: float | None = None,
    account: Ledger | Accounting | None = None,
    rng: Randomness | int | None = None,
    progress: Progress | None = None,
) -> DensityMap:
    """Release a private map of where the users are.

    Everything that can fail on account of the input fails before the account is charged, and the account is charged
    before any noisy sum is known. The trust models other than ``"central"`` are simulated: this process reads the
    table and plays every client.

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
        Who may see raw locations: ``"central"`` (the curator), ``"distributed"`` (nobody; a server sums reports
        securely), ``"local"`` or ``"random-features"`` (nobody; clients report randomized or projected locations).
        A mechanism brings its own.
    options : mapping, optional
        Parameters of a named method.
    region : Region, optional
        The region of a ``tiling`` that is a specification. Where it is left out a tenth of epsilon finds one, under
        the trust models that can.
    secure_sum : str, optional
        For ``"distributed"``: ``"ideal"`` (the default) adds in the clear; ``"protocol"`` runs secure aggregation
        against an honest-but-curious server, ``"active"`` against a malicious one.
    dropout : float, optional
        For ``"distributed"``: fraction of the clients that drop out, in [0, 1).
    account : Ledger or Accounting, optional
        The ledger that the release is charged to. Without one nothing adds this release to others of the same
        users.
    rng : Randomness or int, optional
        Leave it out for a release; an integer seeds the run and marks the map.
    progress : callable, optional
        Told the name and the finished fraction of each step.

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
    mechanism, trust = _mechanism(method, trust, epsilon, options)
    if trust != "distributed":
        for name, value in (("secure_sum", secure_sum), ("dropout", dropout)):
            if value is not None:
                raise ParameterError(f"{name} is for trust distributed only, got trust {trust}")
    if dropout is not None and not 0 <= dropout < 1:
        raise ParameterError(f"dropout must be in [0, 1), got {dropout!r}")
    spec = tiling if isinstance(tiling, str) else None
    cells: Tiling | None = None
    if region is not None or isinstance(points, Counts) or (tiling is not None and spec is None):
        cells = tiling_for(points, tiling, region)
        check_tiling(cells)
    elif trust not in ("central", "distributed"):
        raise ParameterError(
            f"region (--region) is required under trust {trust}: clients report about its cells, and nobody sees "
            "the locations that it could be found from"
        )
    stream, charges, tell = as_randomness(rng), Accounting.of(account), progress or (lambda step, done: None)

    def open_account() -> None:
        tell("open the ledger", 0.0)
        charges.open(
            points,
            method=mechanism.name,
            parameters=mechanism.parameters(),
            tiling=spec or (cells.spec if cells is not None else DEFAULT_TILING),
            region="" if cells is None or isinstance(points, Counts) else str(cells.region),
        )
        tell("open the ledger", 1.0)

    request = _Request(
        points,
        cells,
        spec,
        mechanism,
        charges,
        open_account,
        secure_sum or "ideal",
        dropout or 0.0,
        stream,
        tell,
    )
    made = _WAYS[trust](request)
    return replace(made, guarantee=replace(made.guarantee, account=charges.reference))


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


def _by_curator(request: _Request) -> DensityMap:
    """Exact sums, then the charge, then noise."""
    points, cells, rng, tell = request.points, request.cells, request.rng, request.progress
    if cells is not None:
        from mapveil.engines import user_sums

        ready = points if isinstance(points, Counts) else user_sums(points, cells, progress=tell)
        request.open_account()
        request.account.spend(request.budget)
        return request.mechanism.release(ready, rng=rng, progress=tell)
    table = cast("Points", points)
    tell("check the table", 0.0)
    table.check()
    tell("check the table", 1.0)
    request.open_account()
    request.account.spend(request.budget)
    return _with_region(request, table, {"rng": rng, "progress": tell})


def _with_region(request: _Request, table: Points, how: dict[str, Any]) -> DensityMap:
    """Find the region with a tenth of the budget, and release with the rest."""
    from mapveil.mechanisms.private_region import find_region

    part, rest = split_region(request.budget)
    mechanism = request.with_epsilon(rest)
    found = find_region(table, mechanism.trust, part, Execution(**how))
    made: DensityMap = mechanism.release(table, request.cells_in(found.region), **how)
    made = replace(made, rounds=(*found.rounds, *made.rounds))
    guarantee = replace(
        made.guarantee,
        epsilon=part + rest,
        delta=sampling_delta(part + rest, 2 * RELEASE),
        shares=(*found.shares, *made.guarantee.shares),
    )
    if sum(share.epsilon for share in guarantee.shares) > request.budget:
        raise AssertionError("the shares of epsilon exceed the budget")
    return replace(made, guarantee=guarantee, notes=(*made.notes, "the region was found privately"))


def _by_secure_sums(request: _Request) -> DensityMap:
    """Rounds of secure sums. Each is charged before the server can know it: an aborted round costs nothing."""
    from mapveil.secure_sum.drivers import IdealSum
    from mapveil.secure_sum.protocol_sum import ProtocolSum

    points, name = request.points, request.secure_sum
    if isinstance(points, Points):
        points.check()
    request.open_account()
    request.account.check(request.budget)

    def charge(share: Share) -> None:
        request.account.spend(share.epsilon, share.purpose)

    how: dict[str, Any] = {
        "rng": request.rng,
        "progress": request.progress,
        "secure_sum": IdealSum()
        if name == "ideal"
        else ProtocolSum(os.cpu_count() or 1, active=name == "active"),
        "dropout": request.dropout,
        "before_reveal": charge,
    }
    if request.cells is not None:
        return request.with_epsilon(request.budget).release(points, request.cells, **how)  # type: ignore[no-any-return]
    return _with_region(request, cast("Points", points), how)


def _by_local_reports(request: _Request) -> DensityMap:
    """One randomized report of each client, charged before any client reports."""
    if isinstance(request.points, Points):
        request.points.check()
    request.open_account()
    mechanism = cast("LocalMechanism", request.mechanism)
    return mechanism.release(
        request.points,
        request.cells,
        rng=request.rng,
        progress=request.progress,
        before_reveal=lambda share: request.account.spend(share.epsilon),
    )


def _by_random_features(request: _Request) -> DensityMap:
    """One projected report of each client; no epsilon is promised, so that nothing is charged."""
    if isinstance(request.points, Points):
        request.points.check()
    return request.mechanism.release(
        request.points, request.cells, rng=request.rng, progress=request.progress
    )


def split_region(budget: Fraction) -> tuple[Fraction, Fraction]:
    """The fraction of a budget that finds the region, and the rest."""
    part, rest = split_epsilon(budget, [float(REGION_SHARE), float(1 - REGION_SHARE)])
    return part, rest


_WAYS: Final[dict[str, Callable[[_Request], DensityMap]]] = {
    "central": _by_curator,
    "distributed": _by_secure_sums,
    "local": _by_local_reports,
    "random-features": _by_random_features,
}
