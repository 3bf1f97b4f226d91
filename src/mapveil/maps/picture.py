"""A map as a picture: its colours, its scale, and under it the promise.

Figures are made as objects, never through ``pyplot``: nothing is shown, no global state is touched, and no
display is needed.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import math
import textwrap
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.errors import MissingExtra, require
from mapveil.maps.atomic import atomic_path
from mapveil.maps.colours import DensityScale, ScaleKind, colormap, density_scale, round_down
from mapveil.maps.frame import density_unit, shown_density
from mapveil.maps.plane import MapPlane, Rings, map_plane, region_rings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.path import Path

    from mapveil.maps.density_map import DensityMap
    from mapveil.privacy.guarantee import Guarantee

__all__ = [
    "epsilon_text",
    "guarantee_line",
    "notebook_html",
    "number_text",
    "odds_factor",
    "plot_cells",
    "plot_map",
    "write_png",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_INK: Final = "#22222a"
_QUIET: Final = "#6a6a74"
_PAPER: Final = "#ffffff"
_WARNING: Final = "#c1121f"
_SEEDED: Final = "SEEDED: NOT FOR RELEASE"
_DPI: Final = 150
_MAP_INCHES: Final = 6.4
_HIGHEST_INCHES: Final = 8.5
_LINE: Final = 112


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
        How densities become colours; see :func:`mapveil.maps.colours.density_scale`.
    title : str, optional
        The method and epsilon by default, which otherwise stay as a second line.

    Raises
    ------
    ParameterError
        ``scale`` is neither.
    MissingExtra
        matplotlib is not installed.
    """
    return plot_cells(heat, shown_density(heat), density_unit(heat.tiling), ax, scale=scale, title=title)


def plot_cells(
    heat: DensityMap,
    values: FloatArray,
    unit: str,
    ax: Axes | None = None,
    *,
    scale: ScaleKind = "linear",
    title: str | None = None,
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
    """
    colours = density_scale(values, scale)
    plane = map_plane(heat.tiling)
    axes = _new_axes(plane) if ax is None else ax
    axes.set_facecolor(_PAPER)
    mappable = _draw_cells(plane, axes, values, colours)
    _draw_outline(heat, plane, axes)
    _draw_bar(axes, mappable, colours, unit)
    if heat.tiling.region.georeferenced:
        _draw_degrees(plane, axes)
        _draw_scale_bar(plane, axes)
    else:
        axes.set_xlabel("cells", color=_QUIET)
    axes.tick_params(colors=_QUIET, labelsize=8, length=3)
    for spine in axes.spines.values():
        spine.set_edgecolor("#b9b9c2")
    _write_words(heat, axes, title)
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
    picture = _png(heat, heat.plot(scale=scale, title=title), title, _DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)


def notebook_html(heat: DensityMap) -> str:
    """What a notebook shows for a map: the picture and the promise; the promise alone without matplotlib."""
    words = html.escape(repr(heat.guarantee))
    head = html.escape(f"{type(heat).__name__}: {heat.method}, {heat.tiling.spec}, {heat.tiling.size} cells")
    try:
        code = base64.b64encode(_png(heat, heat.plot(), None, 96)).decode()
        image = f'<img alt="{head}" src="data:image/png;base64,{code}" style="max-width:100%">'
    except MissingExtra as missing:
        image = f"<p>{html.escape(str(missing))}</p>"
    return (
        f"<figure>{image}<figcaption>{head}<details><summary>Guarantee</summary><pre>{words}</pre></details>"
        "</figcaption></figure>"
    )


def odds_factor(guarantee: Guarantee) -> str:
    """e to the epsilon, as a person writes it: how far one user can move the odds of an outcome."""
    factor = math.exp(min(_epsilon(guarantee), 700.0))
    return number_text(factor) if factor >= 1.1 else f"{factor:.4f}"


def _epsilon(guarantee: Guarantee) -> float:
    if guarantee.epsilon is None:
        raise AssertionError("what is not differentially private has no factor")
    return float(guarantee.epsilon)


def epsilon_text(guarantee: Guarantee) -> str:
    """``ε = 1``, or the words for its absence."""
    return guarantee.label if guarantee.epsilon is None else f"ε = {float(guarantee.epsilon):.6g}"


def guarantee_line(guarantee: Guarantee) -> str:
    """The promise in one line under a picture."""
    if guarantee.epsilon is None:
        return dataclasses.replace(guarantee, assumptions=(), seeded=False).in_words()
    kind = epsilon_text(guarantee) + (f", δ = {guarantee.delta:g}" if guarantee.delta else "")
    return (
        f"Differentially private for each {guarantee.unit} ({kind}, trust: {guarantee.trust}): one "
        f"{guarantee.unit}'s data change the odds of anything that this map shows by a factor of at most "
        f"{odds_factor(guarantee)}."
    )


def number_text(value: float) -> str:
    """A number in three digits, with thin spaces between thousands.

    Examples
    --------
    >>> number_text(2.718281828), number_text(0.0)
    ('2.72', '0')
    """
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _png(heat: DensityMap, axes: Axes, title: str | None, dpi: int) -> bytes:
    chunks = {
        "Title": title or f"{heat.method}, {heat.guarantee.label}",
        "Description": heat.guarantee.in_words(),
        "Software": f"mapveil {heat.version}",
        "mapveil": heat.metadata_json(),
    }
    made = io.BytesIO()
    figure = axes.get_figure(root=True)
    if figure is None:
        raise AssertionError("new axes have a figure")
    figure.savefig(
        made, format="png", dpi=dpi, metadata=chunks, bbox_inches="tight", pad_inches=0.2, facecolor=_PAPER
    )
    return made.getvalue()


def _new_axes(plane: MapPlane) -> Axes:
    figures = require("matplotlib.figure", "viz")
    agg = require("matplotlib.backends.backend_agg", "viz")
    x0, y0, x1, y1 = plane.bounds
    ratio = min(max(plane.aspect * (y1 - y0) / (x1 - x0), 0.25), 2.0)
    figure = figures.Figure(figsize=(_MAP_INCHES, min(_MAP_INCHES * ratio, _HIGHEST_INCHES)))
    agg.FigureCanvasAgg(figure)
    made: Axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    return made


def _draw_cells(plane: MapPlane, axes: Axes, density: FloatArray, colours: DensityScale) -> ScalarMappable:
    style: dict[str, Any] = {"cmap": colormap(), "norm": colours.norm()}
    x0, y0, x1, y1 = plane.bounds
    if plane.frame is not None:
        # Colours are mixed, not densities, so that cells outside the region do not eat those beside them.
        return axes.imshow(
            plane.frame.image(density),
            extent=(x0, x1, y0, y1),
            aspect=plane.aspect,
            interpolation_stage="rgba",
            **style,
        )
    if plane.rings is None:
        raise AssertionError("a plane has pixels or outlines")
    collections = require("matplotlib.collections", "viz")
    paths, cell = _paths(plane.rings)
    # Edges of the fill's own colour close the hairlines that smoothing leaves between neighbours.
    cells = collections.PathCollection(paths, edgecolors="face", linewidths=0.3, **style)
    cells.set_array(density[cell])
    axes.add_collection(cells, autolim=False)
    margin_x, margin_y = (x1 - x0) / 100, (y1 - y0) / 100
    axes.set_xlim(x0 - margin_x, x1 + margin_x)
    axes.set_ylim(y0 - margin_y, y1 + margin_y)
    axes.set_aspect(plane.aspect)
    made: ScalarMappable = cells
    return made


def _paths(rings: Rings) -> tuple[list[Path], IntArray]:
    """One compound path a cell that has an outline, and which cells those are."""
    path = require("matplotlib.path", "viz").Path
    codes = np.full(len(rings.corners), path.LINETO, dtype=np.uint8)
    codes[rings.start[1:] - 1] = path.CLOSEPOLY
    codes[rings.start[:-1]] = path.MOVETO
    cell, first = np.unique(rings.cell, return_index=True)
    cuts = rings.start[first[1:]]
    pieces = zip(np.split(rings.corners, cuts), np.split(codes, cuts), strict=True)
    return [path(corners, kinds) for corners, kinds in pieces], cell


def _draw_outline(heat: DensityMap, plane: MapPlane, axes: Axes) -> None:
    if heat.tiling.region.polygon is None:
        return
    collections = require("matplotlib.collections", "viz")
    paths, _ = _paths(region_rings(heat.tiling, plane.projection))
    axes.add_collection(
        collections.PathCollection(paths, facecolors="none", edgecolors=_QUIET, linewidths=0.9), autolim=False
    )


def _draw_bar(axes: Axes, mappable: ScalarMappable, colours: DensityScale, unit: str) -> None:
    # Inset, so that the bar is as high as the map, whatever the axes' shape.
    place = axes.inset_axes((1.03, 0.0, 0.035, 1.0))
    bar = axes.figure.colorbar(mappable, cax=place)
    ticks = colours.ticks()
    bar.set_ticks(ticks.tolist(), labels=[number_text(float(tick)) for tick in ticks])
    bar.minorticks_off()
    bar.ax.tick_params(colors=_QUIET, labelsize=8, length=3)
    bar.set_label(f"{unit}, {'logarithmic' if colours.kind == 'log' else 'linear'} scale", color=_INK, size=9)
    bar.outline.set_edgecolor("#b9b9c2")


def _draw_degrees(plane: MapPlane, axes: Axes) -> None:
    """Meridians and parallels as ticks, where they run straight; else none."""
    if not plane.projection.separable:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    locator = require("matplotlib.ticker", "viz").MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10])
    x, y = (np.array(axes.get_xlim()), np.array(axes.get_ylim()))
    (west, east), (south, north) = plane.projection.unproject(x, y)
    lon = np.asarray([tick for tick in locator.tick_values(west, east) if west <= tick <= east])
    lat = np.asarray([tick for tick in locator.tick_values(south, north) if south <= tick <= north])
    x, _ = plane.projection.project(lon, np.full(lon.shape, (south + north) / 2))
    _, y = plane.projection.project(np.full(lat.shape, (west + east) / 2), lat)
    axes.set_xticks(x.tolist(), [f"{abs(tick):.6g}° {'W' if tick < 0 else 'E'}" for tick in lon])
    axes.set_yticks(y.tolist(), [f"{abs(tick):.6g}° {'S' if tick < 0 else 'N'}" for tick in lat])


def _draw_scale_bar(plane: MapPlane, axes: Axes) -> None:
    effects = require("matplotlib.patheffects", "viz")
    left, right = axes.get_xlim()
    metres = round_down((right - left) * plane.metres_per_x / 4)
    part = metres / plane.metres_per_x / (right - left)
    halo = [effects.withStroke(linewidth=3, foreground=_PAPER)]
    x, y = 0.03, 0.035
    axes.plot(
        [x, x, x + part, x + part],
        [y + 0.012, y, y, y + 0.012],
        transform=axes.transAxes,
        color=_INK,
        linewidth=1.4,
        path_effects=halo,
        scalex=False,
        scaley=False,
    )
    name = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    axes.text(
        x + part / 2,
        y + 0.018,
        name,
        transform=axes.transAxes,
        ha="center",
        va="bottom",
        size=8.5,
        color=_INK,
        path_effects=halo,
    )


def _write_words(heat: DensityMap, axes: Axes, title: str | None) -> None:
    by = f"{heat.method}, {epsilon_text(heat.guarantee)}"
    head = f"{title}\n{by}" if title else by
    axes.set_title(head, loc="left", color=_INK, size=12, pad=8)
    lines = textwrap.wrap(guarantee_line(heat.guarantee), _LINE)
    for note in heat.notes:
        lines += textwrap.wrap(f"Note: {note}.", _LINE)
    lines.append(f"{heat.tiling.spec}, {heat.tiling.size} cells. Mapveil {heat.version}.")
    axes.annotate(
        "\n".join(lines),
        (0.0, 0.0),
        xycoords="axes fraction",
        xytext=(0, -26 if heat.tiling.region.georeferenced else -36),
        textcoords="offset points",
        ha="left",
        va="top",
        size=8,
        color=_QUIET,
        linespacing=1.4,
        annotation_clip=False,
    )
    if heat.guarantee.seeded:
        effects = require("matplotlib.patheffects", "viz")
        axes.text(
            0.5,
            0.5,
            _SEEDED,
            transform=axes.transAxes,
            ha="center",
            va="center",
            rotation=30,
            size=21,
            weight="bold",
            color=_WARNING,
            alpha=0.85,
            path_effects=[effects.withStroke(linewidth=4, foreground=_PAPER)],
        )
