"""Answers about zones: totals, over time too, ranks, changes, and comparisons with a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from mapveil.geo.windows import Windows
from mapveil.geo.zones import Zones
from mapveil.inference.linear_totals import mostly_placed
from mapveil_client.arrays import BoolArray, FloatArray, IntArray

Null = Literal["rate", "people"]
"""Meaning of no change: one expected number of users, or the same number of users."""

TESTED: Final[Mapping[Null, str]] = {
    "rate": "the noise and the chance of who was there",
    "people": "the noise alone",
}
"""Causes of a difference that a change must exceed, by the meaning of no change."""

WIDENED: Final = "intervals of the zones named are widened, since noise helped to choose them"
CHANGE_INTERVAL: Final = (
    "low to high is the change's 95 % interval of the noise alone, widened where it is called changed; without 0 "
    "and not called, a change is more than noise, but the chance of who was there may explain it"
)


class ZoneTotals(NamedTuple):
    """The users of zones, arrays of shape (zones,)."""

    zones: Zones
    alpha: float
    estimate: FloatArray  # least squares, unbiased where nothing is placed: it may be negative
    low: FloatArray  # of the noise interval of coverage 1 - alpha, or more where the estimate chose the zone
    high: FloatArray
    deviation: FloatArray  # standard deviation over the noise, users
    inside: FloatArray  # estimate of the leaves wholly inside
    touched: FloatArray  # estimate of all leaves that the zone touches
    placed: FloatArray  # fraction of the estimate that is placed by the model
    shown: FloatArray  # users that the map shows there
    covered: FloatArray  # fraction of the zone's area that lies in the map
    certain_low: FloatArray  # bounds that hold wherever in the measured cells that the zone cuts users are
    certain_high: FloatArray

    def columns(self) -> dict[str, Any]:
        """The results as columns, the displayed estimate raised to 0; no interval where the model places most."""
        record = {name: getattr(self, name) for name in self._fields if name not in {"zones", "alpha"}}
        return {"zone": list(self.zones.names), **record} | _displayed(self)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The interval of the noise; where the model places most users, the bounds of the bracket."""
        return _bounds(self)

    @property
    def modelled(self) -> BoolArray:
        """Zones most of whose estimate the model places."""
        return mostly_placed(self.estimate, self.inside, self.placed)


class WindowTotals(NamedTuple):
    """Users of every zone in every window, arrays of shape (zones, windows)."""

    zones: Zones
    windows: Windows
    alpha: float
    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    inside: FloatArray  # estimate of the leaves wholly inside
    touched: FloatArray  # estimate of all leaves that the zone touches
    placed: FloatArray  # fraction of the estimate that is placed by the model
    certain_low: FloatArray  # bounds that hold wherever in the measured cells that the zone cuts users are
    certain_high: FloatArray

    def displayed(self) -> dict[str, FloatArray]:
        """Each of :data:`WINDOW_COLUMNS`: the estimate raised to 0, no interval where the model places most."""
        return {kind: getattr(self, kind) for kind in WINDOW_COLUMNS} | _displayed(self)

    def columns(self) -> dict[str, Any]:
        """Eight columns for each window, for a table of one row per zone, as :meth:`displayed`."""
        made: dict[str, Any] = {"zone": list(self.zones.names)}
        displayed = self.displayed()
        for at, name in enumerate(self.windows.names):
            made |= {f"{kind} {name}": values[:, at] for kind, values in displayed.items()}
        return made

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The interval of the noise; where the model places most users, the bounds of the bracket."""
        return _bounds(self)

    @property
    def modelled(self) -> BoolArray:
        """Zones and windows most of whose estimate the model places."""
        return mostly_placed(self.estimate, self.inside, self.placed)


WINDOW_COLUMNS: Final = (
    *("estimate", "low", "high", "placed", "inside", "touched"),
    *("certain_low", "certain_high"),
)
"""Answers about a zone in one window, in the order of a table's columns."""


def _displayed(found: ZoneTotals | WindowTotals) -> dict[str, FloatArray]:
    """The answers that are shown otherwise than they are."""
    low, high = (np.where(found.modelled, np.nan, each) for each in (found.low, found.high))
    return {"estimate": np.maximum(found.estimate, 0.0), "low": low, "high": high}


def _bounds(found: ZoneTotals | WindowTotals) -> tuple[FloatArray, FloatArray]:
    modelled = found.modelled
    low = np.where(modelled, found.certain_low, found.low)
    return low, np.where(modelled, found.certain_high, found.high)


def placed_notes(found: ZoneTotals | WindowTotals) -> list[str]:
    """A remark on zones most of whose users the model places, where there are some."""
    modelled = found.modelled if found.modelled.ndim == 1 else found.modelled.any(axis=1)
    zones = np.flatnonzero(modelled)
    if not zones.size:
        return []
    return [
        f"the model places most users of {zones.size} of {len(found.zones)} zones, such as "
        f"{found.zones.names[zones[0]]}: most of these were measured only together with what surrounds "
        "the zone, so the bounds shown of these zones are those that hold wherever in the cut cells the users are"
    ]


class ZoneChanges(NamedTuple):
    """Differences of two maps over zones, arrays of shape (zones,): of the measured cells wholly inside each.

    Numbers are NaN, and p and q are 1, of zones that are not compared.
    """

    zones: Zones
    null: Null
    fdr: float
    before: FloatArray  # least squares of the first map, unbiased: it may be negative
    after: FloatArray  # and of the second
    difference: FloatArray
    low: FloatArray  # of its 95 % interval, over the noise alone, widened where it is called changed
    high: FloatArray
    p: FloatArray
    q: FloatArray  # the least rate at which the zone would be called changed
    changed: BoolArray
    placed: (
        FloatArray  # fraction of the users of both maps in measured cells that the zone cuts: not compared
    )
    of_blocks: bool = False  # the zones are the blocks that both maps measured

    @property
    def noun(self) -> str:
        """The word for one of the zones."""
        return "block" if self.of_blocks else "zone"

    @property
    def about(self) -> str:
        """The meaning of the numbers, in words."""
        inside = "block" if self.of_blocks else "zone, of the measured cells wholly inside"
        return f"before and after are unbiased estimates, maybe below 0, of each {inside}; {CHANGE_INTERVAL}"

    @property
    def compared(self) -> BoolArray:
        """Zones that are compared: of others, no measured cell lies wholly inside."""
        return np.isfinite(self.difference)

    @property
    def calls(self) -> list[str]:
        """The call about each zone, in words."""
        pairs = zip(self.changed.tolist(), self.compared.tolist(), strict=True)
        return [
            "yes" if changed else "no call" if compared else "not compared" for changed, compared in pairs
        ]

    @property
    def counts(self) -> str:
        """The numbers of zones that changed and that are compared, in words."""
        size, compared = len(self.zones), int(self.compared.sum())
        text = f"{int(self.changed.sum())} of {size} {self.noun}{'' if size == 1 else 's'} changed"
        return text if compared == size else f"{text}, of {compared} that can be compared"

    @property
    def tested(self) -> str:
        """Causes that the differences are tested against, in words."""
        return TESTED[self.null]

    def columns(self) -> dict[str, Any]:
        """The results as columns."""
        others = {"zones", "null", "fdr", "of_blocks"}
        record = {name: getattr(self, name) for name in self._fields if name not in others}
        return {self.noun: list(self.zones.names), **record}


class RankedZones(NamedTuple):
    """Zones by their estimates, the busiest first; arrays of shape (zones asked for,)."""

    totals: ZoneTotals  # of all zones, in their own order
    zone: IntArray  # index of each
    first: IntArray  # best rank that each may have, from 1
    last: IntArray  # worst rank

    def rows(self) -> list[dict[str, Any]]:
        """A row for each zone: rank, name, estimate, bounds, fraction placed, and the ranks it may have."""
        found = self.totals
        low, high = found.bounds
        return [
            {
                "rank": rank,
                "zone": found.zones.names[zone],
                "estimate": max(float(found.estimate[zone]), 0.0),
                "low": float(low[zone]),
                "high": float(high[zone]),
                "placed": float(found.placed[zone]),
                "first_rank": int(first),
                "last_rank": int(last),
            }
            for rank, (zone, first, last) in enumerate(
                zip(self.zone.tolist(), self.first, self.last, strict=True), start=1
            )
        ]


class ZonesAbove(NamedTuple):
    """Zones compared with a number of users; arrays of shape (zones,)."""

    totals: ZoneTotals
    limit: float
    above: BoolArray  # called above
    below: BoolArray  # called not above

    @property
    def names(self) -> tuple[str, ...]:
        """The zones that are called above."""
        return tuple(self.totals.zones.names[zone] for zone in np.flatnonzero(self.above))


Answer = TypeVar("Answer", ZoneTotals, ZoneChanges)


@dataclass(frozen=True, eq=False)
class ByEnd(Generic[Answer]):
    """An answer about the users from zones, and one about the users to them."""

    outflow: Answer
    inflow: Answer

    def columns(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The named columns of both, for a table of one row per zone."""
        made: dict[str, Any] = {"zone": list(self.outflow.zones.names)}
        for end, each in (("outflow", self.outflow), ("inflow", self.inflow)):
            found = each.columns()
            made |= {f"{end}_{name}": found[name] for name in names}
        return made
