"""A series as an animation: one picture of each window, on one scale, as a WebP or GIF."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from typing import Any, Final

from mapveil.formats.atomic import atomic_path
from mapveil.maps.series_map import SeriesMap, check_drawn
from mapveil.pictures.colours import shared_scale
from mapveil.pictures.picture import draw_picture, picture_ground
from mapveil.pictures.picture_frame import new_axes, png_bytes
from mapveil.pictures.picture_plane import map_plane
from mapveil_client.errors import require

FRAME_MS: Final = 700  # milliseconds of a window
_DPI: Final = 80


def write_animation(series: SeriesMap, path: str | PathLike[str]) -> None:
    """Write the windows one after another, each drawn as a picture of one map, by the path's suffix.

    Parameters
    ----------
    series : SeriesMap
        At most 120 windows.
    path : path-like
        With the suffix ``.webp`` or ``.gif``.

    Raises
    ------
    InputError
        There are too many windows.
    MissingExtra
        matplotlib or Pillow is not installed.
    """
    check_drawn(path, len(series))
    image = require("PIL.Image", "viz")
    frames = [image.open(io.BytesIO(each)).convert("RGB") for each in _pictures(series)]
    # Texts of unlike length make frames of unlike size: all get that of the largest, at the top left.
    size = tuple(max(frame.size[axis] for frame in frames) for axis in (0, 1))
    whole = []
    for frame in frames:
        made = image.new("RGB", size, "white")
        made.paste(frame, (0, 0))
        whole.append(made)
    how: dict[str, Any] = {"save_all": True, "append_images": whole[1:], "duration": FRAME_MS, "loop": 0}
    # Neither format has the text chunks of a PNG; its EXIF description holds the promise.
    exif = image.Exif()
    exif[0x010E] = series.guarantee.in_words()
    kind = Path(path).suffix.lower().removeprefix(".")
    how |= {"exif": exif} if kind == "webp" else {"comment": series.guarantee.in_words().encode()}
    with atomic_path(path) as place, place.open("wb") as file:
        whole[0].save(file, format=kind, **how)


def _pictures(series: SeriesMap) -> list[bytes]:
    windows = [series.window(at) for at in range(len(series))]
    scenes = [each.scene() for each in windows]
    scale = shared_scale([scene.layers[0] for scene in scenes])
    plane = map_plane(series.tiling)
    ground, made = picture_ground(series, plane), []
    for window, scene in zip(windows, scenes, strict=True):
        axes = new_axes(plane)
        draw_picture(window, scene, plane, axes, scale, ground)
        made.append(png_bytes(window, axes, _DPI))
    return made
