"""The frame of every picture of a map: axes, outline, colour bar, degrees, scale bar, and the promise under it."""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.pictures.colours import DensityScale, round_down
from mapveil.pictures.picture_plane import MapPlane, Rings, region_rings
from mapveil_client.arrays import BoolArray, IntArray
from mapveil_client.errors import one_line, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.path import Path

    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import Scene


INK: Final = "#22222a"
QUIET: Final = "#6a6a74"
PAPER: Final = "#ffffff"
EDGE: Final = "#b9b9c2"
DPI: Final = 150
HOLE_COLOUR: Final = "#e2552b"
"""Colour of a coverage hole: none of the ramp."""

_HATCH_OVER: Final = "#5d5d6b"  # over colours
_HATCH: Final = "#cdcdd6"
_DOTS: Final = "#2b2b33"
_WARNING: Final = "#c1121f"
_SEEDED: Final = "SEEDED: NOT FOR RELEASE"
_MAP_INCHES: Final = 6.4
_HIGHEST_INCHES: Final = 8.5
_LINE: Final = 112  # characters below the map
_SCALE_BAR: Final = (0.03, 0.035)  # its left end, fractions of the axes
_NEAR: Final = 0.02  # of the axes: a cell reaches beyond its centre
_SEEN: Final = 0.01  # of the axes: less ground beyond the region is not noticed
BEYOND: Final = " Ground beyond the outline is outside the region: the map tells nothing of it"
_HEAD: Final = 72  # characters of a title's line
_UNIT: Final = re.compile(r"(?<=\d) (?=%|k?m\b|k?m²)")
_LETTERS: Final = 11.0  # capitals of 9 points an inch, of the colour bar's label


def new_axes(plane: MapPlane) -> Axes:
    """Axes of the map's shape in a figure of their own, outside ``pyplot``."""
    figures = require("matplotlib.figure", "viz")
    agg = require("matplotlib.backends.backend_agg", "viz")
    x0, y0, x1, y1 = plane.bounds
    ratio = min(max(plane.aspect * (y1 - y0) / (x1 - x0), 0.25), 2.0)
    figure = figures.Figure(figsize=(_MAP_INCHES, min(_MAP_INCHES * ratio, _HIGHEST_INCHES)))
    agg.FigureCanvasAgg(figure)
    made: Axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), axes_class=_shown_axes())
    return made


@functools.cache
def _shown_axes() -> Any:
    """A class of matplotlib's axes that a notebook shows as the picture of their figure."""
    axes = require("matplotlib.axes", "viz").Axes
    return type("MapAxes", (axes,), {"_repr_png_": _axes_png, "__doc__": "Axes that a notebook shows."})


def _axes_png(axes: Axes) -> bytes:
    figure, made = axes.get_figure(root=True), io.BytesIO()
    if figure is None:
        raise AssertionError("new axes have a figure")
    figure.savefig(made, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.2, facecolor=PAPER)
    return made.getvalue()


def ring_paths(rings: Rings) -> tuple[list[Path], IntArray]:
    """One compound path a cell that has an outline, and which cells those are."""
    path = require("matplotlib.path", "viz").Path
    codes = np.full(len(rings.corners), path.LINETO, dtype=np.uint8)
    codes[rings.start[1:] - 1] = path.CLOSEPOLY
    codes[rings.start[:-1]] = path.MOVETO
    cell, first = np.unique(rings.cell, return_index=True)
    cuts = rings.start[first[1:]]
    pieces = zip(np.split(rings.corners, cuts), np.split(codes, cuts), strict=True)
    return [path(corners, kinds) for corners, kinds in pieces], cell


def draw_outline(drawn: ReleasedMap, plane: MapPlane, axes: Axes) -> None:
    """The outline of the region: what is drawn beyond it is ground of which the map tells nothing."""
    collections = require("matplotlib.collections", "viz")
    paths, _ = ring_paths(region_rings(drawn.tiling, plane.projection))
    axes.add_collection(
        collections.PathCollection(paths, facecolors="none", edgecolors=QUIET, linewidths=0.9), autolim=False
    )


def beyond_words(drawn: ReleasedMap, plane: MapPlane, box: tuple[float, float, float, float]) -> str:
    """Words about a box of the plane (left, low, right, high) that shows more than the region; else ""."""
    import shapely

    project = plane.projection.project
    outline = shapely.transform(
        drawn.tiling.region.outline(), lambda corners: np.stack(project(*corners.T), axis=1)
    )
    left, low, right, high = box
    if outline.area >= (1 - _SEEN) * (right - left) * (high - low):
        return ""
    return f"{BEYOND}{'' if plane.rings is None else ', save where cells reach across the outline'}."


def draw_doubt(drawn: ReleasedMap, plane: MapPlane, axes: Axes, scene: Scene) -> list[Any]:
    """Hatch ground, or cells over their colour, and dot cells; samples of both, and of holes, for a legend."""
    patches = require("matplotlib.patches", "viz")
    samples = []
    if scene.doubt:
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": _HATCH, "hatch": "///", "linewidth": 0}
        if scene.hatched is None:
            paths, _ = ring_paths(region_rings(drawn.tiling, plane.projection))
            for path in paths:
                axes.add_patch(patches.PathPatch(path, zorder=-1, **style))
        else:
            style["edgecolor"] = _HATCH_OVER
            _hatch_cells(plane, axes, scene.hatched, style)
        samples.append(patches.Patch(label=scene.doubt, **style))
    if scene.unsure is not None:
        style = {"facecolor": "none", "edgecolor": _DOTS, "hatch": "..", "linewidth": 0}
        _hatch_cells(plane, axes, scene.unsure, style)
        samples.append(patches.Patch(label=scene.dotted, **style))
    if scene.layers[0].shading.holes:
        samples.append(patches.Patch(label=scene.hole, facecolor=HOLE_COLOUR, linewidth=0))
    return samples


def draw_legend(axes: Axes, *samples: Any) -> None:
    """Explain samples in the lower right corner, or in the upper right one where the scale bar would be hidden."""
    style: dict[str, Any] = {"fontsize": 8, "framealpha": 0.9, "edgecolor": EDGE}
    box = axes.legend(handles=samples, loc="lower right", **style)
    box.set_zorder(6.5)
    # A narrow map's legend reaches over the scale bar, whose width is at most a quarter of the map.
    if axes.transAxes.inverted().transform(box.get_window_extent())[0, 0] < _SCALE_BAR[0] + 0.25:
        axes.legend(handles=samples, loc="upper right", **style).set_zorder(6.5)


def make_room(drawn: ReleasedMap, plane: MapPlane, axes: Axes, valued: BoolArray, *, doubts: int) -> None:
    """Show a strip below the map where scale bar or legend would hide cells with a value."""
    x, y = (each[valued] for each in plane.projection.project(*drawn.tiling.centres()))
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    across, up = (x - left) / (right - left), (y - low) / (high - low)
    bar, _, legend = corners_taken(drawn, doubts=doubts)
    boxes = [box for box, there in ((bar, drawn.tiling.region.georeferenced), (legend, doubts)) if there]
    hidden = [(across > box[0] - _NEAR) & (across < box[2] + _NEAR) & (up < box[3] + _NEAR) for box in boxes]
    if np.any(hidden):
        axes.set_ylim(low - max(box[3] for box in boxes) * (high - low), high)


def corners_taken(drawn: ReleasedMap, *, doubts: int) -> list[tuple[float, float, float, float]]:
    """Boxes that names must leave free, fractions of the axes: scale bar, stamps, and the legend of so many doubts."""
    stamps = len(drawn.guarantee.promise.stamps)
    free = [(0, 0, 0.3, 0.1), (0, 1 - 0.06 * stamps, 0.6 * bool(stamps), 1)]
    return [*free, (0.5, 0, 1, 0.02 * bool(doubts) + 0.05 * doubts)]


def _hatch_cells(plane: MapPlane, axes: Axes, hatched: BoolArray, style: dict[str, Any]) -> None:
    """Hatch cells as one shape, so that the lines run on from cell to cell."""
    if not hatched.any():
        return
    path = require("matplotlib.path", "viz").Path
    if plane.rings is not None:
        outlines, cell = ring_paths(plane.rings)
        shape = path.make_compound_path(
            *(outline for outline, at in zip(outlines, cell, strict=True) if hatched[at])
        )
    else:
        shape = path.make_compound_path(
            *(path.unit_rectangle().transformed(each) for each in _boxes(plane, hatched))
        )
    axes.add_patch(require("matplotlib.patches", "viz").PathPatch(shape, zorder=2, **style))


def _boxes(plane: MapPlane, hatched: BoolArray) -> list[Any]:
    """From the unit square to every run of hatched pixels in a row."""
    if plane.frame is None:
        raise AssertionError("a plane has pixels or outlines")
    affine = require("matplotlib.transforms", "viz").Affine2D
    marked = np.nan_to_num(plane.frame.image(np.where(hatched, 1.0, 0.0))) > 0
    rows, columns = marked.shape
    x0, y0, x1, y1 = plane.bounds
    wide, high = (x1 - x0) / columns, (y1 - y0) / rows
    edges = np.diff(np.pad(marked.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    (row, first), (_, stop) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    return [
        affine().scale(wide * (end - begin), high).translate(x0 + wide * begin, y1 - high * (at + 1))
        for at, begin, end in zip(row, first, stop, strict=True)
    ]


def draw_nothing(axes: Axes, words: str) -> tuple[float, float, float, float]:
    """Write over the map that there is nothing to be drawn; the box of the words, fractions of the axes."""
    effects = require("matplotlib.patheffects", "viz")
    halo = [effects.withStroke(linewidth=4, foreground=PAPER)]
    text = axes.text(
        0.5, 0.42, "\n".join(wrapped(words, 40)), transform=axes.transAxes, ha="center", va="center",
        size=13, color=INK, path_effects=halo, zorder=7, parse_math=False,
    )  # fmt: skip
    left, bottom, right, top = axes.transAxes.inverted().transform_bbox(text.get_window_extent()).extents
    return float(left), float(bottom), float(right), float(top)


def draw_bar(
    drawn: ReleasedMap,
    axes: Axes,
    mappable: ScalarMappable,
    colours: DensityScale,
    unit: str,
    *,
    holes: bool = False,
) -> None:
    """Draw the colour bar beside the map, with the promise's stamps, and a tip below it for ``holes``."""
    # Inset, so that the bar is as high as the map, whatever the axes' shape.
    place = axes.inset_axes((1.03, 0.0, 0.035, 1.0))
    bar = axes.figure.colorbar(mappable, cax=place, extend="min" if holes else "neither")
    ticks = colours.ticks()
    bar.set_ticks(ticks.tolist(), labels=[number_text(float(tick)) for tick in ticks])
    bar.minorticks_off()
    bar.ax.tick_params(colors=QUIET, labelsize=8, length=3)
    words = [
        unit if colours.low else f"{unit}, {_scale_words(colours)}",
        "; ".join(drawn.guarantee.promise.stamps),
    ]
    axes.apply_aspect()  # the height below is the map's
    height = axes.get_window_extent().height / axes.figure.dpi
    lines = [line for each in words for line in wrapped(each, max(int(_LETTERS * height), 12))]
    bar.set_label("\n".join(lines), color=INK, size=9)
    bar.outline.set_edgecolor(EDGE)


def _scale_words(colours: DensityScale) -> str:
    """The steps of a scale from zero: one of logarithms cannot begin there."""
    if colours.kind == "linear":
        return "linear scale"
    if colours.top <= colours.knee:
        return "nearly linear scale"
    return f"scale nearly linear up to {number_text(colours.knee)}, logarithmic above"


def wrapped(text: str, characters: int) -> list[str]:
    """Lines of a text; a number stays with its unit."""
    lines = textwrap.wrap(_UNIT.sub("\u00a0", text), characters)
    return [line.replace("\u00a0", " ") for line in lines]


def number_text(value: float) -> str:
    """A number in three digits, with thin spaces between thousands, such as "2.72" and "0"."""
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def style_frame(drawn: ReleasedMap, plane: MapPlane, axes: Axes) -> None:
    """Degrees and scale bar (or the word for their absence), and quiet edges."""
    if drawn.tiling.region.georeferenced:
        _draw_degrees(plane, axes)
        draw_scale_bar(plane, axes)
    else:
        axes.set_xlabel("cells", color=QUIET)
    axes.tick_params(colors=QUIET, labelsize=8, length=3)
    for spine in axes.spines.values():
        spine.set_edgecolor(EDGE)


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


def draw_scale_bar(plane: MapPlane, axes: Axes, size: float = 8.5) -> None:
    """Draw a round length in metres in the corner, with its name in letters of ``size`` points."""
    effects = require("matplotlib.patheffects", "viz")
    halo = [effects.withStroke(linewidth=3, foreground=PAPER)]
    style: dict[str, Any] = {"transform": axes.transAxes, "color": INK, "path_effects": halo}
    left, right = axes.get_xlim()
    metres = round_down((right - left) * plane.metres_per_x / 4)
    part = metres / plane.metres_per_x / (right - left)
    x, y = _SCALE_BAR
    corners = [x, x, x + part, x + part], [y + 0.012, y, y, y + 0.012]
    axes.plot(*corners, linewidth=1.4, zorder=6, scalex=False, scaley=False, **style)
    name = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    axes.text(x + part / 2, y + 0.018, name, ha="center", va="bottom", size=size, zorder=6, **style)


def write_words(drawn: ReleasedMap, axes: Axes, title: str, *, lead: str = "", credit: str = "") -> None:
    """Write warnings and title above, ``lead``, promise, notes and ``credit`` below, and marks on the map."""
    promise = drawn.guarantee.promise
    under = (drawn.subtitle, f"{drawn.method}, {promise.label}", drawn.period)
    head = "\n".join(line for text in (title, *under) for line in wrapped(one_line(text), _HEAD))
    axes.set_title(head, loc="left", color=INK, size=12, pad=8, parse_math=False)
    lines = wrapped(lead, _LINE) + wrapped(promise.line, _LINE)
    warned = [line for text in promise.warnings for line in wrapped(text, _LINE)]
    axes.annotate(
        "\n".join(warned),
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 18 + 17 * (1 + head.count("\n"))),
        textcoords="offset points",
        ha="left",
        va="bottom",
        size=8,
        color=_WARNING,
        linespacing=1.4,
        annotation_clip=False,
        parse_math=False,
    )
    for note in drawn.notes:
        lines += wrapped(f"Note: {note}.", _LINE)
    made = (
        f"{drawn.tiling.spec}, {drawn.tiling.size} cells. Mapveil {drawn.version}, {drawn.provenance.date}."
    )
    lines += wrapped(f"{made} {credit}", _LINE)
    axes.annotate(
        "\n".join(lines),
        (0.0, 0.0),
        xycoords="axes fraction",
        xytext=(0, -26 if drawn.tiling.region.georeferenced else -36),
        textcoords="offset points",
        ha="left",
        va="top",
        size=8,
        color=QUIET,
        linespacing=1.4,
        annotation_clip=False,
        parse_math=False,
    )
    effects = require("matplotlib.patheffects", "viz")
    halo = [effects.withStroke(linewidth=4, foreground=PAPER)]
    style: dict[str, Any] = {
        "transform": axes.transAxes,
        "color": _WARNING,
        "weight": "bold",
        "path_effects": halo,
    }
    axes.text(0.03, 0.97, "\n".join(promise.stamps), va="top", size=9, zorder=7, **style)
    if drawn.guarantee.seeded:
        across: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 30, "size": 21, "alpha": 0.85}
        axes.text(0.5, 0.5, _SEEDED, **across, **style)


def png_bytes(drawn: ReleasedMap, axes: Axes, dpi: int) -> bytes:
    """The figure as a PNG whose text chunk ``mapveil`` holds the whole metadata."""
    chunks = {
        "Title": drawn.title or f"{drawn.method}, {drawn.guarantee.promise.label}",
        "Description": drawn.guarantee.in_words(),
        "Software": f"mapveil {drawn.version}",
        "mapveil": drawn.metadata_json(),
    }
    made = io.BytesIO()
    figure = axes.get_figure(root=True)
    if figure is None:
        raise AssertionError("new axes have a figure")
    figure.savefig(
        made, format="png", dpi=dpi, metadata=chunks, bbox_inches="tight", pad_inches=0.2, facecolor=PAPER
    )
    return made.getvalue()
