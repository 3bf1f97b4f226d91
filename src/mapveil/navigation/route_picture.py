"""Roads coloured by their traffic, with ways on top: a picture and a page."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.colours import density_scale
from mapveil.pictures.flow_picture import flow_colormap
from mapveil.pictures.lines_page import MARK_COLOURS, Lines, lines_page
from mapveil.pictures.picture_frame import (
    DPI,
    INK,
    PAPER,
    draw_bar,
    new_axes,
    png_bytes,
    style_frame,
    write_words,
)
from mapveil.pictures.plane import MapPlane, map_plane
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mapveil.navigation.route_map import RouteMap


_ROAD: Final = "#cfcfd6"
_FREE_S: Final = 1.0
"""Seconds of delay below which a road is drawn as free."""
_UNIT: Final = "seconds of delay"
_MOST_ROADS: Final = 60_000  # on a page


def plot_routes(routes: RouteMap, ax: Axes | None = None, *, title: str | None = None) -> Axes:
    """Draw roads by the delay on them, and the ways. Run by: anybody who holds the map.

    Parameters
    ----------
    routes : RouteMap
        The map.
    ax : matplotlib Axes, optional
        Where to draw; a new figure outside ``pyplot`` by default.
    title : str, optional
        The method and epsilon by default, which otherwise stay as a second line.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    collections, cm = require("matplotlib.collections", "viz"), require("matplotlib.cm", "viz")
    plane = map_plane(routes.tiling)
    axes = new_axes(plane) if ax is None else ax
    axes.set_facecolor(PAPER)
    scale = density_scale(routes.delay_s, "linear")
    mappable = cm.ScalarMappable(norm=scale.norm(), cmap=flow_colormap())
    corners, start = _corners(routes, plane)
    order = np.argsort(routes.delay_s, kind="stable")
    lines = [corners[start[road] : start[road + 1]] for road in order.tolist()]
    delay = routes.delay_s[order]
    colours = mappable.to_rgba(delay)
    free = delay < _FREE_S
    colours[free] = require("matplotlib.colors", "viz").to_rgba(_ROAD)
    speed = (routes.graph.length_m / routes.graph.seconds)[order]
    widths = np.where(free, 0.4 + 0.9 * speed / speed.max(), 1.0 + 1.4 * np.clip(delay / scale.top, 0, 1))
    axes.add_collection(collections.LineCollection(lines, colors=colours, linewidths=widths), autolim=False)
    for number, way in enumerate(routes.ways):
        x, y = plane.projection.project(*routes.course(way).T)
        label = f"{way.name}: {way.traffic_s / 60:.1f} min"
        axes.plot(x, y, color=PAPER, linewidth=4.6, solid_capstyle="round", zorder=3)
        axes.plot(
            x,
            y,
            color=MARK_COLOURS[number % len(MARK_COLOURS)],
            linewidth=2.6,
            linestyle="-" if number else (0, (4, 1.5)),
            label=label,
            zorder=4,
        )
        axes.plot(x[[0, -1]], y[[0, -1]], "o", color=INK, markersize=5, zorder=5)
    x0, y0, x1, y1 = plane.bounds
    axes.set_xlim(x0, x1)
    axes.set_ylim(y0, y1)
    axes.set_aspect(plane.aspect)
    if routes.ways:
        axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    draw_bar(axes, mappable, scale, _UNIT)
    style_frame(routes, plane, axes)
    write_words(routes, axes, title)
    return axes


def write_route_png(routes: RouteMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`plot_routes` as a PNG whose text chunk ``mapveil`` holds the whole metadata.

    Raises
    ------
    InputError
        The file cannot be written.
    MissingExtra
        matplotlib is not installed.
    """
    picture = png_bytes(routes, plot_routes(routes, title=title), title, DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)


def write_route_page(routes: RouteMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`route_page` to a file.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = route_page(routes, title=title)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def route_page(routes: RouteMap, *, title: str | None = None) -> str:
    """The map as a page: roads by their delay, the ways marked, a reading of each.

    Parameters
    ----------
    routes : RouteMap
        The map.
    title : str, optional
        Head of the page.
    """
    plane, graph = map_plane(routes.tiling), routes.graph
    corners, start = _corners(routes, plane)
    shown = np.sort(np.argsort(-routes.delay_s, kind="stable")[:_MOST_ROADS])
    parts = [corners[start[road] : start[road + 1]] for road in shown.tolist()]
    parts += [np.stack(plane.projection.project(*routes.course(way).T), axis=1) for way in routes.ways]
    ways = len(routes.ways)
    cell = routes.tiling.locate(*_heads(routes))[shown]
    users = np.where(cell < 0, np.nan, routes.traffic.values[cell])
    blank = np.full(ways, np.nan)
    facts: dict[str, FloatArray | list[str]] = {
        "Delay, s": np.concatenate(
            [routes.delay_s[shown], [way.traffic_s - way.free_s for way in routes.ways]]
        ),
        "Way": [""] * shown.size + [way.name for way in routes.ways],
        "Minutes": np.concatenate([np.full(shown.size, np.nan), [way.traffic_s / 60 for way in routes.ways]]),
        "Estimated users in its cell": np.concatenate([users, blank]),
        "Length, m": np.concatenate(
            [routes.graph.length_m[shown], [_length(routes, way) for way in routes.ways]]
        ),
    }
    value = np.where(routes.delay_s[shown] >= _FREE_S, routes.delay_s[shown], np.nan)
    lines = Lines(
        np.concatenate(parts),
        np.concatenate([[0], np.cumsum([len(part) for part in parts])]),
        np.concatenate([value, blank]),
        facts,
        np.concatenate([np.full(shown.size, -1), np.arange(ways)]),
        tuple(f"{way.name}: {way.traffic_s / 60:.1f} min" for way in routes.ways),
    )
    return lines_page(
        routes,
        plane,
        lines,
        title=title or "Routes under private traffic",
        unit=_UNIT,
        reading="Roads are coloured by what the estimated traffic costs on them; pale ones cost less than a second.",
        made=[
            ("Method", routes.method),
            ("Roads", f"{graph.source}: {graph.nodes} junctions, {graph.roads} roads, one direction each"),
            ("Cells", f"{routes.tiling.spec}, {routes.tiling.size} cells"),
            *((str(row["row"]), str(row["text"])) for row in _rows(routes)),
        ],
        parameters={**routes.traffic.parameters, **routes.parameters},
        metadata=routes.metadata(),
        widths=(1.0, 3.5),
    )


def _rows(routes: RouteMap) -> list[dict[str, Any]]:
    return [
        {
            "row": f"ε = {row['epsilon']:g}, θ = {row['theta_s']:g} s",
            "text": f"total ε {row['total_epsilon']:.3g}, relative Levenshtein {row['relative_levenshtein']:.3g}, "
            f"trip time off by {row['time_deviation_min']:.3g} min",
        }
        for row in routes.results
    ]


def _heads(routes: RouteMap) -> tuple[FloatArray, FloatArray]:
    return routes.graph.lon[routes.graph.head], routes.graph.lat[routes.graph.head]


def _length(routes: RouteMap, way: Any) -> float:
    road = routes.graph.road_between(way.nodes[:-1], way.nodes[1:])
    return float(routes.graph.length_m[road].sum())


def _corners(routes: RouteMap, plane: MapPlane) -> tuple[FloatArray, IntArray]:
    shapes = routes.graph.courses()
    return np.stack(plane.projection.project(shapes.lon, shapes.lat), axis=1), shapes.start
