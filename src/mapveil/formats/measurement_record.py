"""The measurements of a map as bytes, and as the text that its files carry beside the metadata."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import zipfile
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.maps.density_map import DensityMap
from mapveil.maps.measurement import EstimatedUsers, Measurement
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.privacy.claim import read_exact
from mapveil_client.errors import is_whole

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap

MEASUREMENTS_KEY: Final = "mapveil_measurements"
"""Name of the measurements in a file: key of schema metadata, tag, or member of a JSON object."""

_MOST_UNITS: Final = 1 << 62

_KINDS: Final[dict[str, type[Measurement]]] = {
    "sums": Measurement,
    "sums by label": LabelMeasurement,
    "estimates": EstimatedUsers,
}


def write_measurements(measurements: Sequence[Measurement]) -> bytes:
    """Encode measurements as one npz: arrays by ``number.field``, everything else as JSON in ``records``."""
    arrays: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    for number, measurement in enumerate(measurements):
        values = {item.name: getattr(measurement, item.name) for item in dataclasses.fields(measurement)}
        arrays |= {f"{number}.{name}": _narrow(v) for name, v in values.items() if isinstance(v, np.ndarray)}
        kind = next(name for name, each in _KINDS.items() if type(measurement) is each)
        fractions = {name: str(v) for name, v in values.items() if isinstance(v, Fraction)}
        plain = {k: v for k, v in values.items() if not isinstance(v, (np.ndarray, Fraction))}
        records.append({"kind": kind, "fractions": fractions, "plain": plain})
    packed = io.BytesIO()
    np.savez_compressed(packed, records=np.array(json.dumps(records)), **arrays)
    return packed.getvalue()


def read_measurements(data: bytes) -> tuple[Measurement, ...]:
    """Decode what :func:`write_measurements` encoded.

    Raises
    ------
    ValueError
        The bytes are no measurements.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            made = []
            for number, record in enumerate(json.loads(str(file["records"]))):
                fractions = {name: read_exact(text) for name, text in record["fractions"].items()}
                arrays = {
                    name.partition(".")[2]: _wide(file[name])
                    for name in file.files
                    if name.startswith(f"{number}.")
                }
                made.append(_KINDS[record["kind"]](**record["plain"] | fractions | arrays))
            return tuple(made)
    except (
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"no measurements ({type(error).__name__}: {error})") from error


def measurements_text(released: ReleasedMap) -> str:
    """The measurements of a map of users in base64, for its files; empty where it has none."""
    if not isinstance(released, DensityMap) or not released.measurements:
        return ""
    return base64.b64encode(write_measurements(released.measurements)).decode()


def measurements_of(text: str, cells: int) -> tuple[Measurement, ...]:
    """The measurements that :func:`measurements_text` wrote, of a map with so many cells; none for an empty text.

    Raises
    ------
    ValueError
        The text is no measurements, or they do not fit the cells.
    """
    made = read_measurements(base64.b64decode(text, validate=True)) if text else ()
    for each in made:
        groups, sums = each.groups, each.noisy
        fits = groups.shape == (cells,) and groups.dtype == np.int64 and sums.ndim == 1
        if not fits or not np.isfinite(sums).all() or not ((groups >= -1) & (groups < sums.size)).all():
            raise ValueError("measurements that do not fit its cells")
        whole = all(is_whole(size, 1, _MOST_UNITS) for size in (each.unit, each.sensitivity or each.unit))
        if not (
            whole and each.epsilon > 0 and isinstance(each.terms, int | float) and 0 < each.terms < math.inf
        ):
            raise ValueError("measurements without a law of their noise")
    return made


def _narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers of groups in as few bytes as hold them."""
    if values.dtype.kind != "i" or not values.size:
        return values
    return values.astype(np.result_type(np.min_scalar_type(int(values.max())), np.int8))


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.astype(np.int64) if values.dtype.kind == "i" else values
