"""Read measurements from whatever points are read from: user, place, signal strength and further numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mapveil.geo.feature_columns import (
    category_columns,
    feature_columns,
    is_text,
    may_be_number,
    refuse_identifiers,
)
from mapveil.geo.feature_kinds import MOST_VALUES, identifying
from mapveil.geo.find_columns import NUMBER, find_column, find_columns, listed
from mapveil.geo.measurements import RSS, Measurements
from mapveil.geo.read_points import open_table
from mapveil.geo.tables import Table, column_types, connect, quote_name, reading, value_text
from mapveil.geo.text_categories import OTHER, TextNumbers, number_texts
from mapveil_client.errors import InputError, check
from mapveil_client.plane import DEGREES_CRS

if TYPE_CHECKING:
    import duckdb
    import pyarrow

USUAL_SIGNALS: Final = (
    *("rss", "rssdbm", "rsrp", "rsrpdbm", "rssi", "rssidbm", "signal", "signaldbm", "signalstrength"),
    *("signalstrengthdbm", "dbm", "maxrssdbm"),
)
"""Names looked for where no column of signal strength is named, best first; case, spaces, ``_`` and ``-`` in a
column's name do not matter."""

WEAKEST_DBM, STRONGEST_DBM = -160.0, 0.0
"""Range of a phone's reports: from below the floor of every standard's scale (-156 dBm) to one milliwatt."""

_MOST_MISSING: Final = 0.01
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since 1970 of the years 1 to 9999, which dates of ISO 8601 have."""


class _Column(NamedTuple):
    name: str  # in the source
    values: npt.NDArray[np.float64]  # NaN where missing or not a number
    missing: npt.NDArray[np.bool_]  # null
    unread: npt.NDArray[np.bool_]  # text that is no number
    texts: Mapping[str, int] | None = None  # the number of each text, where it is a category of text

    @property
    def odd(self) -> npt.NDArray[np.bool_]:
        """Text that is no number, NaN, infinite."""
        return ~self.missing & ~np.isfinite(self.values)

    def same_between(self, low: float, high: float) -> bool:
        """Whether two quantiles are equal; true of no values."""
        present = self.values[~self.missing]
        return not len(present) or bool(np.ptp(np.quantile(present, [low, high], method="nearest")) == 0)


def read_measurements(
    source: Any,
    *,
    user: str | None = None,
    lat: str | None = None,
    lon: str | None = None,
    rss: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    identifiers: bool = False,
    fill: float | None = None,
    time: str | None = None,
    names: Sequence[str] | None = None,
    texts: TextNumbers | None = None,
) -> Measurements:
    """Read a table of signal measurements whole. Run by: the curator of a pilot, or a simulation of the clients.

    Parameters
    ----------
    source : path, str, sequence of paths, frame or relation
        As :func:`mapveil.read_points` takes.
    user, lat, lon, time : str, optional
        Names of the columns; otherwise the usual ones are looked for.
    rss : str, optional
        Column of signal strength in dBm, from -160 to 0; otherwise one of :data:`USUAL_SIGNALS`.
    features : sequence of str, optional
        Further features, in this order. By default all other columns of numbers, without identifiers by name
        (:func:`~mapveil.geo.feature_kinds.kind_of`) or by value (:func:`~mapveil.geo.feature_kinds.identifying`), and
        those that are the same in all but one row in a thousand or missing in more than 1 % of the rows, which
        ``notes`` lists.
    categories : sequence of str, optional
        Features whose numbers or texts are names, further ones among them. By default those of ``features`` that
        :func:`~mapveil.geo.feature_kinds.kind_of` takes for categories, columns of text among them.
    identifiers : bool
        Whether identifiers may be features, which are then averaged as numbers are.
    fill : float, optional
        Value for a missing feature (null), such as -105 for an access point that was not heard; otherwise rows with a
        missing value are left out and counted in ``notes``. A missing text is then one that has no number.
    names : sequence of str, optional
        Columns of other measurements (``Measurements.names``): latitude, longitude, signal strength and the further
        features, where they are not named otherwise.
    texts : mapping of str to mapping, optional
        The number of each text of columns of text (``Measurements.texts``), which are categories then.

    Raises
    ------
    InputError
        No such file or column, no rows, a user that is missing, a number that is not finite, a place or a signal
        strength out of range: names the row (1 is the first) and the column. An identifier is named as a feature.

    Examples
    --------
    >>> read_measurements("SELECT 'ann' AS user_id, 35.5 AS lat, 24.0 AS lon, -71 AS rss_dbm, 9.0 AS speed")
    Measurements(SQL: lat, lon, rss_dbm)
    """

    check(fill is None or bool(np.isfinite(fill)), "fill", "a finite number", fill)
    notes: list[str] = []
    if names is not None:
        lat, lon, rss, features = lat or names[0], lon or names[1], rss or names[2], names[3:]
        identifiers = True
    table = open_table(_with_degrees(source) if hasattr(source, "to_crs") else source)
    types = column_types(table)
    found = find_columns(table.name, types, {"user": user, "lat": lat, "lon": lon, "time": time})
    _check_user(table.name, found.columns.user, types)
    signal = _signal(table.name, types, rss)
    base = [found.columns.lat, found.columns.lon, signal]
    taken = {found.columns.user, found.columns.time, *base}
    further = feature_columns(table.name, types, features, categories, texts or {}, taken, identifiers, notes)
    named = category_columns(further, types, categories, inferred=names is None) | set(texts or {})
    if features is not None and not identifiers:
        refuse_identifiers(table.name, [each for each in further if each not in named], types)
    with connect() as connection, reading(table.name):
        rows = _Rows(table, connection, found.expressions.user, [*base, *further], types, named, texts or {})
        _check(rows, rows.columns[:3], fill)
        if features is None:
            rows.leave_out_unfit(fill, named, None if identifiers else categories or (), notes)
        rows.refuse_odd(rows.columns[3:])
        moments = rows.moments(found.columns.time, types, time is not None, notes)
        made = rows.whole(moments, fill, notes)
    at = tuple(place for place, name in enumerate(made.names) if place > RSS and name in named)
    return dataclasses.replace(made, categories=at)


def _with_degrees(frame: Any) -> Any:
    """A GeoDataFrame's columns, with its points as lon and lat instead of its geometry."""
    if frame.crs is None or not (frame.geom_type == "Point").all():
        raise InputError("GeoDataFrame: expected points with a CRS; set_crs says which it has")
    points = frame.geometry.to_crs(DEGREES_CRS)
    return frame.drop(columns=frame.geometry.name).assign(lon=points.x, lat=points.y)


def _check_user(source: str, name: str | None, types: Mapping[str, str]) -> None:
    """A user id that may be compared."""
    held = types[name] if name is not None else ""
    if name is not None and (held.endswith("]") or held.startswith(("STRUCT", "MAP", "UNION"))):
        raise InputError(
            f"{source}: column {name!r} for user holds lists or records ({held.lower()}); expected one number or text "
            "a row"
        )


def _signal(source: str, types: Mapping[str, str], given: str | None) -> str:
    name = find_column("rss", source, types, given, USUAL_SIGNALS)
    if name is None:
        raise InputError(
            f"{source}: no column of signal strength among {listed(types)}; expected a usual name "
            "(rss_dbm, rsrp_dbm, rssi) or rss=NAME (--rss NAME)"
        )
    if not may_be_number(name, types) or types[name] == "BOOLEAN":
        raise InputError(
            f"{source}: column {name!r} for rss is of type {types[name].lower()}; expected numbers (dBm)"
        )
    return name


class _Rows:
    """The rows of a table, in its own order."""

    def __init__(
        self,
        table: Table,
        connection: duckdb.DuckDBPyConnection,
        user: str,
        names: Sequence[str],
        types: Mapping[str, str],
        categories: set[str],
        texts: TextNumbers,
    ) -> None:
        self.source = table.name
        self._connection = connection
        self._from = table.relation(connection)
        select = [
            f"{f'TRY_CAST({quoted}::VARCHAR' if is_text(types[name]) else f'CAST({quoted}'} AS DOUBLE) AS f{at}, "
            f"{quoted} IS NULL AS m{at}"
            for at, name in enumerate(names)
            for quoted in [quote_name(name)]
        ]
        untyped = set(types.values()) == {"VARCHAR"}
        found = self._arrow(f"{user} AS user_id, {', '.join(select)}")
        if not len(found):
            raise InputError(f"{self.source}: holds no rows; expected at least one")
        self._users = found["user_id"]
        if self._users.null_count:
            row = int(np.flatnonzero(self._users.is_null().to_numpy())[0]) + 1
            raise InputError(f"{self.source}: row {row} has no user id; every row needs one")
        self.columns = []
        for at, name in enumerate(names):
            cast, missing = found[f"f{at}"], found[f"m{at}"].to_numpy()
            values = np.asarray(cast.to_numpy(), dtype=np.float64)
            column = _Column(name, values, missing, cast.is_null().to_numpy() & ~missing)
            # Without types, a category whose values all read as numbers is one of numbers.
            category = name in categories and is_text(types[name]) and (not untyped or column.unread.any())
            if name in texts or category:
                held = self._arrow(f"{quote_name(name)}::VARCHAR AS held")["held"]
                numbered = number_texts(held, texts.get(name))
                nothing = np.zeros_like(missing)
                column = _Column(name, numbered.numbers, missing, nothing, numbered.texts)
            self.columns.append(column)

    def __len__(self) -> int:
        return len(self._users)

    def _arrow(self, select: str) -> pyarrow.Table:
        return self._connection.sql(f"SELECT {select} FROM {self._from}").to_arrow_table()

    def refuse(self, name: str, failing: npt.NDArray[np.bool_], accepted: str) -> None:
        """Raise for the first row where something holds, if there is one."""
        if not failing.any():
            return
        row = int(np.argmax(failing))
        written = self._connection.execute(
            f"SELECT {quote_name(name)}::VARCHAR FROM {self._from} LIMIT 1 OFFSET {row}"
        ).fetchall()[0][0]
        raise InputError(
            f"{self.source}: row {row + 1}, column {name!r} is {value_text(written)}; expected {accepted}"
        )

    def refuse_odd(self, columns: Sequence[_Column]) -> None:
        """Raise for the first number that is none."""
        for column in columns:
            self.refuse(column.name, column.odd, "a finite number, or null where it is missing")

    def leave_out_unfit(
        self, fill: float | None, categories: set[str], asked: Sequence[str] | None, notes: list[str]
    ) -> None:
        """Go on without features that say nothing or identify users, but those asked for (None: any may identify)."""
        unfit: dict[str, list[str]] = {}
        users = self._users.combine_chunks().dictionary_encode().indices.to_numpy()
        for column in self.columns[3:]:
            category = column.name in categories
            reason = _unfit(column, fill, category)
            if reason is None and asked is not None and column.name not in asked:
                reason = identifying(column.values[~column.missing], users[~column.missing], category)
            if reason is not None:
                unfit.setdefault(reason, []).append(column.name)
        gone = {name for names in unfit.values() for name in names}
        self.columns = [column for column in self.columns if column.name not in gone]
        notes += [f"left out, {reason}: {listed(names, str)}" for reason, names in unfit.items()]

    def moments(
        self, name: str | None, types: Mapping[str, str], named: bool, notes: list[str]
    ) -> npt.NDArray[np.int64] | None:
        """Microseconds since 1970 of each row, where there is a column that says when."""
        if name is None:
            return None
        quoted, held = quote_name(name), types[name]
        sql = f"TRY_CAST(TRY_CAST({quoted} AS DOUBLE) * 1000000 AS BIGINT)"
        if held.startswith(("TIMESTAMP", "DATE")):
            sql = f"EPOCH_US({quoted})"
        elif not NUMBER.match(held):
            sql = f"COALESCE(EPOCH_US(TRY_CAST({quoted} AS TIMESTAMP)), {sql})"
        sql = f"CASE WHEN {sql} BETWEEN {_FIRST_US} AND {_LAST_US} THEN {sql} END"
        found = self._arrow(f"{sql} AS moment")["moment"]
        if not found.null_count:
            return np.asarray(found.to_numpy(), dtype=np.int64)
        if named:
            accepted = (
                "a time of the years 1 to 9999, such as 2024-05-01 12:00:00 (UTC) or seconds since 1970"
            )
            self.refuse(name, found.is_null().to_numpy(), accepted)
        notes.append(
            f"column {name!r} is not used: it holds no time of the years 1 to 9999 in {found.null_count} rows"
        )
        return None

    def whole(
        self, moments: npt.NDArray[np.int64] | None, fill: float | None, notes: list[str]
    ) -> Measurements:
        """The rows that have every value."""
        rows = np.column_stack([column.values for column in self.columns])
        missing = np.column_stack([column.missing for column in self.columns])
        if fill is not None:
            rows[:, 2:][missing[:, 2:]] = fill
            for at, column in enumerate(self.columns):
                if column.texts is not None:
                    rows[missing[:, at], at] = OTHER
            missing[:, 2:] = False
        kept = np.flatnonzero(~missing.any(axis=1))
        if not len(kept):
            raise InputError(f"{self.source}: a value is missing in every row; expected complete rows")
        if len(kept) < len(self):
            notes.append(f"{len(self) - len(kept)} of {len(self)} rows are left out: a value is missing")
        users, ids = _codes(self._users, kept)
        return Measurements(
            rows[kept],
            tuple(column.name for column in self.columns),
            users,
            ids,
            None if moments is None else moments[kept],
            kept,
            self.source,
            tuple(notes),
            texts={each.name: each.texts for each in self.columns if each.texts is not None},
        )


def _codes(
    users: pyarrow.ChunkedArray, kept: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Dense codes in order of the ids, and the ids."""
    encoded = users.combine_chunks().take(kept).dictionary_encode()
    ids = encoded.dictionary.to_pylist()
    order = sorted(range(len(ids)), key=ids.__getitem__)
    codes = np.empty(len(ids), dtype=np.int64)
    codes[order] = np.arange(len(ids))
    return codes[encoded.indices.to_numpy()], tuple(str(ids[at]) for at in order)


def _check(rows: _Rows, base: Sequence[_Column], fill: float | None) -> None:
    """Places and signal strengths that cannot be."""
    rows.refuse_odd(base)
    lat, lon, signal = base
    rows.refuse(lat.name, np.abs(lat.values) > 90, "a latitude from -90 to 90 degrees")
    rows.refuse(lon.name, np.abs(lon.values) > 180, "a longitude from -180 to 180 degrees")
    span = f"from {WEAKEST_DBM:g} to {STRONGEST_DBM:g} dBm"
    outside = (signal.values < WEAKEST_DBM) | (signal.values > STRONGEST_DBM)
    rows.refuse(signal.name, outside, f"a signal strength {span}, or null where there is none")
    fits = fill is None or WEAKEST_DBM <= fill <= STRONGEST_DBM or not signal.missing.any()
    check(fits, "fill", f"{span} where a signal strength is missing", fill)


def _unfit(column: _Column, fill: float | None, category: bool) -> str | None:
    """The reason to leave out a feature, if there is one."""
    missing = int(column.missing.sum())
    if category and np.unique(column.values[~column.missing]).size > MOST_VALUES:
        return f"categories of more than {MOST_VALUES:,} values"
    if column.unread.any():
        return "not numbers"
    if missing == len(column.values):
        return "missing in every row"
    if fill is None and missing > _MOST_MISSING * len(column.values):
        return f"missing in more than {_MOST_MISSING:.0%} of the rows"
    if fill is not None and missing:
        return None
    if column.same_between(0.0, 1.0):
        return "the same in every row"
    return "the same in all but one row in a thousand" if column.same_between(0.0005, 0.9995) else None
