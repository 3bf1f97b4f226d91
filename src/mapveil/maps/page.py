"""A map as one page that needs nothing but a browser: no server, no network, no other file."""

from __future__ import annotations

import base64
import html
import json
import math
import zlib
from importlib import resources
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.maps.atomic import atomic_path
from mapveil.maps.colours import density_scale, ramp
from mapveil.maps.density_map import INTERVAL_ALPHA
from mapveil.maps.frame import density_unit, shown_density
from mapveil.maps.picture_words import epsilon_text, odds_factor
from mapveil.maps.plane import MapPlane, Rings, map_plane, region_rings

if TYPE_CHECKING:
    from mapveil.maps.density_map import DensityMap
    from mapveil.maps.round_cost import RoundCost
    from mapveil.privacy.guarantee import Guarantee

__all__ = ["page_html", "write_page"]

FloatArray = npt.NDArray[np.float64]

_MESH: Final = 64
_TRUST: Final = {
    "central": "One trusted curator saw the raw locations; whoever sees the map does not",
    "distributed": "Nobody but each device saw its raw locations; the server saw noisy sums over many devices",
    "projection": "Nobody but each device saw its raw locations; the server saw what every device reported",
}
_DEGREE_DECIMALS: Final = 7
_STRAIGHT: Final = 1e-9  # degrees
_KEPT_BITS: Final = 13  # of a float's 23: four digits are shown and kept, and the page stays small


def write_page(heat: DensityMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`page_html` to a file. Run by: anybody who holds the map.

    Parameters
    ----------
    heat : DensityMap
        The map.
    path : path-like
        Where to write.
    title : str, optional
        Head of the page.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = page_html(heat, title=title)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def page_html(heat: DensityMap, *, title: str | None = None) -> str:
    """The map as a page: pan and zoom, a reading of each cell, legend, guarantee, downloads.

    Estimates and bounds are rounded to four digits; the page fetches nothing and sends nothing, which its
    content security policy enforces.

    Parameters
    ----------
    heat : DensityMap
        The map.
    title : str, optional
        Head of the page.
    """
    head = title or "Where people are"
    guarantee = heat.guarantee
    fields = {
        "title": html.escape(head),
        "banner": _banner(guarantee),
        "subtitle": html.escape(
            f"{heat.method}, {epsilon_text(guarantee)}, {heat.tiling.spec} ({heat.tiling.size} cells)"
        ),
        "unit": html.escape(density_unit(heat.tiling)),
        "promise": _promise(guarantee),
        "method": _section("How it was made", _method_rows(heat)),
        "parameters": _section(
            "Parameters", [(name, _plain(part)) for name, part in heat.parameters.items()]
        ),
        "shares": _section(
            "How the privacy budget was spent",
            [(share.purpose, f"ε = {float(share.epsilon):.6g}") for share in guarantee.shares],
        )
        + _section("What a device sent", [(each.purpose, _sent(each)) for each in heat.rounds]),
        "notes": _notes(heat),
        "data": _script_json(_record(heat, head)),
        "script": _resource("page.js"),
    }
    # One pass over the template's own text: what is put in is never searched for markers.
    pieces = _resource("page.html").split("{{")
    made = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        made += [fields[name], rest]
    return "".join(made)


def _record(heat: DensityMap, title: str) -> dict[str, Any]:
    """Everything the page's script works on."""
    plane = map_plane(heat.tiling)
    density = shown_density(heat)
    scale = density_scale(density, "log")
    interval = heat.interval()
    x0, y0, x1, y1 = plane.bounds
    area = heat.tiling.area_m2() / (1e6 if heat.tiling.region.georeferenced else 1.0)
    area = np.where(np.isnan(density), np.nan, area)
    record: dict[str, Any] = {
        "title": title,
        "metadata": heat.metadata(),
        "unit": density_unit(heat.tiling),
        "georeferenced": heat.tiling.region.georeferenced,
        "certainty": f"{100 * (1 - INTERVAL_ALPHA):g} %",
        "scale": {"top": scale.top, "knee": scale.knee},
        "ramp": base64.b64encode(ramp().tobytes()).decode(),
        "size": heat.tiling.size,
        "extent": [x1 - x0, y1 - y0],
        "metres": [plane.metres_per_x, plane.metres_per_y],
        "users": _packed(heat.values, rounded=True),
        "lower": None if interval is None else _packed(interval.lower, rounded=True),
        "upper": None if interval is None else _packed(interval.upper, rounded=True),
        # Equal cells need one number.
        "area": float(area[0]) if np.allclose(area, area[0], rtol=1e-9) else _packed(area),
        "outline": None,
    }
    if heat.tiling.region.polygon is not None:
        record["outline"] = _packed_rings(region_rings(heat.tiling, plane.projection), plane)
    if plane.frame is not None:
        frame = plane.frame
        record["raster"] = {
            "rows": frame.rows,
            "columns": frame.columns,
            "row": _packed(frame.row),
            "col": _packed(frame.col),
            **(_degrees(plane) if heat.tiling.region.georeferenced else {}),
        }
    elif plane.rings is not None:
        centres = heat.tiling.centres()
        corners = plane.projection.unproject(*plane.rings.corners.T)
        record["rings"] = {
            **_packed_rings(plane.rings, plane),
            # Offsets, because a float of 32 bits has seven digits.
            "origin": [float(np.min(corners[0])), float(np.min(corners[1]))],
            "lon": _packed(corners[0] - np.min(corners[0])),
            "lat": _packed(corners[1] - np.min(corners[1])),
            "centre_lon": np.round(centres.lon, _DEGREE_DECIMALS).tolist(),
            "centre_lat": np.round(centres.lat, _DEGREE_DECIMALS).tolist(),
        }
    return record


def _degrees(plane: MapPlane) -> dict[str, Any]:
    """Degrees of a raster's corners: of each row and column, or of a mesh where those do not run straight."""
    if plane.frame is None:
        raise AssertionError("only a raster has rows and columns")
    x0, y0, x1, y1 = plane.bounds

    def corners(across: int, down: int) -> tuple[FloatArray, FloatArray]:
        x, y = np.meshgrid(np.linspace(x0, x1, across + 1), np.linspace(y1, y0, down + 1))
        lon, lat = plane.projection.unproject(x.ravel(), y.ravel())
        return lon.reshape(x.shape), lat.reshape(x.shape)

    lon, lat = corners(_MESH, _MESH)
    straight = bool((np.ptp(lon, axis=0) < _STRAIGHT).all() and (np.ptp(lat, axis=1) < _STRAIGHT).all())
    if straight:
        lon, lat = corners(plane.frame.columns, 1)[0][0], corners(1, plane.frame.rows)[1][:, 0]
    rounded = (np.round(part.ravel(), _DEGREE_DECIMALS).tolist() for part in (lon, lat))
    return {"straight": straight, "mesh": _MESH, **dict(zip(("lon", "lat"), rounded, strict=True))}


def _packed_rings(rings: Rings, plane: MapPlane) -> dict[str, Any]:
    x0, _, _, y1 = plane.bounds
    return {
        "x": _packed(rings.corners[:, 0] - x0),
        "y": _packed(y1 - rings.corners[:, 1]),
        "start": _packed(rings.start),
        "cell": _packed(rings.cell),
    }


def _packed(values: npt.NDArray[Any], *, rounded: bool = False) -> dict[str, Any]:
    """An array as text: 32 bits each, bytes of like weight together, deflated, base64."""
    kind = "<i4" if values.dtype.kind in "iu" else "<f4"
    words = np.ascontiguousarray(values, dtype=kind).view("<u4")
    if rounded:
        spare = 23 - _KEPT_BITS
        words = (words + np.uint32(1 << (spare - 1))) & np.uint32(0xFFFFFFFF << spare & 0xFFFFFFFF)
    planes = np.ascontiguousarray(words.view(np.uint8).reshape(-1, 4).T)
    return {"type": kind[1:], "data": base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def _script_json(record: dict[str, Any]) -> str:
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


def _promise(guarantee: Guarantee) -> str:
    """The guarantee for somebody who never heard of epsilon, as HTML."""
    whose = "one person's" if guarantee.unit == "user" else f"one {html.escape(guarantee.unit)}'s"
    trust = _TRUST.get(guarantee.trust, "Kind of trust: " + html.escape(guarantee.trust))
    if guarantee.epsilon is None:
        return "\n".join([*_measured(guarantee, whose), f"<p>{trust}.</p>", *_assumptions(guarantee)])
    factor, epsilon = odds_factor(guarantee), float(guarantee.epsilon)
    beyond = f", except with probability {guarantee.delta:g}" if guarantee.delta else ""
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
        f"{whose} report.</p>",
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


def _banner(guarantee: Guarantee) -> str:
    if not guarantee.seeded:
        return ""
    return (
        '<p class="banner" role="alert"><strong>SEEDED: NOT FOR RELEASE.</strong> '
        "Whoever knows the seed can take the noise away; this map protects nobody.</p>"
    )


def _method_rows(heat: DensityMap) -> list[tuple[str, str]]:
    rows = [
        ("Method", heat.method),
        ("Cells", f"{heat.tiling.spec}, {heat.tiling.size} cells"),
        ("Region", str(heat.tiling.region)),
        ("Software", f"Mapveil {heat.version}"),
    ]
    if heat.elsewhere:
        rows.append(("Elsewhere", f"{heat.elsewhere:.6g} users, merged out of small cells"))
    return rows


def _sent(cost: RoundCost) -> str:
    """One round's cost for a person."""
    up, down = sum(cost.bytes_up.values()), sum(cost.bytes_down.values())
    return (
        f"{cost.length} numbers of {cost.bits} bits; {up / 1024:.1f} KiB up, {down / 1024:.1f} KiB down at most; "
        f"{cost.included} of {cost.devices} devices in the sum{'s' if cost.shards > 1 else ''}"
    )


def _section(head: str, rows: list[tuple[str, str]]) -> str:
    """A headed table, or nothing where there are no rows."""
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<h2>{html.escape(head)}</h2><table>{body}</table>"


def _notes(heat: DensityMap) -> str:
    notes = [
        "Each user counts 1 in total, divided over the cells they were in; an estimate may be a fraction.",
        "The bounds are about the noise alone: not about people who are missing from the table.",
        *heat.notes,
    ]
    return "".join(f"<li>{html.escape(note)}</li>" for note in notes)


def _plain(value: Any) -> str:
    if value is None:
        return "not given"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _resource(name: str) -> str:
    return resources.files("mapveil.maps").joinpath(name).read_text(encoding="utf-8")
