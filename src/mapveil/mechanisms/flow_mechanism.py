"""Flows between zones from noisy sums of trips: what a release of them is, whatever the plan of the sums."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from mapveil.engines import UserSums
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import check_numbering
from mapveil.geo.zone_order import ZoneOrder, zone_order
from mapveil.maps.counting import counting_note
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.flow_sums import FlowSums
from mapveil.maps.measurement import Measurement
from mapveil.mechanisms.measured_nodes import MeasuredNodes
from mapveil.mechanisms.mechanism import charged_to, check_tiling, held_for
from mapveil.mechanisms.sum_mechanism import SMALL, rounds_note
from mapveil.mechanisms.uniform_grid import noise_deviation
from mapveil.privacy.account import OWN, Account, charges_of
from mapveil.privacy.claim import Assumes, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.curator import Curator
from mapveil.trust.queries import Execution, NoisySums, Progress, Query, Raster, Setting, run
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.arrays import FloatArray
from mapveil_client.epsilon import EpsilonLike, as_epsilon
from mapveil_client.errors import Checked, InputError, ParameterError
from mapveil_client.morton import interleave
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.secure_sum.drivers import SecureSum

MOST_ZONES: Final = 4096
"""Zones between which flows are estimated: the matrix of all pairs has 128 MiB."""

_LEAST_FLOW: Final = 1e-9  # trips


class Flows(NamedTuple):
    """The result of the plan, by places of the zones' order."""

    values: FloatArray  # estimated trips, shape (places, places): origins, destinations
    blocks: tuple[MeasuredNodes, ...]  # the coarsest first, nested
    margins: NoisySums | None  # trips to every place, then from every place
    notes: tuple[str, ...] = ()
    in_windows: Any = None  # replies about windows, of a series


FlowPlan = Generator[Query, NoisySums, Flows]


@dataclass(frozen=True, kw_only=True)
class FlowMechanism(Checked, ABC):
    """Release flows that noisy sums of every user's trips tell; the plan says which sums.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole privacy budget of a user, above 0.
    trust : Curator, SecureAggregation or TwoOperators
        The trust model that answers; a curator by default.
    longest : int
        Coordinates that a device sends for blocks and leaves over secure sums, at most.
    most : int
        How many of the largest flows to list; the others are counted as unlisted.
    least : float
        The smallest flow to list, trips.
    accept_large_epsilon : bool
        Whether epsilon may be above 20.
    """

    name: ClassVar[str]

    epsilon: EpsilonLike
    trust: Curator | SecureAggregation | TwoOperators = field(default_factory=Curator)
    longest: int = 1 << 16
    most: int = 5000
    least: float = 0.0
    accept_large_epsilon: bool = field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", as_epsilon(self.epsilon))
        super().__post_init__()
        self._check(self.longest >= 4, "longest", "a whole number of at least 4")
        self._check(self.most >= 1, "most", "a number of flows of at least 1")
        self._check(self.least >= 0, "least", "a number of trips of at least 0")

    @property
    def budget(self) -> Fraction:
        """The whole budget, exactly."""
        return as_epsilon(self.epsilon)

    def parameters(self) -> dict[str, Any]:
        """The parameters as a JSON-ready record."""
        apart = ("trust", "accept_large_epsilon")
        own = {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name not in apart
        }
        return own | {"epsilon": str(self.budget)} | self.trust.parameters()

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        if sum((share.epsilon for share in shares), Fraction(0)) > self.budget:
            raise AssertionError(f"{self.name} spent more than {self.budget}")
        return self.trust.guarantee(self.budget, shares, seeded=seeded)

    def scale(self, setting: Setting, epsilon: Fraction) -> float:
        """The scale of the noise on a sum, users."""
        return noise_deviation(setting, float(epsilon)) / math.sqrt(2)

    def numbered(self, trips: Points) -> Points:
        """The table that is summed."""
        check_numbering(trips)
        return trips

    def check_zones(self, zones: Tiling) -> None:
        """Refuse zones that are too many."""
        if zones.size > MOST_ZONES:
            raise ParameterError(
                f"zones must be at most {MOST_ZONES} for flows between them, got {zones.size}"
            )

    def shape_of_sums(self, zones: Tiling) -> tuple[int, ...]:
        """The shape of a curator's exact sums."""
        return (zones.size**2,)

    def raster(self, order: ZoneOrder) -> Raster:
        """The raster of pairs of places, and the site of each pair of zones."""
        both = order.place >= 0
        inside = np.logical_and.outer(both, both).ravel()
        place = np.maximum(order.place, 0)
        site = interleave(place, 0 * place)[:, None] + interleave(0 * place, place)
        return Raster(order.depth, site.ravel(), inside)

    @abstractmethod
    def plan(self, setting: Setting, order: ZoneOrder) -> FlowPlan:
        """Ask for noisy sums of pairs of places, from the public setting on, and return an estimate."""

    def release(
        self,
        trips: Points,
        zones: Tiling,
        *,
        people: Points | None = None,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
        secure_sum: SecureSum | None = None,
        dropout: float = 0.0,
    ) -> FlowMap:
        """Release flows between zones, epsilon-DP for each user.

        The account is charged before any noisy sum is known: by a curator the whole epsilon at the first, over secure
        sums each round's share before its sums.

        Parameters
        ----------
        trips : Points
            A table of trips, with destinations.
        zones : Tiling
            The zones, at most 4,096.
        people : Points, optional
            The table that the ledger recognises people by, where it is another than that of the trips.
        account, rng, progress, secure_sum, dropout
            See :meth:`mapveil.mechanisms.sum_mechanism.SumMechanism.release`.

        Raises
        ------
        InputError
            The table or the zones cannot be used.
        BudgetExceeded
            The account does not allow the epsilon.
        PromiseError
            Too many clients dropped out: nothing is released.
        """
        if trips.columns.to_lon is None:
            raise InputError(
                f"{trips.source}: flows need a destination in every row; expected a table of trips"
            )
        check_tiling(zones)
        self.check_zones(zones)
        trips = self.numbered(trips)
        order = zone_order(zones)
        raster = self.raster(order)
        if self.budget < SMALL:
            self._rehearse(zones, order, raster)
        stream, tell = as_randomness(rng), progress or (lambda step, done: None)
        delta = self.guarantee().delta
        with held_for(trips, zones, account) as held:
            charges = charges_of(
                account,
                people or held,
                self.budget,
                self.name,
                self.parameters(),
                zones,
                delta=delta,
                seeded=stream.seeded,
                accept_large_epsilon=self.accept_large_epsilon,
            )
            with charges:
                curator = isinstance(self.trust, Curator)
                reveal = charges.at_first(self.budget) if curator else charges.each
                execution = Execution(stream, tell, reveal, charges.keep, secure_sum, dropout)
                answerer = self.trust.answerer(held, zones, raster, execution)
                del raster  # as large as all pairs
                made = run(self.plan(answerer.setting, order), answerer.answer)
        claim = self.guarantee(tuple(answerer.revealed), seeded=stream.seeded)
        if not curator:
            claim = claim.as_simulation()
            active = secure_sum is not None and secure_sum.active
            claim = claim.with_active_sums(Assumes.AUTHORITY_APART()) if active else claim
        released = self.map_of(made, zones, order, claim)
        notes = (*released.notes, *rounds_note(tuple(answerer.costs)))
        return charged_to(dataclasses.replace(released, notes=notes), charges)

    def _rehearse(self, zones: Tiling, order: ZoneOrder, raster: Raster) -> None:
        """Run the plan without anybody, so that noise too wide to be drawn is refused before the charge."""
        curator = self.trust if isinstance(self.trust, Curator) else Curator()
        nobody = UserSums(np.zeros(self.shape_of_sums(zones), dtype=np.int64), zones)
        answerer = curator.answerer(nobody, zones, raster, Execution(Randomness(0)))
        run(self.plan(answerer.setting, order), answerer.answer)

    def map_of(self, made: Flows, zones: Tiling, order: ZoneOrder, claim: Guarantee) -> FlowMap:
        """Make flows of the plan's result."""
        sums = _flow_sums(made, order)
        cell = order.cell
        flat = made.values.ravel()
        found = np.flatnonzero(flat >= max(self.least, _LEAST_FLOW))
        if found.size > self.most:
            found = found[np.argpartition(-flat[found], self.most - 1)[: self.most]]
        row, col = np.divmod(found, made.values.shape[1])
        origin, destination = cell[row], cell[col]
        alone = sums.pairs[sums.leaf_of(origin, destination)] == 1
        trips = flat[found]
        size = sums.leaves.size
        blocks = f"{size} block{'s' * (size != 1)}"
        return FlowMap(
            origin,
            destination,
            trips,
            zones,
            claim,
            self.name,
            deviation=np.where(alone, sums.blocks[-1].deviation(), np.nan),
            unlisted=max(float(np.delete(flat, found).sum()), 0.0),
            parameters=self.parameters(),
            notes=(
                f"measured: {blocks} of origins and destinations, {int((sums.pairs == 1).sum())} of them single pairs; "
                f"{counting_note(self.parameters(), 'divided over their trips')}",
                *made.notes,
            ),
            sums=sums,
        )


def _flow_sums(made: Flows, order: ZoneOrder) -> FlowSums:
    """The replies as measurements of leaves and of zones."""
    leaves = made.blocks[-1].tree
    first = leaves.code << (2 * (leaves.depth - leaves.level))
    blocks = tuple(each.sums.measurement(each.tree.owner(first)) for each in made.blocks)
    margins: tuple[Measurement, ...] = ()
    if made.margins is not None:
        side = 1 << order.depth
        halves = (made.margins.values[side:], made.margins.values[:side])
        margins = tuple(made.margins.measurement(order.place, each) for each in halves)
    return FlowSums(order.place, leaves, blocks, margins)
