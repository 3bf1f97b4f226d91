"""Trips by their ends or by their positions, read from a table; and the cells of their ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mapveil.engines.contributions import locator
from mapveil.geo.find_columns import USUAL_NAMES, find_column, listed
from mapveil.geo.point_query import BadRows
from mapveil.geo.points import Points
from mapveil.geo.read_geoparquet import find_geometry
from mapveil.geo.read_points import open_table, read_points
from mapveil.geo.tables import Table, column_types, connect, quote_name, reading
from mapveil.geo.tiling import as_tiling
from mapveil.local.reported_cells import check_inside
from mapveil_client.arrays import FloatArray, IntArray
from mapveil_client.contribution import Outside
from mapveil_client.errors import InputError
from mapveil_client.local.domain import Domain
from mapveil_client.randomness.random import Randomness

if TYPE_CHECKING:
    from collections.abc import Mapping


_ORIGIN: Final = ("origin", "orig", "start", "pickup", "from", "o")
_DESTINATION: Final = ("dest", "destination", "end", "dropoff", "to", "d")
_AXES: Final = {"lon": ("lon", "longitude", "lng"), "lat": ("lat", "latitude")}
_TRIP: Final = ("trajid", "tripid", "trajectoryid", "rideid", "journeyid", "trip", "traj", "trajectory")


@dataclass(frozen=True, eq=False, repr=False)
class Trips:
    """Trips by their ends, raw.

    Parameters
    ----------
    users : ndarray of int64, shape (trips,)
        Dense codes of users.
    origin_lon, origin_lat, destination_lon, destination_lat : ndarray of float64, shape (trips,)
        WGS84 degrees.
    source : str
        Name in messages.
    points : Points, optional
        The table they came from, for the ledger.
    """

    users: IntArray
    origin_lon: FloatArray
    origin_lat: FloatArray
    destination_lon: FloatArray
    destination_lat: FloatArray
    source: str = "trips"
    points: Points | None = None

    def __post_init__(self) -> None:
        shapes = {part.shape for part in (self.users, *self.ends)}
        if len(shapes) > 1 or self.users.ndim != 1:
            raise InputError(f"{self.source}: arrays of shapes {sorted(shapes)}; expected equal lengths")
        if self.users.size == 0:
            raise InputError(f"{self.source}: holds no trips; expected at least one")

    @property
    def ends(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Longitude and latitude of the origins, then of the destinations."""
        return (self.origin_lon, self.origin_lat, self.destination_lon, self.destination_lat)

    @property
    def count(self) -> int:
        """Number of trips."""
        return int(self.users.size)

    def as_points(self) -> Points:
        """The table of trips, with destinations: that which they came from, or the arrays."""
        if self.points is not None and self.points.columns.to_lon is not None:
            return self.points
        lon, lat, to_lon, to_lat = self.ends
        return Points.from_arrays(self.users, lon, lat, to_lon=to_lon, to_lat=to_lat, source=self.source)

    def __repr__(self) -> str:
        return f"Trips({self.source})"  # no rows: a repr ends up in logs


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories:
    """Trips by their positions, raw: trip after trip, each in the order of time.

    Parameters
    ----------
    users, source, points
        As for :class:`Trips`.
    start : ndarray of int64, shape (trips + 1,)
        Number of the first position of each trip, then the number of positions.
    lon, lat : ndarray of float64, shape (positions,)
        WGS84 degrees.
    seconds : ndarray of float64, shape (positions,)
        Times since any one moment.
    """

    users: IntArray
    start: IntArray
    lon: FloatArray
    lat: FloatArray
    seconds: FloatArray
    source: str = "trajectories"
    points: Points | None = None

    @property
    def count(self) -> int:
        """Number of trips."""
        return int(self.users.size)

    def ends(self) -> Trips:
        """Their first and last positions."""
        first, last = self.start[:-1], self.start[1:] - 1
        return Trips(
            self.users,
            self.lon[first],
            self.lat[first],
            self.lon[last],
            self.lat[last],
            self.source,
            self.points,
        )

    def __repr__(self) -> str:
        return f"Trajectories({self.source})"


def read_trips(
    source: Any,
    *,
    user: str | None = None,
    origin: tuple[str, str] | None = None,
    destination: tuple[str, str] | None = None,
    trip: str | None = None,
    time: str | None = None,
    where: str | None = None,
    on_bad_rows: BadRows = "fail",
) -> Trips:
    """Read trips: one row a trip with both ends, or positions with a trip id and time. Run by: a simulation of devices.

    Parameters
    ----------
    source : path, frame or anything :func:`mapveil.read_points` accepts
        The table.
    user : str, optional
        Its column of user ids; the usual names by default.
    origin, destination : pair of str, optional
        Columns of longitude and latitude; ``origin_lon``, ``dest_lat``, ``pickup_longitude`` and the like by default,
        and plain ``lon`` and ``lat`` for the origin.
    trip : str, optional
        The column of trip ids where rows are positions.
    time : str, optional
        The column of times, which windows and positions need; the usual names by default.
    where, on_bad_rows
        Choose rows, as for :func:`mapveil.read_points`.

    Raises
    ------
    InputError
        The table cannot be read, has neither destinations nor trips, or a place in it cannot be used.
    """
    table = _table(source)
    types = column_types(table)
    found = destination or _pair(types, _DESTINATION)
    if found is None:
        return read_trajectories(
            table, user=user, trip=trip, time=time, where=where, on_bad_rows=on_bad_rows
        ).ends()
    for name in found:
        if name not in types:
            raise InputError(f"{table.name}: no column {name!r}; its columns are {', '.join(types)}")
    start = origin or _pair(types, _ORIGIN) or (None, None)
    if start[0] is None:
        _check_places(table, types, ", or columns by origin (--origin LON,LAT)")
    points = read_points(
        table, user=user, lon=start[0], lat=start[1], time=time, where=where, on_bad_rows=on_bad_rows
    )
    ends = {"to_lon": found[0], "to_lat": found[1]}
    points = replace(
        points,
        columns=points.columns._replace(**ends),
        expressions=points.expressions._replace(**{kind: _number(name) for kind, name in ends.items()}),
    )
    points.check()
    given = points.expressions
    columns = {kind: str(getattr(given, kind)) for kind in ("lon", "lat", "to_lon", "to_lat")}
    rows = _fetch(points, {"code": f"DENSE_RANK() OVER (ORDER BY {given.user}) - 1", **columns}, "row")
    users, (lon, lat, to_lon, to_lat) = rows["code"].astype(np.int64), (rows[kind] for kind in columns)
    return Trips(users, lon, lat, to_lon, to_lat, points.source, points)


def has_destinations(source: Any) -> bool:
    """Whether a table has columns named like the place of a destination."""
    return _pair(column_types(_table(source)), _DESTINATION) is not None


def read_trajectories(
    source: Any,
    *,
    user: str | None = None,
    trip: str | None = None,
    time: str | None = None,
    where: str | None = None,
    on_bad_rows: BadRows = "fail",
) -> Trajectories:
    """Read positions with a trip id and a time. Run by: a simulation of devices.

    Parameters
    ----------
    source : path, frame or anything :func:`mapveil.read_points` accepts
        The table.
    user, trip, time : str, optional
        Its columns of user ids, trip ids and times; the usual names by default.
    where, on_bad_rows
        Choose rows, as for :func:`mapveil.read_points`.

    Raises
    ------
    InputError
        The table cannot be read, has no trips or times, or a row cannot be used.
    """
    table = _table(source)
    types = column_types(table)
    _check_places(table, types)
    points = read_points(table, user=user, time=time, where=where, on_bad_rows=on_bad_rows)
    plain = {_plain(name): name for name in reversed(list(types))}
    found = trip or next((plain[usual] for usual in _TRIP if usual in plain), None)
    if found is None or found not in types or points.expressions.time is None:
        ids = "trip ids (trip_id, traj_id, ...) or destinations (dest_lon, dest_lat)"
        lacks = "time" if found in types else ids
        raise InputError(f"{points.source}: no column of {lacks} among {', '.join(types)}")
    points.check()
    given, time = points.expressions, points.expressions.time
    held = types[points.columns.time or ""]
    if held == "VARCHAR":
        time = f"COALESCE(TRY_CAST({time} AS DOUBLE), EPOCH(TRY_CAST({time} AS TIMESTAMP)))"
    elif held.startswith(("TIMESTAMP", "DATE")):
        time = f"EPOCH({time})"
    rows = _fetch(
        points,
        {
            "code": f"DENSE_RANK() OVER (ORDER BY {given.user}) - 1",
            "trip": f"DENSE_RANK() OVER (ORDER BY {given.user}, {quote_name(found)}) - 1",
            "lon": given.lon,
            "lat": given.lat,
            "seconds": f"CAST({time} AS DOUBLE)",
        },
        "trip, seconds, row",
    )
    bad = np.flatnonzero(~np.isfinite(rows["seconds"]))
    if bad.size:
        raise InputError(
            f"{points.source}: row {int(rows['row'][bad[0]])}: the time is missing or not one; "
            "expected a timestamp or a number of seconds"
        )
    start = np.flatnonzero(np.concatenate([[True], np.diff(rows["trip"]) != 0, [True]]))
    users = rows["code"][start[:-1]].astype(np.int64)
    return Trajectories(users, start, rows["lon"], rows["lat"], rows["seconds"], points.source, points)


def cells_of_trips(
    trips: Trips, domain: Domain, outside: str, rng: Randomness, *, one_each: bool
) -> tuple[IntArray, IntArray]:
    """Origin and destination cells of the trips that are reported. Run by: a simulation of devices.

    Parameters
    ----------
    trips : Trips
        The trips of all users.
    domain : Domain
        The sites.
    outside : Outside or str
        Treatment of a trip with an end outside: it is not reported (``"drop"``), the end counts at the nearest
        site (``"nearest"``), or everything is refused (``"refuse"``).
    rng : Randomness
        Source of the choice of each user's trip.
    one_each : bool
        Whether each user reports one trip, any of theirs with the same probability; otherwise all.

    Raises
    ------
    InputError
        An end is outside and that is refused.
    """
    rule = Outside(outside)
    locate = locator(as_tiling(domain.tiling), domain.cells, rule)
    origins, destinations = locate(*trips.ends[:2]), locate(*trips.ends[2:])
    both = (origins >= 0) & (destinations >= 0)
    check_inside(both, rule, domain, trips.source)
    inside = np.flatnonzero(both)
    if one_each:
        # A random order, of which the first of each user is one of their trips at random.
        order = inside[rng.generator().permutation(inside.size)]
        inside = order[np.unique(trips.users[order], return_index=True)[1]]
    return origins[inside], destinations[inside]


def _table(source: Any) -> Table:
    """Keep a source that is open already: standard input can be read once only."""
    return source if isinstance(source, Table) else open_table(source)


def _check_places(table: Table, types: Mapping[str, str], naming: str = "") -> None:
    """Refuse a table without locations by the options of trips, which are not those of points."""
    usual = (find_column(kind, table.name, types, None, USUAL_NAMES[kind]) for kind in ("lon", "lat"))
    if table.place is None and find_geometry(types) is None and None in usual:
        raise InputError(f"{table.name}: no lon and lat among {listed(types)}; expected usual names{naming}")


def _fetch(points: Points, columns: Mapping[str, str], order: str) -> dict[str, FloatArray]:

    select = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    with connect() as connection, reading(points.source):
        relation = points.table.relation(connection)
        found = connection.execute(
            f"SELECT {select}, mapveil_row AS row FROM (SELECT *, ROW_NUMBER() OVER () AS mapveil_row FROM {relation}) "
            f"AS numbered WHERE {points.counted()} ORDER BY {order}"
        ).fetchnumpy()
    return {
        name: np.ma.filled(np.ma.asarray(found[name]).astype(np.float64), np.nan)
        for name in (*columns, "row")
    }


def _pair(names: Mapping[str, str], prefixes: tuple[str, ...]) -> tuple[str, str] | None:
    """Columns of longitude and latitude whose names begin with one of the prefixes."""
    plain = {_plain(name): name for name in names}

    def column(prefix: str, axis: str) -> str | None:
        keys = (key for usual in _AXES[axis] for key in (prefix + usual, usual + prefix))
        return next((plain[key] for key in keys if key in plain), None)

    pairs = ((column(prefix, "lon"), column(prefix, "lat")) for prefix in prefixes)
    return next(((lon, lat) for lon, lat in pairs if lon is not None and lat is not None), None)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _number(name: str) -> str:
    return f"TRY_CAST({quote_name(name)} AS DOUBLE)"
