"""The design of coverage by sums for so many users, before anybody is asked: the squares, and the noise in each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mapveil.geo.points import Points
from mapveil.geo.tiling import Tiling
from mapveil.local.signal_reports import SignalReports
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.mechanisms.signal_sums import STRONG, WEAK, SignalSums


class CoverageDesign(NamedTuple):
    """The finest squares of coverage by sums, and what their noise does if everybody is spread evenly."""

    users: int
    squares: int
    width_m: float  # of a mean square
    off: float  # standard deviation of a square's mean residual by the noise, as a part of the largest that counts

    def in_words(self) -> str:
        """One line."""
        squares = "one square" if self.squares == 1 else f"{self.squares:,} squares"
        wide = f"{squares}, about {self.width_m:,.0f} m wide"
        return f"{wide}; noise moves a square's mean residual by {self.off:.2g} of --clip-db"


def coverage_design(sums: SignalSums | SignalReports, tiling: Tiling, users: int) -> CoverageDesign:
    """Collect from ``users`` simulated users, spread evenly over the cells, who measure no residual. Run by: anybody.

    Parameters
    ----------
    sums : SignalSums or SignalReports
        The mechanism.
    tiling : Tiling
        The cells.
    users : int
        Number of users; where the mechanism's unit is smaller, of units.
    """
    cell = np.arange(users) * tiling.size // users
    centres = tiling.centres()
    everybody = Points.from_arrays(
        np.tile(np.arange(users), 2),
        np.tile(centres.lon[cell], 2),
        np.tile(centres.lat[cell], 2),
        weight=np.full(2 * users, 0.5),
        label=np.repeat(np.array([WEAK, STRONG], dtype=np.int64), users),
        source="simulated users",
    )
    made = sums.release(everybody, tiling, account=None, rng=0)
    levels = [each for each in made.measurements if isinstance(each, LabelMeasurement)]
    finest = max(levels, key=lambda each: each.noisy.size)
    squares = finest.noisy.size
    each_users = np.array([users / squares])
    off = float(np.sqrt(finest.contrast_variance(each_users)[0]) / each_users[0])
    return CoverageDesign(users, squares, float(np.sqrt(tiling.area_m2().sum() / squares)), off)
