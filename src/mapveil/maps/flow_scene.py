"""The scene of flows: arcs from cell to cell, faint where no flow is told from zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from mapveil.maps.scene import Layer, Lines, LineWindows, Scene, Shading
from mapveil_client.arrays import BoolArray, FloatArray

if TYPE_CHECKING:
    from mapveil.maps.flow_map import FlowMap

_ON_PAGE: Final = 4000  # flows
_MOST_DOTS: Final = 5000  # cells whose centres are all shown


def flow_scene(flows: FlowMap, *, page: bool, arcs: int) -> Scene:
    """Draw the largest flows between cells as arcs, so many in a picture, and those within one as dots."""
    shown = flows.largest(_ON_PAGE if page else arcs)
    part = 100 * shown.trips.sum() / flows.all_trips if flows.all_trips else 100.0
    unlisted = 100 * flows.unlisted / flows.all_trips if flows.all_trips else 0.0
    between = shown.origin != shown.destination
    drawn = shown.kept(between)
    told = flows.told_from_zero()
    told = np.ones(shown.size, dtype=np.bool_) if told is None else told[: shown.size]
    unit = flows.counted
    facts: dict[str, FloatArray | list[str]] = {f"Estimated {unit}": drawn.trips}
    thing, in_all = "cell" if flows.zone_names is None else "zone", flows.in_all()
    reading = f"Arcs thicken towards their destination; a disc is the flow within one {thing}."
    if page:
        reading = (
            "The slider hides small flows. An arc bends to the left of its direction; a disc is the flow within "
            f"one {thing}."
        )
    if unit == "users":
        reading += f" {flows.counting[:1].upper()}{flows.counting[1:]}."
    largest = f"The {shown.size} largest of {flows.size} flows" if shown.size < flows.size else ""
    windows = shown.line_windows(between) if page else None
    if windows is not None:
        arcs_of_window = f"{largest} of all windows together are shown. {reading}" if largest else reading
        windows = windows._replace(readings=_window_readings(windows, arcs_of_window))
    if largest:
        reading = f"{largest} are shown, {part:.0f} % of all. {reading}"
    together = " windows together" if flows.period else ""
    reading = f"{in_all[:1].upper()}{in_all[1:]} in all{together}. {reading}"
    if page:
        if drawn.deviation is not None:
            facts["Standard deviation"] = drawn.deviation
        facts["Length, m"] = drawn.lengths_m()
        for name, cells in (("From", drawn.origin), ("To", drawn.destination)):
            called = flows.names_of(cells) or [f"cell {cell}" for cell in cells.tolist()]
            places = zip(called, *flows.tiling.centres(cells), strict=True)
            facts[name] = [f"{place} ({x:.5f}, {y:.5f})" for place, x, y in places]
    rows = drawn.rows()
    dots = np.full(flows.tiling.size, 0.0 if flows.tiling.size <= _MOST_DOTS else np.nan)
    within = ~between & told
    dots[shown.origin[within]] = shown.trips[within]
    doubted = not told.all()
    coloured = shown.trips[told]
    # Grey arcs have no colour: the ramp ends a decade below the smallest flow that has one.
    floor = float(coloured.min()) / 10 if doubted and coloured.size else 0.0
    if doubted:
        reading += f" {_doubt(told[between], 'zero')}"
    if windows is not None:
        reading += " The slider of windows shows one window, grey where its own noise may be all there is."
    return Scene(
        title="Where people go",
        layers=(Layer(unit, unit, unit, drawn.trips, Shading(noise_floor=floor)),),
        lines=Lines(
            rows.lon, rows.lat, rows.start, facts, directed=True, faded=~told[between], windows=windows
        ),
        dots=dots,
        doubt="Grey: no flow, or too small to tell" if doubted else "",
        reading=reading,
        made=(("In all", in_all), ("In flows that are not listed", f"{unlisted:.0f} % of all")),
        notes=flows.notes,
    )


def _window_readings(windows: LineWindows, arcs: str) -> tuple[str, ...]:
    """The users in all of each window, its arcs in words, and how many of them are told from zero."""
    return tuple(
        f"{in_all} {arcs} {_doubt(~faded, 'zero in it')}"
        for in_all, faded in zip(windows.readings, windows.faded, strict=True)
    )


def _doubt(told: BoolArray, zero: str) -> str:
    """Number of arcs that are told from zero, in words."""
    count = f"{int(told.sum())} of {told.size} arcs" if told.any() else "No arc"
    grey = "" if told.all() else "; the grey ones may be no flow at all"
    return f"{count} can be told from {zero}{grey}."
