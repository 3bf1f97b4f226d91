"""The measurements of a map as bytes, and as the text that its files carry beside the metadata."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from mapveil.formats.coded_arrays import BROKEN_ARCHIVE, check_sizes, code, decode, rounding_step, within
from mapveil.formats.flow_record import SEPARATOR, flow_sums_text
from mapveil.maps.density_map import DensityMap
from mapveil.maps.flow_map import FlowMap
from mapveil.maps.flow_series_map import FlowSeriesMap
from mapveil.maps.measurement import EstimatedUsers, Measurement
from mapveil.maps.proportion_map import LabelMeasurement
from mapveil.maps.series_map import SeriesMap
from mapveil.maps.window_estimates import WindowEstimates
from mapveil.privacy.claim import read_exact
from mapveil_client.arrays import IntArray
from mapveil_client.errors import is_whole

if TYPE_CHECKING:
    from mapveil.maps.released import ReleasedMap

MEASUREMENTS_KEY: Final = "mapveil_measurements"
"""Name of the measurements in a file: key of schema metadata, tag, or member of a JSON object."""

_Kept = TypeVar("_Kept", bound=Measurement)

_MOST_UNITS: Final = 1 << 62

_KINDS: Final[dict[str, type[Measurement]]] = {
    "sums": Measurement,
    "sums by label": LabelMeasurement,
    "estimates": EstimatedUsers,
    "estimates by window": WindowEstimates,
}


def write_measurements(measurements: Sequence[Measurement]) -> bytes:
    """Encode measurements as one npz: coded arrays by ``number.field``, everything else as JSON in ``records``.

    Noisy sums are rounded to a power of two between a 32nd and a 16th of their noise's deviation, for noise does not
    compress: that adds at most 0.04 % of its variance.
    """
    arrays: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    finer = _finer(measurements)
    for number, measurement in enumerate(measurements):
        values = {item.name: getattr(measurement, item.name) for item in dataclasses.fields(measurement)}
        held = {name: v for name, v in values.items() if isinstance(v, np.ndarray)}
        of, table = finer[number]
        if table is not None:
            held["groups"] = table
        steps = {"noisy": _step(measurement)}
        coded = {name: code(v, measurement.unit, steps.get(name, 0.0)) for name, v in held.items()}
        arrays |= {f"{number}.{name}": array for name, (array, _) in coded.items()}
        kind = next(name for name, each in _KINDS.items() if type(measurement) is each)
        fractions = {name: str(v) for name, v in values.items() if isinstance(v, Fraction)}
        plain = {k: v for k, v in values.items() if not isinstance(v, (np.ndarray, Fraction))}
        record = {"kind": kind, "fractions": fractions, "plain": plain, "groups_of": of}
        records.append({**record, "arrays": {name: how for name, (_, how) in coded.items()}})
    packed = io.BytesIO()
    np.savez_compressed(packed, records=np.array(json.dumps(records)), **arrays)
    return packed.getvalue()


def _step(measurement: Measurement) -> float:
    """The step that noisy sums are rounded to; where sums are kept by label too, every bit is."""
    return 0.0 if isinstance(measurement, LabelMeasurement) else rounding_step(measurement.deviation())


def as_kept(released: ReleasedMap) -> ReleasedMap:
    """A map with the noisy sums that its file keeps, so that the file's columns are those of its measurements."""
    if not isinstance(released, DensityMap):
        return released
    kept = dataclasses.replace(
        released,
        measurements=tuple(map(_kept, released.measurements)),
        repeated=tuple(map(_kept, released.repeated)),
    )
    if isinstance(kept, SeriesMap):
        return dataclasses.replace(kept, measured=tuple(map(_kept, kept.measured)))
    return kept


def _kept(measurement: _Kept) -> _Kept:
    step = _step(measurement)
    if step * measurement.unit <= 1:
        return measurement
    return dataclasses.replace(measurement, noisy=np.rint(measurement.noisy / step) * step)


def _finer(measurements: Sequence[Measurement]) -> list[tuple[int | None, IntArray | None]]:
    """For each measurement the next finer one whose groups lie in its own, with the group of each of those."""
    order = sorted(range(len(measurements)), key=lambda at: measurements[at].noisy.size)
    found: list[tuple[int | None, IntArray | None]] = [(None, None)] * len(measurements)
    for at, finer in pairwise(order):
        below = measurements[finer]
        table = within(measurements[at].groups, below.groups, below.noisy.size)
        if table is not None:
            found[at] = (finer, table)
    return found


def read_measurements(data: bytes, cells: int | None = None) -> tuple[Measurement, ...]:
    """Decode what :func:`write_measurements` encoded.

    Parameters
    ----------
    data : bytes
        The archive.
    cells : int, optional
        Cells of its map, against which the sizes of arrays are checked before any is read.

    Raises
    ------
    ValueError
        The bytes are no measurements.
    """
    try:
        check_sizes(data, cells)
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            records = json.loads(str(file["records"]))
            made: dict[int, Measurement] = {}
            # The finest first: the groups of others follow from theirs.
            while len(made) < len(records):
                ready = [at for at in range(len(records)) if at not in made and _follows(records[at], made)]
                if not ready:
                    raise ValueError("groups that follow from each other")
                made |= {at: _read(at, records[at], file, made) for at in ready}
            return tuple(made[at] for at in range(len(records)))
    except BROKEN_ARCHIVE as error:
        raise ValueError(f"no measurements ({type(error).__name__}: {error})") from error


def _follows(record: dict[str, Any], made: Mapping[int, Measurement]) -> bool:
    """Whether everything that a measurement's groups follow from is read."""
    return record.get("groups_of") is None or record["groups_of"] in made


def _read(
    at: int, record: dict[str, Any], file: Mapping[str, Any], made: Mapping[int, Measurement]
) -> Measurement:
    fractions = {name: read_exact(text) for name, text in record["fractions"].items()}
    unit = record["plain"]["unit"]
    arrays = {name: decode(file[f"{at}.{name}"], how, unit) for name, how in record["arrays"].items()}
    if record["groups_of"] is not None:
        arrays["groups"] = np.append(arrays["groups"], -1)[made[record["groups_of"]].groups]
    return _KINDS[record["kind"]](**record["plain"] | fractions | arrays)


def measurements_text(released: ReleasedMap) -> str:
    """The measurements of a map of users, or of flows, in base64, for its files; empty where it has none."""
    if isinstance(released, FlowMap):
        windows = released.window_sums if isinstance(released, FlowSeriesMap) else None
        return SEPARATOR.join(flow_sums_text(each) for each in (released.sums, windows) if each is not None)
    if not isinstance(released, DensityMap):
        return ""
    by_window = released.measured if isinstance(released, SeriesMap) else ()
    measurements = (*released.measurements, *released.repeated, *by_window)
    return base64.b64encode(write_measurements(measurements)).decode() if measurements else ""


def measurements_of(text: str, cells: int) -> tuple[Measurement, ...]:
    """The measurements that :func:`measurements_text` wrote, of a map with so many cells; none for an empty text.

    Raises
    ------
    ValueError
        The text is no measurements, or they do not fit the cells.
    """
    made = read_measurements(base64.b64decode(text, validate=True), cells) if text else ()
    for each in made:
        groups, sums = each.groups, each.noisy
        fits = groups.shape == (cells,) and groups.dtype == np.int64 and sums.ndim == 1
        if not fits or not np.isfinite(sums).all() or not ((groups >= -1) & (groups < sums.size)).all():
            raise ValueError("measurements that do not fit its cells")
        if isinstance(each, LabelMeasurement | WindowEstimates):
            by_label = each.by_label
            if by_label.ndim != 2 or by_label.shape[0] != sums.size or not np.isfinite(by_label).all():
                raise ValueError("measurements by label that do not fit its groups")
        if isinstance(each, WindowEstimates):
            laws, reports = each.laws, each.reports_of
            held = laws.shape == (3, each.labels) and (np.isnan(laws) | np.isfinite(laws) & (laws >= 0)).all()
            if not held or reports.shape != (each.labels,) or not (reports >= 0).all():
                raise ValueError("estimates by window without a law of their noise")
        whole = all(is_whole(size, 1, _MOST_UNITS) for size in (each.unit, each.sensitivity or each.unit))
        if not (
            whole and each.epsilon > 0 and isinstance(each.terms, int | float) and 0 < each.terms < math.inf
        ):
            raise ValueError("measurements without a law of their noise")
    return made
