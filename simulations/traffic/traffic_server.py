"""The server half: the density of users in each time window, from randomized reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from mapveil.local.local_mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import Randomizer, Tally
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.claim import Assumes, ContributionBound, Norm, Share
from mapveil.privacy.guarantee import Guarantee
from mapveil_client.local.randomizer import Reports


def update_guarantee(
    mechanism: LocalMechanism, most: int, *, timed: bool = True, seeded: bool = False
) -> Guarantee:
    """The guarantee of a trip that sends up to ``most`` locations, each randomized by ``mechanism``.

    ``timed`` where the time of a report depends on the location: so for late trips, not for probes.
    """
    base = mechanism.guarantee(seeded=seeded)
    return replace(
        base,
        epsilon=most * mechanism.budget,
        bound=ContributionBound(Norm.REPORTS, Fraction(most)),
        assumptions=(
            Assumes.ONE_TRIP(),
            Assumes.TIMING_PUBLIC() if timed else Assumes.TRIPS_PUBLIC(),
            *base.assumes_besides(Assumes.ONE_CLIENT, Assumes.ONE_CONTRIBUTION),
        ),
        shares=tuple(
            Share(f"location {number} of a trip", mechanism.budget) for number in range(1, most + 1)
        ),
    )


@dataclass
class TrafficServer:
    """The traffic server: collects reports and estimates a map of each time window.

    It sees reports and their times only. The map of a window estimates the locations of its active users from those
    that reported.

    Parameters
    ----------
    mechanism : LocalMechanism
        Mechanism of the devices.
    randomizer : Randomizer
        Randomizer of that mechanism on the domain.
    most, timed, seeded
        As for :func:`update_guarantee`.
    window_s : float
        Length of a window, seconds.
    """

    mechanism: LocalMechanism
    randomizer: Randomizer
    most: int
    timed: bool = True
    window_s: float = 300.0
    seeded: bool = False
    _tallies: dict[int, Tally] = field(default_factory=dict, init=False, repr=False)

    def receive(self, window: int, reports: Reports) -> None:
        """Add reports to a window; an ``InputError`` where they are not of this randomizer."""
        tally = self.randomizer.tally(reports)
        known = self._tallies.get(window)
        self._tallies[window] = tally if known is None else known + tally

    def reports(self, window: int) -> int:
        """The number of reports of a window."""
        known = self._tallies.get(window)
        return 0 if known is None else known.reports

    def map(self, window: int, active: float | None = None) -> DensityMap | None:
        """The map of a window, scaled to ``active`` users (the reports by default); None without a report."""
        tally = self._tallies.get(window)
        if tally is None or tally.reports == 0:
            return None
        made = self.mechanism.estimate(tally, self.randomizer, seeded=self.seeded)
        scale = 1.0 if active is None else float(active) / tally.reports
        about: dict[str, Any] = {**made.parameters, "window": window, "window_s": self.window_s}
        note = f"from {tally.reports} randomized locations in {self.window_s:g} s"
        if active is not None:
            note += f", scaled to {active:.0f} active users"
        return replace(
            made,
            values=made.values * scale,
            guarantee=update_guarantee(self.mechanism, self.most, timed=self.timed, seeded=self.seeded),
            parameters=about,
            notes=(note,),
        )
