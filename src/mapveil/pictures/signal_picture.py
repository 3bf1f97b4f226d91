"""A coverage map as a picture: strength in dBm, holes in a colour of their own, the unknown in grey."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.colours import colormap, ramp, round_down
from mapveil.pictures.picture import draw_cells
from mapveil.pictures.picture_frame import (
    DPI,
    INK,
    QUIET,
    draw_outline,
    new_axes,
    png_bytes,
    style_frame,
    write_words,
)
from mapveil.pictures.plane import map_plane
from mapveil_client.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mapveil.maps.signal_map import SignalMap

HOLE_COLOUR: Final = "#e2552b"
"""Of what is known to be a coverage hole: no colour of the ramp."""

_UNKNOWN: Final = "#ececf0"
_RARE: Final = 0.5  # per cent of the cells beyond either end of the ramp
PALEST: Final = 0.06
"""Part of the ramp left out: its paper would pass for unknown."""


class SignalScale(NamedTuple):
    """How strength becomes a place on the ramp: linear in dBm between two ends."""

    low: float  # dBm
    top: float

    def fraction(self, dbm: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Where strengths lie on the ramp, not clipped."""
        return np.asarray((np.asarray(dbm, dtype=np.float64) - self.low) / (self.top - self.low))

    def ticks(self) -> npt.NDArray[np.float64]:
        """Round strengths to write beside the ramp."""
        step = max(round_down((self.top - self.low) / 3), 1.0)
        first = math.ceil(self.low / step) * step
        return np.arange(first, self.top + 1e-9, step)


def signal_scale(signal: SignalMap) -> SignalScale:
    """The scale of a map: what nearly all its covered cells span, in whole dBm; holes lie below.

    A few cells beyond the ends (one in two hundred) take the colour of the end, so that a stray measurement does not
    make all others look alike.
    """
    shown = signal.mean_dbm[signal.known & ~signal.holes]
    if not shown.size:
        return SignalScale(signal.hole_dbm, signal.hole_dbm + 10.0)
    low, top = (float(each) for each in np.percentile(shown, [_RARE, 100 - _RARE]))
    low = signal.hole_dbm if signal.holes.any() else math.floor(low)
    return SignalScale(low, max(math.ceil(top), low + 1.0))


def plot_signal(signal: SignalMap, ax: Axes | None = None, *, title: str | None = None) -> Axes:
    """Draw a coverage map with its scale in dBm, scale bar and promise. Run by: anybody who holds the map.

    Parameters
    ----------
    signal : SignalMap
        The map.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Head of the picture.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    colors = require("matplotlib.colors", "viz")
    scale, plane = signal_scale(signal), map_plane(signal.tiling)
    axes = new_axes(plane) if ax is None else ax
    axes.set_facecolor(_UNKNOWN)
    kept = ramp()[int(PALEST * 256) :] / 255.0
    plain = colors.ListedColormap(kept, name="mapveil signal")
    # Weak cells of a map without holes take the ramp's end, not the holes' colour.
    under = HOLE_COLOUR if signal.holes.any() else tuple(kept[0])
    cmap = plain.with_extremes(under=under, bad=colormap().get_bad())
    shown = np.where(signal.holes, signal.mean_dbm, np.maximum(signal.mean_dbm, scale.low))
    mappable = draw_cells(plane, axes, shown, cmap=cmap, norm=colors.Normalize(scale.low, scale.top))
    draw_outline(signal, plane, axes)
    place = axes.inset_axes((1.03, 0.0, 0.035, 1.0))
    bar = axes.figure.colorbar(mappable, cax=place, extend="min" if signal.holes.any() else "neither")
    bar.set_ticks(scale.ticks().tolist(), labels=[f"{tick:g}" for tick in scale.ticks()])
    bar.ax.tick_params(colors=QUIET, labelsize=8, length=3)
    bar.set_label("mean signal strength, dBm", color=INK, size=9)
    bar.outline.set_edgecolor("#b9b9c2")
    style_frame(signal, plane, axes)
    write_words(signal, axes, title, lead=_reading(signal))
    return axes


def write_signal_png(signal: SignalMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write ``signal.plot()`` as a PNG whose text chunk ``mapveil`` holds the map's whole metadata.

    Raises
    ------
    InputError
        The file cannot be written.
    MissingExtra
        matplotlib is not installed.
    """
    picture = png_bytes(signal, signal.plot(title=title), title, DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)


def _reading(signal: SignalMap) -> str:
    coverage = signal.coverage()
    size = max(signal.tiling.size, 1)
    parts = [f"{coverage.covered} cells covered ({100 * coverage.covered / size:.0f} %)"]
    hole = "orange, " if coverage.holes else ""
    parts.append(f"{coverage.holes} holes ({hole}below {signal.hole_dbm:g} dBm)")
    parts.append(f"{coverage.unknown} unknown{' (grey)' if coverage.unknown else ''}")
    sure = signal.deviation_db[signal.known]
    error = (
        f" Median standard deviation of {signal.deviation_of}: {np.median(sure):.1f} dB." if sure.size else ""
    )
    return ", ".join(parts) + "." + error
