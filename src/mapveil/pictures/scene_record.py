"""The record of a map's scene: what the viewer of exported pages and of the console draws, JSON-ready."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.maps.scene import Layer, Shading
from mapveil.maps.series_map import SeriesMap
from mapveil.pictures.colours import layer_scale, ramp, scene_scale
from mapveil.pictures.ground_record import ground_record
from mapveil.pictures.layer_record import blocks_record, layer_record
from mapveil.pictures.packed import packed, packed_rings, packed_xy
from mapveil.pictures.picture import (
    FAINTEST,
    MARK_COLOURS,
    cell_areas,
    drawn_context,
    half_widths,
)
from mapveil.pictures.picture_plane import MapPlane, Rings, map_plane, planar, region_rings
from mapveil.pictures.question_record import question_record
from mapveil.pictures.window_record import windows_record
from mapveil.privacy.promise import hypotheses
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.epsilon import readable

if TYPE_CHECKING:
    from mapveil.geo.context import Context
    from mapveil.geo.tiling import Tiling
    from mapveil.maps.released import ReleasedMap
    from mapveil.maps.scene import Lines, LineWindows, Scene
    from mapveil.privacy.guarantee import Guarantee


_NO_TILES: Final = (
    "The online tiles are not drawn: meridians and parallels do not run straight in this map's plane."
)
_MESH: Final = 64
_DEGREE_DECIMALS: Final = 7
_STRAIGHT: Final = 1e-9  # degrees
_MOST_DOTS: Final = 20_000  # cells whose centres are all shown
AROUND: Final = 1.0  # of the map's longer side: ground around it, which the page shows when zoomed out


def scene_record(released: ReleasedMap) -> dict[str, Any]:
    """Make the record of a map's scene, whose arrays are packed; run by anybody who holds the map.

    Numbers are rounded to four digits.

    Parameters
    ----------
    released : ReleasedMap
        The map.
    """
    scene, tiling, guarantee = released.scene(page=True), released.tiling, released.guarantee
    metadata, plane, region = released.metadata(), map_plane(tiling), tiling.region
    degrees = degrees_record(plane) if region.georeferenced else None
    outline = None if region.polygon is None else region_rings(tiling, plane.projection)
    tiles = tiles_record(released.context, degrees)
    made = [
        ("Method", released.method),
        ("Cells", f"{tiling.spec}, {tiling.size} cells"),
        ("Region", str(tiling.region)),
        *scene.made,
        *released.provenance.rows(),
        *((name.capitalize(), text) for name, text in guarantee.promise.rows if name == "account"),
        ("Software", f"Mapveil {released.version}"),
    ]
    parameters = [(name, _text(value)) for name, value in metadata["parameters"].items() if value is not None]
    spent = [(share.purpose, f"ε = {readable(share.epsilon)}") for share in guarantee.shares]
    tables = [
        ("How it was made", made),
        ("Parameters", parameters),
        ("How the privacy budget was spent", spent),
        *scene.tables,
    ]
    shown = _cells(tiling, scene) if scene.lines is None else _lines(tiling, scene, scene.lines)
    if isinstance(released, SeriesMap):
        shown |= windows_record(released, shown["layers"])
    record = {
        "title": released.title or scene.title,
        "metadata": metadata,
        "tables": [(head, rows) for head, rows in tables if rows],
        "notes": [*scene.notes, *([_NO_TILES] if tiles is None and _wants_tiles(released) else [])],
        "reading": scene.reading,
        "odds": odds_record(guarantee),
        "left_out": _left_out(released, scene),
        "scene": {
            **plane_record(plane, outline),
            "georeferenced": region.georeferenced,
            "degrees": degrees,
            **shown,
            "ground": ground_record(plane, region, drawn_context(released), margin=AROUND),
            "tiles": tiles,
            "questions": question_record(released),
        },
    }
    return finite_record(record)


def _left_out(released: ReleasedMap, scene: Scene) -> str:
    """The part of a map that the files of its page are without, in words."""
    if not scene.left_out:
        return "The lines that are drawn here."
    windows = (
        "The windows are left out. " if isinstance(released, SeriesMap) and not released.layers() else ""
    )
    return f"{windows}GeoJSON leaves out {scene.left_out}."


def _wants_tiles(released: ReleasedMap) -> bool:
    return released.context is not None and released.context.tiles is not None


def finite_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record as JSON has it: without infinities and NaN, which are null."""
    finite: dict[str, Any] = json.loads(json.dumps(record), parse_constant=lambda _: None)
    return finite


def tiles_record(context: Context | None, degrees: dict[str, Any] | None) -> dict[str, str] | None:
    """The online tiles that a page fetches, and what it says of them.

    None where it fetches none, or where meridians do not run straight in its plane.
    """
    if context is None or context.tiles is None or degrees is None or degrees["mesh"] is not None:
        return None
    tiles = context.tiles
    notice = (
        f"Background: {tiles.credit}. This browser fetches it from {tiles.host}, which so learns its address and the "
        "part of the map that it shows; nothing of the map itself is sent. The "
        "map's colours let it through; the legend shows them over a plain ground."
    )
    return {"template": tiles.template, "origin": tiles.origin, "notice": notice}


def odds_record(guarantee: Guarantee) -> list[dict[str, Any]]:
    """Pairs of hypotheses whose odds the release bounds, for the viewer; none of a seeded one."""
    pairs = () if guarantee.seeded else hypotheses(guarantee)
    return [
        {"between": f"{words[0].upper()}{words[1:]}", "epsilon": float(epsilon)} for words, epsilon in pairs
    ]


def plane_record(plane: MapPlane, outline: Rings | None) -> dict[str, Any]:
    """The plane that a scene is drawn in, and the outline of what is drawn; None for the whole plane."""
    x0, y0, x1, y1 = plane.bounds
    return {
        "ramp": base64.b64encode(ramp().tobytes()).decode(),
        "extent": [x1 - x0, y1 - y0],
        "metres": [plane.metres_per_x, plane.metres_per_y],
        "outline": None if outline is None else packed_rings(outline, plane),
    }


def _cells(tiling: Tiling, scene: Scene) -> dict[str, Any]:
    """The layers of a map of cells, and where its cells lie."""
    area, bounds, blocks = cell_areas(tiling, scene.layers), scene.bounds, scene.blocks
    layers = [layer_record(layer) for layer in scene.layers]
    if bounds is not None:
        density = next((layer for layer in scene.layers if layer.derived), scene.layers[scene.main])
        layers.append(_uncertainty(density, bounds, area))
    return {
        "main": scene.main,
        "empty": None if scene.layers[0].shading.blank else 0,
        "bounds": bounds and [packed(bounds[0], rounded=True), packed(bounds[1], rounded=True), bounds[2]],
        # Equal cells need one number.
        "area": float(area[0]) if np.allclose(area, area[0], rtol=1e-9) else packed(area),
        "layers": layers,
        "blocks": blocks_record(blocks),
        "doubt": scene.doubt,
        "dotted": scene.dotted,
        **{
            name: None if cells is None else packed(np.flatnonzero(cells))
            for name, cells in (("hatched", scene.hatched), ("unsure", scene.unsure))
        },
        "names": getattr(tiling, "names", None),
        **_places(tiling),
    }


def _uncertainty(
    density: Layer, bounds: tuple[FloatArray, FloatArray, str], area: FloatArray
) -> dict[str, Any]:
    """A layer of half the width of each cell's bounds, in the unit of the density."""
    title, half = f"uncertainty: half the {bounds[2]} interval", half_widths(density, bounds, area)
    layer = layer_record(Layer("half_width", title, density.unit, half, Shading(density.shading.kind)))
    return {**layer, "values": {"of": "bounds", "over_area": density.derived}}


def _lines(tiling: Tiling, scene: Scene, lines: Lines) -> dict[str, Any]:
    """The lines of a map, their facts, and the dots under them."""
    plane, (layer,) = map_plane(tiling), scene.layers
    courses, scale = planar(plane, lines), scene_scale(scene)
    mark = np.full(layer.values.size, -1) if lines.mark is None else lines.mark
    dots, sites = None, np.empty(0, dtype=np.int64)
    if scene.dots is not None:
        dotted = scene.dots > 0
        if lines.windows is not None:
            dotted |= (lines.windows.dots > 0).any(axis=0)
        sites = np.flatnonzero(dotted) if tiling.size > _MOST_DOTS else np.arange(tiling.size)
        x, y = plane.projection.project(*tiling.centres(sites))
        size = packed(np.nan_to_num(scene.dots[sites]), rounded=True)
        dots = {**packed_xy(plane, x, y), "size": size}
    return {
        "unit": layer.unit,
        "directed": lines.directed,
        "widths": list(lines.widths),
        "faintest": FAINTEST,
        "scale": {"top": scale.top, "knee": scale.knee, "alone": scale.alone},
        **packed_xy(plane, *courses.corners.T),
        "start": packed(courses.start),
        "value": packed(layer.values, rounded=True),
        "mark": packed(mark.astype(np.int64)),
        "faded": packed(
            np.zeros(mark.size, np.int64) if lines.faded is None else lines.faded.astype(np.int64)
        ),
        "doubt": scene.doubt,
        "marks": [
            {"name": name, "colour": MARK_COLOURS[at % len(MARK_COLOURS)]}
            for at, name in enumerate(lines.marks)
        ],
        "facts": {
            name: packed(column, rounded=True) if isinstance(column, np.ndarray) else list(column)
            for name, column in lines.facts.items()
        },
        "dots": dots,
        "windows": None if lines.windows is None else _line_windows(layer, lines.windows, sites),
    }


def _line_windows(layer: Layer, windows: LineWindows, sites: IntArray) -> dict[str, Any]:
    """The lines and dots of each window, on one scale."""
    told = windows.values[~windows.faded]
    floor = float(told.min()) / 10 if windows.faded.any() and told.size else 0.0
    values = np.concatenate([windows.values.ravel(), windows.dots.ravel()])
    scale = layer_scale(layer._replace(values=values, shading=layer.shading._replace(noise_floor=floor)))
    return {
        "names": list(windows.names),
        "titles": list(windows.titles),
        "readings": list(windows.readings),
        "scale": {"top": scale.top, "knee": scale.knee, "alone": scale.alone},
        "value": packed(windows.values.ravel(), rounded=True),
        "faded": packed(windows.faded.ravel().astype(np.int64)),
        "size": packed(windows.dots[:, sites].ravel(), rounded=True),
    }


def _places(tiling: Tiling) -> dict[str, Any]:
    """Where the cells lie: pixels, or outlines with their degrees."""
    plane = map_plane(tiling)
    record: dict[str, Any] = {"size": tiling.size}
    if plane.frame is not None:
        frame = plane.frame
        record["raster"] = {
            "rows": frame.rows,
            "columns": frame.columns,
            "row": packed(frame.row),
            "col": packed(frame.col),
        }
    elif plane.rings is not None:
        record["rings"] = outlines_record(plane, plane.rings, *tiling.centres())
    return record


def outlines_record(plane: MapPlane, rings: Rings, lon: FloatArray, lat: FloatArray) -> dict[str, Any]:
    """Outlines of cells, in the plane and in degrees, and the degrees of each cell's middle."""
    corners = plane.projection.unproject(*rings.corners.T)
    return {
        **packed_rings(rings, plane),
        # Offsets, because a float of 32 bits has seven digits.
        "origin": [float(np.min(corners[0])), float(np.min(corners[1]))],
        "lon": packed(corners[0] - np.min(corners[0])),
        "lat": packed(corners[1] - np.min(corners[1])),
        "centre_lon": np.round(lon, _DEGREE_DECIMALS).tolist(),
        "centre_lat": np.round(lat, _DEGREE_DECIMALS).tolist(),
    }


def degrees_record(plane: MapPlane) -> dict[str, Any]:
    """Degrees of the plane's places: along its sides where those run straight, else of a mesh's nodes."""
    x0, y0, x1, y1 = plane.bounds

    def nodes(across: int, down: int) -> tuple[FloatArray, FloatArray]:
        x, y = np.meshgrid(np.linspace(x0, x1, across + 1), np.linspace(y1, y0, down + 1))
        lon, lat = plane.projection.unproject(x.ravel(), y.ravel())
        return lon.reshape(x.shape), lat.reshape(x.shape)

    lon, lat = nodes(_MESH, _MESH)
    straight = bool((np.ptp(lon, axis=0) < _STRAIGHT).all() and (np.ptp(lat, axis=1) < _STRAIGHT).all())
    if straight:
        frame = plane.frame
        across, down = (_MESH, _MESH) if frame is None else (frame.columns, frame.rows)
        lon, lat = nodes(across, 1)[0][0], nodes(1, down)[1][:, 0]
    rounded = (np.round(part.ravel(), _DEGREE_DECIMALS).tolist() for part in (lon, lat))
    return {"mesh": None if straight else _MESH, **dict(zip(("lon", "lat"), rounded, strict=True))}


def _text(value: Any) -> str:
    """A parameter for readers."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
