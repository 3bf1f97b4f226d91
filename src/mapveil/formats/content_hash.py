"""The record of a map's file: its metadata, its measurements, and a hash of all that a reader makes a map of.

The hash finds damage, such as a changed digit; whoever changes a file on purpose can change its hash too, which only a
signature (``mapveil ledger sign``) prevents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.formats.measurement_record import MEASUREMENTS_KEY, measurements_text
from mapveil.maps.density_map import DensityMap
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.maps.series_map import SeriesMap
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap

CONTENT_KEY: Final = "content_sha256"
"""Name of the hash in a file's metadata."""


class ChangedContent(InputError):
    """A file whose content is not that of its record."""


def file_record(released: ReleasedMap, **more: Any) -> tuple[dict[str, Any], str]:
    """The metadata that a file of a map carries, with the hash of its content, and its measurements as text.

    Parameters
    ----------
    released : ReleasedMap
        Maps of other kinds than of users and flows are not read back, and have no hash.
    more
        Further entries of the metadata.
    """
    metadata, measured = {**released.metadata(), **more}, measurements_text(released)
    if isinstance(released, DensityMap | FlowMap):
        metadata[CONTENT_KEY] = _content_hash(released, metadata, measured)
    return metadata, measured


def record_json(metadata: dict[str, Any]) -> str:
    """Metadata as canonical JSON."""
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def check_content(released: DensityMap | FlowMap, metadata: dict[str, Any], measured: str) -> None:
    """Compare what was read of a file with the hash in its metadata; files of before there was one pass.

    Raises
    ------
    ChangedContent
        They differ.
    """
    said = metadata.get(CONTENT_KEY)
    if said is not None and said != _content_hash(released, metadata, measured):
        raise ChangedContent("its content is not the one that was written: it was damaged or edited since")


def _content_hash(released: DensityMap | FlowMap, metadata: dict[str, Any], measured: str) -> str:
    kept = {name: value for name, value in metadata.items() if name not in (CONTENT_KEY, MEASUREMENTS_KEY)}
    found = hashlib.sha256()
    for text in (record_json(kept), measured):
        encoded = text.encode()
        found.update(len(encoded).to_bytes(8, "little") + encoded)
    for values in _columns(released):
        # One form of zero and of NaN: formats keep neither sign nor payload.
        column = np.array(values, dtype="<f8")
        column[np.isnan(column)] = np.nan
        column += 0.0
        found.update(column.tobytes())
    return found.hexdigest()


def _columns(released: DensityMap | FlowMap) -> Iterator[FloatArray]:
    """The columns of a file that a map is read of."""
    if isinstance(released, FlowMap):
        yield released.origin.astype(np.float64)
        yield released.destination.astype(np.float64)
        of_flows = (released.deviation, released.unbiased, released.p_value)
        yield from (each for each in of_flows if each is not None)
    yield released.trips if isinstance(released, FlowMap) else released.values
    if isinstance(released, SeriesMap | FlowSeriesMap):
        yield released.by_window
