"""Small multiples: the maps of a series side by side, on one scale."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.maps.counting import counting_note
from mapveil.maps.series_map import MOST_PANELS, SeriesMap
from mapveil.pictures.colours import shared_scale
from mapveil.pictures.picture import draw_map, picture_ground
from mapveil.pictures.picture_frame import EDGE, corners_taken, draw_bar, draw_scale_bar, png_bytes, wrapped
from mapveil.pictures.picture_plane import map_plane
from mapveil.pictures.plane_ground import draw_names
from mapveil_client.errors import InputError, check_whole, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL: Final = 1.7  # inches, in a row of four and more
_ROW: Final = 6.8  # inches, of fewer panels: the words above them are then no taller than they
_DPI: Final = 110
_PER_INCH: Final = 13  # characters of a line above the panels, 9 points high
_LINE: Final = 0.16  # inches, height of a line above the panels
_SIZE: Final = 5.5  # points, of names and of the scale bar's length
_NAMES: Final = 3  # names of one's own zones, and of places, in a panel
_FEWEST: Final = 40  # characters of a line over a single panel


def plot_windows(series: SeriesMap, *, columns: int = 6) -> Axes:
    """Draw every window as a picture of one map draws it: blocks that are told from zero, and nothing else.

    Parameters
    ----------
    series : SeriesMap
        At most 120 windows.
    columns : int
        Panels in a row.

    Returns
    -------
    Axes
        Those of the first panel; the figure is ``.figure``.

    Raises
    ------
    InputError
        There are too many windows.
    MissingExtra
        matplotlib is not installed.
    """
    check_whole(columns, "columns", 1, MOST_PANELS)
    if len(series) > MOST_PANELS:
        raise InputError(f"small multiples show at most {MOST_PANELS} windows, got {len(series)}")
    figure_module = require("matplotlib.figure", "viz")
    plane = map_plane(series.tiling)
    x0, y0, x1, y1 = plane.bounds
    across = min(columns, len(series))
    down = math.ceil(len(series) / across)
    scenes = [series.window(at).scene() for at in range(len(series))]
    layers = [scene.layers[0] for scene in scenes]
    supported = any(np.isfinite(layer.values).any() for layer in layers)
    ground = picture_ground(series, plane)
    panel = max(_PANEL, _ROW / max(across, 2))
    width = panel * across + 1.2
    promise = series.guarantee.promise
    unit = f"{layers[0].unit}; {counting_note(series.parameters)}"
    words = [series.title or "Where people are, by window", series.subtitle]
    words += [f"{series.method}, {promise.label}", f"{promise.title}, all windows together"]
    said = scenes[0].doubt if supported else "No block of any window can be told from zero"
    words += [f"{unit}. {said}." if said else f"{unit}.", ", ".join(promise.stamps)]
    words += [f"{each[:1].upper()}{each[1:]}." for each in (series.blocks_note,) if each]
    words += [f"{series.tiling.spec}, {series.windows}. Mapveil {series.version}, {series.provenance.date}."]
    words += [] if ground is None else [f"{ground.attribution}."]
    characters = max(int(width * _PER_INCH), _FEWEST)
    lines = [line for text in words for line in wrapped(text, characters)]
    height = panel * down * min((y1 - y0) / (x1 - x0), 2.0) + _LINE * len(lines) + 0.4
    figure = figure_module.Figure(figsize=(width, height), layout="constrained")
    panels = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    scale = shared_scale(layers)
    for at, (axes, scene) in enumerate(zip(panels, scenes, strict=False)):
        mappable = draw_map(series, scene, plane, axes, scale, ground, legend=False)
        axes.set_title(series.windows.names[at], size=8, pad=14 if series.windows.days(at) else 6)
        above: dict[str, Any] = {
            "xytext": (0, 4),
            "textcoords": "offset points",
            "ha": "center",
            "size": _SIZE,
        }
        axes.annotate(series.windows.days(at), (0.5, 1), xycoords="axes fraction", **above)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_edgecolor(EDGE)
    for axes in panels[len(scenes) :]:
        axes.set_axis_off()
    if series.tiling.region.georeferenced:
        draw_scale_bar(plane, panels[0], _SIZE)
    if supported:
        draw_bar(series, panels[across - 1], mappable, scale, layers[0].unit)
    figure.suptitle("\n".join(lines), size=9, parse_math=False)
    if ground is not None:
        figure.draw_without_rendering()  # the layout places the panels; names are cleared of one another there
        taken = corners_taken(series, doubts=0)[:1]
        for axes in panels[: len(scenes)]:
            draw_names(ground, axes, reserved=taken, most=_NAMES, size=_SIZE)
    first: Axes = panels[0]
    return first


def write_windows_png(series: SeriesMap, path: str | PathLike[str], *, columns: int = 6) -> None:
    """Write :func:`plot_windows` as a PNG with the series' metadata."""
    picture = png_bytes(series, plot_windows(series, columns=columns), _DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)
