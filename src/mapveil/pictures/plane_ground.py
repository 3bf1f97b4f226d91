"""The ground in the plane of a picture, and its drawing by matplotlib: land, lakes and borders, names of places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mapveil.geo.context import Context
from mapveil.geo.ground import ATTRIBUTION, PlaceNames, Shapes, cut_lines, ground_of, places_in
from mapveil.pictures.picture_plane import Courses, MapPlane
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

    from mapveil.geo.region import Region

WATER: Final = "#dde7ee"
LAND: Final = "#f7f6f2"
_COAST: Final = "#5f7d92"
_BORDER: Final = "#8d8a92"
_OWN: Final = "#75757f"  # the user's own lines
_NAME: Final = "#3a3a44"
_MOST_NAMES: Final = 14
_MOST_OWN: Final = 24  # of the user's layers
_FEWEST_PLACES: Final = 5  # beside many of those
_NAME_SIZE: Final = 7.5  # points
_RISE: Final = 2.5  # points of a name above its place
_SAMPLES: Final = 33  # of a side of the plane, whose degrees are known


Box = tuple[float, float, float, float]
"""Left or west, bottom or south, right or east, top or north."""


class PlaneGround(NamedTuple):
    """The ground in a plane: rings, lines, and places with their names, the user's own first, then by population."""

    bounds: Box  # x0, y0, x1, y1: no ground is known outside
    land: Courses  # rings
    lakes: Courses  # rings
    shores: Courses  # lines: the outlines of both, less where the ground was cut
    borders: Courses  # lines
    own: Courses  # lines of the user's layers
    places: FloatArray  # shape (places, 2): x, y
    names: tuple[str, ...]
    attribution: str
    own_names: int  # how many of the names are the user's


def plane_ground(
    plane: MapPlane, region: Region, context: Context | None = None, *, margin: float = 0.0
) -> PlaneGround | None:
    """The ground around a plane; None without georeference.

    Parameters
    ----------
    plane : MapPlane
        The plane.
    region : Region
        The region of its map.
    context : Context, optional
        The user's own layers.
    margin : float
        Width of the ground beyond each side of the plane, as a fraction of the longer side; no wider than the earth.
    """
    if not region.georeferenced:
        return None
    x0, y0, x1, y1 = plane.bounds
    across = margin * max(x1 - x0, (y1 - y0) * plane.aspect)
    bounds = _on_earth(
        plane, (x0 - across, y0 - across / plane.aspect, x1 + across, y1 + across / plane.aspect)
    )
    box = _degrees_box(plane, bounds)
    if box is None:
        return None
    found = ground_of(box)
    own, named = _within(context, box)
    known = set(named.name)  # one name once: the user's own district wins over the gazetteer's
    others = [at for at, name in enumerate(found.places.name) if name not in known]
    x, y = plane.projection.project(
        *(
            np.concatenate(both)
            for both in zip(named[:2], (part[others] for part in found.places[:2]), strict=True)
        )
    )
    land, lakes, borders = (_projected(plane, part) for part in (found.land, found.lakes, found.borders))
    return PlaneGround(
        bounds,
        land,
        lakes,
        _inner_lines((land, lakes), bounds),
        borders,
        _projected(plane, own),
        np.stack([x, y], axis=1),
        (*named.name, *(found.places.name[at] for at in others)),
        ATTRIBUTION,
        len(named.name),
    )


def draw_ground(ground: PlaneGround, axes: Axes) -> None:
    """Fill land and lakes below everything else, and draw coast, shores and borders over the cells."""
    patches, collections = require("matplotlib.patches", "viz"), require("matplotlib.collections", "viz")
    x0, y0, x1, y1 = ground.bounds
    axes.add_patch(patches.Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=WATER, linewidth=0, zorder=-4))
    for courses, colour, order in ((ground.land, LAND, -3), (ground.lakes, WATER, -2)):
        if courses.corners.size:
            shape = patches.PathPatch(_path(courses), facecolor=colour, linewidth=0, zorder=order)
            axes.add_patch(shape)
    for courses, colour, dashes in (
        (ground.own, _OWN, "-"),
        (ground.shores, _COAST, "-"),
        (ground.borders, _BORDER, (0, (4, 3))),
    ):
        if courses.corners.size == 0:
            continue
        lines = np.split(courses.corners, courses.start[1:-1])
        drawn = collections.LineCollection(
            lines, colors=colour, linewidths=0.7, linestyles=dashes, zorder=1.5
        )
        axes.add_collection(drawn, autolim=False)


def draw_names(
    ground: PlaneGround,
    axes: Axes,
    *,
    reserved: Sequence[Box] = (),
    most: int = _MOST_OWN,
    size: float = _NAME_SIZE,
) -> str:
    """Write names of the user's layers and of the largest places within the axes, each clear of those before.

    Returns a sentence about the user's names that are not drawn, or nothing.

    Parameters
    ----------
    ground : PlaneGround
        The ground.
    axes : matplotlib Axes
        The map, with its limits set.
    reserved : sequence of tuple
        Boxes that must stay free, fractions of the axes: left, bottom, right, top.
    most : int
        Largest number of the user's names.
    size : float
        Height of the letters, points.
    """
    effects, paths = require("matplotlib.patheffects", "viz"), require("matplotlib.textpath", "viz")
    halo = [effects.withStroke(linewidth=2.2, foreground="#ffffffd0")]
    points = 72.0 / axes.figure.dpi
    frame = axes.get_window_extent()
    corner, sides = (frame.x0, frame.y0) * 2, (frame.width, frame.height) * 2
    taken: list[Box] = [tuple(np.add(corner, np.multiply(part, sides)).tolist()) for part in reserved]
    own, drawn, there = 0, 0, 0
    style: dict[str, Any] = {"size": size, "color": _NAME, "path_effects": halo, "parse_math": False}

    def is_free(label: Box) -> bool:
        left, bottom, right, top = label
        within = left > frame.x0 and right < frame.x1 and bottom > frame.y0 and top < frame.y1
        return within and not any(_meet(label, other) for other in taken)

    for at, ((x, y), name) in enumerate(zip(ground.places.tolist(), ground.names, strict=True)):
        px, py = axes.transData.transform((x, y))
        if not (frame.x0 < px < frame.x1 and frame.y0 < py < frame.y1):
            continue
        if at < ground.own_names:
            there += 1
            if own == most:
                continue
        elif drawn >= max(min(most, _MOST_NAMES), own + min(most, _FEWEST_PLACES)):
            break
        half = (paths.TextPath((0, 0), name, size=size).get_extents().width / 2 + 2) / points
        near, far, side = 3 / points, (_RISE + 1.4 * size) / points, 0.7 * size / points
        above = px - half, py - near, px + half, py + far
        right = px - near, py - side, px + near + 2 * half, py + side
        # One's own names may stand to the right of their places too.
        tried = (above, right) if at < ground.own_names else (above,)
        label = next((each for each in tried if is_free(each)), None)
        if label is None:
            continue
        taken.append(label)
        axes.plot([x], [y], ".", color=_NAME, markersize=2.6, zorder=5.4, scalex=False, scaley=False)
        beside: dict[str, Any] = {"xytext": (0, _RISE), "ha": "center", "va": "bottom"}
        if label is right:
            beside = {"xytext": (2 * _RISE, 0), "ha": "left", "va": "center"}
        axes.annotate(name, (x, y), zorder=5.5, textcoords="offset points", **beside, **style)
        drawn += 1
        own += at < ground.own_names
    return f" {own} of {there} names of zones and own layers are drawn." if own < there else ""


def _inner_lines(outlines: Iterable[Courses], bounds: Box) -> Courses:
    """The lines of outlines without their edges along the bounds, where they were cut."""
    x0, y0, x1, y1 = bounds
    gap = 1e-6 * max(x1 - x0, y1 - y0)
    lines: list[FloatArray] = []
    for courses in outlines:
        x, y = courses.corners.T
        inside = (x > x0 + gap) & (x < x1 - gap) & (y > y0 + gap) & (y < y1 - gap)
        for start, end in zip(courses.start[:-1].tolist(), courses.start[1:].tolist(), strict=True):
            kept = inside[start : end - 1] | inside[start + 1 : end]
            pieces = np.split(np.arange(kept.size), np.flatnonzero(np.diff(kept)) + 1)
            runs = (piece + start for piece in pieces if piece.size and kept[piece[0]])
            lines += [courses.corners[run[0] : run[-1] + 2] for run in runs]
    start_of = np.cumsum([0, *map(len, lines)])
    return Courses(np.concatenate([np.empty((0, 2)), *lines]), start_of.astype(np.int64))


def _on_earth(plane: MapPlane, bounds: Box) -> Box:
    """The part of a box of the plane on which there is earth; the box itself where meridians are not straight."""
    if not plane.projection.separable:
        return bounds
    (west, east), (south, north) = plane.projection.project(
        np.array([-180.0, 180.0]), np.array([-90.0, 90.0])
    )
    x0, y0, x1, y1 = bounds
    return (
        max(x0, float(west)), max(y0, float(south)),
        min(x1, float(east)), min(y1, float(north)),
    )  # fmt: skip


def _degrees_box(plane: MapPlane, bounds: Box) -> Box | None:
    """The smallest box of degrees around a box of the plane; None where the plane ends within it."""
    x0, y0, x1, y1 = bounds
    x, y = np.meshgrid(np.linspace(x0, x1, _SAMPLES), np.linspace(y0, y1, _SAMPLES))
    with np.errstate(all="ignore"):
        lon, lat = plane.projection.unproject(x.ravel(), y.ravel())
    known = np.isfinite(lon) & np.isfinite(lat)
    if not known.any():
        return None
    lon, lat = lon[known], lat[known]
    return (
        max(float(lon.min()), -180.0), max(float(lat.min()), -90.0),
        min(float(lon.max()), 180.0), min(float(lat.max()), 90.0),
    )  # fmt: skip


def _within(context: Context | None, box: Box) -> tuple[Shapes, PlaceNames]:
    """The user's layers, cut to a box of degrees."""
    if context is None:
        context = Context.nothing()
    return cut_lines(context.lines, box), places_in(context.names, box)


def _projected(plane: MapPlane, shapes: Shapes) -> Courses:
    x, y = plane.projection.project(shapes.lon, shapes.lat)
    return Courses(np.stack([x, y], axis=1), shapes.start)


def _path(courses: Courses) -> Any:
    """One compound path of closed rings."""
    path = require("matplotlib.path", "viz").Path
    codes = np.full(len(courses.corners), path.LINETO, dtype=np.uint8)
    codes[courses.start[1:] - 1] = path.CLOSEPOLY
    codes[courses.start[:-1]] = path.MOVETO
    return path(courses.corners, codes)


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
