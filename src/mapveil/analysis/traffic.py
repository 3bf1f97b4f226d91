"""The server half of navigation: the density of users in each time window, from what their devices reported."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mapveil.errors import ParameterError
from mapveil.local.mechanism import LocalMechanism
from mapveil.local.randomizer import Randomizer
from mapveil.local.report import Reports, Tally
from mapveil.maps.density_map import DensityMap
from mapveil.privacy.guarantee import Guarantee, Share

__all__ = ["TrafficServer", "update_guarantee"]


def update_guarantee(mechanism: LocalMechanism, most: int, *, seeded: bool = False) -> Guarantee:
    """The promise to a user who sends up to ``most`` updates on a trip, each of the mechanism's epsilon."""
    base = mechanism.guarantee(seeded=seeded)
    return replace(
        base,
        epsilon=most * mechanism.budget,
        bounding=(
            f"Each trip sends at most {most} location updates, randomized on the device with epsilon "
            f"{float(mechanism.budget):g} each: nobody else ever has a place."
        ),
        neighbours="one user's places at the times of their updates replaced by any others of the map",
        assumptions=(
            "one trip per user: the epsilons of several trips add up",
            "that an update is sent, and when, is not hidden: who sends one is late",
            *base.assumptions[1:],
        ),
        shares=tuple(Share(f"update {number} of a trip", mechanism.budget) for number in range(1, most + 1)),
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
        Updates of one trip, for the promise.
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
        note = f"from {tally.reports} location updates in {self.window_s:g} s"
        if active is not None:
            note += f", scaled to {active:g} active users"
        return replace(
            made,
            values=made.values * scale,
            guarantee=update_guarantee(self.mechanism, self.most, seeded=self.seeded),
            parameters=about,
            notes=(note,),
        )
