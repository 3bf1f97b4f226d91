"""Layers and blocks of a scene in its record, JSON-ready."""

from __future__ import annotations

from typing import Any

from mapveil.maps.scene import DrawnBlocks, Layer
from mapveil.pictures.colours import layer_scale
from mapveil.pictures.packed import packed
from mapveil.pictures.picture import PALEST
from mapveil.pictures.picture_frame import HOLE_COLOUR


def blocks_record(blocks: DrawnBlocks | None) -> dict[str, Any] | None:
    """The blocks that cells are drawn as."""
    if blocks is None:
        return None
    numbers = {
        "users": blocks.users,
        "upper": blocks.upper,
        "half_width": blocks.upper - blocks.noisy,
        "deviation": blocks.deviation,
        "area": blocks.area,
    }
    return {
        "of_cell": packed(blocks.of_cell),
        "probability": blocks.probability,
        **{name: packed(values, rounded=True) for name, values in numbers.items()},
    }


def layer_record(layer: Layer) -> dict[str, Any]:
    """A layer for the viewer."""
    scale, shading = layer_scale(layer), layer.shading
    return {
        "name": layer.name,
        "title": layer.title[0].upper() + layer.title[1:],
        "unit": layer.unit,
        "values": _values(layer),
        "words": layer.words,
        "scale": {
            "kind": shading.kind,
            "low": scale.low,
            "top": scale.top,
            "knee": scale.knee,
            "alone": scale.alone,
            "noise_floor": shading.noise_floor,
            "palest": PALEST if shading.blank else 0.0,
            "under": HOLE_COLOUR if shading.holes else None,
        },
    }


def _values(layer: Layer) -> dict[str, Any]:
    """The numbers of a layer, or what they follow from."""
    if layer.derived:
        return {"of": "users", "over_area": True}
    if layer.name.startswith("block_"):
        return {"of": "blocks"}
    return packed(layer.values, rounded=True)
