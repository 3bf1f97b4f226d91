"""Which column of a table is the user, the longitude, the latitude and so on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from mapveil.errors import InputError
from mapveil.geo.points import Columns, Expressions
from mapveil.geo.tables import quote_name

__all__ = ["USUAL_NAMES", "FoundColumns", "find_columns"]

USUAL_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "user": (
        *("userid", "user", "uid", "deviceid", "device", "personid", "person", "participantid"),
        *(
            "participant",
            "subscriberid",
            "subscriber",
            "memberid",
            "clientid",
            "accountid",
            "adid",
            "maid",
            "caid",
        ),
    ),
    "lon": ("lon", "longitude", "lng", "long", "x"),
    "lat": ("lat", "latitude", "y"),
    "time": ("time", "timestamp", "datetime", "checkintime", "date", "day", "ts"),
    "weight": ("weight", "count", "visits"),
    "label": ("label", "category"),
}
"""Names looked for, best first; case, spaces, ``_``, ``-`` and ``.`` in a column's name do not matter."""

_NUMBER: Final = re.compile(
    r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|REAL|DECIMAL.*|BIGNUM|VARINT)$"
)
_LISTED: Final = 12


class FoundColumns(NamedTuple):
    """Where the canonical columns are and how they are computed."""

    columns: Columns
    expressions: Expressions


def find_columns(source: str, types: Mapping[str, str], given: Mapping[str, str | None]) -> FoundColumns:
    """Find the columns by the names given, or else by their usual names.

    Parameters
    ----------
    source : str
        What messages call the table.
    types : mapping of str to str
        SQL type of each column.
    given : mapping of str to str or None
        The name of a column, for each key of :data:`USUAL_NAMES`; None to look for it.

    Raises
    ------
    InputError
        A column is not there, could be several, or cannot hold what it should.
    """
    found = {kind: _find(kind, source, types, given.get(kind)) for kind in USUAL_NAMES}
    user, lon, lat = found["user"], found["lon"], found["lat"]
    if lon is None or lat is None:
        missing = " and ".join(kind for kind in ("lon", "lat") if found[kind] is None)
        raise InputError(
            f"{source}: no {missing} column among {_listed(types)}; usual names (lon, longitude, lat, "
            "latitude) or lon=NAME and lat=NAME are accepted"
        )
    if user is None:
        raise InputError(
            f"{source}: no column of user ids among {_listed(types)}; promises are made to users, so a "
            "usual name (user_id, uid, device_id) or user=NAME is needed"
        )
    numbers = {kind: _number(kind, source, found[kind], types) for kind in ("lon", "lat", "weight")}
    names = {kind: name and quote_name(name) for kind, name in found.items()}
    return FoundColumns(
        Columns(user, lon, lat, found["time"], found["weight"], found["label"]),
        Expressions(
            _user(user, types),
            numbers["lon"] or "",
            numbers["lat"] or "",
            names["time"],
            numbers["weight"],
            names["label"],
        ),
    )


def _find(kind: str, source: str, types: Mapping[str, str], given: str | None) -> str | None:
    if given is not None:
        exact = [name for name in types if name == given]
        close = exact or [name for name in types if name.lower() == given.lower()]
        if not close:
            raise InputError(f"{source}: no column {given!r} for {kind}; its columns are {_listed(types)}")
        return close[0]
    for usual in USUAL_NAMES[kind]:
        same = [name for name in types if re.sub(r"[\s_.\-]", "", name.lower()) == usual]
        if len(same) > 1:
            raise InputError(
                f"{source}: columns {' and '.join(map(repr, same))} could both be {kind}; "
                f"{kind}=NAME is accepted"
            )
        if same:
            return same[0]
    return None


def _number(kind: str, source: str, name: str | None, types: Mapping[str, str]) -> str | None:
    if name is None:
        return None
    if types[name] == "VARCHAR":
        return f"TRY_CAST({quote_name(name)} AS DOUBLE)"
    if not _NUMBER.match(types[name]):
        held = types[name].split("(")[0].lower()
        raise InputError(
            f"{source}: column {name!r} for {kind} holds values of type {held}; numbers are accepted"
        )
    return f"CAST({quote_name(name)} AS DOUBLE)"


def _user(name: str, types: Mapping[str, str]) -> str:
    quoted = quote_name(name)
    # A missing id in a column of floats is NaN, which must not become one large user.
    return (
        f"CASE WHEN NOT ISNAN({quoted}) THEN {quoted} END" if types[name] in ("FLOAT", "DOUBLE") else quoted
    )


def _listed(types: Mapping[str, str]) -> str:
    names = list(types)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(repr(name) for name in names[:_LISTED]) + more
