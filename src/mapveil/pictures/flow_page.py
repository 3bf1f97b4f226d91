"""Flows as one page that needs nothing but a browser."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.geo.places import Places
from mapveil.pictures.flow_arcs import POINTS, flow_arcs
from mapveil.pictures.lines_page import Dots, Lines, lines_page
from mapveil.pictures.plane import map_plane

if TYPE_CHECKING:
    from mapveil.maps.flow_map import FlowMap

_MOST: Final = 4000  # arcs on a page
_MOST_SITES: Final = 20_000


def write_flow_page(flows: FlowMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`flow_page` to a file. Run by: anybody who holds the flows.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = flow_page(flows, title=title)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def flow_page(flows: FlowMap, *, title: str | None = None, most: int = _MOST) -> str:
    """The flows as a page: arcs that bend to the left of their direction, dots for flows within a cell.

    Parameters
    ----------
    flows : FlowMap
        The flows.
    title : str, optional
        Head of the page.
    most : int
        How many of the largest flows to draw.
    """
    plane = map_plane(flows.tiling)
    shown = flows.largest(most)
    arcs = flow_arcs(shown, plane)
    kept, ends = arcs.flow, shown.ends
    facts: dict[str, np.ndarray | list[str]] = {"Estimated trips": shown.trips[kept]}
    if shown.deviation is not None:
        facts["Standard deviation"] = shown.deviation[kept]
    facts["Length, m"] = shown.lengths_m()[kept]
    for name, cells, lon, lat in (
        ("From", shown.origin, ends.origin_lon, ends.origin_lat),
        ("To", shown.destination, ends.destination_lon, ends.destination_lat),
    ):
        facts[name] = [
            f"{_called(flows, int(cells[at]))} ({lon[at]:.5f}, {lat[at]:.5f})" for at in kept.tolist()
        ]
    within = np.zeros(flows.tiling.size)
    within[shown.origin[arcs.dot_flow]] = shown.trips[arcs.dot_flow]
    sites = np.flatnonzero(within) if flows.tiling.size > _MOST_SITES else np.arange(flows.tiling.size)
    places = np.stack(plane.projection.project(*flows.tiling.centres(sites)), axis=1)
    lines = Lines(arcs.corners.reshape(-1, 2), np.arange(kept.size + 1) * POINTS, shown.trips[kept], facts)
    part = 100 * shown.trips.sum() / flows.total if flows.total else 100.0
    return lines_page(
        flows,
        plane,
        lines,
        title=title or "Where people go",
        unit="trips",
        reading=(
            f"{shown.size} of {flows.size} flows are here, {part:.0f} % of the estimated trips; the slider hides the "
            "small ones. An arc bends to the left of its direction; dots are trips within one cell."
        ),
        made=[
            ("Method", flows.method),
            ("Cells", f"{flows.tiling.spec}, {flows.tiling.size} cells"),
            ("Region", str(flows.tiling.region)),
            ("Trips", f"{flows.total:.6g}, {flows.elsewhere:.6g} of them elsewhere"),
        ],
        parameters=flows.parameters,
        metadata=flows.metadata(),
        dots=Dots(places, within[sites]),
        directed=True,
    )


def _called(flows: FlowMap, cell: int) -> str:
    names = flows.tiling.names if isinstance(flows.tiling, Places) else None
    return f"cell {cell}" if names is None else names[cell]
