"""Arrays in the record of a scene, as text: each number's bytes apart, deflated, base64. ``packed.js`` reads them."""

from __future__ import annotations

import base64
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.pictures.picture_plane import MapPlane, Rings
from mapveil_client.arrays import FloatArray

_KEPT_BITS: Final = 13  # of a float's 23: four digits are shown and kept, and the record stays small


def packed(values: npt.NDArray[Any], *, rounded: bool = False, exact: bool = False) -> dict[str, Any]:
    """Pack an array: whole numbers in 32 bits, others in 32, or 64 where ``exact``; bytes of like weight together.

    Parameters
    ----------
    values : ndarray, any shape
        Numbers; flattened.
    rounded : bool
        Keep four digits.
    exact : bool
        Keep every bit of a float.
    """
    kind = "<i4" if values.dtype.kind in "iu" else "<f8" if exact else "<f4"
    words = np.ascontiguousarray(values, dtype=kind)
    if rounded:
        spare = 23 - _KEPT_BITS
        kept = words.view("<u4") + np.uint32(1 << (spare - 1))
        words = kept & np.uint32(0xFFFFFFFF << spare & 0xFFFFFFFF)
    planes = np.ascontiguousarray(words.view(np.uint8).reshape(-1, words.dtype.itemsize).T)
    return {"type": kind[1:], "data": base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def packed_xy(plane: MapPlane, x: FloatArray, y: FloatArray) -> dict[str, Any]:
    """Pack locations from the plane's north-west corner, y down."""
    x0, _, _, y1 = plane.bounds
    return {"x": packed(x - x0), "y": packed(y1 - y)}


def packed_rings(rings: Rings, plane: MapPlane) -> dict[str, Any]:
    """Pack closed outlines."""
    return {
        **packed_xy(plane, *rings.corners.T),
        "start": packed(rings.start),
        "cell": packed(rings.cell),
    }
