"""The one place of every phone of a collection in one process.

Each user reports once, about one place, however many rows they have: so the promise about a report is one about a
person. Nothing here is private, and nothing of it is given to the server half of a mechanism.
"""

from __future__ import annotations

import tempfile
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from mapveil.engines.user_sums import located_by
from mapveil.geo.counts import Counts
from mapveil.geo.points import Points
from mapveil.geo.tables import reading
from mapveil.local.randomizers.domain import Domain
from mapveil_client.arrays import IntArray
from mapveil_client.errors import InputError
from mapveil_client.randomness.random import Randomness

PlaceChoice = Literal["most-visited", "random"]
Outside = Literal["silent", "nearest", "refuse"]
PLACES: Final[tuple[PlaceChoice, ...]] = ("most-visited", "random")
OUTSIDE: Final[tuple[Outside, ...]] = ("silent", "nearest", "refuse")

_MEMORY_LIMIT = "1200MB"
_SQL = """
WITH located AS (
    SELECT user_id, {cell} AS cell, {weight} AS weight FROM ({points}) AS points
),
visits AS (
    SELECT user_id, cell, SUM(weight) AS weight FROM located WHERE cell >= 0 AND weight > 0 GROUP BY user_id, cell
)
SELECT user_id, cell, weight FROM visits ORDER BY user_id, cell
"""
_NEAREST_SQL = "SELECT user_id, lon, lat, {weight} AS weight FROM ({points}) AS points WHERE {weight} > 0"


def cells_of_users(
    source: Points | Counts, domain: Domain, choice: PlaceChoice, outside: Outside, rng: Randomness
) -> IntArray:
    """The cell each user reports about, one entry for each who reports, shape (users,). Run by: a simulation of phones.

    Parameters
    ----------
    source : Points or Counts
        A table; or counts, each unit one user at one cell.
    domain : Domain
        The sites.
    choice : str
        ``"most-visited"``: the cell with the largest weight of the user's rows, of equal ones the first;
        ``"random"``: the cell of one row, drawn in proportion to the weights.
    outside : str
        What becomes of a row outside: it is no visit, and a user without any does not report (``"silent"``); it
        counts for the nearest site (``"nearest"``); or everything is refused (``"refuse"``).
    rng : Randomness
        For the random choice.

    Raises
    ------
    InputError
        The table cannot be used, counts are of another tiling, nobody is inside, or somebody is outside and that
        is refused.
    """
    tiling = domain.tiling
    if isinstance(source, Counts):
        if source.tiling is not tiling and source.tiling.to_dict() != tiling.to_dict():
            raise InputError(f"counts on {source.tiling.spec} cannot be released on {tiling.spec}")
        cells = np.repeat(np.arange(tiling.size), source.values)
        return cells if domain.size == tiling.size else _kept(cells, domain, outside, source.source)
    users, cells, weight = _visits(source, domain, outside)
    if users.size == 0:
        raise InputError(
            f"{source.source}: no row lies inside the region {tiling.region}; "
            "a region that overlaps the points is accepted (west,south,east,north in degrees)"
        )
    starts = np.flatnonzero(np.concatenate([[True], np.diff(users) != 0]))
    return cells[_largest(starts, weight) if choice == "most-visited" else _random(starts, weight, rng)]


def _kept(cells: IntArray, domain: Domain, outside: Outside, name: str) -> IntArray:
    inside = np.isin(cells, domain.cells)
    if outside == "refuse" and not inside.all():
        raise InputError(
            f"{name}: somebody is outside the sites of {domain.tiling.spec}, and that is refused"
        )
    return cells[inside]


def _visits(points: Points, domain: Domain, outside: Outside) -> tuple[IntArray, IntArray, IntArray]:
    """Numbers of users in order, and the cells and weights (millionths) of their visits."""
    import duckdb

    points.check()
    tiling = domain.tiling
    weighted = points.columns.weight is not None
    weight = "CAST(ROUND(weight * 1000000) AS HUGEINT)" if weighted else "CAST(1 AS BIGINT)"
    with tempfile.TemporaryDirectory(prefix="mapveil-") as spill, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        connection.execute("SET temp_directory = ?", [spill])
        rows = points.scan(connection)
        with reading(points.source):
            if outside == "silent":
                located = located_by(connection, tiling)
                text = _SQL.format(cell=located.expression, weight=weight, points=rows)
                found = connection.execute(text).fetchnumpy()
                cells = located.cells(np.ma.filled(found["cell"], -1).astype(np.int64))
            else:
                text = _NEAREST_SQL.format(weight=weight, points=rows)
                found = connection.execute(text).fetchnumpy()
                lon, lat = (np.asarray(found[name], dtype=np.float64) for name in ("lon", "lat"))
                cells = tiling.locate(lon, lat)
                if outside == "refuse" and (cells < 0).any():
                    raise InputError(
                        f"{points.source}: a row is outside {tiling.region}, and that is refused; "
                        "outside='silent' or 'nearest' is accepted"
                    )
                away = np.flatnonzero(cells < 0)
                cells[away] = domain.cells[nearest_site(domain, lon[away], lat[away])]
    user = np.unique(np.ma.filled(found["user_id"]), return_inverse=True)[1].astype(np.int64)
    sums = np.asarray(found["weight"], dtype=np.float64).astype(np.int64)
    order = np.lexsort((cells, user))
    user, cells, sums = user[order], cells[order], sums[order]
    new = np.flatnonzero(np.concatenate([[True], (np.diff(user) != 0) | (np.diff(cells) != 0)])[: user.size])
    return user[new], cells[new], np.add.reduceat(sums, new) if new.size else sums


def nearest_site(domain: Domain, lon: npt.NDArray[np.float64], lat: npt.NDArray[np.float64]) -> IntArray:
    """The site whose middle is nearest to each place, in metres of the region's plane."""
    from scipy.spatial import cKDTree

    at = np.column_stack(domain.tiling.region.metric_projection.project(lon, lat))
    return np.asarray(cKDTree(domain.plane.T).query(at)[1], dtype=np.int64)


def _largest(starts: IntArray, weight: IntArray) -> IntArray:
    """The entry of the largest weight of each user, of equal ones the first."""
    stop = np.append(starts[1:], weight.size)
    best = np.repeat(np.maximum.reduceat(weight, starts), stop - starts)
    hits = np.flatnonzero(weight == best)
    return np.asarray(hits[np.searchsorted(hits, starts)])


def _random(starts: IntArray, weight: IntArray, rng: Randomness) -> IntArray:
    """One entry of each user, in proportion to the weights. For a simulation: no promise rests on it."""
    total = np.concatenate([[0.0], np.cumsum(weight, dtype=np.float64)])
    stop = np.append(starts[1:], weight.size)
    drawn = total[starts] + rng.generator().random(starts.size) * (total[stop] - total[starts])
    return np.asarray(np.clip(np.searchsorted(total, drawn, side="right") - 1, starts, stop - 1))
