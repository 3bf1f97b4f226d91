"""Series of flows: those of all windows together, and of each window, under one promise."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from mapveil.geo.windows import Windows
from mapveil.inference.supported_blocks import FALSE_RATE
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.flow_sums import FlowSums
from mapveil.maps.scene import LineWindows, Rows
from mapveil_client.arrays import BoolArray, FloatArray
from mapveil_client.errors import check


@dataclass(frozen=True, eq=False, repr=False)
class FlowSeriesMap(FlowMap):
    """Flows of all windows together, with the users of every listed flow in each window.

    Parameters
    ----------
    origin, destination, trips, tiling, guarantee, method, deviation, unlisted, sums
        As for :class:`~mapveil.maps.flow_map.FlowMap`, of all windows together.
    windows : Windows
        The windows.
    by_window : ndarray of float64, shape (windows, flows)
        Estimated users of each flow in each window.
    unlisted_by_window : ndarray of float64, shape (windows,)
        Estimated users of the pairs that are not among these.
    window_sums : FlowSums
        The noisy sums of every window, by label.
    """

    windows: Windows = field(kw_only=True)
    by_window: FloatArray = field(kw_only=True)
    unlisted_by_window: FloatArray = field(kw_only=True)
    window_sums: FlowSums = field(kw_only=True, repr=False)

    def __post_init__(self) -> None:
        shape = (self.windows.count, self.trips.size)
        check(self.by_window.shape == shape, "by_window", f"an array of shape {shape}", self.by_window.shape)
        order = np.lexsort((self.destination, self.origin, -self.trips))
        object.__setattr__(self, "by_window", self.by_window[:, order])
        super().__post_init__()

    @classmethod
    def of(
        cls,
        flows: FlowMap,
        windows: Windows,
        by_window: FloatArray,
        unlisted_by_window: FloatArray,
        window_sums: FlowSums,
    ) -> FlowSeriesMap:
        """The series of flows of all windows together; ``by_window`` is in the order of their flows."""
        given = {item.name: getattr(flows, item.name) for item in fields(FlowMap)}
        return cls(
            **given,
            windows=windows,
            by_window=by_window,
            unlisted_by_window=unlisted_by_window,
            window_sums=window_sums,
        )

    def __len__(self) -> int:
        return self.windows.count

    def window(self, which: str | int) -> FlowMap:
        """The flows of one window, by its name or number, with its noisy sums: they answer questions like any flows.

        Their guarantee is that of the whole series: what epsilon is for one user over all windows.
        """
        at = self.windows.index(which) if isinstance(which, str) else range(len(self))[which]
        given = {item.name: getattr(self, item.name) for item in fields(FlowMap)}
        title = self.windows.title(at)
        sums = self.window_sums.of_window(at)
        given |= {"trips": self.by_window[at], "unlisted": float(self.unlisted_by_window[at]), "sums": sums}
        alone = sums.pairs[sums.leaf_of(self.origin, self.destination)] == 1
        given["deviation"] = np.where(alone, sums.blocks[-1].deviation(), np.nan)
        given["title"] = f"{self.title}, {title}" if self.title else title
        whole = FlowMap(**given)
        return whole.kept(whole.trips > 0)

    def _of_kept(self, kept: BoolArray) -> dict[str, Any]:
        rest = self.by_window[:, ~kept].sum(axis=1)
        by_window = {
            "by_window": self.by_window[:, kept],
            "unlisted_by_window": self.unlisted_by_window + rest,
        }
        return super()._of_kept(kept) | by_window

    def line_windows(self, between: BoolArray) -> LineWindows:
        """See :meth:`mapveil.maps.flow_map.FlowMap.line_windows`."""
        sums = [self.window_sums.of_window(at) for at in range(len(self))]
        told = np.array([self._above_noise(each, FALSE_RATE) for each in sums]).reshape(self.by_window.shape)
        dots = np.zeros((len(self), self.tiling.size))
        dots[:, self.origin[~between]] = np.where(told, self.by_window, 0.0)[:, ~between]
        names, titles = self.windows.names, self.windows.titles
        in_all = tuple(f"{self.window(at).in_all()} in this window." for at in range(len(self)))
        return LineWindows(names, titles, self.by_window[:, between], ~told[:, between], dots, in_all)

    @property
    def period(self) -> str:
        """The windows that are shown together, one line."""
        return f"all windows together: {self.windows}"

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a series of flows."""
        unlisted = self.unlisted_by_window.tolist()
        return super().about() | {"windows": self.windows.to_dict(), "unlisted_by_window": unlisted}

    def rows(self) -> Rows:
        """One row per flow, the largest first, with its users in each window."""
        made = super().rows()
        named = zip(self.windows.names, self.by_window, strict=True)
        return made._replace(columns={**made.columns, **{f"users {name}": values for name, values in named}})

    def __repr__(self) -> str:
        shown = f"{self.windows}: {len(self)} windows, {self.tiling.spec}, {self.size} flows"
        return f"FlowSeriesMap({shown})\n{self.guarantee!r}"
