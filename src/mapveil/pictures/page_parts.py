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

from mapveil.pictures.picture_words import odds_factor

if TYPE_CHECKING:
    from mapveil.pictures.plane import MapPlane, Rings
    from mapveil.privacy.guarantee import Guarantee

_TRUST: Final = {
    "central": "One trusted curator saw the raw locations; whoever sees the map does not",
    "distributed": "Nobody but each device saw its raw locations; the server saw noisy sums over many devices",
    "local": "Nobody but each device saw its raw locations; the server saw randomized reports only",
    "unknown": "Nobody says who saw the raw measurements",
    "obfuscation": "Nobody but each device saw its raw measurements; the server saw rewritten ones only",
    "projection": "Nobody but each device saw its raw locations; the server saw what every device reported",
}
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
    """The guarantee for somebody who never heard of epsilon, as HTML."""
    whose = "one person's" if guarantee.unit == "user" else f"one {html.escape(guarantee.unit)}'s"
    trust = _TRUST.get(guarantee.trust, "Kind of trust: " + html.escape(guarantee.trust))
    if guarantee.epsilon is None:
        return "\n".join([*_measured(guarantee, whose), f"<p>{trust}.</p>", *_assumptions(guarantee)])
    factor, epsilon = odds_factor(guarantee), float(guarantee.epsilon)
    beyond = f", plus a probability of {guarantee.delta:g}" if guarantee.delta else ""
    lines = [
        f'<p class="factor"><strong>&times; {factor} at most</strong> So much can {whose} data change the '
        f"odds of anything that this map shows, and so of any conclusion drawn from it{beyond}.</p>"
    ]
    # Between presence and absence the factor is e^epsilon; between two whereabouts it may be its square.
    if guarantee.neighbours.startswith("add or remove"):
        chance = 100 / (1 + math.exp(-epsilon))
        lines.append(
            f"<p>Say you hold it for equally likely that {whose} data are, or are not, in the table behind "
            f"this map: 50&nbsp;%. Study the map, with whatever else you know, and you can get to "
            f"{chance:.3g}&nbsp;% at most, and to {100 - chance:.3g}&nbsp;% at least.</p>"
        )
    lines.append(
        f"<p>Experts write ε = {epsilon:.6g}; the factor is e<sup>{epsilon:.6g}</sup>. The smaller, the more "
        f"private. {html.escape(guarantee.bounding)} Tables that differ by this look alike: "
        f"{html.escape(guarantee.neighbours)}. {trust}.</p>"
    )
    return "\n".join([*lines, *_assumptions(guarantee)])


def _measured(guarantee: Guarantee, whose: str) -> list[str]:
    """What a promise that is not differential privacy says, and what was measured of it."""
    lines = [
        f'<p class="factor"><strong>Not differential privacy</strong> No number bounds what can be learnt from '
        f"{'one' if guarantee.unit == 'report' else whose} report.</p>",
        f"<p>{html.escape(guarantee.bounding)} What stays hidden: {html.escape(guarantee.neighbours)}.</p>",
    ]
    if guarantee.measured:
        items = "".join(
            f"<li>{html.escape(each.quantity)}: <strong>{_three(each.value)} {html.escape(each.unit)}</strong>, "
            f"against {html.escape(each.against)}</li>"
            for each in guarantee.measured
        )
        lines.append(f"<p>Measured:</p><ul>{items}</ul>")
    return lines


def _three(value: float) -> str:
    """Three digits, and no exponent below a million."""
    return f"{float(f'{value:.3g}'):g}"


def _assumptions(guarantee: Guarantee) -> list[str]:
    items = "".join(f"<li>{html.escape(text)}</li>" for text in guarantee.assumptions)
    return [f"<p>It rests on this:</p><ul>{items}</ul>"] if items else []


def banner_html(guarantee: Guarantee) -> str:
    """The warning on top of what was seeded; else nothing."""
    if not guarantee.seeded:
        return ""
    return (
        '<p class="banner" role="alert"><strong>SEEDED: NOT FOR RELEASE.</strong> '
        "Whoever knows the seed can take the noise away; this map protects nobody.</p>"
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
