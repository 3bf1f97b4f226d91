"""A coverage map as one page that needs nothing but a browser."""

from __future__ import annotations

import html
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.colours import density_scale
from mapveil.pictures.page import cells_record
from mapveil.pictures.page_parts import (
    banner_html,
    fill_page,
    packed,
    plain_text,
    promise_html,
    resource_text,
    script_json,
    section_html,
)
from mapveil.pictures.picture_words import epsilon_text
from mapveil.pictures.signal_picture import HOLE_COLOUR, PALEST, signal_scale

if TYPE_CHECKING:
    from mapveil.maps.signal_map import SignalMap


def write_signal_page(signal: SignalMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`signal_page` to a file. Run by: anybody who holds the map.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = signal_page(signal, title=title)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def signal_page(signal: SignalMap, *, title: str | None = None) -> str:
    """The map as a page: pan and zoom, a reading of each cell, legend in dBm, promise, downloads.

    Parameters
    ----------
    signal : SignalMap
        The map.
    title : str, optional
        Head of the page.
    """
    head = title or "How strong the signal is"
    guarantee, coverage = signal.guarantee, signal.coverage()
    rows = [
        ("Method", signal.method),
        ("Cells", f"{signal.tiling.spec}, {signal.tiling.size} cells"),
        ("Region", str(signal.tiling.region)),
        ("Covered", f"{coverage.covered} cells"),
        ("Holes", f"{coverage.holes} cells below {signal.hole_dbm:g} dBm"),
        ("Unknown", f"{coverage.unknown} cells without a strength"),
        ("Measurements", f"{int(signal.measurements.sum())} in the region"),
        ("Software", f"Mapveil {signal.version}"),
    ]
    notes = [
        f"The deviation is that of {signal.deviation_of}.",
        "A cell that nobody measured is unknown: that is no coverage hole.",
        *signal.notes,
    ]
    fields = {
        "title": html.escape(head),
        "banner": banner_html(guarantee),
        "subtitle": html.escape(
            f"{signal.method}, {epsilon_text(guarantee)}, {signal.tiling.spec} ({signal.tiling.size} cells)"
        ),
        "unit": "Mean signal strength, dBm",
        "promise": promise_html(guarantee),
        "method": section_html("How it was made", rows),
        "parameters": section_html(
            "Parameters", [(name, plain_text(part)) for name, part in signal.parameters.items()]
        ),
        "shares": "",
        "notes": "".join(f"<li>{html.escape(note)}</li>" for note in notes),
        "left_out": "cells without a strength",
        "data": script_json(_record(signal, head)),
        "style": resource_text("page.css"),
        "script": resource_text("view.js") + resource_text("page.js"),
    }
    return fill_page("page.html", fields)


def _record(signal: SignalMap, title: str) -> dict[str, Any]:
    scale = signal_scale(signal)
    layers = []
    for layer in signal.layers():
        top = density_scale(layer.values, "linear").top
        own: dict[str, Any] = {"low": 0.0, "top": top, "knee": 1.0, "palest": PALEST}
        if layer.name == "rss_dbm":
            own.update(low=scale.low, top=scale.top)
            if signal.holes.any():
                own["under"] = HOLE_COLOUR
        elif layer.name in ("hole", "hole_chance"):
            own["top"] = 1.0
        layers.append(
            {
                "name": layer.name,
                "title": layer.title[0].upper() + layer.title[1:],
                "unit": layer.unit,
                "values": packed(np.asarray(layer.values), rounded=True),
                "scale": own,
                "words": ["no", "yes"] if layer.name == "hole" else None,
            }
        )
    return {
        **cells_record(signal.tiling),
        "title": title,
        "metadata": signal.metadata(),
        "unit": "dBm",
        "certainty": "",
        "scale": layers[0]["scale"],
        "users": None,
        "lower": None,
        "upper": None,
        "area": 1.0,
        "layers": layers,
        "first": 0,
    }
