"""Membership inference and trajectory recovery against ways of publishing a table, or against one released map."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mapveil.attacks.membership import (
    Progress,
    Publishing,
    attack_groups,
    attack_map,
    common_people,
    read_contributions,
)
from mapveil.attacks.roc import RATES, Roc
from mapveil.attacks.trajectory_recovery import Recovery, attack_windows, people_in_windows
from mapveil.geo.parse_tiling import tiling_for
from mapveil.geo.points import Points
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.mechanism import Mechanism, check_tiling
from mapveil.mechanisms.methods import find_method
from mapveil.privacy.claim import TrustModel
from mapveil_client.epsilon import EpsilonLike
from mapveil_client.errors import InputError, ParameterError, check
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from mapveil.geo.region import Region
    from mapveil.geo.tiling import Tiling

_WINDOWS: Final = 14  # of a day each: two weeks
_TRACKS: Final = 1000  # people of whom trajectories are recovered: time grows with their number cubed
_ONE_MAP: Final = (
    "one map is one draw, whose figures may exceed the bound by chance; the bound holds only if a coin decided for "
    "each person whether they are in: where members and others differ otherwise, that tells them apart too"
)


@dataclass(frozen=True)
class MembershipReport:
    """Result of :func:`attack_membership`. Not private."""

    settings: dict[str, Any]  # JSON-ready
    memberships: tuple[Roc, ...]  # of each way of publishing
    recoveries: tuple[
        Recovery, ...
    ] = ()  # of positions linked at random, and of each way; empty without times
    notes: tuple[str, ...] = ()  # for a reader

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return {**dataclasses.asdict(self), "false_positive_rates": RATES, "private": False}


def attack_membership(
    source: Points | DensityMap,
    tiling: Tiling | str | None = None,
    *,
    region: Region | None = None,
    methods: Sequence[str | Mechanism] = ("laplace", "multiscale"),
    epsilons: Sequence[EpsilonLike] = (1,),
    suppress: int = 5,
    users: int = 500,
    groups: int = 64,
    windows: int | None = None,
    window_hours: float = 24.0,
    members: Points | None = None,
    others: Points | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> MembershipReport:
    """Attack maps of a table's people, and compare with the most that epsilon allows. NOT private.

    Formulas, sources and deviations: :mod:`mapveil.attacks.membership`, :mod:`mapveil.attacks.trajectory_recovery`.
    Run by: the curator.

    Parameters
    ----------
    source : Points or DensityMap
        A table, of whose people maps are published in each way; or one released map, with ``members`` and ``others``
        instead of the parameters up to ``window_hours`` (but ``users``).
    tiling, region
        As for :func:`mapveil.mechanisms.release.release`.
    methods : sequence of str or Mechanism
        A curator's methods, to compare with raw and suppressed counts: names, each with every one of ``epsilons``, or
        mechanisms with their own.
    epsilons : sequence of int, float, str, Decimal or Fraction
        Budgets of the named methods.
    suppress : int
        Cells with fewer people are left empty in the suppressed map.
    users : int
        Maximum number of people, drawn at random; a group has half of them. The fewer, the stronger the attack.
    groups : int
        Number of maps the adversary learns from, and of those it is judged on.
    windows : int, optional
        Number of windows of the trajectories; 14 where the table has times, none where they do not suffice.
    window_hours : float
        Length of a window, hours.
    members, others : Points, optional
        With a released map: people who are in it, and people who could have been but are not.
    seed : int
        The same seed gives the same report.
    progress : callable, optional
        Called with a step's name and its finished fraction.

    Raises
    ------
    InputError
        The source cannot be used, or too few people are in the region.

    Examples
    --------
    >>> import mapveil as mv
    >>> city = mv.synthetic.city(users=60, seed=1)
    >>> report = mv.attack_membership(city, "quadtree:6", region=city.region, methods=["laplace"], groups=16)
    >>> [row.published for row in report.memberships]
    ['people per cell', 'cells of 5 people or more', 'laplace, epsilon 1']
    """
    check(groups >= 8, "groups", "at least 8", groups)
    check(users >= 2, "users", "at least 2", users)
    rng, tell = Randomness(seed), progress or (lambda step, done: None)
    if isinstance(source, DensityMap):
        if tiling is not None or region is not None:
            raise ParameterError("a released map brings its own cells; leave out tiling and region")
        if members is None or others is None:
            raise InputError(
                "a released map needs members and others: tables of people who are in it, and not"
            )
        if both := common_people(members, others):
            raise InputError(
                f"members and others must be different people, got {both} user ids that are in both tables"
            )
        inside, outside = (
            read_contributions(each, source.tiling, users, rng.child(name).generator(), least=4)
            for name, each in (("members", members), ("others", others))
        )
        settings = {
            "map": source.method,
            "tiling": source.tiling.spec,
            "members": int(inside.shape[0]),
            "others": int(outside.shape[0]),
            "seed": seed,
        }
        return MembershipReport(settings, (attack_map(source, inside, outside, rng),), notes=(_ONE_MAP,))
    if members is not None or others is not None:
        raise ParameterError("members and others are for a released map; leave them out with a table")
    cells = tiling_for(source, tiling, region)
    check_tiling(cells)
    ways = _ways(methods, epsilons, suppress)
    shares = read_contributions(source, cells, users, rng.child("users").generator())
    found = tuple(
        attack_groups(shares, cells, way, groups, rng.child(f"attack {at}"), partial(tell, way.name))
        for at, way in enumerate(ways)
    )
    settings = {
        "source": source.source,
        "tiling": cells.spec,
        "region": str(cells.region),
        "users": int(shares.shape[0]),
        "groups": groups,
        "seed": seed,
    }
    report = MembershipReport(settings, found)
    if windows is None and source.expressions.time is None:
        return report
    number = _WINDOWS if windows is None else windows
    try:
        draw = rng.child("people").generator()
        truth = people_in_windows(source, cells, window_hours, number, min(users, _TRACKS), draw)
    except InputError as error:
        if windows is not None:
            raise
        return dataclasses.replace(report, notes=(f"no trajectories were attacked: {error}",))
    settings |= {"people in windows": len(truth), "windows": number, "window_hours": window_hours}
    recoveries = tuple(
        attack_windows(truth, cells, window_hours, way, rng.child(f"windows {at}"))
        for at, way in enumerate((None, *ways))
    )
    return dataclasses.replace(report, recoveries=recoveries)


def _ways(
    methods: Sequence[str | Mechanism], epsilons: Sequence[EpsilonLike], least: int
) -> tuple[Publishing, ...]:
    """Raw counts, counts of at least ``least`` people, and every mechanism at every epsilon."""
    check(least >= 2, "suppress", "at least 2 people", least)
    ways = [Publishing("people per cell"), Publishing(f"cells of {least} people or more", least=least)]
    for each in methods:
        for made in (
            [find_method(each).make(epsilon) for epsilon in epsilons] if isinstance(each, str) else [each]
        ):
            if not isinstance(made, Mechanism) or made.guarantee().model is not TrustModel.CURATOR:
                raise ParameterError(f"methods must be a curator's, got {made.name!r}")
            ways.append(Publishing(f"{made.name}, epsilon {float(made.budget):g}", made))
    return tuple(ways)
