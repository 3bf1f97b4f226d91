"""The server half of navigation: the density of users in each time window, from what their devices reported."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mapveil.local.mechanism import LocalMechanism
from mapveil.local.randomizers.randomizer import Randomizer
from mapveil.local.randomizers.report import Reports, Tally
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.guarantee import Guarantee, Share
from mapveil_client.errors import ParameterError


def update_guarantee(
    mechanism: LocalMechanism, most: int, *, timed: bool = True, seeded: bool = False
) -> Guarantee:
    """The promise to a user of whose trip up to ``most`` randomized locations are sent.

    Parameters
    ----------
    mechanism : LocalMechanism
        Its epsilon is that of each.
    most : int
        How many.
    timed : bool
        Whether when they are sent depends on where the user is, as for those who are late; not so for probes.
    seeded : bool
        Whether the randomness can be repeated.
    """
    base = mechanism.guarantee(seeded=seeded)
    one = "one randomized location" if most == 1 else f"at most {most} randomized locations"
    timing = (
        "that a location is sent, and when, is not hidden: who sends one is late"
        if timed
        else "that a trip takes place, about when, and that somebody late asks for the traffic, is not hidden"
    )
    return replace(
        base,
        epsilon=most * mechanism.budget,
        bounding=(
            f"Each trip sends {one}, made on the device with epsilon {float(mechanism.budget):g} each: nobody else "
            "ever has a place."
        ),
        neighbours="one user's places when locations are sent replaced by any others of the map",
        assumptions=(
            "one trip per user: the epsilons of several trips add up",
            timing,
            *base.assumptions[1:],
        ),
        shares=tuple(
            Share(f"location {number} of a trip", mechanism.budget) for number in range(1, most + 1)
        ),
    )


@dataclass
class TrafficServer:
    """Collects reports and makes a map of each time window that has passed. Run by: the server.

    It sees reports and when they came, nothing else. The map of a window estimates how many of its active users were
    where, as far as those who reported stand for them.

    Parameters
    ----------
    mechanism : LocalMechanism
        What the devices randomize with.
    randomizer : Randomizer
        What it makes on the domain.
    most : int
        Locations of one trip, for the promise.
    timed : bool
        Whether when they come depends on where the users are; see :func:`update_guarantee`.
    window_s : float
        Length of a window, seconds.
    least : int
        Make no map of fewer reports.
    seeded : bool
        Whether the reports were made with a seed.

    Raises
    ------
    ParameterError
        A window that is not above 0 seconds, or ``least`` below 1.
    """

    mechanism: LocalMechanism
    randomizer: Randomizer
    most: int
    timed: bool = True
    window_s: float = 300.0
    least: int = 1
    seeded: bool = False
    _tallies: dict[int, Tally] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.window_s) and self.window_s > 0):
            raise ParameterError(f"window_s is {self.window_s!r}; seconds above 0 are accepted")
        if self.least < 1:
            raise ParameterError(f"least is {self.least!r}; a number of reports of at least 1 is accepted")

    def receive(self, window: int, reports: Reports) -> None:
        """Add reports to a window.

        Raises
        ------
        InputError
            They are not of this randomizer.
        """
        tally = self.randomizer.tally(reports)
        known = self._tallies.get(window)
        self._tallies[window] = tally if known is None else known + tally

    def reports(self, window: int) -> int:
        """How many came in a window."""
        known = self._tallies.get(window)
        return 0 if known is None else known.reports

    def map(self, window: int, active: float | None = None) -> DensityMap | None:
        """The map of a window, None where too few reported.

        Parameters
        ----------
        window : int
            Its number.
        active : float, optional
            How many users were active in it, which the server knows; the reports by default.
        """
        tally = self._tallies.get(window)
        if tally is None or tally.reports < self.least:
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
