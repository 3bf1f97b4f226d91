"""The phones of a collection in one process, a chunk at a time: memory does not grow with their number.

Nothing here is private, and nothing of it is given to the server half of a mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tables import reading
from mapveil.geo.tiling import Tiling
from mapveil.random_features.report import Visits
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import duckdb

PlaceChoice = Literal["mean", "most-visited"]

_CHUNK = 1 << 21
_ROWS_SQL = """
SELECT user_id, lon, lat, {weight} AS weight FROM ({points}) AS points
WHERE lon BETWEEN ? AND ? AND lat BETWEEN ? AND ? AND {weight} > 0
"""
_MEMORY_LIMIT = "1200MB"


def visits_of(
    source: Points | Counts, tiling: Tiling, places: PlaceChoice = "mean", *, chunk: int = _CHUNK
) -> Iterator[Visits]:
    """Each user's rows inside the region as the visits of a device of their own. Run by: a simulation.

    A row outside the region is not a visit, and a user without any does not answer: the server asks the devices in the
    region, and who answers is known to be there.

    Parameters
    ----------
    source : Points or Counts
        A table, one device per user; or counts, one device at the middle of a cell for each unit.
    tiling : Tiling
        Its region is asked for.
    places : str
        ``"mean"``: all visits, in proportion to their weights; ``"most-visited"``: the one cell of the tiling with the
        largest weight, at the mean of its visits.
    chunk : int
        Rows (or devices) held at once, but for a user with more.

    Raises
    ------
    InputError
        The table cannot be used, or counts are of another tiling.
    """
    if isinstance(source, Counts):
        yield from _from_counts(source, tiling, chunk)
    else:
        yield from _from_points(source, tiling, places, chunk)


def count_devices(source: Points | Counts, tiling: Tiling) -> int:
    """How many devices will answer: a number that the server knows.

    Raises
    ------
    InputError
        Nobody is inside the region.
    """
    if isinstance(source, Counts):
        count = int(source.values.sum())
    elif tiling.region.polygon is None:
        count = _count_in_box(source, tiling)
    else:
        count = sum(visits.devices for visits in _from_points(source, tiling, "mean", _CHUNK))
    if count == 0:
        raise InputError(f"{source.source}: nobody is inside the region {tiling.region}")
    return count


def all_places(source: Points | Counts, tiling: Tiling) -> FloatArray:
    """The most visited place of every device in the region, shape (2, devices): for whoever may read them."""
    found = [visits.places for visits in visits_of(source, tiling, "most-visited")]
    return np.concatenate(found, axis=1) if found else np.zeros((2, 0))


def _count_in_box(points: Points, tiling: Tiling) -> int:
    import duckdb

    points.check()
    west, south, east, north = tiling.region.bbox
    with duckdb.connect() as connection, reading(points.source):
        text = _ROWS_SQL.format(weight=_weight(points), points=points.scan(connection))
        rows = connection.execute(
            f"SELECT COUNT(DISTINCT user_id) FROM ({text}) AS rows", [west, east, south, north]
        ).fetchall()
    return int(rows[0][0])


def _weight(points: Points) -> str:
    return "weight" if points.columns.weight is not None else "1e0"


def _from_counts(counts: Counts, tiling: Tiling, chunk: int) -> Iterator[Visits]:
    if counts.tiling is not tiling and counts.tiling.to_dict() != tiling.to_dict():
        raise InputError(f"counts on {counts.tiling.spec} cannot be released on {tiling.spec}")
    x, y = tiling.region.metric_projection.project(*tiling.centres())
    stop = np.cumsum(counts.values)
    for first in range(0, int(stop[-1]), chunk):
        last = min(first + chunk, int(stop[-1]))
        low, high = np.searchsorted(stop, [first, last - 1], side="right")
        cells = np.arange(low, high + 1)
        ends = np.clip(stop[low : high + 1], first, last)
        held = np.diff(ends, prepend=first)
        yield Visits(np.stack([np.repeat(x[cells], held), np.repeat(y[cells], held)]))


def _from_points(points: Points, tiling: Tiling, places: PlaceChoice, chunk: int) -> Iterator[Visits]:
    for device, lon, lat, weight in _rows_by_user(points, tiling, chunk):
        inside = tiling.region.contains(lon, lat)
        if not inside.any():
            continue
        device, lon, lat, weight = device[inside], lon[inside], lat[inside], weight[inside]
        xy = np.stack(tiling.region.metric_projection.project(lon, lat))
        if places == "most-visited":
            cell = tiling.locate(lon, lat)
            yield _most_visited(device, cell, xy, weight)
        else:
            starts = np.flatnonzero(np.concatenate([[True], np.diff(device) != 0, [True]]))
            yield Visits(xy, starts, weight)


def _most_visited(device: IntArray, cell: IntArray, xy: FloatArray, weight: FloatArray) -> Visits:
    order = np.lexsort((cell, device))
    device, cell, xy, weight = device[order], cell[order], xy[:, order], weight[order]
    new = np.flatnonzero(np.concatenate([[True], (np.diff(device) != 0) | (np.diff(cell) != 0)]))
    total = np.add.reduceat(weight, new)
    middle = np.add.reduceat(xy * weight, new, axis=1) / total
    best = np.lexsort((-total, device[new]))
    first = np.concatenate([[True], np.diff(device[new][best]) != 0])
    return Visits(middle[:, best[first]])


def _rows_by_user(
    points: Points, tiling: Tiling, chunk: int
) -> Iterator[tuple[IntArray, FloatArray, FloatArray, FloatArray]]:
    """Rows in the region's box ordered by user, whole users at a time: user number, lon, lat, weight."""
    import tempfile

    import duckdb

    points.check()
    west, south, east, north = tiling.region.bbox
    with tempfile.TemporaryDirectory(prefix="mapveil-") as spill, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        connection.execute("SET temp_directory = ?", [spill])
        text = _ROWS_SQL.format(weight=_weight(points), points=points.scan(connection))
        numbered = (
            "SELECT DENSE_RANK() OVER (ORDER BY user_id) - 1 AS device, lon, lat, weight "
            f"FROM ({text}) AS rows ORDER BY device, lon, lat, weight"
        )
        with reading(points.source):
            yield from _whole_users(connection.sql(numbered, params=[west, east, south, north]), chunk)


def _whole_users(
    result: duckdb.DuckDBPyRelation, chunk: int
) -> Iterator[tuple[IntArray, FloatArray, FloatArray, FloatArray]]:
    names = ("device", "lon", "lat", "weight")
    kept: list[npt.NDArray[np.float64]] | None = None
    for batch in result.to_arrow_reader(chunk):
        rows = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
        if kept is not None:
            rows = [np.concatenate(pair) for pair in zip(kept, rows, strict=True)]
        cut = int(np.searchsorted(rows[0], rows[0][-1]))
        kept = [row[cut:] for row in rows]
        if cut:
            yield rows[0][:cut].astype(np.int64), rows[1][:cut], rows[2][:cut], rows[3][:cut]
    if kept is not None:
        yield kept[0].astype(np.int64), kept[1], kept[2], kept[3]
