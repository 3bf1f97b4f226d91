"""The base of local mechanisms: one report of every user, randomized on the device."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple, cast

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling, as_tiling
from mapveil.inference.supported_blocks import supported_blocks
from mapveil.local.estimators.estimated_users import estimated_users
from mapveil.local.estimators.estimators import (
    check_estimator,
    check_prior,
    check_reports,
    estimate_distribution,
)
from mapveil.local.randomizers.randomizer import Randomizer, SymbolRandomizer, Tally
from mapveil.local.reported_cells import cells_of_users
from mapveil.maps.block_scene import scale_note
from mapveil.maps.density_map import DensityMap
from mapveil.mechanisms.mechanism import PriorMechanism, charged_to, held_for, tiling_of
from mapveil.privacy.account import OWN, Account
from mapveil.privacy.claim import Adversary, Assumes, ContributionBound, Neighbouring, Norm, Share, TrustModel
from mapveil.privacy.guarantee import Guarantee
from mapveil.trust.queries import Progress
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import ParameterError
from mapveil_client.local.domain import Domain
from mapveil_client.local.randomizer import LocalMethod
from mapveil_client.randomness.random import Randomness, as_randomness

CHUNK: Final = 1 << 18
"""Clients whose reports are made at a time."""
_REPORT = "one report of each user"


class Designed(NamedTuple):
    """A mechanism with all its parameters, and notes on those that were chosen for it."""

    mechanism: "LocalMechanism"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LocalMechanism(LocalMethod, PriorMechanism):
    """A mechanism, both halves; see :class:`mapveil_client.local.randomizer.LocalMethod` for its parameters.

    The estimator is one of :data:`mapveil.local.estimators.estimators.ESTIMATORS`.
    """

    server_options: ClassVar[frozenset[str]] = frozenset({"prior"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_estimator(self.estimator)
        check_prior(self.estimator, self.prior)

    def on(self, domain: Domain) -> Randomizer:
        """Both halves on a domain; see :meth:`LocalMethod.on`."""
        return cast("Randomizer", super().on(domain))

    def expected_reports(self, users: float) -> float:
        """The reports that a map is made of, from so many users."""
        return users

    def designed(self, domain: Domain, reports: int) -> Designed:
        """The mechanism with what it leaves to be chosen from epsilon, the sites and the number of reports.

        All three are public: neighbours replace one user, so that the number is the same. Run by: the server.
        """
        del domain, reports
        return Designed(self)

    def designed_options(self, domain: Domain, reports: int) -> dict[str, Any]:
        """The parameters that :meth:`designed` chooses, which devices must be told. Run by: the server."""
        before, chosen = self.parameters(), self.designed(domain, reports).mechanism.parameters()
        return {name: value for name, value in chosen.items() if value != before[name]}

    def transition_matrix(self, tiling: Tiling) -> FloatArray:
        """The probability of every report from every site, for small domains, tests and audits.

        Raises
        ------
        ParameterError
            The domain is too large, or reports are sets of sites.
        """
        randomizer = self.on(Domain(tiling))
        if not isinstance(randomizer, SymbolRandomizer):
            raise ParameterError(
                f"a report of {self.name} is a set of sites: there are 2**{randomizer.size} of them"
            )
        return randomizer.transition_matrix()

    def estimate(self, tally: Tally, randomizer: Randomizer, *, seeded: bool = False) -> DensityMap:
        """The map of a tally. Run by: the server.

        Parameters
        ----------
        tally : Tally
            Counts of the reports, see :meth:`Randomizer.tally`.
        randomizer : Randomizer
            Randomizer of this mechanism :meth:`on` their domain.
        seeded : bool
            Whether the reports were made with a seed.
        """
        domain, prior = randomizer.domain, None
        tiling = as_tiling(domain.tiling)
        if self.prior is not None:
            expected = self.prior.on(tiling).fractions[domain.cells]
            prior = expected / expected.sum()
        made = estimate_distribution(randomizer, tally, self.estimator, prior)
        leaning = () if self.prior is None else (self.prior.note(tiling, made.moved),)
        measured = estimated_users(randomizer, tally, made.distribution, self.budget)
        return DensityMap(
            values=domain.on_cells(tally.reports * made.distribution),
            tiling=tiling,
            guarantee=self.guarantee((Share(_REPORT, self.budget),), seeded=seeded),
            method=self.name,
            parameters=self.parameters(),
            measurements=measured,
            notes=(
                *made.notes,
                *scale_note(supported_blocks(measured, tiling.lattice()), tiling),
                f"{tally.reports} user{'s' * (tally.reports != 1)} reported, once each",
                *leaning,
            ),
        )

    def release(
        self,
        points: Points | Counts,
        tiling: Tiling | None = None,
        *,
        account: Account | None = OWN,
        rng: Randomness | int | None = None,
        progress: Progress | None = None,
    ) -> DensityMap:
        """Simulate a whole collection in this process: every client's half, and the server's.

        Parameters
        ----------
        points : Points or Counts
            Locations of the clients, one client per user.
        tiling, account, rng, progress
            As for :meth:`SumMechanism.release`; the account is charged before any client reports.

        Raises
        ------
        InputError
            The table cannot be used, or the tiling has too many cells for a dense map, or fewer than two.
        """
        stream = as_randomness(rng)
        tell = progress or (lambda step, done: None)
        domain = Domain(given := tiling_of(points, tiling))
        with held_for(points, given, account) as held:
            charges = self.charges(account, held, given, seeded=stream.seeded)
            tell("collect reports", 0.0)
            cells = cells_of_users(held, domain, self.place, self.outside, stream)
            used, notes = self.designed(domain, cells.size)
            randomizer = used.on(domain)
            check_reports(used.estimator, randomizer)

            def ask() -> Tally:
                tally = randomizer.tally(randomizer.randomize(cells[:0], stream))
                for start in range(0, cells.size, CHUNK):
                    tally += randomizer.tally(randomizer.randomize(cells[start : start + CHUNK], stream))
                    tell("collect reports", min(1.0, (start + CHUNK) / cells.size))
                return tally

            with charges:
                charges.spend(self.budget)
                tally = charges.keep(_REPORT, Tally, ask)
                tell("estimate", 0.0)
                made = used.estimate(tally, randomizer, seeded=stream.seeded)
        made = replace(made, guarantee=made.guarantee.as_simulation(), notes=(*made.notes, *notes))
        tell("estimate", 1.0)
        return charged_to(made, charges)

    def guarantee(self, shares: tuple[Share, ...] = (), *, seeded: bool = False) -> Guarantee:
        """The promise of one release with these parameters."""
        self._spent(shares)
        return Guarantee(
            model=TrustModel.LOCAL,
            neighbours=Neighbouring.REPLACE_ONE,
            epsilon=self.budget,
            adversary=Adversary.REPORTS,
            bound=ContributionBound(Norm.REPORTS, Fraction(1)),
            assumptions=(
                Assumes.ONE_CLIENT(),
                Assumes.ONE_CONTRIBUTION(),
                Assumes.CLIENT_RANDOMNESS(),
                *((Assumes.PARTICIPATION_PUBLIC(),) if self.outside == "drop" else ()),
            ),
            shares=shares,
            seeded=seeded,
        )
