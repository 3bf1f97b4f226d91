"""Series: a map of all windows together, and one of each window, under one promise."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from mapveil.geo.windows import Windows
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import Measurement
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.maps.released import ANIMATIONS, SUFFIXES, function_of
from mapveil.maps.scene import Layer
from mapveil.maps.window_estimates import WindowEstimates
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, check

MOST_PANELS: Final = 120
"""Windows that a picture shows side by side, or an animation one after another."""

PLACED_BY_ALL: Final = "multiscale-series"
"""Method whose noisy sums of a window are independent of the map of all windows, which then places users in blocks.

Of randomized reports, those of a window are among those of all windows."""

MOST_SHOWN: Final = 1 << 20
"""Numbers of all windows that a page holds, about 4 MB of it."""


def check_drawn(path: str | PathLike[str], windows: int) -> None:
    """Refuse a picture of more windows than it shows, by an :class:`InputError`."""
    if Path(path).suffix.lower() in (".png", *ANIMATIONS) and windows > MOST_PANELS:
        raise InputError(
            f"{path}: at most {MOST_PANELS} windows are drawn, got {windows}; write another format, such as .parquet, "
            "or take fewer windows"
        )


def blocks_note(blocks: int) -> str:
    """A note on the blocks that each window of a series was measured in."""
    if blocks == 1:
        return (
            "each window was measured in 1 block: pictures show it in one tone, and in files its users lie as in all "
            "windows together"
        )
    return f"each window was measured in {blocks} blocks; inside a block users lie as in all windows together"


@dataclass(frozen=True, eq=False)
class SeriesMap(DensityMap):
    """A released series: the density map of all windows together, with the users of every cell in each.

    Parameters
    ----------
    values, tiling, guarantee, method, parameters, measurements, notes, rounds, version
        As for :class:`~mapveil.maps.density_map.DensityMap`, of all windows together.
    windows : Windows
        The windows.
    by_window : ndarray of float64, shape (windows, tiling.size)
        Estimated users of each cell in each window. Over the windows a user counts 1, or 1 in each of several, as the
        guarantee says.
    measured : tuple of LabelMeasurement or WindowEstimates
        The noisy sums of blocks in each window, or the estimates from its reports, the coarsest first.
    """

    suffixes: ClassVar[tuple[str, ...]] = (*SUFFIXES, *ANIMATIONS)

    windows: Windows = field(kw_only=True)
    by_window: FloatArray = field(kw_only=True)
    measured: tuple[LabelMeasurement | WindowEstimates, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (self.windows.count, self.tiling.size)
        check(self.by_window.shape == shape, "by_window", f"an array of shape {shape}", self.by_window.shape)

    @classmethod
    def of(
        cls,
        heat: DensityMap,
        windows: Windows,
        by_window: FloatArray,
        measured: tuple[LabelMeasurement | WindowEstimates, ...],
    ) -> SeriesMap:
        """The series of a map of all windows together."""
        given = {item.name: getattr(heat, item.name) for item in fields(DensityMap)}
        return cls(**given, windows=windows, by_window=by_window, measured=measured)

    def save(self, path: str | PathLike[str]) -> None:
        """As for any map; a PNG shows the windows side by side, a WebP or GIF one after another, at most 120."""
        check_drawn(path, len(self))
        if Path(path).suffix.lower() == ".png":
            function_of("pictures.window_pictures:write_windows_png")(self, path)
        elif Path(path).suffix.lower() in ANIMATIONS:
            function_of("pictures.animation:write_animation")(self, path)
        else:
            super().save(path)

    def __len__(self) -> int:
        return self.windows.count

    def window(self, which: str | int) -> DensityMap:
        """The map of one window, by its name or number, with its noisy sums: it answers questions like any map.

        Its guarantee is that of the whole series: what epsilon is for one user over all windows. Users of a measured
        block are placed in it as in all windows together, but for reports.
        """
        at = self.windows.index(which) if isinstance(which, str) else range(len(self))[which]
        given = {item.name: getattr(self, item.name) for item in fields(DensityMap)}
        title = self.windows.title(at)
        title = f"{self.title}, {title}" if self.title else title
        given |= {"values": self.by_window[at], "measurements": self._measurements(at), "title": title}
        given |= {"outside": 0.0}
        if self.method == PLACED_BY_ALL:
            given["placement"] = self.values
        return DensityMap(**given)

    @property
    def blocks_note(self) -> str:
        """A note on the blocks that each window was measured in; empty where that is not known, or of reports."""
        sums = [each.noisy.size for each in self.measured if isinstance(each, LabelMeasurement)]
        return blocks_note(max(sums)) if sums else ""

    def _measurements(self, at: int) -> tuple[Measurement, ...]:
        found = (each.of_label(at) for each in self.measured)
        return tuple(each for each in found if each is not None)

    def merge_below(self, minimum: float) -> DensityMap:
        """Not of a series: its windows would no longer add up. Use :meth:`window` first."""
        raise InputError("cells of a series are not merged; take a window of it, and merge that one's")

    @property
    def period(self) -> str:
        """The windows that are shown together, one line."""
        return f"all windows together: {self.windows}"

    def window_layers(self) -> tuple[Layer, ...]:
        """The users of each cell in each window."""
        return tuple(
            Layer(f"users {name}", f"Users, {name}", "users per cell", values)
            for name, values in zip(self.windows.names, self.by_window, strict=True)
        )

    def layers(self) -> tuple[Layer, ...]:
        """The users in each window, where a page can hold them."""
        return self.window_layers() if self.by_window.size <= MOST_SHOWN else ()

    def pooled_columns(self) -> tuple[Layer, ...]:
        """Every number of a cell of the map of all windows together."""
        found = super().columns()
        return found[: len(found) - len(self.layers())]

    def columns(self) -> tuple[Layer, ...]:
        """Every number of a cell: those of the map of all windows, and the users in each."""
        return (*self.pooled_columns(), *self.window_layers())

    def about(self) -> dict[str, Any]:
        """The metadata that are particular to a series."""
        return {
            **super().about(),
            "windows": self.windows.to_dict(),
            "window_names": list(self.windows.names),
        }

    def __repr__(self) -> str:
        return f"SeriesMap({self.windows}: {len(self)} windows, {self.tiling.spec})\n{self.guarantee!r}"
