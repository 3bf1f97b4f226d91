"""What every page is made of: packed arrays, safe JSON, the promise in words, tables and the template."""

from __future__ import annotations

import base64
import html
import json
import math
import zlib
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mapveil.pictures.picture_plane import MapPlane, Rings
    from mapveil.privacy.guarantee import Guarantee

_KEPT_BITS: Final = 13  # of a float's 23: four digits are shown and kept, and the page stays small


def fill_page(template: str, fields: Mapping[str, str]) -> str:
    """A template of this package with its ``{{markers}}`` replaced by what the fields hold."""
    # One pass over the template's own text: what is put in is never searched for markers.
    pieces = resource_text(template).split("{{")
    made = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        made += [fields[name], rest]
    return "".join(made)


def resource_text(name: str) -> str:
    """A text file that lies beside this module."""
    return resources.files("mapveil.pictures").joinpath(name).read_text(encoding="utf-8")


def viewer_script(kind: str) -> str:
    """The viewer of exported pages: what the console imports as a module, what all pages share, and one kind's own."""
    shared = resource_text("shared/assets/scale.js").replace("export ", "")
    return shared + resource_text("view.js") + resource_text(kind)


def packed(values: npt.NDArray[Any], *, rounded: bool = False) -> dict[str, Any]:
    """An array as text: 32 bits each, bytes of like weight together, deflated, base64."""
    kind = "<i4" if values.dtype.kind in "iu" else "<f4"
    words = np.ascontiguousarray(values, dtype=kind).view("<u4")
    if rounded:
        spare = 23 - _KEPT_BITS
        words = (words + np.uint32(1 << (spare - 1))) & np.uint32(0xFFFFFFFF << spare & 0xFFFFFFFF)
    planes = np.ascontiguousarray(words.view(np.uint8).reshape(-1, 4).T)
    return {"type": kind[1:], "data": base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def packed_rings(rings: Rings, plane: MapPlane) -> dict[str, Any]:
    """Outlines from the plane's north-west corner, y down."""
    x0, _, _, y1 = plane.bounds
    return {
        "x": packed(rings.corners[:, 0] - x0),
        "y": packed(y1 - rings.corners[:, 1]),
        "start": packed(rings.start),
        "cell": packed(rings.cell),
    }


def script_json(record: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for the end of its script."""
    text = json.dumps(_finite(record), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    """The record with null for numbers that JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def promise_html(guarantee: Guarantee) -> str:
    """The guarantee as HTML: its headline and a paragraph for each sentence."""
    head, *rest = (html.escape(text) for text in guarantee.promise.sentences)
    factor = f"<strong>{html.escape(guarantee.promise.headline)}</strong> {head}"
    return "\n".join((f'<p class="factor">{factor}</p>', *(f"<p>{text}</p>" for text in rest)))


def banner_html(guarantee: Guarantee) -> str:
    """The warnings on top of what was simulated or seeded; else nothing."""
    return "\n".join(
        f'<p class="banner" role="alert">{html.escape(text)}</p>' for text in guarantee.promise.warnings
    )


def section_html(head: str, rows: list[tuple[str, str]]) -> str:
    """A headed table, or nothing where there are no rows."""
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<h2>{html.escape(head)}</h2><table>{body}</table>"


def plain_text(value: Any) -> str:
    """A parameter as a person reads it."""
    if value is None:
        return "not given"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
