"""A mechanism as a plan: it asks for noisy sums, and the trust model in its parameters answers."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.geo.windowed_points import check_numbering
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.maps.round_cost import RoundCost
from mapveil.mechanisms.mechanism import Mechanism, charged_to, held_for, tiling_of
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.charges import Charges
from mapveil.privacy.claim import Assumes, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.curator import Curator
from mapveil.trust.queries import (
    BeforeReveal,
    Estimate,
    Execution,
    NoisySums,
    Plan,
    Progress,
    Query,
    Raster,
    Setting,
    run,
)
from mapveil.trust.secure_aggregation.model import SecureAggregation
from mapveil.trust.two_operators import TwoOperators
from mapveil_client.contribution import Devices
from mapveil_client.encodings import NodeEncoding
from mapveil_client.epsilon import split_epsilon
from mapveil_client.errors import ParameterError
from mapveil_client.morton import PrefixTree
from mapveil_client.randomness.random import Randomness, as_randomness

if TYPE_CHECKING:
    from mapveil.engines import UserSums
    from mapveil.secure_sum.drivers import SecureSum


SMALL: Final = Fraction(1, 100)
"""Budgets from here on draw the noise of every plan: the least share of one that fails is about 4e-8."""

_LEAST_SHARE: Final = 1e-4  # of a budget, for one of two rounds: with SMALL 1e-6, whose noise can be drawn


class UserNumber(NamedTuple):
    """A number of users that a plan may use: public, or bought with a share of the budget."""

    users: float  # at least 1 where it was bought
    rest: Fraction  # the budget that is left
    noisy: NoisySums | None  # the noisy total, where it was bought

    def measurements(self, sites: int) -> tuple[Measurement, ...]:
        """The noisy total as a measurement of all sites, where it was bought."""
        return () if self.noisy is None else (self.noisy.measurement(np.zeros(sites, dtype=np.int64)),)


@dataclass(frozen=True, kw_only=True)
class SumMechanism(Mechanism):
    """A mechanism that asks for noisy sums.

    Parameters
    ----------
    epsilon : int, float, str, Decimal or Fraction
        The whole privacy budget of one release, above zero; kept exactly.
    trust : Curator, SecureAggregation or TwoOperators
        The trust model that answers; a curator by default.
    """

    unanswerable: ClassVar[Mapping[str, str]] = {}  # trust models that cannot answer the plan, and why
    of_cells: ClassVar[bool] = False  # whether the plan asks for single cells, wherever they lie

    trust: Curator | SecureAggregation | TwoOperators = dataclasses.field(default_factory=Curator)

    def __post_init__(self) -> None:
        super().__post_init__()
        why = self.unanswerable.get(self.trust.name)
        if why is not None:
            raise ParameterError(f"{self.name} cannot run with trust {self.trust.name}: {why}")

    def _check_share(self, name: str) -> None:
        """Refuse a fraction of the budget that leaves the noise of a later query too wide, after the charge."""
        held = _LEAST_SHARE <= getattr(self, name) <= 1 - _LEAST_SHARE
        self._check(held, name, f"a number from {_LEAST_SHARE} to {1 - _LEAST_SHARE}")

    @abstractmethod
    def plan(self, setting: Setting) -> Plan:
        """Ask for noisy sums, from the public setting on, and return an estimate.

        The values of the estimate are per site of the raster, in Morton order, shape (4**depth,); its
        measurements' groups likewise.
        """

    def informed(self, setting: Setting, tiling: Tiling) -> Setting:
        """The setting, with what the mechanism's parameters say of these cells; as it is where they say nothing."""
        del tiling
        return setting

    def check_source(self, points: Points | Counts | UserSums | Devices) -> None:
        """Refuse a table that the plan can make nothing of, before anything is read."""
        check_numbering(points)

    def check_cells(self, tiling: Tiling) -> None:
        """Refuse cells that the plan cannot work on, before anything is read."""

    def rehearse(self, tiling: Tiling) -> None:
        """Run the plan on cells without anybody, so that it refuses before any charge what it would refuse after it.

        A large budget is only begun with: noise too wide to be drawn is a matter of small ones.
        """
        from mapveil.engines import UserSums

        curator = self.trust if isinstance(self.trust, Curator) else Curator()
        nobody = UserSums(np.zeros(self.shape_of_sums(tiling), dtype=np.int64), tiling)
        answerer = curator.answerer(nobody, tiling, self.raster(tiling), Execution(Randomness(0)))
        plan = self.plan(self.informed(answerer.setting, tiling))
        if curator is self.trust and self.budget < SMALL:
            run(plan, answerer.answer)
        else:
            next(plan)

    def shape_of_sums(self, tiling: Tiling) -> tuple[int, ...]:
        """The shape of a curator's exact sums."""
        return (tiling.size,)

    def raster(self, tiling: Tiling) -> Raster:
        """The raster of sites that the plan works on."""
        lattice = tiling.lattice()
        apart = self.of_cells and isinstance(self.trust, Curator)
        return Raster.of_cells(lattice) if apart else Raster.of(lattice)

    def number_of_users(self, setting: Setting) -> Generator[Query, NoisySums, UserNumber]:
        """The public number of users, or a noisy total bought with ``setting.users_share`` of the budget."""
        if setting.clients is not None:
            return UserNumber(float(setting.clients), self.budget, None)
        part, rest = split_epsilon(self.budget, [setting.users_share, 1 - setting.users_share])
        root = NodeEncoding(PrefixTree.uniform(setting.depth, 0))
        noisy = yield Query("number of users", root, part)
        return UserNumber(max(float(noisy.values[0]), 1.0), rest, noisy)

    def release(
        self,
        points: Points | Counts | UserSums | Devices,
        tiling: Tiling | None = None,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
        secure_sum: SecureSum | None = None,
        dropout: float = 0.0,
    ) -> DensityMap:
        """Release a map of where the users are, epsilon-DP for each user.

        The account is charged before any noisy sum is known: by a curator the whole epsilon at the first sum, over
        secure sums each round's share before its sums. Secure sums run in this process: every client's half, and the
        server's.

        Parameters
        ----------
        points : Points, Counts, UserSums or Devices
            A table, counts with each unit one user, a curator's exact sums, or the clients of a simulation.
        tiling : Tiling, optional
            The cells; counts bring their own.
        account : Account, optional
            The budget that is charged, the user's own by default; None: not accounted, which the guarantee says.
        rng : Randomness, int or None
            Leave it out for a release; an integer seeds the run, which marks the map and charges nothing.
        progress : callable, optional
            Called with the name and the finished fraction of each step.
        secure_sum : SecureSum, optional
            ``ProtocolSum()`` adds the clients' vectors with all the cryptography, ``IdealSum()`` (the default) in
            the clear.
        dropout : float
            Fraction of each shard of clients that drops out, to see what happens.

        Raises
        ------
        InputError
            The table cannot be used, or the tiling has too many cells for a dense map.
        BudgetExceeded
            The account does not allow the epsilon.
        PromiseError
            Too many clients dropped out: nothing is released.
        """
        self.check_source(points)
        cells = tiling_of(points, tiling)
        self.check_cells(cells)
        if self.budget < SMALL:
            self.rehearse(cells)
        stream, tell = as_randomness(rng), progress or (lambda step, done: None)
        with held_for(points, cells, account) as held:
            charges = self.charges(account, held, cells, seeded=stream.seeded)
            with charges:
                execution = Execution(
                    stream, tell, self.before_reveal(charges, self.charged), charges.keep, secure_sum, dropout
                )
                made = self.execute(held, cells, execution)
        return charged_to(made, charges)

    def before_reveal(self, charges: Charges, epsilon: Fraction) -> BeforeReveal:
        """Charge before a reply is known: a curator the whole epsilon at the first, clients each round's share."""
        return charges.at_first(epsilon) if isinstance(self.trust, Curator) else charges.each

    def execute(
        self, points: Points | Counts | UserSums | Devices, cells: Tiling, execution: Execution
    ) -> DensityMap:
        """Answer the plan and make a map of its estimate."""
        raster = self.raster(cells)
        answerer = self.trust.answerer(points, cells, raster, execution)
        made = run(self.plan(self.informed(answerer.setting, cells)), answerer.answer)
        revealed, costs = tuple(answerer.revealed), tuple(answerer.costs)
        heat = self.map_of(made, cells, revealed, costs, seeded=execution.rng.seeded, raster=raster)
        if isinstance(self.trust, Curator):
            return heat
        claim = heat.guarantee.as_simulation()
        active = execution.secure_sum is not None and execution.secure_sum.active
        claim = claim.with_active_sums(Assumes.AUTHORITY_APART()) if active else claim
        return dataclasses.replace(heat, guarantee=claim)

    def map_of(
        self,
        made: Estimate,
        tiling: Tiling,
        revealed: tuple[Share, ...],
        costs: tuple[RoundCost, ...],
        *,
        seeded: bool = False,
        raster: Raster | None = None,
    ) -> DensityMap:
        """Make a map of an estimate per site, the shares of epsilon revealed, and the traffic of each round.

        The raster is that of the tiling, where it is at hand.
        """
        on = (raster or self.raster(tiling)).on_cells(made)
        heat = DensityMap(
            values=on.values,
            tiling=tiling,
            guarantee=self.guarantee(revealed, seeded=seeded),
            method=self.name,
            parameters=self.parameters(),
            measurements=on.measurements,
            notes=(*on.notes, *rounds_note(costs)),
            rounds=costs,
        )
        return self.shown(heat)

    def shown(self, heat: DensityMap) -> DensityMap:
        """The map, as the kind of map that the mechanism releases."""
        return heat

    def parameters(self) -> dict[str, Any]:
        """The parameters, those of the trust model among them, as a JSON-ready record."""
        record = super().parameters()
        del record["trust"]
        return record | self.trust.parameters()

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        self._spent(shares)
        return self.trust.guarantee(self.budget, shares, seeded=seeded)


def rounds_note(costs: Sequence[RoundCost]) -> tuple[str, ...]:
    """Note on the number of clients in the sums."""
    if not costs:
        return ()
    least, asked = min(each.included for each in costs), max(each.devices for each in costs)
    rounds = f"{len(costs)} round{'s' if len(costs) != 1 else ''}"
    length = RoundCost.total_length(costs)
    return (
        f"{rounds} of {asked} devices, at least {least} of them in every sum; {length} coordinates sent by each",
    )
