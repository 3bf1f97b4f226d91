"""Points: rows of user, longitude and latitude, read as a stream and never held whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.check_points import check_points
from mapveil.geo.fingerprint import fingerprint
from mapveil.geo.point_query import Columns, Expressions, PointQuery
from mapveil.geo.tables import FrameTable, quote_name, reading
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import pyarrow

    from mapveil.geo.region import Region


class PointArrays(NamedTuple):
    """All rows as arrays, for experiments on small tables. Not private."""

    users: npt.NDArray[np.int64]  # dense codes 0 .. users - 1, in order of the ids
    lon: npt.NDArray[np.float64]  # degrees
    lat: npt.NDArray[np.float64]  # degrees


@dataclass(frozen=True, eq=False, repr=False)
class Points(PointQuery):
    """Rows of a user at a place. Made by :func:`mapveil.read_points` or :meth:`from_arrays`.

    Nothing is read before it is asked for; every question is one streaming pass of DuckDB, whose memory does
    not grow with the number of rows.

    Parameters
    ----------
    table : Table
        The source.
    columns : Columns
        Names of the columns in the source; what is None is not there.
    expressions : Expressions
        How each canonical column is computed from the source.
    written : Expressions, optional
        Each column as the source has it, for messages; the named columns by default.
    region : Region, optional
        The region the points belong to, where the source declares one; never derived from the points.

    Examples
    --------
    >>> points = Points.from_arrays(["ann", "bob"], [-73.9, -74.0], [40.7, 40.8])
    >>> points
    Points(arrays: user, lon, lat)
    """

    region: Region | None = None

    @classmethod
    def from_arrays(
        cls,
        user: npt.ArrayLike,
        lon: npt.ArrayLike,
        lat: npt.ArrayLike,
        *,
        time: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        label: npt.ArrayLike | None = None,
        region: Region | None = None,
        source: str = "arrays",
    ) -> Points:
        """Points of parallel one-dimensional arrays.

        Parameters
        ----------
        user : array of any type, shape (rows,)
            Ids that tell users apart.
        lon, lat : array of float, shape (rows,)
            WGS84 degrees.
        time, weight, label : array, shape (rows,), optional
            When; how much the row counts within its user (non-negative); a category.
        region : Region, optional
            The region the points belong to.
        source : str
            What messages call them.

        Raises
        ------
        InputError
            The arrays differ in length.
        """
        import pyarrow

        given = {"user": user, "lon": lon, "lat": lat, "time": time, "weight": weight, "label": label}
        arrays = {name: _column(name, values, source) for name, values in given.items() if values is not None}
        lengths = {name: len(values) for name, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{source}: arrays of different lengths {lengths}; expected equal lengths")
        optional = [name if name in arrays else None for name in ("time", "weight", "label")]
        return cls(
            FrameTable(pyarrow.table(arrays), source),
            Columns("user", "lon", "lat", *optional),
            Expressions('"user"', '"lon"', '"lat"', *(name and quote_name(name) for name in optional)),
            region=region,
        )

    def check(self) -> None:
        """Look for rows that cannot be used, in one pass. Run by: the curator.

        Raises
        ------
        InputError
            The table is empty, or a row has no user id, a coordinate that is missing, not finite or out of
            range, or a weight that is missing or negative: names the row (1 is the first of
            the data) and the value.
        """
        check_points(self)

    def fingerprint(self) -> bytes:
        """32 bytes that tell this content from others, in whatever order and format it is kept."""
        return fingerprint(self)

    def arrays(self) -> PointArrays:
        """All rows as arrays, in no particular order: holds the whole table, so for small ones."""
        import duckdb

        with duckdb.connect() as connection, reading(self.source):
            found = connection.execute(
                "SELECT DENSE_RANK() OVER (ORDER BY user_id) - 1 AS code, lon, lat "
                f"FROM ({self.scan(connection)}) AS points"
            ).fetchnumpy()
        return PointArrays(
            np.ma.filled(found["code"], 0).astype(np.int64),
            np.ma.filled(found["lon"], np.nan),
            np.ma.filled(found["lat"], np.nan),
        )

    def __repr__(self) -> str:
        # No rows and no numbers: a repr ends up in logs.
        names = [name for name, column in self.columns._asdict().items() if column is not None]
        return f"Points({self.source}: {', '.join(names)})"


def _column(name: str, values: Any, source: str) -> pyarrow.Array:
    import pyarrow

    kind = np.float64 if name in ("lon", "lat", "weight") else None
    try:
        array = np.asarray(values, dtype=kind)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source}: {name} is not an array of numbers; expected degrees") from error
    if array.ndim != 1:
        raise InputError(f"{source}: {name} has shape {array.shape}; expected a one-dimensional array")
    return pyarrow.array(array, from_pandas=name == "user")
