"""A released map as a database: record i is cell i, for each field a 64-bit float, little-endian.

The offer carries the map's public metadata (tiling, method, guarantee), from which a client finds the cell of its
location by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mapveil.geo.parse_tiling import tiling_from_dict
from mapveil.geo.tiling import Tiling
from mapveil.maps.density_map import DensityMap
from mapveil.retrieval.records import Database
from mapveil_client.arrays import FloatArray
from mapveil_client.errors import InputError, ParameterError

_VALUE: Final = np.dtype("<f8")


def map_database(
    density_map: DensityMap, fields: Sequence[str] = ("users",), *, queries: int = 100
) -> Database:
    """Lay out a released map for private retrieval. Run by: the server.

    Parameters
    ----------
    density_map : DensityMap
        Any released map; this is post-processing.
    fields : sequence of str
        Fields of a record: ``"users"``, ``"lower"`` and ``"upper"`` (bounds, where the map has measurements), or
        the name of one of the map's layers.
    queries : int
        Expected number of queries of a client to one version, see :func:`~mapveil.retrieval.shape.choose_shape`.

    Raises
    ------
    ParameterError
        ``fields`` is empty, names a field twice, or one that the map does not have.
    """
    columns = {"users": density_map.values}
    interval = density_map.interval()
    if interval is not None:
        columns |= {"lower": interval.lower, "upper": interval.upper}
    columns |= {layer.name: layer.values for layer in density_map.layers()}
    if not fields or len(set(fields)) < len(fields) or not set(fields) <= set(columns):
        raise ParameterError(f"fields must be among {', '.join(columns)}, each once, got {tuple(fields)!r}")
    values = np.stack([columns[name] for name in fields], axis=1).astype(_VALUE)
    about = {"fields": list(fields), "map": density_map.metadata()}
    text = json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Database.of(values.view(np.uint8), text.encode(), queries=queries)


@dataclass(frozen=True, eq=False)
class MapRecords:
    """The reader of a map's records. Run by: the client.

    Parameters
    ----------
    fields : tuple of str
        Fields of a record.
    metadata : dict
        Metadata of the map, as every export carries them.
    tiling : Tiling
        The cells.
    """

    fields: tuple[str, ...]
    metadata: dict[str, Any]
    tiling: Tiling

    @classmethod
    def of(cls, about: bytes) -> MapRecords:
        """Read the ``about`` of an offer; an ``InputError`` where it is not of a map."""
        try:
            record = json.loads(about)
            fields = tuple(str(name) for name in record["fields"])
            return cls(fields, dict(record["map"]), tiling_from_dict(record["map"]["tiling"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"an offer that is not of a map ({type(error).__name__}: {error})") from None

    def cell(self, lon: float, lat: float) -> int:
        """The record of a location, WGS84 degrees.

        Raises
        ------
        InputError
            The location is outside the map; the message does not repeat it.
        """
        at = np.array([[lon], [lat]], dtype=np.float64)
        cell = int(self.tiling.locate(*at)[0])
        if cell < 0:
            raise InputError("the location must be inside the map's region")
        return cell

    def values(self, records: bytes | npt.NDArray[np.uint8]) -> FloatArray:
        """The numbers of one record, shape (fields,), or of several, shape (records, fields).

        Records of another length are an ``InputError``.
        """
        array = np.frombuffer(records, dtype=np.uint8) if isinstance(records, bytes) else records
        size = _VALUE.itemsize * len(self.fields)
        if array.shape[-1] != size:
            raise InputError(
                f"a record of {', '.join(self.fields)} must have {size} bytes, got {array.shape[-1]}"
            )
        return np.ascontiguousarray(array).view(_VALUE).astype(np.float64)
