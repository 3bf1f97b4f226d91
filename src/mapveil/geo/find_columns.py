"""Find the columns of users, longitudes, latitudes and so on in a table."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mapveil.geo.point_query import Columns
from mapveil.geo.tables import Place, quote_name
from mapveil_client.errors import InputError

USUAL_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "user": (
        *("userid", "user", "uid", "personid", "person", "participantid", "participant"),
        *("deviceid", "device", "adid", "maid", "caid"),
        *("subscriberid", "subscriber", "memberid", "clientid", "accountid"),
    ),
    "lon": ("lon", "longitude", "lng", "long", "x"),
    "lat": ("lat", "latitude", "y"),
    "time": ("time", "timestamp", "datetime", "checkintime", "date", "day", "ts"),
    "weight": (),
    "label": ("label", "category"),
}
"""Names looked for, best first; case, spaces, ``_``, ``-`` and ``.`` in a column's name do not matter.

Weights are asked for by name only: they change how much each location counts.
"""

_LIKE_WEIGHTS: Final = ("weight", "weights", "count", "counts", "visits")

NUMBER: Final = re.compile(
    r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|REAL|DECIMAL.*|BIGNUM|VARINT)$"
)
"""SQL types of numbers."""

_LISTED: Final = 12


class FoundColumns(NamedTuple):
    """Where the canonical columns are; see :class:`mapveil.geo.point_query.PointQuery`."""

    columns: Columns
    expressions: Columns
    written: Columns | None = None


def find_columns(
    source: str,
    types: Mapping[str, str],
    given: Mapping[str, str | None],
    place: Place | None = None,
) -> FoundColumns:
    """Find the columns of a table (``source`` in messages) by the names given, or else by their usual names.

    An :class:`InputError` where a column is missing, ambiguous, or of another type than it needs.

    Parameters
    ----------
    types : mapping of str to str
        SQL type of each column.
    given : mapping of str to str or None
        Name of a column, for each key of :data:`USUAL_NAMES`; None to look for it.
    place : Place, optional
        Column of geometries instead of lon and lat.
    """
    sought = [kind for kind in USUAL_NAMES if place is None or kind not in ("lon", "lat")]
    found = {kind: find_column(kind, source, types, given.get(kind), USUAL_NAMES[kind]) for kind in sought}
    missing = [kind for kind in ("lon", "lat") if kind in sought and found[kind] is None]
    if missing:
        raise InputError(
            f"{source}: no {' and no '.join(missing)} column among {listed(types)}; expected usual "
            "names (lon, longitude, lat, latitude) or lon=NAME and lat=NAME (--lon NAME and --lat NAME)"
        )
    if found["user"] is None:
        raise InputError(
            f"{source}: no column of user ids among {listed(types)}; promises are made to users, so a "
            "usual name (user_id, uid, device_id) or user=NAME (--user NAME) is needed"
        )
    names = {kind: name for kind, name in found.items() if name is not None}
    computed = {
        kind: _expression(kind, source, name, types, commas=kind in ("lon", "lat"))  # no degrees in thousands
        for kind, name in names.items()
    }
    if place is None:
        return FoundColumns(Columns(**names), Columns(**computed))
    written = {kind: quote_name(name) for kind, name in names.items()}
    return FoundColumns(
        Columns(**names, lon=place.column, lat=place.column),
        Columns(**computed, lon=place.lon, lat=place.lat),
        Columns(**written, lon=place.written, lat=place.written),
    )


class Coordinate(NamedTuple):
    """One coordinate of a reference system."""

    column: str
    expression: str  # SQL of type DOUBLE


def find_coordinates(
    source: str, types: Mapping[str, str], x: str | None, y: str | None
) -> tuple[Coordinate, Coordinate]:
    """Find the columns of easting and northing by the names given, or else by their usual names.

    An :class:`InputError` where one is missing, ambiguous or of another type than numbers.
    """
    made = []
    for kind, given, usual in (("lon", x, ("easting", "x")), ("lat", y, ("northing", "y"))):
        name = find_column(kind, source, types, given, (*usual, *USUAL_NAMES[kind]))
        if name is None:
            raise InputError(
                f"{source}: no {usual[0]} column among {listed(types)}; expected usual names (easting, northing, x, y) "
                "or lon=NAME and lat=NAME (--lon NAME and --lat NAME)"
            )
        made.append(Coordinate(name, _expression(kind, source, name, types)))
    return made[0], made[1]


def has_usual_place(types: Mapping[str, str]) -> bool:
    """Whether columns are named like a longitude and a latitude (x and y alone could be anything)."""
    plain = {_plain(name) for name in types}
    return all(plain & set(USUAL_NAMES[kind]) - {"x", "y"} for kind in ("lon", "lat"))


def like_weights(types: Mapping[str, str]) -> list[str]:
    """Columns whose names suggest weights."""
    return [name for name in types if _plain(name) in _LIKE_WEIGHTS]


def _plain(name: str) -> str:
    """Lower case without spaces and marks, so that usual names are found however they are written."""
    return re.sub(r"[\s_.\-]", "", name.lower())


def find_column(
    kind: str, source: str, types: Mapping[str, str], given: str | None, usual_names: Sequence[str]
) -> str | None:
    """Find one column by the name given, whatever its case, or else by its usual names; None where there is none."""
    if given is not None:
        exact = [name for name in types if name == given]
        close = exact or [name for name in types if name.lower() == given.lower()]
        if not close:
            raise InputError(f"{source}: no column {given!r} for {kind}; its columns are {listed(types)}")
        return close[0]
    for usual in usual_names:
        same = [name for name in types if _plain(name) == usual]
        if len(same) > 1:
            raise InputError(
                f"{source}: columns {' and '.join(map(repr, same))} could both be {kind}; expected {kind}=NAME"
            )
        if same:
            return same[0]
    return None


def _expression(kind: str, source: str, name: str, types: Mapping[str, str], *, commas: bool = False) -> str:
    """SQL of a canonical column; ``commas``: whether a comma in a number's text can only be a decimal mark."""
    quoted, held = quote_name(name), types[name]
    if kind == "user" and held in ("FLOAT", "DOUBLE"):
        # A missing id in a column of floats is NaN, which must not become one large user. DuckDB takes ISNAN for false
        # where a Parquet file's statistics, which never tell of NaN, bound the column.
        return f"CASE WHEN isfinite({quoted}) OR isinf({quoted}) THEN {quoted} END"
    if kind not in ("lon", "lat", "weight"):
        return quoted
    if held == "VARCHAR":
        # DuckDB may move a plain TRY_CAST into its CSV reader, where text that is no number is an error of the file.
        plain = f"TRY_CAST(TRIM({quoted}) AS DOUBLE)"
        if not commas:
            return plain
        return f"COALESCE({plain}, TRY_CAST(REPLACE(TRIM({quoted}), ',', '.') AS DOUBLE))"
    if not NUMBER.match(held):
        shown = held.split("(")[0].lower()
        raise InputError(f"{source}: column {name!r} for {kind} is of type {shown}; expected numbers")
    return f"CAST({quoted} AS DOUBLE)"


def listed(names: Iterable[str], show: Callable[[str], str] = repr) -> str:
    """The first names of a table's columns, for messages."""
    shown = [name for name in names if not name.startswith("mapveil_")]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(show(name) for name in shown[:_LISTED]) + more if shown else "none"
