"""Hierarchical one-hot encoding: every level of the quadtree in one round, one of them shown."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mapveil.mechanisms.level_choice import LevelMechanism, LevelSums, show_levels
from mapveil.trust.queries import Estimate, Plan, Query, Setting
from mapveil_client.level_encoding import LevelEncoding


@dataclass(frozen=True, kw_only=True)
class HierarchicalHistogram(LevelMechanism):
    r"""Ask for every node of every level at once, and show each subregion at the level the noise allows.

    A place counts at each of the L levels 1 .. ``deepest``. The levels travel as one vector, which a device moves by
    :math:`L \gamma` units: with the whole budget :math:`\epsilon` in the one query every level has the noise that a
    query of its own would have at :math:`\epsilon / L`. Of each subregion one level is shown and the others are
    discarded; which, :mod:`mapveil.mechanisms.level_choice` says.

    Deviation: the paper chooses the levels with the truth in hand; the default rule sees noisy sums only. All levels
    are among the map's measurements, and ``level`` shows one of them, for whoever has the truth. Deviation:
    negative sums become zero.

    Source: Bagdasaryan et al. (2022), section 5.1, and 6.2 for the levels.

    Parameters
    ----------
    deepest, level, subregions
        See :class:`~mapveil.mechanisms.level_choice.LevelMechanism`.
    """

    name: ClassVar[str] = "hierarchical"
    summary: ClassVar[str] = "one round over all levels of the quadtree, the best-looking of them shown"
    source: ClassVar[str] = "Bagdasaryan et al. 2022, section 5.1"

    def plan(self, setting: Setting) -> Plan:
        """One query; see :meth:`SumMechanism.plan`."""
        levels = self.levels(setting)
        encoding = LevelEncoding.of_members(setting.depth, levels, setting.members)
        sums = yield Query("every level", encoding, self.budget)
        measured = [
            LevelSums(level, encoding.fill(index, sums.values), sums.variance)
            for index, level in enumerate(levels)
        ]
        chosen = self.chosen(measured, setting)
        shown = ", ".join(str(level) for level in np.unique(chosen))
        return Estimate(
            show_levels(measured, setting.members, chosen),
            tuple(
                sums.measurement(encoding.groups(index), sums.values[encoding.coordinates(index)])
                for index in range(len(levels))
            ),
            (f"levels {levels[0]} to {levels[-1]} were asked for, of which level {shown} is shown",),
        )
