"""Points: rows of user, longitude and latitude, read in streams."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.files import parquet_files
from mapveil.geo.find_columns import like_weights
from mapveil.geo.point_query import Columns, PointQuery
from mapveil.geo.tables import FrameTable, column_types, connect, connection, quote_name, quote_text, reading
from mapveil_client.errors import InputError

if TYPE_CHECKING:
    import pyarrow

    from mapveil.geo.region import Region


_EXACT_IDS: Final = re.compile(r"(U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|DATE)$")
"""SQL types of ids that a Parquet file keeps as they are."""

_EXACT_BELOW: Final = {"FLOAT": 1 << 24, "DOUBLE": 1 << 53}
"""Largest whole number up to which a type of floating point holds all."""

ROUNDED_ID: Final = (
    "InputError: an id is a rounded number such as 1.2e+16, which may stand for several people; expected whole "
    "numbers or texts"
)
"""Message of the SQL error about an id that cannot be compared."""


class PointArrays(NamedTuple):
    """All rows as arrays, for experiments on small tables. Not private."""

    users: npt.NDArray[np.int64]  # dense codes 0 .. users - 1, in order of the ids
    lon: npt.NDArray[np.float64]  # degrees
    lat: npt.NDArray[np.float64]  # degrees


@dataclass(frozen=True, eq=False, repr=False)
class Points(PointQuery):
    """Rows of a user at a location. Made by :func:`mapveil.read_points` or :meth:`from_arrays`.

    Nothing is read before it is needed. Queries stream through DuckDB, whose memory does not grow with the number of
    rows. A release reads the source once, into a temporary copy (:meth:`held_once`).

    Parameters
    ----------
    table, columns, expressions, written
        As for :class:`mapveil.geo.point_query.PointQuery`.
    region : Region, optional
        Public region of the points, where the source declares one; never derived from the points.

    Examples
    --------
    >>> points = Points.from_arrays(["ann", "bob"], [-73.9, -74.0], [40.7, 40.8])
    >>> points
    Points(arrays: user=user, lon=lon, lat=lat, weight=none)
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
        to_lon: npt.ArrayLike | None = None,
        to_lat: npt.ArrayLike | None = None,
        region: Region | None = None,
        source: str = "arrays",
    ) -> Points:
        """Points of parallel arrays, shape (rows,) each; an :class:`InputError` where they differ in length.

        Parameters
        ----------
        user : array of any type
            Ids that tell users apart.
        lon, lat : array of float
            WGS84 degrees.
        time, weight, label : array, optional
            Time; weight of the row within its user, from 0; category.
        to_lon, to_lat : array of float, optional
            WGS84 degrees of the destination, where rows are trips.
        region : Region, optional
            Public region of the points.
        source : str
            Name in messages.
        """
        import pyarrow

        given = {"user": user, "lon": lon, "lat": lat, "time": time, "weight": weight, "label": label}
        given |= {"to_lon": to_lon, "to_lat": to_lat}
        arrays = {name: _column(name, values, source) for name, values in given.items() if values is not None}
        lengths = {name: len(values) for name, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{source}: arrays of different lengths {lengths}; expected equal lengths")
        return cls(
            FrameTable(pyarrow.table(arrays), source),
            Columns(**{name: name for name in arrays}),
            Columns(**{name: quote_name(name) for name in arrays}),
            region=region,
        )

    def like_weights(self) -> list[str]:
        """Columns whose names suggest weights, where no column of weights was asked for; reads no rows."""
        return [] if self.columns.weight else like_weights(column_types(self.table))

    @contextlib.contextmanager
    def held_once(self, *, check: bool = True) -> Iterator[Points]:
        """Read the source once and check it: the same points in a temporary copy, which every further query reads.

        A source that differs from reading to reading is one table thereafter. The copy lies in a folder that only its
        owner can open, and that is removed at the end. Without ``check`` it is checked when it is first used.
        """
        if self.copy_of is not None or self.table.elsewhere:
            yield self
            return
        columns = {kind: sql for kind, sql in self.expressions._asdict().items() if sql}
        kind = column_types(self.table)[self.columns.user]
        columns["user"] = compared_id(columns["user"], kind)
        with tempfile.TemporaryDirectory(prefix="mapveil-") as folder:
            path = Path(folder) / "points.parquet"
            # Numbers repeat too seldom for a dictionary, and trying one takes a third of the time.
            texts = kind == "VARCHAR" or not _EXACT_IDS.match(kind) or "label" in columns
            plain = "" if texts else ", DICTIONARY_SIZE_LIMIT 1"
            select = ", ".join(f"{sql} AS {quote_name(f'mapveil_{kind}')}" for kind, sql in columns.items())
            with connection() as opened, reading(self.source):
                opened.execute(
                    f"COPY (SELECT {select}, {self.kept} AS mapveil_kept FROM {self.table.relation(opened)}) "
                    f"TO {quote_text(str(path))} (FORMAT parquet, COMPRESSION uncompressed{plain})"
                )
            copy = replace(
                self,
                table=parquet_files((path,), self.source),
                expressions=Columns(**{kind: f"mapveil_{kind}" for kind in columns}),
                copy_of=self,
            )
            if check:
                copy.check()
            yield copy

    def arrays(self) -> PointArrays:
        """All rows as arrays, in no particular order: holds the whole table, so for small ones."""

        with connect() as opened, reading(self.source):
            found = opened.execute(
                "SELECT DENSE_RANK() OVER (ORDER BY user_id) - 1 AS code, lon, lat "
                f"FROM ({self.scan(opened)}) AS points"
            ).fetchnumpy()
        return PointArrays(
            np.ma.filled(found["code"], 0).astype(np.int64),
            np.ma.filled(found["lon"], np.nan),
            np.ma.filled(found["lat"], np.nan),
        )

    def __repr__(self) -> str:
        # No rows and no numbers: a repr ends up in logs.
        return f"Points({self.source}: {self.columns.text})"


def compared_id(id: str, kind: str) -> str:
    """SQL of an id that every engine compares, and writes as text, alike."""
    if kind in _EXACT_BELOW:
        return f"({id} + 0)"  # -0.0 is 0.0
    return id if _EXACT_IDS.match(kind) else id_text(id, kind)


def id_text(id: str, kind: str) -> str:
    """SQL of an id as text, which is one whatever its SQL type is; an error for a number that was rounded."""
    text = f"CAST({id} AS VARCHAR)"
    if kind == "BLOB":
        return f"COALESCE(TRY(decode({id})), {text})"
    if kind in _EXACT_BELOW:
        return (
            f"CASE WHEN isfinite({id}) AND abs({id}) > {_EXACT_BELOW[kind]} THEN error({quote_text(ROUNDED_ID)}) "
            f"WHEN isfinite({id}) AND {id} = trunc({id}) THEN CAST(CAST({id} AS BIGINT) AS VARCHAR) ELSE {text} END"
        )
    if kind.startswith("DECIMAL") and not kind.endswith(
        ",0)"
    ):  # one without a fraction is written as an integer
        return f"rtrim(rtrim({text}, '0'), '.')"
    return text


def _texts(values: Any, array: npt.NDArray[np.str_]) -> npt.NDArray[np.object_]:
    """Texts as they were given, whole; other values among them as NumPy writes them."""
    import pyarrow

    given = np.asarray(values, dtype=object)
    try:
        pyarrow.array(given, pyarrow.large_string())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return array.astype(object)
    return given


def _column(name: str, values: Any, source: str) -> pyarrow.Array:
    import pyarrow

    kind = np.float64 if name in ("lon", "lat", "weight", "to_lon", "to_lat") else None
    try:
        array = np.asarray(values, dtype=kind)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source}: {name} is not an array of numbers; expected degrees") from error
    if array.dtype.kind == "U":  # Arrow would cut it at U+0000, and NumPy has done so at its end
        array = _texts(values, array)
    if array.ndim != 1:
        raise InputError(f"{source}: {name} has shape {array.shape}; expected a one-dimensional array")
    return pyarrow.array(array, from_pandas=name == "user")
