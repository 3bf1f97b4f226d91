"""Flows as a picture: arcs that thicken towards where they go, and under them the promise."""

from __future__ import annotations

import base64
import html
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.colours import density_scale, ramp
from mapveil.pictures.flow_arcs import POINTS, flow_arcs
from mapveil.pictures.picture_frame import (
    DPI,
    PAPER,
    draw_bar,
    draw_outline,
    new_axes,
    png_bytes,
    style_frame,
    write_words,
)
from mapveil.pictures.plane import map_plane
from mapveil_client.errors import ParameterError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from mapveil.maps.flow_map import FlowMap

_FAINTEST: Final = 56  # of the ramp's 256 colours: the first ones are paper
_WIDTHS: Final = (0.35, 3.6)  # points, of the smallest and the largest flow at its destination
_TAPER: Final = 0.25  # how thick an arc is where it begins
_MOST_SITES: Final = 5000


def plot_flows(flows: FlowMap, ax: Axes | None = None, *, title: str | None = None, arcs: int = 200) -> Axes:
    """Draw the largest flows with colour bar, scale bar and guarantee. Run by: anybody who holds the flows.

    Arcs bend to the left of their direction and thicken towards their destination; dots are flows within one cell.

    Parameters
    ----------
    flows : FlowMap
        The flows.
    ax : matplotlib Axes, optional
        Where to draw; a new figure outside ``pyplot`` by default.
    title : str, optional
        The method and epsilon by default, which otherwise stay as a second line.
    arcs : int
        How many of the largest flows to draw, at least 1.

    Raises
    ------
    ParameterError
        ``arcs`` is below 1.
    MissingExtra
        matplotlib is not installed.
    """
    if arcs < 1:
        raise ParameterError(f"arcs is {arcs!r}; at least 1 is accepted")
    collections, cm = require("matplotlib.collections", "viz"), require("matplotlib.cm", "viz")
    plane = map_plane(flows.tiling)
    axes = new_axes(plane) if ax is None else ax
    axes.set_facecolor(PAPER)
    shown = flows.largest(arcs)
    scale = density_scale(shown.trips, "log")
    mappable = cm.ScalarMappable(norm=scale.norm(), cmap=flow_colormap())
    made = flow_arcs(shown, plane)
    # An arc between cells at the border bends out of the region.
    low, high = (
        most(np.vstack([np.reshape(plane.bounds, (2, 2)), made.corners.reshape(-1, 2)]), axis=0)
        for most in (np.min, np.max)
    )
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect(plane.aspect)
    if flows.tiling.size <= _MOST_SITES:
        x, y = plane.projection.project(*flows.tiling.centres())
        axes.scatter(x, y, s=2, color="#d5d5db", linewidths=0, zorder=1)
    # The largest last, on top of the others.
    order = np.argsort(shown.trips[made.flow], kind="stable")
    flow, corners = made.flow[order], made.corners[order]
    segments = np.stack([corners[:, :-1], corners[:, 1:]], axis=2).reshape(-1, 2, 2)
    part = scale.fraction(shown.trips)
    width = _WIDTHS[0] + (_WIDTHS[1] - _WIDTHS[0]) * part
    taper = np.linspace(_TAPER, 1.0, POINTS - 1)
    colours = mappable.to_rgba(shown.trips)
    axes.add_collection(
        collections.LineCollection(
            segments,
            colors=np.repeat(colours[flow], POINTS - 1, axis=0),
            linewidths=np.outer(width[flow], taper).ravel(),
            capstyle="round",
            zorder=2,
        ),
        autolim=False,
    )
    if made.dot_flow.size:
        axes.scatter(
            made.dots[:, 0],
            made.dots[:, 1],
            s=12 + 90 * part[made.dot_flow],
            c=colours[made.dot_flow],
            edgecolors=PAPER,
            linewidths=0.6,
            zorder=3,
        )
    draw_outline(flows, plane, axes)
    draw_bar(axes, mappable, scale, "trips")
    style_frame(flows, plane, axes)
    write_words(_with_words(flows, shown), axes, title)
    return axes


def write_flow_png(flows: FlowMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`plot_flows` as a PNG whose text chunk ``mapveil`` holds the whole metadata.

    Raises
    ------
    InputError
        The file cannot be written.
    MissingExtra
        matplotlib is not installed.
    """
    picture = png_bytes(flows, plot_flows(flows, title=title), title, DPI)
    with atomic_path(path) as place:
        place.write_bytes(picture)


def flow_notebook_html(flows: FlowMap) -> str:
    """What a notebook shows for flows: the picture and the promise."""
    head = html.escape(f"FlowMap: {flows.method}, {flows.tiling.spec}, {flows.size} flows")
    code = base64.b64encode(png_bytes(flows, plot_flows(flows), None, 96)).decode()
    return (
        f'<figure><img alt="{head}" src="data:image/png;base64,{code}" style="max-width:100%"><figcaption>{head}'
        f"<details><summary>Guarantee</summary><pre>{html.escape(repr(flows.guarantee))}</pre></details>"
        "</figcaption></figure>"
    )


def flow_colormap() -> Colormap:
    """The ramp of every map without its faintest colours, which no thin line can show."""
    colors = require("matplotlib.colors", "viz")
    made: Any = colors.ListedColormap(ramp()[_FAINTEST:] / 255.0, name="mapveil_flows")
    return made  # type: ignore[no-any-return]


def _with_words(flows: FlowMap, shown: FlowMap) -> FlowMap:
    """The flows with a note on what the picture leaves out."""
    from dataclasses import replace

    more = f"the {shown.size} largest of {flows.size} flows are drawn, " if shown.size < flows.size else ""
    part = shown.trips.sum() / flows.total if flows.total else 1.0
    text = f"{more}{100 * part:.0f} % of the estimated trips; arcs thicken towards their destination"
    return replace(flows, notes=(*flows.notes, text))
