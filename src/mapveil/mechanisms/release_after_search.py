"""Releases that learn under noise, before they choose cells, what is not public: the region and the number of users."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from mapveil.engines import UNIT
from mapveil.geo.parse_tiling import DEFAULT_TILING, tiling_for
from mapveil.geo.quadtree import Quadtree
from mapveil.geo.region import Region
from mapveil.inference.zone_overlay import everybody
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.default_tiling import DefaultTiling, declared_tiling, default_tiling
from mapveil.mechanisms.mechanism import AnyMechanism, charged_to, check_tiling, held_for
from mapveil.mechanisms.sum_mechanism import SumMechanism
from mapveil.mechanisms.uniform_grid import GridMechanism
from mapveil.privacy.claim import Share
from mapveil.privacy.sampling import RELEASE, sampling_delta
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Execution, Keep, Raster, Setting, run
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import CuratorWarning

if TYPE_CHECKING:
    from mapveil.geo.points import Points
    from mapveil.privacy.account import Account

T = TypeVar("T")

REGION_SHARE: Final = Fraction(1, 10)
"""Fraction of epsilon that finds the region where none is given: of 10,000 users at epsilon 1 a tenth keeps 86 % of the
rows, a twentieth 52 %, a fifth 95 % (docs/reference/mechanism-constants.md)."""

_SMALL_BOX: Final = (45.366, -0.0204, 45.368, -0.0184)
"""About 200 m around the centre of an H3 cell of resolution 0: every resolution has a cell there, and not too many."""

_CHOSEN: Final = "quadtree"
"""Specification of cells whose depth is not chosen yet, for the account and the outputs."""

_DEPTH: Final = 8  # of the raster whose sites are added up to the number of users


@dataclass(frozen=True)
class _BoughtBefore:
    """Replies that the choice of cells bought, each to be given to the plan once."""

    keep: Keep
    replies: dict[str, Any] = field(default_factory=dict)

    def buy(self, purpose: str, kind: type[T], draw: Callable[[], T], /) -> T:
        """A reply that the plan will ask for."""
        made = self.replies[purpose] = self.keep(purpose, kind, draw)
        return made

    def give(self, purpose: str, kind: type[T], draw: Callable[[], T], /) -> T:
        """The reply to a query of the plan."""
        if purpose in self.replies:
            return cast("T", self.replies.pop(purpose))
        return self.keep(purpose, kind, draw)


def split_region(budget: Fraction) -> tuple[Fraction, Fraction]:
    """The fraction of a budget that finds the region, and the rest."""
    part, rest = split_epsilon(budget, [float(REGION_SHARE), float(1 - REGION_SHARE)])
    return part, rest


def buys_users(mechanism: AnyMechanism) -> bool:
    """Whether a mechanism's plan begins by buying the number of users, which the default cells can follow from.

    A mechanism that checks a declared number buys one too.
    """
    if not isinstance(mechanism, GridMechanism) or mechanism.depth is not None:
        return False
    if not isinstance(mechanism.trust, Curator):
        return False
    nowhere = Setting(
        0, np.ones(1, dtype=np.int64), mechanism.trust.users, 1, Fraction(1), UNIT, curator=True
    )
    return next(mechanism.number_of_users(nowhere), None) is not None


def after_search(
    points: Points,
    spec: str | None,
    region: Region | None,
    mechanism: AnyMechanism,
    account: Account | None,
    how: dict[str, Any],
    places_are_public: bool,
) -> DensityMap:
    """Learn what is not known under noise, and release with the rest; each part is charged when it is needed.

    The number of users costs nothing that the plan does not spend anyway: its first query is answered before the cells
    are chosen, and the plan on the cells is given the same reply.

    Parameters
    ----------
    points : Points
        The table.
    spec : str, optional
        The cells; without it those of :func:`~mapveil.mechanisms.default_tiling.default_tiling`.
    region : Region, optional
        The region; without it a tenth of the budget finds one.
    mechanism : mechanism
        A mechanism of noisy sums, with the whole budget.
    account, how, places_are_public
        See :func:`mapveil.mechanisms.release.release`.
    """
    from mapveil.mechanisms.private_region import NoRegion, find_region

    planned, given = cast("SumMechanism", mechanism), region is not None
    part, rest = (Fraction(0), planned.budget) if given else split_region(planned.budget)
    on_rest = replace(planned, epsilon=rest)
    _check_specification(points, spec, region, on_rest, places_are_public)
    text, distance = spec or _CHOSEN, (1 if given else 2) * RELEASE
    shares: tuple[Share, ...] = ()
    rounds: tuple[RoundCost, ...] = ()
    with held_for(points, text, account) as held:
        delta = sampling_delta(planned.budget, distance)
        charges = planned.charges(account, held, text, delta=delta, seeded=how["rng"].seeded)
        search, measure = (planned.before_reveal(charges, each) for each in (part, rest))
        with charges:
            execution = Execution(before_reveal=search, keep=charges.keep, **how)
            if region is None:
                try:
                    found = find_region(held, planned.trust, part, execution)
                except NoRegion as error:
                    charges.answered(error)
                    raise
                region, shares, rounds = found.region, found.shares, found.rounds
            bought = _BoughtBefore(charges.keep)
            execution = execution._replace(before_reveal=measure, keep=bought.buy)
            chosen = _chosen(held, region, on_rest, execution) if spec is None else None
            cells = tiling_for(points, chosen.spec if chosen else spec, region, places_are_public=True)
            made = on_rest.execute(held, cells, execution._replace(keep=bought.give))
            if bought.replies:
                raise AssertionError("the plan did not ask for what was bought for it")
    guarantee = replace(
        made.guarantee,
        epsilon=part + rest,
        delta=sampling_delta(part + rest, distance),
        shares=(*shares, *made.guarantee.shares),
    )
    if sum(share.epsilon for share in guarantee.shares) > planned.budget:
        raise AssertionError("the shares of epsilon exceed the budget")
    notes = () if given else ("the region was found privately",)
    if chosen is not None:
        notes = (*notes, *((_users_note(made),) if buys_users(on_rest) else ()), chosen.reason)
    made = replace(made, rounds=(*rounds, *made.rounds), guarantee=guarantee, notes=(*made.notes, *notes))
    return charged_to(made, charges)


def _chosen(points: Points, region: Region, mechanism: SumMechanism, execution: Execution) -> DefaultTiling:
    """The default cells; of a plan that buys the number of users, from the reply to its first query."""
    if not buys_users(mechanism):
        return default_tiling(mechanism, points, region)
    coarse = Quadtree(region, _DEPTH)
    with warnings.catch_warnings():  # the release itself warns of the same rows
        warnings.simplefilter("ignore", CuratorWarning)
        answerer = mechanism.trust.answerer(points, coarse, Raster.of(coarse.lattice()), execution)
    found = run(mechanism.number_of_users(answerer.setting), answerer.answer)
    assert found.noisy is not None
    assert isinstance(mechanism.trust, Curator)
    users, declared = max(1, round(found.users)), mechanism.trust.users
    if users == declared:
        return declared_tiling(users, mechanism.budget)
    value = float(found.noisy.values[0])
    width = found.noisy.measurement(np.zeros(1, dtype=np.int64)).half_width(INTERVAL_ALPHA)
    low, high = max(value - width, 0.0), max(value + width, float(users))
    counted = f"a first noisy count of {users:,} (95 % interval {low:,.0f} to {high:,.0f})"
    if declared is not None:
        counted += f", too far from the declared {declared:,},"
    return declared_tiling(users, mechanism.budget, counted)


def _users_note(heat: DensityMap) -> str:
    """A note on the users in the cells, by all noisy sums: the first count alone is rough."""
    total = everybody(heat)
    low, high = (max(each, 0.0) for each in total.interval())
    return (
        f"about {max(total.estimate, 0.0):,.0f} users are in the cells, {100 * (1 - INTERVAL_ALPHA):g} % interval "
        f"{low:,.0f} to {high:,.0f}, by all noisy sums together; as shown they add up to {heat.values.sum():,.0f}, "
        "since none is shown below 0"
    )


def _check_specification(
    table: Points, spec: str | None, region: Region | None, mechanism: SumMechanism, places_are_public: bool
) -> None:
    """Refuse cells that cannot be in any region, and a plan that would be refused, before anything is charged."""
    from mapveil.mechanisms.private_region import WORLD

    mechanism.check_source(table)
    if (spec or DEFAULT_TILING).startswith("places:"):
        tiling_for(table, spec, Region.from_bbox(*WORLD), places_are_public=places_are_public)
        return
    cells = tiling_for(table, spec, region or Region.from_bbox(*_SMALL_BOX))
    check_tiling(cells)
    mechanism.check_cells(cells)
    mechanism.rehearse(cells)
