"""The windows of a series in the record of its page, drawn no finer than each was measured."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mapveil.maps.scene import DrawnBlocks
from mapveil.maps.series_map import MOST_SHOWN, SeriesMap
from mapveil.pictures.colours import shared_scale
from mapveil.pictures.layer_record import blocks_record, layer_record
from mapveil.pictures.packed import packed

NOT_SHOWN: Final = (
    "The single windows do not fit this page, which shows all of them together: they are at least {numbers:,} numbers, "
    "above {most:,}. Coarser cells (--tiling) or fewer windows do; 'mapveil ask --window' makes a page of one."
)
"""Words of a page without windows, with fields."""


def windows_record(series: SeriesMap, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the record of the windows: ``windows``, None where they do not fit, and ``unshown``, which says so.

    Cells that lie in one block in every window, or in none, are a patch; blocks of a window are stored by patch.

    Parameters
    ----------
    series : SeriesMap
        The series.
    layers : list of dict
        The records of its layers. Where estimates of cells are among them, those of all windows get one scale.
    """
    first = next((at for at, layer in enumerate(layers) if layer["name"].startswith("users ")), len(layers))
    if first < len(layers):
        shared = shared_scale(series.layers())._asdict()
        for layer in layers[first : first + len(series)]:
            layer["scale"] |= shared
    shown, numbers = _shown(series)
    if shown is None and first == len(layers):
        return {"windows": None, "unshown": NOT_SHOWN.format(numbers=numbers, most=MOST_SHOWN)}
    names, titles = list(series.windows.names), list(series.windows.titles)
    return {
        "windows": {"first": first, "names": names, "titles": titles, "shown": shown},
        "unshown": "",
    }


def _shown(series: SeriesMap) -> tuple[dict[str, Any] | None, int]:
    """The blocks that each window is drawn as, one window after another, and how many numbers of patches these are.

    None where windows are not drawn as blocks, or where these are too many: the number is then of the first windows.
    """
    blocks, drawn, readings = [], [], []
    patch, numbers = np.zeros(series.tiling.size, dtype=np.int64), series.by_window.size
    for at in range(len(series)):
        scene = series.window(at).scene()
        if scene.blocks is None:
            return None, numbers
        of_cell = scene.blocks.of_cell
        patch = np.unique(patch * (of_cell.max() + 2) + of_cell + 1, return_inverse=True)[1].ravel()
        numbers = len(series) * (int(patch.max()) + 1)
        if numbers > MOST_SHOWN:
            return None, numbers
        blocks.append(scene.blocks)
        drawn.append(scene.layers[0])
        readings.append(scene.reading)
    member = np.unique(patch, return_index=True)[1]  # a cell of each patch
    numbered = np.concatenate([each.of_cell[member] for each in blocks])
    joined = {
        item: np.concatenate([getattr(each, item) for each in blocks]) for item in DrawnBlocks._fields
        if item not in ("probability", "of_cell")
    }  # fmt: skip
    record = {
        "unit": drawn[0].unit,
        "scale": {**layer_record(drawn[0])["scale"], **shared_scale(drawn)._asdict()},
        "readings": readings,
        "start": packed(np.cumsum([0, *(each.users.size for each in blocks)])),
        "patch": packed(patch),
        "blocks": blocks_record(DrawnBlocks(numbered, **joined, probability=blocks[0].probability)),
    }
    return record, numbers
