"""The picture of a map's scene: cells or lines in colours, the scale, and under them the guarantee.

Figures are made as objects, never through ``pyplot``: nothing is shown, no global state is touched, and no
display is needed.
"""

from __future__ import annotations

import base64
import html
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.geo.basemap import joined
from mapveil.geo.context import Context
from mapveil.geo.zone_cells import ZoneCells
from mapveil.pictures.colours import DensityScale, colormap, scene_scale
from mapveil.pictures.picture_frame import (
    DPI,
    HOLE_COLOUR,
    INK,
    PAPER,
    beyond_words,
    corners_taken,
    draw_bar,
    draw_doubt,
    draw_legend,
    draw_nothing,
    draw_outline,
    make_room,
    new_axes,
    number_text,
    png_bytes,
    ring_paths,
    style_frame,
    write_words,
)
from mapveil.pictures.picture_plane import POINTS, Courses, MapPlane, map_plane, planar
from mapveil.pictures.plane_ground import PlaneGround, draw_ground, draw_names, plane_ground
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import MissingExtra, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

    from mapveil.geo.tiling import Tiling
    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import Layer, Lines, Scene

MARK_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Colours of marked lines, after Okabe and Ito: told apart by every eye."""

PALEST: Final = 0.06
"""Fraction of the ramp left out where blank cells are unknown: its paper would pass for unknown."""

FAINTEST: Final = 0.22
"""Fraction of the ramp left out for lines: its first colours are paper, which no thin line can show."""

_ALONE: Final = " One value alone has the middle tone, since there is no other to compare it with."
_AROUND: Final = 0.3  # of the longer side: ground beyond the cells, for arcs that bend out of them
_UNKNOWN: Final = "#ececf0"
_FREE: Final = "#cfcfd6"  # lines without a value
_SITE: Final = "#d5d5db"
_WIDTHS: Final = (0.35, 3.6)  # points, of the smallest and the largest arc at its destination
_TAPER: Final = 0.25  # thickness of an arc at its origin, as a fraction of that at its destination


def plot(released: ReleasedMap, ax: Axes | None = None, **shown: Any) -> Axes:
    """Draw a map with its colour bar, scale bar and guarantee. Run by: anybody who holds the map.

    Arcs bend to the left of their direction and thicken towards their destination; dots are flows within one cell.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure (``.figure`` of the result, outside ``pyplot``) by default.
    **shown
        Arguments of the map's ``scene``, such as ``scale``, ``label`` or ``arcs``.

    Raises
    ------
    ParameterError
        An argument of the scene is outside its range.
    MissingExtra
        matplotlib is not installed.
    """
    scene, plane = released.scene(**shown), map_plane(released.tiling)
    scale = scene_scale(scene)
    axes = new_axes(plane) if ax is None else ax
    draw_picture(released, scene, plane, axes, scale, picture_ground(released, plane))
    return axes


def picture_ground(released: ReleasedMap, plane: MapPlane) -> PlaneGround | None:
    """The ground around a map's plane, with its own layers; None without georeference."""
    return plane_ground(plane, released.tiling.region, drawn_context(released), margin=_AROUND)


def drawn_context(released: ReleasedMap) -> Context | None:
    """The layers over a map's ground: outlines and names of its zones, where its cells are zones, and its own."""
    tiling, own = released.tiling, released.context
    if not isinstance(tiling, ZoneCells):
        return own
    zones = Context.of_zones(tiling.zones)
    return zones if own is None else joined(zones, own)


def draw_picture(
    released: ReleasedMap,
    scene: Scene,
    plane: MapPlane,
    axes: Axes,
    scale: DensityScale,
    ground: PlaneGround | None,
) -> None:
    """Draw the whole picture of a scene: the map, its frame, names, scale and words. Arguments as :func:`draw_map`."""
    layer = scene.layers[0]
    mappable = draw_map(released, scene, plane, axes, scale, ground)
    words, lead = [], scene.reading
    if scene.doubt and not np.isfinite(layer.values).any():
        words.append(draw_nothing(axes, scene.reading))
    else:
        draw_bar(released, axes, mappable, scale, _unit(layer), holes=layer.shading.holes)
        lead += _ALONE * scale.alone
    style_frame(released, plane, axes)
    if scene.lines is None:
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        lead += beyond_words(released, plane, (left, low, right, high))
    if scene.bounds is not None and layer.derived and scene.blocks is None:
        half = half_widths(layer, scene.bounds, cell_areas(released.tiling, scene.layers))
        if np.isfinite(half).any():
            lead += f" Uncertainty of the median cell: ± {number_text(np.nanmedian(half))} {layer.unit}."
    credit = f"{ground.attribution}." if ground is not None else ""
    if ground is not None:
        corners = corners_taken(released, doubts=sum(map(bool, (scene.doubt, scene.dotted, scene.hole))))
        lead += draw_names(ground, axes, reserved=[*corners, *words])
    write_words(released, axes, released.title or scene.title, lead=lead.lstrip(), credit=credit)


def draw_map(
    released: ReleasedMap,
    scene: Scene,
    plane: MapPlane,
    axes: Axes,
    scale: DensityScale,
    ground: PlaneGround | None,
    *,
    legend: bool = True,
) -> ScalarMappable:
    """Draw ground, cells or lines of a scene, their doubt, and the region's outline.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    scene : Scene
        Its scene.
    plane : MapPlane
        The plane of its tiling.
    axes : matplotlib Axes
        Axes to draw on.
    scale : DensityScale
        Scale of the first layer, which several pictures may share.
    ground : PlaneGround or None
        As :func:`picture_ground` makes it.
    legend : bool
        Whether the axes say what hatches and dots mean.
    """
    layer = scene.layers[0]
    axes.set_facecolor(_UNKNOWN if layer.shading.blank else PAPER)
    if ground is not None:
        draw_ground(ground, axes)
    if scene.lines is None:
        values, style = coloured(layer, scale)
        if scene.unsure is not None:
            values = np.where(scene.unsure, np.maximum(values, scale.low), values)
        mappable = draw_cells(plane, axes, values, style)
        samples = draw_doubt(released, plane, axes, scene)
        if legend:
            make_room(released, plane, axes, np.isfinite(values), doubts=len(samples))
        if legend and samples:
            draw_legend(axes, *samples)
    else:
        cm = require("matplotlib.cm", "viz")
        mappable = cm.ScalarMappable(norm=scale.norm(), cmap=colormap(FAINTEST))
        courses = planar(plane, scene.lines)
        _frame(plane, axes, courses.corners if scene.lines.directed else np.empty((0, 2)))
        _draw_lines(axes, courses, scene.lines, layer.values, mappable, scale)
        if scene.dots is not None:
            _draw_dots(released, plane, axes, scene.dots, mappable, scale)
    draw_outline(released, plane, axes)
    return mappable


def cell_areas(tiling: Tiling, layers: Sequence[Layer]) -> FloatArray:
    """Areas that densities are per: km², or shares of a region without georeference; NaN where no density is known."""
    area = tiling.area_m2() / (1e6 if tiling.region.georeferenced else 1.0)
    for layer in layers:
        if layer.derived:
            area = np.where(np.isnan(layer.values), np.nan, area)
    return area


def half_widths(density: Layer, bounds: tuple[FloatArray, FloatArray, str], area: FloatArray) -> FloatArray:
    """Half the width of each cell's bounds, in the unit of the density; NaN where none are known."""
    lower, upper, _ = bounds
    half = np.full(area.shape, np.nan)
    known = np.isfinite(upper) & (area > 0)
    np.divide((upper - lower) / 2, area if density.derived else 1.0, out=half, where=known)
    return half


def write_png(released: ReleasedMap, path: str | PathLike[str], **shown: Any) -> None:
    """Write :func:`plot` as a PNG whose text chunk ``mapveil`` holds the map's whole metadata."""
    picture = png_bytes(released, plot(released, **shown), DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)


def notebook_html(released: ReleasedMap) -> str:
    """Show a map in a notebook: picture, warnings and guarantee; no picture without matplotlib."""
    words = html.escape(repr(released.guarantee))
    warned = "".join(
        f"<p><strong>{html.escape(text)}</strong></p>" for text in released.guarantee.promise.warnings
    )
    head = html.escape(
        f"{type(released).__name__}: {released.method}, {released.tiling.spec}, {released.tiling.size} cells"
    )
    try:
        code = base64.b64encode(png_bytes(released, plot(released), 96)).decode()
        image = f'<img alt="{head}" src="data:image/png;base64,{code}" style="max-width:100%">'
    except MissingExtra as missing:
        image = f"<p>{html.escape(str(missing))}</p>"
    return (
        f"<figure>{image}<figcaption>{head}{warned}<details><summary>Guarantee</summary><pre>{words}</pre></details>"
        "</figcaption></figure>"
    )


def draw_cells(plane: MapPlane, axes: Axes, values: FloatArray, style: dict[str, Any]) -> ScalarMappable:
    """Fill the cells of a plane with the colours (``cmap``, ``norm``) of numbers; NaN stays blank."""
    x0, y0, x1, y1 = plane.bounds
    if plane.frame is not None:
        # Colours are mixed, not densities, so that cells outside the region do not eat those beside them.
        shown = {"extent": (x0, x1, y0, y1), "aspect": plane.aspect, "interpolation_stage": "rgba", **style}
        return axes.imshow(plane.frame.image(values), **shown)
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


def _unit(layer: Layer) -> str:
    return f"{layer.title}, {layer.unit}" if layer.shading.low else layer.unit


def coloured(layer: Layer, scale: DensityScale) -> tuple[FloatArray, dict[str, Any]]:
    """The numbers of a layer as they are coloured, and the colours."""
    if not layer.shading.blank:
        return layer.values, {"cmap": colormap(), "norm": scale.norm()}
    cmap, norm = colormap(PALEST), require("matplotlib.colors", "viz").Normalize(scale.low, scale.top)
    if layer.shading.holes:
        return layer.values, {"cmap": cmap.with_extremes(under=HOLE_COLOUR), "norm": norm}
    # Weak cells of a map without holes take the ramp's end.
    return np.maximum(layer.values, scale.low), {"cmap": cmap, "norm": norm}


def _frame(plane: MapPlane, axes: Axes, corners: FloatArray) -> None:
    """Show the whole plane, and arcs between cells at the border, which bend out of the region."""
    x0, y0, x1, y1 = plane.bounds
    low = np.min(np.vstack([[(x0, y0)], corners]), axis=0)
    high = np.max(np.vstack([[(x1, y1)], corners]), axis=0)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect(plane.aspect)


def _draw_lines(
    axes: Axes,
    courses: Courses,
    lines: Lines,
    values: FloatArray,
    mappable: ScalarMappable,
    scale: DensityScale,
) -> None:
    """Draw lines by their value, the largest on top; then the marked ones."""
    collections = require("matplotlib.collections", "viz")
    mark = np.full(values.size, -1) if lines.mark is None else lines.mark
    faded = np.zeros(values.size, dtype=np.bool_) if lines.faded is None else lines.faded
    # Lines without a value lie lowest, and those that cannot be told from zero.
    order = np.argsort(np.where(np.isnan(values) | faded, -np.inf, values), kind="stable")
    order = order[mark[order] < 0]
    pieces = [courses.corners[courses.start[line] : courses.start[line + 1]] for line in order.tolist()]
    value = values[order]
    colours = mappable.to_rgba(value)
    colours[np.isnan(value) | faded[order]] = require("matplotlib.colors", "viz").to_rgba(_FREE)
    fraction = np.where(faded[order], 0.0, scale.fraction(value))
    if lines.directed:
        taper = np.linspace(_TAPER, 1.0, POINTS - 1)
        edges = [np.stack([piece[:-1], piece[1:]], axis=1) for piece in pieces]
        drawn: Any = np.concatenate(edges) if edges else []
        colours = np.repeat(colours, POINTS - 1, axis=0)
        widths = np.outer(_WIDTHS[0] + (_WIDTHS[1] - _WIDTHS[0]) * fraction, taper).ravel()
    else:
        drawn, weight = pieces, np.zeros(value.size) if lines.weight is None else lines.weight[order]
        widths = np.where(np.isnan(value), 0.4 + 0.9 * weight, 1.0 + 1.4 * np.clip(fraction, 0, 1))
    axes.add_collection(
        collections.LineCollection(drawn, colors=colours, linewidths=widths, capstyle="round", zorder=2),
        autolim=False,
    )
    for line in np.flatnonzero(mark >= 0).tolist():
        number = int(mark[line])
        x, y = courses.corners[courses.start[line] : courses.start[line + 1]].T
        axes.plot(x, y, color=PAPER, linewidth=4.6, solid_capstyle="round", zorder=3)
        colour, dashes = MARK_COLOURS[number % len(MARK_COLOURS)], "-" if number else (0, (4, 1.5))
        axes.plot(x, y, color=colour, linewidth=2.6, linestyle=dashes, label=lines.marks[number], zorder=4)
        axes.plot(x[[0, -1]], y[[0, -1]], "o", color=INK, markersize=5, zorder=5)
    if lines.marks:
        axes.legend(loc="upper right", fontsize=8, framealpha=0.9)


def _draw_dots(
    released: ReleasedMap,
    plane: MapPlane,
    axes: Axes,
    dots: FloatArray,
    mappable: ScalarMappable,
    scale: DensityScale,
) -> None:
    """Draw cells as faint dots, and those with a value as discs of its colour."""
    x, y = plane.projection.project(*released.tiling.centres())
    site, disc = np.isfinite(dots), dots > 0
    axes.scatter(x[site], y[site], s=2, color=_SITE, linewidths=0, zorder=1)
    if disc.any():
        size = 12 + 90 * scale.fraction(dots[disc])
        colour = mappable.to_rgba(dots[disc])
        axes.scatter(x[disc], y[disc], s=size, c=colour, edgecolors=PAPER, linewidths=0.6, zorder=3)
