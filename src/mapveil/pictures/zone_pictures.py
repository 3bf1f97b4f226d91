"""Pictures of answers about zones: their totals over time with bands, and where they changed significantly."""

from __future__ import annotations

import html
import math
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.geo.basemap import joined
from mapveil.geo.context import Context
from mapveil.maps.counting import counting_note
from mapveil.maps.density_map import DensityMap
from mapveil.pictures.picture_frame import (
    DPI,
    INK,
    PAPER,
    QUIET,
    corners_taken,
    draw_legend,
    draw_outline,
    new_axes,
    png_bytes,
    ring_paths,
    style_frame,
    wrapped,
    write_words,
)
from mapveil.pictures.picture_plane import map_plane, polygon_rings
from mapveil.pictures.plane_ground import draw_ground, draw_names, plane_ground
from mapveil_client.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mapveil.geo.windows import Windows
    from mapveil.inference.zone_results import WindowTotals, ZoneChanges

MOST_LINES: Final = 24
"""Zones whose totals over time a picture shows."""

_ACROSS: Final = 3  # panels in a row
_PANEL: Final = (3.2, 1.7)  # inches
_MIDNIGHT: Final = "00:00"
_LABELLED: Final = 34  # characters of windows' names below a panel
_BAND: Final = "#9db8d2"
_BAND_HATCH: Final = "#4f6c8b"
_PLACED: Final = (
    "the model places most of these users, who were measured only together with what surrounds the zone; the band "
    "holds wherever in the cut cells they are"
)
_WIDTH: Final = 110  # characters of a line above the panels
_LINE: Final = 0.17  # inches
_HATCHED: Final = "#b4b4be"


def check_panels(zones: int) -> None:
    """Refuse a picture of more zones than it shows, by an :class:`InputError`."""
    if zones > MOST_LINES:
        raise InputError(
            f"totals over time are drawn of at most {MOST_LINES} zones, got {zones}; write a .csv"
        )


def plot_totals(found: WindowTotals, series: DensityMap) -> Axes:
    """Draw the totals of each zone over the windows, each panel from 0, with a band of its intervals.

    Parameters
    ----------
    found : WindowTotals
        At most 24 zones.
    series : DensityMap
        The series that was asked, for its promise.

    Raises
    ------
    InputError
        There are too many zones.
    MissingExtra
        matplotlib is not installed.
    """
    count, names = len(found.zones), found.windows.names
    check_panels(count)
    figures = require("matplotlib.figure", "viz")
    across = min(_ACROSS, count)
    down = math.ceil(count / across)
    promise = series.guarantee.promise
    said = f"Bands: {100 * (1 - found.alpha):g} % intervals of the noise, each for one window."
    modelled = found.modelled
    if modelled.any():
        said += f" Hatched: {_PLACED}."
    texts = [
        f"{series.title or 'Users in zones'}, by window",
        f"{series.method}, {promise.label}",
        promise.title,
        f"{found.windows}",
    ]
    counting = counting_note(series.parameters)
    texts += [f"{_sentence(counting)} {said}", ", ".join(promise.stamps)]
    lines = [line for text in texts for line in wrapped(text, _WIDTH * across // _ACROSS)]
    size = (_PANEL[0] * across, _PANEL[1] * down + _LINE * len(lines) + 0.4)
    figure = figures.Figure(figsize=size, layout="constrained")
    panels = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    at = np.arange(len(names))
    edges = np.arange(len(names) + 1) - 0.5
    ticks, labels = _ticks(found.windows)
    for zone, axes in enumerate(panels):
        if zone >= count:
            axes.set_axis_off()
            continue
        low, high = (np.maximum(each[zone], 0.0) for each in found.bounds)
        axes.bar(at, high - low, 1.0, low, color=_BAND, linewidth=0)
        placed = modelled[zone]
        if placed.any():
            axes.bar(
                at[placed], (high - low)[placed], 1.0, low[placed],
                color="none", edgecolor=_BAND_HATCH, hatch="///", linewidth=0,
            )  # fmt: skip
        axes.stairs(np.maximum(found.estimate[zone], 0.0), edges, baseline=None, color=INK, linewidth=1.2)
        mark = f" ({found.placed[zone][placed].mean():.0%} placed)".replace("%", " %") if placed.any() else ""
        axes.set_title(f"{found.zones.labels[zone]}{mark}", size=9, color=INK, parse_math=False)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        axes.set_xticks(ticks, labels)
        axes.tick_params(colors=QUIET, labelsize=7, length=2)
        if zone % across == 0:
            axes.set_ylabel("users", size=8, color=QUIET)
    figure.suptitle("\n".join(lines), size=9, parse_math=False)
    first: Axes = panels[0]
    return first


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _ticks(windows: Windows) -> tuple[list[int], list[str]]:
    """The windows that have a tick, and its text: of hours over several days the starts of days, else every few."""
    names = dict(enumerate(windows.names))
    days = {
        at: name[: -len(_MIDNIGHT)].rstrip("T ") for at, name in names.items() if name.endswith(_MIDNIGHT)
    }
    if windows.reads_hours and len(days) > 1:
        # Weekdays by their first three letters.
        names = {at: day if windows.every else day[:3] for at, day in days.items()}
    shown = list(names)[:: math.ceil(len(names) * (1 + max(map(len, names.values()))) / _LABELLED)]
    return shown, [names[at] for at in shown]


def plot_changes(found: ZoneChanges, before: DensityMap, after: DensityMap) -> Axes:
    """Draw the zones that changed significantly in the colour of their difference, and hatch the others.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    patches, cm, colors = (require(f"matplotlib.{name}", "viz") for name in ("patches", "cm", "colors"))
    plane = map_plane(after.tiling)
    axes = new_axes(plane)
    axes.set_facecolor(PAPER)
    x0, y0, x1, y1 = plane.bounds
    axes.set_xlim(x0, x1)
    axes.set_ylim(y0, y1)
    axes.set_aspect(plane.aspect)
    named = Context.of_zones(found.zones, rank=found.q)
    context = named if after.context is None else joined(named, after.context)
    ground = plane_ground(plane, after.tiling.region, context)
    if ground is not None:
        draw_ground(ground, axes)
    largest = float(np.abs(found.difference[found.changed]).max(initial=0.0)) or 1.0
    mappable = cm.ScalarMappable(norm=colors.Normalize(-largest, largest), cmap="PuOr")
    paths, zone = ring_paths(polygon_rings(found.zones.polygons, plane.projection))
    hatched: dict[str, Any] = {"facecolor": "none", "edgecolor": _HATCHED, "hatch": "///", "linewidth": 0.4}
    for path, at in zip(paths, zone.tolist(), strict=True):
        if found.changed[at]:
            colour = mappable.to_rgba(found.difference[at])
            axes.add_patch(patches.PathPatch(path, facecolor=colour, edgecolor=QUIET, linewidth=0.7))
        else:
            axes.add_patch(patches.PathPatch(path, **hatched))
    draw_outline(after, plane, axes)
    told = "not told from no change" + ("" if found.compared.all() else ", or not compared")
    sample = patches.Patch(label=told, **hatched)
    draw_legend(axes, sample)
    count, title = int(found.changed.sum()), _changed(before, after)
    if count:
        bar = axes.figure.colorbar(mappable, cax=axes.inset_axes((1.03, 0.0, 0.035, 1.0)))
        bar.set_label(f"change of users in a {found.noun}", color=INK, size=9)
        bar.ax.tick_params(colors=QUIET, labelsize=8, length=3)
    else:
        title += f". No {found.noun} changed significantly."
    style_frame(after, plane, axes)
    lead = (
        f"{found.counts}, tested against {found.tested}; about {100 * found.fdr:g} % of "
        "such calls are expected to be false."
    )
    if ground is not None:
        lead += draw_names(ground, axes, reserved=corners_taken(after, doubts=1))
    credit = "" if ground is None else f"{ground.attribution}."
    lead += " The promise and cells below are those of the map after."
    said = replace(after, notes=_notes(found, before, after))
    write_words(said, axes, title, lead=lead, credit=credit)
    return axes


def _notes(found: ZoneChanges, before: DensityMap, after: DensityMap) -> tuple[str, ...]:
    """Notes on the comparison, then those on both maps, or on one of them, that it does not repeat."""
    notes, known = list(found.zones.notes), set(found.zones.notes)
    for note in dict.fromkeys((*before.notes, *after.notes)):
        if note.removeprefix("WARNING: ") not in known:
            whose = [name for name, heat in (("before", before), ("after", after)) if note in heat.notes]
            notes.append(f"{'both maps' if len(whose) > 1 else f'the map {whose[0]}'}: {note}")
    return tuple(notes)


def _changed(before: DensityMap, after: DensityMap) -> str:
    return f"Change in {after.title or 'the map after'}, against {before.title or 'the map before'}"


def write_changes_png(
    found: ZoneChanges, before: DensityMap, after: DensityMap, path: str | PathLike[str]
) -> None:
    """Write :func:`plot_changes` as a PNG with the metadata of the map after."""
    _write(png_bytes(after, plot_changes(found, before, after), DPI), path)


def write_changes_page(
    found: ZoneChanges, before: DensityMap, after: DensityMap, path: str | PathLike[str]
) -> None:
    """Write a page of the picture, the promise and a table of all zones, which needs no other file."""
    from mapveil.pictures.report_page import html_page, html_picture, html_table

    picture = png_bytes(after, plot_changes(found, before, after), DPI)
    head = (found.noun, "before", "after", "change", "low", "high", "q", "changed")
    numbers = (found.before, found.after, found.difference, found.low, found.high)
    rows = [
        (
            found.zones.labels[at].removeprefix("*"),
            *(f"{each[at]:,.1f}" if found.compared[at] else "" for each in numbers),
            f"{found.q[at]:.2g}",
            found.calls[at],
        )
        for at in np.argsort(found.q, kind="stable").tolist()
    ]
    promise = after.guarantee.promise
    title = _changed(before, after)
    said = f"Tested against {found.tested}. {found.about[:1].upper()}{found.about[1:]}."
    body = html_picture(picture, f"{title}: {found.noun}s that changed significantly", dpi=DPI)
    body += f"<p>{said}</p>\n" + html_table(head, rows)
    promises = [dict(each.guarantee.promise.rows) for each in (before, after)]
    names = dict.fromkeys(name for each in promises for name in each)
    if promises[0] == promises[1]:
        body += html_table(("promise", "both maps"), promise.rows)
    else:
        both = [(name, *(each.get(name, "") for each in promises)) for name in names]
        body += html_table(("promise", "the map before", "the map after"), both)
    warnings = dict.fromkeys((*before.guarantee.promise.warnings, *promise.warnings))
    if found.zones.notes:
        body += html_table(("notes",), [(f"{note[:1].upper()}{note[1:]}.",) for note in found.zones.notes])
    _write(html_page(title, body, " ".join(warnings)), path)


def write_totals_png(found: WindowTotals, series: DensityMap, path: str | PathLike[str]) -> None:
    """Write :func:`plot_totals` as a PNG with the metadata of the series."""
    _write(png_bytes(series, plot_totals(found, series), DPI), path)


def write_totals_page(found: WindowTotals, series: DensityMap, path: str | PathLike[str]) -> None:
    """Write a page of the picture, the promise and a table of zones and windows, which needs no other file."""
    from mapveil.pictures.report_page import html_page, html_picture, html_table

    promise = series.guarantee.promise
    numbers = (np.maximum(found.estimate, 0.0), *found.bounds)
    rows = [
        (zone, window, *(f"{each[row, at]:,.1f}" for each in numbers), f"{100 * found.placed[row, at]:.0f} %")
        for row, zone in enumerate(found.zones.names)
        for at, window in enumerate(found.windows.names)
    ]
    title = f"{series.title or 'Users in zones'}, by window"
    body = html_picture(png_bytes(series, plot_totals(found, series), DPI), title, dpi=DPI)
    body += f"<p>{html.escape(_sentence(str(found.windows)))}</p>\n"
    body += html_table(("zone", "window", "users", "low", "high", "placed by the model"), rows)
    body += html_table(("promise", "all windows together"), promise.rows)
    _write(html_page(title, body, " ".join(promise.warnings)), path)


def _write(made: bytes, path: str | PathLike[str]) -> None:
    with atomic_path(path) as place:
        place.write_bytes(made)
