"""A map as one page that needs nothing but a browser: no server, no network, no other file."""

from __future__ import annotations

import base64
import html
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.maps.density_map import INTERVAL_ALPHA
from mapveil.maps.frame import density_unit, shown_density
from mapveil.pictures.colours import density_scale, ramp
from mapveil.pictures.page_parts import (
    banner_html,
    fill_page,
    packed,
    packed_rings,
    plain_text,
    promise_html,
    resource_text,
    script_json,
    section_html,
)
from mapveil.pictures.picture_words import epsilon_text
from mapveil.pictures.plane import MapPlane, map_plane, region_rings
from mapveil_client.arrays import FloatArray

if TYPE_CHECKING:
    from mapveil.geo.tiling import Tiling
    from mapveil.maps.density_map import DensityMap
    from mapveil.maps.round_cost import RoundCost


_MESH: Final = 64
_DEGREE_DECIMALS: Final = 7
_STRAIGHT: Final = 1e-9  # degrees


def write_page(
    heat: DensityMap, path: str | PathLike[str], *, title: str | None = None, first: int = -1
) -> None:
    """Write :func:`page_html` to a file. Run by: anybody who holds the map.

    Parameters
    ----------
    heat : DensityMap
        The map.
    path : path-like
        Where to write.
    title, first
        As for :func:`page_html`.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = page_html(heat, title=title, first=first)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def page_html(heat: DensityMap, *, title: str | None = None, first: int = -1) -> str:
    """The map as a page: pan and zoom, a reading of each cell, legend, guarantee, downloads.

    Estimates and bounds are rounded to four digits; the page fetches nothing and sends nothing, which its
    content security policy enforces.

    Parameters
    ----------
    heat : DensityMap
        The map.
    title : str, optional
        Head of the page.
    first : int
        Which of the map's layers the colours show at first; the density by default.
    """
    head = title or "Where people are"
    guarantee = heat.guarantee
    fields = {
        "title": html.escape(head),
        "banner": banner_html(guarantee),
        "subtitle": html.escape(
            f"{heat.method}, {epsilon_text(guarantee)}, {heat.tiling.spec} ({heat.tiling.size} cells)"
        ),
        "unit": html.escape(density_unit(heat.tiling)),
        "promise": promise_html(guarantee),
        "method": section_html("How it was made", _method_rows(heat)),
        "parameters": section_html(
            "Parameters", [(name, plain_text(part)) for name, part in heat.parameters.items()]
        ),
        "shares": section_html(
            "How the privacy budget was spent",
            [(share.purpose, f"ε = {float(share.epsilon):.6g}") for share in guarantee.shares],
        )
        + section_html("What a device sent", [(each.purpose, _sent(each)) for each in heat.rounds]),
        "notes": _notes(heat),
        "left_out": "cells estimated at zero",
        "data": script_json({**_record(heat, head), "first": first}),
        "style": resource_text("page.css"),
        "script": resource_text("view.js") + resource_text("page.js"),
    }
    return fill_page("page.html", fields)


def _record(heat: DensityMap, title: str) -> dict[str, Any]:
    """Everything the page's script works on."""
    density = shown_density(heat)
    scale = density_scale(density, "log", faint=heat.faint)
    interval = heat.interval()
    area = heat.tiling.area_m2() / (1e6 if heat.tiling.region.georeferenced else 1.0)
    area = np.where(np.isnan(density), np.nan, area)
    return {
        **cells_record(heat.tiling),
        "title": title,
        "metadata": heat.metadata(),
        "unit": density_unit(heat.tiling),
        "certainty": f"{100 * (1 - INTERVAL_ALPHA):g} %",
        "scale": {"top": scale.top, "knee": scale.knee},
        "users": packed(heat.values, rounded=True),
        "lower": None if interval is None else packed(interval.lower, rounded=True),
        "upper": None if interval is None else packed(interval.upper, rounded=True),
        # Equal cells need one number.
        "area": float(area[0]) if np.allclose(area, area[0], rtol=1e-9) else packed(area),
        "layers": [
            {
                "title": layer.title,
                "unit": layer.unit,
                "values": packed(layer.values, rounded=True),
                "scale": {"top": (own := density_scale(layer.values, "log")).top, "knee": own.knee},
            }
            for layer in heat.layers()
        ],
    }


def cells_record(tiling: Tiling) -> dict[str, Any]:
    """Where the cells lie, for the page's script: pixels or outlines, extent, and how to get back to degrees."""
    plane = map_plane(tiling)
    x0, y0, x1, y1 = plane.bounds
    record: dict[str, Any] = {
        "georeferenced": tiling.region.georeferenced,
        "ramp": base64.b64encode(ramp().tobytes()).decode(),
        "size": tiling.size,
        "extent": [x1 - x0, y1 - y0],
        "metres": [plane.metres_per_x, plane.metres_per_y],
        "outline": None,
    }
    if tiling.region.polygon is not None:
        record["outline"] = packed_rings(region_rings(tiling, plane.projection), plane)
    if plane.frame is not None:
        frame = plane.frame
        record["raster"] = {
            "rows": frame.rows,
            "columns": frame.columns,
            "row": packed(frame.row),
            "col": packed(frame.col),
            **(_degrees(plane) if tiling.region.georeferenced else {}),
        }
    elif plane.rings is not None:
        centres = tiling.centres()
        corners = plane.projection.unproject(*plane.rings.corners.T)
        record["rings"] = {
            **packed_rings(plane.rings, plane),
            # Offsets, because a float of 32 bits has seven digits.
            "origin": [float(np.min(corners[0])), float(np.min(corners[1]))],
            "lon": packed(corners[0] - np.min(corners[0])),
            "lat": packed(corners[1] - np.min(corners[1])),
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


def _notes(heat: DensityMap) -> str:
    notes = [
        "Each user counts 1 in total, divided over the cells they were in; an estimate may be a fraction.",
        *heat.notes,
    ]
    if heat.measurements:
        notes.insert(
            1, "The bounds are about the noise alone: not about people who are missing from the table."
        )
    return "".join(f"<li>{html.escape(note)}</li>" for note in notes)
