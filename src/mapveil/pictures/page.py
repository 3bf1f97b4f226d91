"""A map as one page that needs nothing but a browser: no server, no network, no other file."""

from __future__ import annotations

import base64
import html
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.colours import layer_scale, ramp
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
    viewer_script,
)
from mapveil.pictures.picture import FAINTEST, HOLE_COLOUR, MARK_COLOURS, PALEST
from mapveil.pictures.picture_plane import MapPlane, map_plane, planar, region_rings
from mapveil_client.arrays import FloatArray

if TYPE_CHECKING:
    from mapveil.geo.tiling import Tiling
    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import Layer, Scene


_MESH: Final = 64
_DEGREE_DECIMALS: Final = 7
_STRAIGHT: Final = 1e-9  # degrees
_MOST_DOTS: Final = 20_000  # cells whose centres are all shown


def write_page(released: ReleasedMap, path: str | PathLike[str], *, title: str | None = None) -> None:
    """Write :func:`page_html` to a file. Run by: anybody who holds the map.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    text = page_html(released, title=title)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def page_html(released: ReleasedMap, *, title: str | None = None) -> str:
    """Make a page of a map: pan and zoom, a reading of each cell or line, legend, guarantee, downloads.

    Numbers are rounded to four digits; the page fetches nothing and sends nothing, which its content security
    policy enforces.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    title : str, optional
        Head of the page; that of the map's scene by default.
    """
    scene, guarantee, tiling = released.scene(page=True), released.guarantee, released.tiling
    metadata = released.metadata()
    head, thing = title or scene.title, "cell" if scene.lines is None else "line"
    made = [
        ("Method", released.method),
        ("Cells", f"{tiling.spec}, {tiling.size} cells"),
        ("Region", str(tiling.region)),
        *scene.made,
        ("Software", f"Mapveil {released.version}"),
    ]
    tables = [
        ("How it was made", made),
        ("Parameters", [(name, plain_text(value)) for name, value in metadata["parameters"].items()]),
        (
            "How the privacy budget was spent",
            [(share.purpose, f"ε = {float(share.epsilon):.6g}") for share in guarantee.shares],
        ),
        *scene.tables,
    ]
    record = {
        "title": head,
        "metadata": metadata,
        **_ground(tiling),
        **(_cells(tiling, scene) if scene.lines is None else _lines(tiling, scene)),
    }
    fields = {
        "title": html.escape(head),
        "banner": banner_html(guarantee),
        "subtitle": html.escape(
            f"{released.method}, {guarantee.promise.label}, {tiling.spec} ({tiling.size} cells)"
        ),
        "unit": html.escape(_named(scene.layers[0])),
        "thing": thing,
        "reading": html.escape(scene.reading),
        "promise": promise_html(guarantee),
        "tables": "".join(section_html(name, rows) for name, rows in tables),
        "notes": "".join(f"<li>{html.escape(note)}</li>" for note in scene.notes)
        or "<li>There are none.</li>",
        "left_out": f"GeoJSON leaves out {scene.left_out}."
        if scene.left_out
        else "The lines that are drawn here.",
        "data": script_json(record),
        "style": resource_text("page.css"),
        "script": viewer_script(f"{thing}s.js"),
    }
    return fill_page("page.html", fields)


def _named(layer: Layer) -> str:
    """The title of a layer and its unit, for the head of a legend."""
    title = layer.title[0].upper() + layer.title[1:]
    return title if layer.unit in ("", "1", layer.title) else f"{title}, {layer.unit}"


def _ground(tiling: Tiling) -> dict[str, Any]:
    """The plane that a page is drawn in."""
    plane = map_plane(tiling)
    x0, y0, x1, y1 = plane.bounds
    return {
        "georeferenced": tiling.region.georeferenced,
        "ramp": base64.b64encode(ramp().tobytes()).decode(),
        "extent": [x1 - x0, y1 - y0],
        "metres": [plane.metres_per_x, plane.metres_per_y],
        "outline": None
        if tiling.region.polygon is None
        else packed_rings(region_rings(tiling, plane.projection), plane),
    }


def _cells(tiling: Tiling, scene: Scene) -> dict[str, Any]:
    """The layers of a map of cells, and where its cells lie."""
    area, bounds = tiling.area_m2() / (1e6 if tiling.region.georeferenced else 1.0), scene.bounds
    for layer in scene.layers:
        if layer.derived:
            area = np.where(np.isnan(layer.values), np.nan, area)  # so that no density is known there
    return {
        "main": scene.main,
        "empty": None if scene.layers[0].shading.blank else 0,
        "bounds": bounds and [packed(bounds[0], rounded=True), packed(bounds[1], rounded=True), bounds[2]],
        # Equal cells need one number.
        "area": float(area[0]) if np.allclose(area, area[0], rtol=1e-9) else packed(area),
        "layers": [_layer(layer) for layer in scene.layers],
        **_places(tiling),
    }


def _layer(layer: Layer) -> dict[str, Any]:
    """A layer for the page's script."""
    scale, shading = layer_scale(layer), layer.shading
    return {
        "name": layer.name,
        "title": layer.title[0].upper() + layer.title[1:],
        "unit": layer.unit,
        "values": {"over_area": "users"} if layer.derived else packed(layer.values, rounded=True),
        "words": layer.words,
        "scale": {
            "kind": shading.kind,
            "low": scale.low,
            "top": scale.top,
            "knee": scale.knee,
            "palest": PALEST if shading.blank else 0.0,
            "under": HOLE_COLOUR if shading.holes else None,
        },
    }


def _lines(tiling: Tiling, scene: Scene) -> dict[str, Any]:
    """The lines of a map, their facts, and the dots under them."""
    if scene.lines is None:
        raise AssertionError("a scene of lines has lines")
    lines, plane, (layer,) = scene.lines, map_plane(tiling), scene.layers
    courses, scale = planar(plane, lines), layer_scale(layer)
    x0, _, _, y1 = plane.bounds
    mark = np.full(layer.values.size, -1) if lines.mark is None else lines.mark
    dots = None
    if scene.dots is not None:
        sites = np.flatnonzero(scene.dots > 0) if tiling.size > _MOST_DOTS else np.arange(tiling.size)
        x, y = plane.projection.project(*tiling.centres(sites))
        size = packed(np.nan_to_num(scene.dots[sites]), rounded=True)
        dots = {"x": packed(x - x0), "y": packed(y1 - y), "size": size}
    return {
        "unit": layer.unit,
        "directed": lines.directed,
        "widths": list(lines.widths),
        "faintest": FAINTEST,
        "scale": {"top": scale.top, "knee": scale.knee},
        "x": packed(courses.corners[:, 0] - x0),
        "y": packed(y1 - courses.corners[:, 1]),
        "start": packed(courses.start),
        "value": packed(layer.values, rounded=True),
        "mark": packed(mark.astype(np.int64)),
        "marks": [
            {"name": name, "colour": MARK_COLOURS[at % len(MARK_COLOURS)]}
            for at, name in enumerate(lines.marks)
        ],
        "facts": {
            name: packed(column, rounded=True) if isinstance(column, np.ndarray) else list(column)
            for name, column in lines.facts.items()
        },
        "dots": dots,
    }


def _places(tiling: Tiling) -> dict[str, Any]:
    """Where the cells lie: pixels or outlines, and how to get back to degrees."""
    plane = map_plane(tiling)
    record: dict[str, Any] = {"size": tiling.size}
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
