"""The noisy sums of a map in its page, which answers for zones as :mod:`mapveil.analysis.zone_totals` does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely

from mapveil.geo.zones import overlapping_pairs
from mapveil.inference.zone_overlay import ZoneOverlay, sums_of
from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import INTERVAL_ALPHA
from mapveil.pictures.packed import packed, packed_rings
from mapveil.pictures.picture_plane import map_plane, polygon_rings
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.geo.zones import Zones
    from mapveil.inference.nested_sums import SumLevel
    from mapveil.maps.released import ReleasedMap

_MOST_PARTS: Final = 2_000_000  # of leaves in zones: a page carries them all
_BITS: Final = 16
_MOST_STEPS: Final = 1 << 31
_EDGES: Final = 64  # of the region's side: edges of zones are cut before they are projected


def question_record(released: ReleasedMap) -> dict[str, Any] | None:
    """Make the record of a map's noisy sums; the reason where it cannot be asked, None where it has no users.

    Noisy sums are rounded to a power of two below 2**-16 of their noise's deviation, weights of the least squares to 24
    bits: totals stay unbiased, and move by a millionth of their own deviation. A page places the users of a measured
    cell that a zone cuts by its cells, also in a window of a series, which ``mapveil ask`` places by all windows.

    Parameters
    ----------
    released : ReleasedMap
        The map; the page asks about the zones of its ``context``.
    """
    if not isinstance(released, DensityMap):
        return None
    try:
        sums = sums_of(released)
    except InputError as error:
        return {"refused": str(error)}
    return {
        "alpha": INTERVAL_ALPHA,
        "leaf": packed(sums.leaf),
        "levels": [_level(each) for each in sums.levels],
        "zones": None if released.context is None else _zones(released, released.context.zones),
    }


def _level(level: SumLevel) -> dict[str, Any]:
    law = level.law
    if law is None:
        return {"noisy": packed(level.noisy), "step": 1, "parent": packed(level.parent), "law": None}
    # A number of reports is exact.
    step = 2.0 ** (math.floor(math.log2(law.deviation() or 1.0)) - _BITS)
    steps = np.rint(level.noisy / step)
    fits = bool(np.abs(steps).max(initial=0) < _MOST_STEPS)
    return {
        "noisy": packed(steps.astype(np.int64)) if fits else packed(level.noisy, exact=True),
        "step": step if fits else 1,
        "parent": packed(level.parent),
        "weight": packed(level.weight),
        "spread": None if (level.spread == 1).all() else packed(level.spread),
        "law": {"variance": level.variance, **law.law()._asdict()},
    }


def _zones(heat: DensityMap, zones: Zones) -> dict[str, Any] | None:
    """The zones in the map, with the weights of the leaves in each; None where there are none, or far too many."""
    if not len(zones):
        return None
    try:
        overlay = ZoneOverlay.of(heat, zones)
    except InputError:  # none of them lies in the map
        return None
    weights, found, plane = overlay.areas, overlay.zones, map_plane(heat.tiling)
    if weights.nnz > _MOST_PARTS:
        return None
    west, south, east, north = heat.tiling.region.bbox
    one, other = overlapping_pairs(found.polygons)
    cut = shapely.segmentize(found.polygons, max(east - west, north - south) / _EDGES)
    return {
        "name": list(found.names),
        "notes": list(found.notes),
        "start": packed(weights.indptr),
        "leaf": packed(weights.indices),
        "part": packed(weights.data),
        "shown": packed(overlay.shown),
        "covered": packed(overlay.covered),
        "area": packed(shapely.area(found.polygons)),
        "overlaps": {"one": packed(one), "other": packed(other)},
        "rings": packed_rings(polygon_rings(cut, plane.projection), plane),
    }
