"""A map as one page that needs nothing but a browser: no server, no network, no other file."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from importlib import resources
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.formats.atomic import atomic_path
from mapveil.pictures.colours import layer_scale, ramp
from mapveil.pictures.picture import FAINTEST, HOLE_COLOUR, MARK_COLOURS, PALEST
from mapveil.pictures.picture_plane import MapPlane, Rings, map_plane, planar, region_rings
from mapveil_client.arrays import FloatArray

if TYPE_CHECKING:
    from mapveil.geo.tiling import Tiling
    from mapveil.maps.frame import RasterFrame
    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import Layer, Lines, Scene


_MESH: Final = 64
_DEGREE_DECIMALS: Final = 7
_STRAIGHT: Final = 1e-9  # degrees
_MOST_DOTS: Final = 20_000  # cells whose centres are all shown
_KEPT_BITS: Final = 13  # of a float's 23: four digits are shown and kept, and the page stays small


def write_page(released: ReleasedMap, path: str | PathLike[str]) -> None:
    """Write :func:`page_html` to a file. Run by: anybody who holds the map."""
    text = page_html(released)
    with atomic_path(path) as place:
        place.write_text(text, encoding="utf-8", newline="\n")


def page_html(released: ReleasedMap) -> str:
    """Make a page of a map: pan and zoom, a reading of each cell or line, legend, guarantee, downloads.

    Numbers are rounded to four digits; the page fetches nothing and sends nothing, which its content security
    policy enforces.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    """
    scene, guarantee, tiling = released.scene(page=True), released.guarantee, released.tiling
    metadata = released.metadata()
    head, thing = released.title or scene.title, "cell" if scene.lines is None else "line"
    made = [
        ("Method", released.method),
        ("Cells", f"{tiling.spec}, {tiling.size} cells"),
        ("Region", str(tiling.region)),
        *scene.made,
        *released.provenance.rows(),
        *((name.capitalize(), text) for name, text in guarantee.promise.rows if name == "account"),
        ("Software", f"Mapveil {released.version}"),
    ]
    parameters = [(name, _text(value)) for name, value in metadata["parameters"].items()]
    spent = [(share.purpose, f"ε = {float(share.epsilon):.6g}") for share in guarantee.shares]
    tables = [
        ("How it was made", made),
        ("Parameters", parameters),
        ("How the privacy budget was spent", spent),
        *scene.tables,
    ]
    record = {
        "title": head,
        "metadata": metadata,
        **_ground(tiling),
        **(_cells(tiling, scene) if scene.lines is None else _lines(tiling, scene, scene.lines)),
    }
    promise = guarantee.promise
    first, *rest = map(html.escape, promise.sentences)
    words = (f"<strong>{html.escape(promise.headline)}</strong> {first}", *rest)
    warnings = (f'<p class="banner" role="alert">{html.escape(text)}</p>' for text in promise.warnings)
    notes = [f"<li>{html.escape(note)}</li>" for note in scene.notes] or ["<li>There are none.</li>"]
    left_out = f"GeoJSON leaves out {scene.left_out}." if scene.left_out else "The lines that are drawn here."
    fields = {
        "title": html.escape(head),
        "banner": "\n".join(warnings),
        "subtitle": html.escape(f"{released.method}, {promise.label}, {tiling.spec} ({tiling.size} cells)"),
        "unit": html.escape(_named(scene.layers[0])),
        "thing": thing,
        "reading": html.escape(scene.reading),
        "promise": "\n".join(f"<p>{text}</p>" for text in words).replace("<p>", '<p class="factor">', 1),
        "tables": "".join(_section_html(name, rows) for name, rows in tables),
        "notes": "".join(notes),
        "left_out": left_out,
        "data": _script_json(record),
        "style": _resource_text("page.css"),
        "script": _viewer_script(f"{thing}s.js"),
    }
    return _fill_page("page.html", fields)


def _named(layer: Layer) -> str:
    """The title of a layer and its unit, for the head of a legend."""
    title = layer.title[0].upper() + layer.title[1:]
    return title if layer.unit in ("", "1", layer.title) else f"{title}, {layer.unit}"


def _ground(tiling: Tiling) -> dict[str, Any]:
    """The plane that a page is drawn in."""
    plane = map_plane(tiling)
    x0, y0, x1, y1 = plane.bounds
    box, rings = tiling.region.polygon is None, region_rings(tiling, plane.projection)
    return {
        "georeferenced": tiling.region.georeferenced,
        "ramp": base64.b64encode(ramp().tobytes()).decode(),
        "extent": [x1 - x0, y1 - y0],
        "metres": [plane.metres_per_x, plane.metres_per_y],
        "outline": None if box else _packed_rings(rings, plane),
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
        "bounds": bounds and [_packed(bounds[0], rounded=True), _packed(bounds[1], rounded=True), bounds[2]],
        # Equal cells need one number.
        "area": float(area[0]) if np.allclose(area, area[0], rtol=1e-9) else _packed(area),
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
        "values": {"over_area": "users"} if layer.derived else _packed(layer.values, rounded=True),
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


def _lines(tiling: Tiling, scene: Scene, lines: Lines) -> dict[str, Any]:
    """The lines of a map, their facts, and the dots under them."""
    plane, (layer,) = map_plane(tiling), scene.layers
    courses, scale = planar(plane, lines), layer_scale(layer)
    mark = np.full(layer.values.size, -1) if lines.mark is None else lines.mark
    dots = None
    if scene.dots is not None:
        sites = np.flatnonzero(scene.dots > 0) if tiling.size > _MOST_DOTS else np.arange(tiling.size)
        x, y = plane.projection.project(*tiling.centres(sites))
        size = _packed(np.nan_to_num(scene.dots[sites]), rounded=True)
        dots = {**_packed_xy(plane, x, y), "size": size}
    return {
        "unit": layer.unit,
        "directed": lines.directed,
        "widths": list(lines.widths),
        "faintest": FAINTEST,
        "scale": {"top": scale.top, "knee": scale.knee},
        **_packed_xy(plane, *courses.corners.T),
        "start": _packed(courses.start),
        "value": _packed(layer.values, rounded=True),
        "mark": _packed(mark.astype(np.int64)),
        "marks": [
            {"name": name, "colour": MARK_COLOURS[at % len(MARK_COLOURS)]}
            for at, name in enumerate(lines.marks)
        ],
        "facts": {
            name: _packed(column, rounded=True) if isinstance(column, np.ndarray) else list(column)
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
            "row": _packed(frame.row),
            "col": _packed(frame.col),
            **(_degrees(plane, frame) if tiling.region.georeferenced else {}),
        }
    elif plane.rings is not None:
        centres = tiling.centres()
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


def _degrees(plane: MapPlane, frame: RasterFrame) -> dict[str, Any]:
    """Degrees of a raster's corners: of each row and column, or of a mesh where those do not run straight."""
    x0, y0, x1, y1 = plane.bounds

    def corners(across: int, down: int) -> tuple[FloatArray, FloatArray]:
        x, y = np.meshgrid(np.linspace(x0, x1, across + 1), np.linspace(y1, y0, down + 1))
        lon, lat = plane.projection.unproject(x.ravel(), y.ravel())
        return lon.reshape(x.shape), lat.reshape(x.shape)

    lon, lat = corners(_MESH, _MESH)
    straight = bool((np.ptp(lon, axis=0) < _STRAIGHT).all() and (np.ptp(lat, axis=1) < _STRAIGHT).all())
    if straight:
        lon, lat = corners(frame.columns, 1)[0][0], corners(1, frame.rows)[1][:, 0]
    rounded = (np.round(part.ravel(), _DEGREE_DECIMALS).tolist() for part in (lon, lat))
    return {"straight": straight, "mesh": _MESH, **dict(zip(("lon", "lat"), rounded, strict=True))}


def _fill_page(template: str, fields: Mapping[str, str]) -> str:
    """A template of this package with its ``{{markers}}`` replaced by fields."""
    # One pass over the template's own text: what is put in is never searched for markers.
    return re.sub(r"\{\{(\w+)\}\}", lambda marker: fields[marker[1]], _resource_text(template))


def _resource_text(name: str) -> str:
    """A text file that lies beside this module."""
    return resources.files("mapveil.pictures").joinpath(name).read_text(encoding="utf-8")


def _viewer_script(kind: str) -> str:
    """The viewer of exported pages: the console's module, the part of all pages, and that of one kind."""
    shared = _resource_text("shared/assets/scale.js").replace("export ", "")
    return shared + _resource_text("view.js") + _resource_text(kind)


def _packed(values: npt.NDArray[Any], *, rounded: bool = False) -> dict[str, Any]:
    """An array as text: 32 bits each, bytes of like weight together, deflated, base64."""
    kind = "<i4" if values.dtype.kind in "iu" else "<f4"
    words = np.ascontiguousarray(values, dtype=kind).view("<u4")
    if rounded:
        spare = 23 - _KEPT_BITS
        words = (words + np.uint32(1 << (spare - 1))) & np.uint32(0xFFFFFFFF << spare & 0xFFFFFFFF)
    planes = np.ascontiguousarray(words.view(np.uint8).reshape(-1, 4).T)
    return {"type": kind[1:], "data": base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def _packed_xy(plane: MapPlane, x: FloatArray, y: FloatArray) -> dict[str, Any]:
    """Locations from the plane's north-west corner, y down."""
    x0, _, _, y1 = plane.bounds
    return {"x": _packed(x - x0), "y": _packed(y1 - y)}


def _packed_rings(rings: Rings, plane: MapPlane) -> dict[str, Any]:
    return {
        **_packed_xy(plane, *rings.corners.T),
        "start": _packed(rings.start),
        "cell": _packed(rings.cell),
    }


def _script_json(record: dict[str, Any]) -> str:
    """JSON that no HTML parser can mistake for the end of its script."""
    # JSON knows no infinity and no NaN: such numbers are null.
    finite = json.loads(json.dumps(record), parse_constant=lambda _: None)
    text = json.dumps(finite, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _section_html(head: str, rows: list[tuple[str, str]]) -> str:
    """A headed table, or nothing where there are no rows."""
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<h2>{html.escape(head)}</h2><table>{body}</table>"


def _text(value: Any) -> str:
    """A parameter for readers."""
    if value is None:
        return "not given"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
