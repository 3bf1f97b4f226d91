"""Lines on a map as one page that needs nothing but a browser: flows as arcs, roads by their traffic."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from mapveil.pictures.colours import density_scale, ramp
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
from mapveil.pictures.picture_frame import Pictured
from mapveil.pictures.picture_words import epsilon_text
from mapveil.pictures.plane import MapPlane
from mapveil_client.arrays import FloatArray, IntArray

MARK_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Of marked lines, after Okabe and Ito: told apart by every eye."""


class Lines(NamedTuple):
    """Lines in a plane, with a value each and what is known of them."""

    corners: FloatArray  # shape (corners, 2): x, y
    start: IntArray  # of each line in ``corners``, and the end; shape (lines + 1,)
    value: FloatArray  # colour and width; NaN for a line of the background; shape (lines,)
    facts: Mapping[str, FloatArray | Sequence[str]]  # by name, the most important first; shape (lines,) each
    mark: IntArray | None = None  # which of the marks a line has, -1 for none; shape (lines,)
    marks: tuple[str, ...] = ()  # what the marks mean


class Dots(NamedTuple):
    """Places on the map, with a value where they have one."""

    places: FloatArray  # shape (dots, 2): x, y
    value: FloatArray  # 0 for a place alone; shape (dots,)


def lines_page(
    drawn: Pictured,
    plane: MapPlane,
    lines: Lines,
    *,
    title: str,
    unit: str,
    reading: str,
    made: Sequence[tuple[str, str]],
    parameters: Mapping[str, Any],
    metadata: Mapping[str, Any],
    dots: Dots | None = None,
    directed: bool = False,
    widths: tuple[float, float] = (0.6, 6.0),
) -> str:
    """A page of lines: pan and zoom, a reading of each line, legend, guarantee, download.

    It fetches nothing and sends nothing, which its content security policy enforces. Values are rounded to four
    digits.

    Parameters
    ----------
    drawn : Pictured
        The answer, with its promise.
    plane : MapPlane
        Where it is drawn.
    lines : Lines
        What is drawn.
    title : str
        Head of the page.
    unit : str
        What the values are.
    reading : str
        How the picture is to be read, a sentence.
    made : sequence of pairs
        Rows of the table "How it was made".
    parameters, metadata : mapping
        The answer's own, JSON-ready.
    dots : Dots, optional
        Places under the lines.
    directed : bool
        Whether a line has a beginning and an end.
    widths : tuple of float
        Pixels, of the smallest and the largest value.
    """
    guarantee = drawn.guarantee
    fields = {
        "title": html.escape(title),
        "banner": banner_html(guarantee),
        "subtitle": html.escape(f"{drawn.method}, {epsilon_text(guarantee)}, {drawn.tiling.spec}"),
        "unit": html.escape(unit),
        "reading": html.escape(reading),
        "promise": promise_html(guarantee),
        "method": section_html("How it was made", [*made, ("Software", f"Mapveil {drawn.version}")]),
        "parameters": section_html(
            "Parameters", [(name, plain_text(part)) for name, part in parameters.items()]
        ),
        "shares": section_html(
            "How the privacy budget was spent",
            [(share.purpose, f"ε = {float(share.epsilon):.6g}") for share in guarantee.shares],
        ),
        "notes": "".join(f"<li>{html.escape(note)}</li>" for note in drawn.notes)
        or "<li>There are none.</li>",
        "style": resource_text("page.css"),
        "script": resource_text("view.js") + resource_text("lines.js"),
    }
    scale = density_scale(lines.value, "log")
    x0, y0, x1, y1 = plane.bounds
    mark = np.full(lines.value.size, -1) if lines.mark is None else lines.mark
    fields["data"] = script_json(
        {
            "title": title,
            "metadata": dict(metadata),
            "unit": unit,
            "georeferenced": drawn.tiling.region.georeferenced,
            "directed": directed,
            "widths": list(widths),
            "scale": {"top": scale.top, "knee": scale.knee},
            "ramp": base64.b64encode(ramp().tobytes()).decode(),
            "extent": [x1 - x0, y1 - y0],
            "metres": [plane.metres_per_x, plane.metres_per_y],
            "x": packed(lines.corners[:, 0] - x0),
            "y": packed(y1 - lines.corners[:, 1]),
            "start": packed(lines.start),
            "value": packed(lines.value, rounded=True),
            "mark": packed(mark.astype(np.int64)),
            "marks": [
                {"name": name, "colour": MARK_COLOURS[at % len(MARK_COLOURS)]}
                for at, name in enumerate(lines.marks)
            ],
            "facts": {
                name: packed(column, rounded=True) if isinstance(column, np.ndarray) else list(column)
                for name, column in lines.facts.items()
            },
            "dots": None
            if dots is None
            else {
                "x": packed(dots.places[:, 0] - x0),
                "y": packed(y1 - dots.places[:, 1]),
                "size": packed(dots.value, rounded=True),
            },
        }
    )
    return fill_page("lines.html", fields)
