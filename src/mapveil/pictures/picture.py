"""A map as a picture: its colours, its scale, and under it the promise.

Figures are made as objects, never through ``pyplot``: nothing is shown, no global state is touched, and no
display is needed.
"""

from __future__ import annotations

import base64
import html
from os import PathLike
from typing import TYPE_CHECKING, Any

from mapveil.formats.atomic import atomic_path
from mapveil.maps.frame import density_unit, shown_density
from mapveil.pictures.colours import ScaleKind, colormap, density_scale
from mapveil.pictures.picture_frame import (
    DPI,
    PAPER,
    draw_bar,
    draw_outline,
    new_axes,
    png_bytes,
    ring_paths,
    style_frame,
    write_words,
)
from mapveil.pictures.picture_words import epsilon_text, guarantee_line, number_text, odds_factor
from mapveil.pictures.plane import MapPlane, map_plane
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import MissingExtra, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

    from mapveil.maps.density_map import DensityMap
    from mapveil.maps.signal_map import SignalMap

__all__ = [
    "draw_cells",
    "epsilon_text",
    "guarantee_line",
    "notebook_html",
    "number_text",
    "odds_factor",
    "plot_cells",
    "plot_map",
    "write_png",
]


def plot_map(
    heat: DensityMap, ax: Axes | None = None, *, scale: ScaleKind = "log", title: str | None = None
) -> Axes:
    """Draw a map with its colour bar, scale bar and guarantee. Run by: anybody who holds the map.

    Parameters
    ----------
    heat : DensityMap
        The map.
    ax : matplotlib Axes, optional
        Where to draw; a new figure (``.figure`` of the result, outside ``pyplot``) by default.
    scale : {"log", "linear"}
        How densities become colours; see :func:`mapveil.pictures.colours.density_scale`.
    title : str, optional
        The method and epsilon by default, which otherwise stay as a second line.

    Raises
    ------
    ParameterError
        ``scale`` is neither.
    MissingExtra
        matplotlib is not installed.
    """
    return plot_cells(
        heat, shown_density(heat), density_unit(heat.tiling), ax, scale=scale, title=title, faint=heat.faint
    )


def plot_cells(
    heat: DensityMap,
    values: FloatArray,
    unit: str,
    ax: Axes | None = None,
    *,
    scale: ScaleKind = "linear",
    title: str | None = None,
    faint: float = 0.0,
) -> Axes:
    """Draw any number per cell of a map as :func:`plot_map` draws its density.

    Parameters
    ----------
    heat : DensityMap
        The map.
    values : ndarray of float64, shape (cells,)
        What to draw, none negative; NaN stays blank.
    unit : str
        What they are, for the colour bar.
    ax, scale, title
        As for :func:`plot_map`.
    faint : float
        As for :func:`mapveil.pictures.colours.density_scale`.
    """
    colours = density_scale(values, scale, faint=faint)
    plane = map_plane(heat.tiling)
    axes = new_axes(plane) if ax is None else ax
    axes.set_facecolor(PAPER)
    mappable = draw_cells(plane, axes, values, cmap=colormap(), norm=colours.norm())
    draw_outline(heat, plane, axes)
    draw_bar(axes, mappable, colours, unit)
    style_frame(heat, plane, axes)
    write_words(heat, axes, title)
    return axes


def write_png(
    heat: DensityMap, path: str | PathLike[str], *, scale: ScaleKind = "log", title: str | None = None
) -> None:
    """Write ``heat.plot()`` as a PNG whose text chunk ``mapveil`` holds the map's whole metadata.

    Raises
    ------
    ParameterError
        ``scale`` is neither.
    InputError
        The file cannot be written.
    MissingExtra
        matplotlib is not installed.
    """
    picture = png_bytes(heat, heat.plot(scale=scale, title=title), title, DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)


def notebook_html(heat: DensityMap | SignalMap) -> str:
    """What a notebook shows for a map: the picture and the promise; the promise alone without matplotlib."""
    words = html.escape(repr(heat.guarantee))
    head = html.escape(f"{type(heat).__name__}: {heat.method}, {heat.tiling.spec}, {heat.tiling.size} cells")
    try:
        code = base64.b64encode(png_bytes(heat, heat.plot(), None, 96)).decode()
        image = f'<img alt="{head}" src="data:image/png;base64,{code}" style="max-width:100%">'
    except MissingExtra as missing:
        image = f"<p>{html.escape(str(missing))}</p>"
    return (
        f"<figure>{image}<figcaption>{head}<details><summary>Guarantee</summary><pre>{words}</pre></details>"
        "</figcaption></figure>"
    )


def draw_cells(plane: MapPlane, axes: Axes, values: FloatArray, **style: Any) -> ScalarMappable:
    """Fill the cells of a plane with the colours of numbers, shape (cells,); NaN stays blank.

    Parameters
    ----------
    plane : MapPlane
        Where the cells lie.
    axes : matplotlib Axes
        Where to draw.
    values : ndarray of float64, shape (cells,)
        What to draw.
    **style
        ``cmap`` and ``norm`` of matplotlib.
    """
    x0, y0, x1, y1 = plane.bounds
    if plane.frame is not None:
        # Colours are mixed, not densities, so that cells outside the region do not eat those beside them.
        return axes.imshow(
            plane.frame.image(values),
            extent=(x0, x1, y0, y1),
            aspect=plane.aspect,
            interpolation_stage="rgba",
            **style,
        )
    if plane.rings is None:
        raise AssertionError("a plane has pixels or outlines")
    collections = require("matplotlib.collections", "viz")
    paths, cell = ring_paths(plane.rings)
    # Edges of the fill's own colour close the hairlines that smoothing leaves between neighbours.
    cells = collections.PathCollection(paths, edgecolors="face", linewidths=0.3, **style)
    cells.set_array(values[cell])
    axes.add_collection(cells, autolim=False)
    margin_x, margin_y = (x1 - x0) / 100, (y1 - y0) / 100
    axes.set_xlim(x0 - margin_x, x1 + margin_x)
    axes.set_ylim(y0 - margin_y, y1 + margin_y)
    axes.set_aspect(plane.aspect)
    made: ScalarMappable = cells
    return made
