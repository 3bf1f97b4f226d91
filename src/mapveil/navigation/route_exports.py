"""Maps of routes as files: lines of GeoJSON, a picture, a page."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.navigation.route_map import RouteMap
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
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ROUTE_SUFFIXES: Final = (".geojson", ".json", ".png", ".html")
"""Suffixes that :func:`write_routes` can write."""

_DECIMALS: Final = 7  # of a degree: about a centimetre
_ROAD: Final = "#cfcfd6"
_FREE_S: Final = 1.0  # a road with less delay is drawn as free, seconds
_UNIT: Final = "seconds of delay"
_MOST_ROADS: Final = 60_000  # on a page


def write_routes(routes: RouteMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write the format that the suffix names: .geojson, .json, .png or .html.

    Raises
    ------
    InputError
        Another suffix, or a file that cannot be written.
    MissingExtra
        The format needs an extra that is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".png":
        data = png_bytes(routes, plot_routes(routes, title=title), title, DPI)
    elif suffix == ".html":
        data = route_page(routes, title=title).encode()
    elif suffix in ROUTE_SUFFIXES:
        data = routes_geojson(routes).encode()
    else:
        raise InputError(f"{path}: the suffix must be one of {', '.join(ROUTE_SUFFIXES)}")
    with atomic_path(path) as place:
        place.write_bytes(data)


def routes_geojson(routes: RouteMap) -> str:
    """Roads and routes as lines of GeoJSON (RFC 7946), the metadata as the foreign member ``mapveil``."""
    import shapely

    graph, shapes = routes.graph, routes.graph.courses()
    road = np.repeat(np.arange(graph.roads), np.diff(shapes.start))
    corners = np.round(np.stack([shapes.lon, shapes.lat], axis=1), _DECIMALS)
    lines = shapely.to_geojson(shapely.linestrings(corners, indices=road))
    facts = zip(lines, graph.length_m.tolist(), routes.delay_s.tolist(), strict=True)
    features = [
        f'{{"type":"Feature","geometry":{line},"properties":{{"road":{number},"length_m":{length:.1f},'
        f'"delay_s":{delay:.1f}}}}}'
        for number, (line, length, delay) in enumerate(facts)
    ]
    for way in routes.ways:
        line = shapely.to_geojson(shapely.linestrings(np.round(routes.course(way), _DECIMALS)))
        about = {"way": way.name, "free_s": round(way.free_s, 1), "traffic_s": round(way.traffic_s, 1)}
        features.append(f'{{"type":"Feature","geometry":{line},"properties":{json.dumps(about)}}}')
    head = '{"type":"FeatureCollection","mapveil":' + routes.metadata_json() + ',"features":[\n'
    return head + ",\n".join(features) + "\n]}\n"


def plot_routes(routes: RouteMap, ax: Axes | None = None, *, title: str | None = None) -> Axes:
    """Draw roads by their delay, and the routes. Run by: anybody with the map.

    Parameters
    ----------
    routes : RouteMap
        The map.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure outside ``pyplot`` by default.
    title : str, optional
        Title; method and epsilon by default, which otherwise stay as a second line.

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
        axes.plot(x, y, color=PAPER, linewidth=4.6, solid_capstyle="round", zorder=3)
        colour, style = MARK_COLOURS[number % len(MARK_COLOURS)], "-" if number else (0, (4, 1.5))
        label = f"{way.name}: {way.traffic_s / 60:.1f} min"
        axes.plot(x, y, color=colour, linewidth=2.6, linestyle=style, label=label, zorder=4)
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


def route_page(routes: RouteMap, *, title: str | None = None) -> str:
    """The map as a page: roads by their delay, the routes marked, a reading of each.

    Parameters
    ----------
    routes : RouteMap
        The map.
    title : str, optional
        Heading of the page.
    """
    plane, graph, ways = map_plane(routes.tiling), routes.graph, routes.ways
    corners, start = _corners(routes, plane)
    shown = np.sort(np.argsort(-routes.delay_s, kind="stable")[:_MOST_ROADS])
    parts = [corners[start[road] : start[road + 1]] for road in shown.tolist()]
    parts += [np.stack(plane.projection.project(*routes.course(way).T), axis=1) for way in ways]
    cell = routes.tiling.locate(graph.lon[graph.head], graph.lat[graph.head])[shown]
    users = np.where(cell < 0, np.nan, routes.traffic.values[cell])
    blank = np.full(len(ways), np.nan)
    lengths = [graph.length_m[graph.road_between(way.nodes[:-1], way.nodes[1:])].sum() for way in ways]
    delays, minutes = [way.traffic_s - way.free_s for way in ways], [way.traffic_s / 60 for way in ways]
    facts: dict[str, FloatArray | list[str]] = {
        "Delay, s": np.concatenate([routes.delay_s[shown], delays]),
        "Way": [""] * shown.size + [way.name for way in ways],
        "Minutes": np.concatenate([np.full(shown.size, np.nan), minutes]),
        "Estimated users in its cell": np.concatenate([users, blank]),
        "Length, m": np.concatenate([graph.length_m[shown], lengths]),
    }
    value = np.where(routes.delay_s[shown] >= _FREE_S, routes.delay_s[shown], np.nan)
    lines = Lines(
        np.concatenate(parts),
        np.cumsum([0, *(len(part) for part in parts)]),
        np.concatenate([value, blank]),
        facts,
        np.concatenate([np.full(shown.size, -1), np.arange(len(ways))]),
        tuple(f"{way.name}: {way.traffic_s / 60:.1f} min" for way in ways),
    )
    return lines_page(
        routes,
        plane,
        lines,
        title=title or "Routes under private traffic",
        unit=_UNIT,
        reading="Roads are coloured by their delay from the estimated traffic; pale ones have less than a second.",
        made=[
            ("Method", routes.method),
            ("Roads", f"{graph.source}: {graph.nodes} junctions, {graph.roads} roads, one direction each"),
            ("Cells", f"{routes.tiling.spec}, {routes.tiling.size} cells"),
        ],
        parameters={**routes.traffic.parameters, **routes.parameters},
        metadata=routes.metadata(),
        widths=(1.0, 3.5),
    )


def _corners(routes: RouteMap, plane: MapPlane) -> tuple[FloatArray, IntArray]:
    shapes = routes.graph.courses()
    return np.stack(plane.projection.project(shapes.lon, shapes.lat), axis=1), shapes.start
